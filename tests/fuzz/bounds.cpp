#include "bounds.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace rove_fuzz {

using rove::Index;

namespace {

/// Replaces the sizes in the oracle's results by those of rows whose every product counts.
void count_every_product(const rove::dense::AttentionInput& in, const FrameSizes& sizes, Index b,
                         rove::dense::AttentionResult& result) {
  using namespace rove::dense::detail;
  if (!sizes.query && !sizes.key && !sizes.value && !sizes.output) return;
  const auto through = [b](const auto& size, const Eigen::MatrixXd& rows) {
    RowMatrix all = rows.cwiseAbs();
    if (!size) return all;
    for (Index t = 0; t < rows.rows(); ++t) all.row(t) = times(size(b, t), all.row(t));
    return all;
  };
  const RowMatrix q = turned_inverse_transposed(in.q, in.query_frame, "query_frame");
  const RowMatrix k = turned(in.k, in.key_frame, "key_frame");
  const RowMatrix q_size = through(sizes.query, in.q);
  const RowMatrix k_size = through(sizes.key, in.k);
  const RowMatrix v_size = through(sizes.value, in.v);
  const double scale = scale_of(in);
  for (Index i = 0; i < in.q.rows(); ++i) {
    const Row row = row_of(in, q, k, scale, i);
    if (std::isnan(result.logit_size(i))) continue;
    const double largest = in.sink ? std::max(row.largest, *in.sink) : row.largest;
    Eigen::RowVectorXd magnitude = Eigen::RowVectorXd::Zero(in.v.cols());
    Eigen::RowVectorXd tail = magnitude;
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      const Index j = row.keys[n];
      magnitude += result.weights(i, j) * v_size.row(j);
      const double all_products = std::abs(scale) * q_size.row(i).dot(k_size.row(j));
      const double counted = std::abs(scale) * q.row(i).cwiseAbs().dot(k.row(j).cwiseAbs());
      const double size = row.logit_sizes[n] - counted + all_products;
      if (row.logits[n] == -std::numeric_limits<double>::infinity()) continue;
      if (is_tail(row.logits[n], largest)) tail += v_size.row(j);
      if (!is_tail_for_sure(row.logits[n], size, largest)) {
        result.logit_size(i) = std::max(result.logit_size(i), size);
      }
    }
    if (sizes.output) {
      magnitude = times(sizes.output(b, i), magnitude);
      tail = times(sizes.output(b, i), tail);
    }
    result.magnitude.row(i) = magnitude;
    result.tail.row(i) = tail;
    // Where no product counts there is nothing but what the oracle's inversion by elimination left.
    for (Index d = 0; d < magnitude.size(); ++d) {
      if (magnitude(d) == 0 && tail(d) == 0) result.out(i, d) = 0;
    }
  }
}

}  // namespace

rove_test::Expectation::Head expected_head(const rove::dense::AttentionInput& in, const FrameSizes& sizes,
                                           rove::Index b, Rounding rounding, double constant) {
  rove_test::Expectation::Head head{rove::dense::attention(in), {}, {}};
  count_every_product(in, sizes, b, head.result);
  head.bound = rove::dense::error_bound(head.result, rounding.accumulators, rounding.output, constant);
  head.lse_bound = rove::dense::lse_error_bound(head.result, rounding.accumulators, constant);
  return head;
}

}  // namespace rove_fuzz

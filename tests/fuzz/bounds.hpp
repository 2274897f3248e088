/// \file
/// The error bound where frames may cancel.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "rove/dense/dense.hpp"
#include "support/oracle.hpp"

namespace rove_fuzz {

/// |R⁻ᵀ|, |R|, |R| and |R⁻¹| of the four roles, or more; empty: the identity.
using FrameSizes = rove_test::FrameMatrices;

/// Replaces the sizes in the oracle's results by those of rows whose every product counts:
///
///     |R_i⁻¹| Σ_j A_ij |R_j| |v_j|   and   |scale| Σ_c (|R_i⁻ᵀ| |q_i|)_c (|R_j| |k_j|)_c + |added score|
///
/// `dense::error_bound` takes |R_j v_j| instead, which is smaller where products cancel; inputs that are
/// searched for find such rows.
inline void count_every_product(const rove::dense::AttentionInput& in, const FrameSizes& sizes, rove::Index b,
                                rove::dense::AttentionResult& result) {
  using namespace rove::dense::detail;
  using rove::Index;
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
  }
}

}  // namespace rove_fuzz

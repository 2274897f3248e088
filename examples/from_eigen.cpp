// Attention on Eigen's matrices where they lie: a projection gives tokens × (heads · channels), and nothing
// is copied. Judged by the oracle, `rove::dense`, which evaluates the formula as written, in double, one head
// at a time.
#include <Eigen/Core>

#include <cstdio>
#include <random>
#include <rove/dense/dense.hpp>
#include <rove/eigen.hpp>
#include <rove/rove.hpp>

namespace {

using rove::Index;
using RowMajorMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr Index tokens = 24, heads = 4, kv_heads = 2, channels = 16;
constexpr double rope_theta = 1e4;

// y_i = R_i⁻¹ Σ_j A_ij R_j v_j of one head, causal.
rove::dense::AttentionResult by_formula(const Eigen::MatrixXd& q, const Eigen::MatrixXd& k,
                                        const Eigen::MatrixXd& v) {
  const auto frame = [](Index t) {
    return rove::dense::rotation_matrix(channels, rove::dense::inverse_frequencies(channels, rope_theta),
                                        static_cast<double>(t), rove::dense::Pairing::half_split);
  };
  rove::dense::AttentionInput head;
  head.q = q;
  head.k = k;
  head.v = v;
  head.visible = [](Index i, Index j) { return j <= i; };
  head.query_frame = head.key_frame = head.value_frame = head.output_frame = frame;
  return rove::dense::attention(head);
}

}  // namespace

int main() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto draw = [&] { return normal(random); };

  // Any order, any block, any map: queries in columns; keys and values side by side in one row-major matrix.
  const Eigen::MatrixXf q = Eigen::MatrixXf::NullaryExpr(tokens, heads * channels, draw);
  const RowMajorMatrix kv = RowMajorMatrix::NullaryExpr(tokens, 2 * kv_heads * channels, draw);
  const auto k = kv.leftCols(kv_heads * channels), v = kv.rightCols(kv_heads * channels);
  RowMajorMatrix y(tokens, heads * channels);
  Eigen::MatrixXf lse(heads, tokens);

  const auto frequencies = rove::rotary_frequencies({.rotary_dim = channels, .rope_theta = rope_theta});
  const rove::RotationTable<float> table(frequencies, rove::consecutive_positions(tokens));
  const rove::RotaryFrame frame(table, rove::Pairing::half_split);
  const auto problem = rove::attention_problem(rove::view(q, heads), rove::view(k, kv_heads),
                                               rove::view(v, kv_heads), rove::view(y, heads))
                           .with_mask(rove::causal())
                           .with_lse(rove::row_view(lse));
  rove::rove_attention(problem, frame);

  bool good = true;
  for (Index h = 0; h < heads; ++h) {
    // Head h is a block of columns; two query heads share one of keys and values.
    const Index kv_head = problem.kv_head(h);
    const auto expected = by_formula(q.middleCols(h * channels, channels).cast<double>(),
                                     k.middleCols(kv_head * channels, channels).cast<double>(),
                                     v.middleCols(kv_head * channels, channels).cast<double>());
    const Eigen::ArrayXXd error =
        (y.middleCols(h * channels, channels).cast<double>() - expected.out).cwiseAbs();
    const Eigen::ArrayXXd bound =
        rove::dense::error_bound(expected, rove::dense::Precision::float32, rove::dense::Storage::float32);
    const double lse_error = (lse.row(h).transpose().cast<double>() - expected.lse).cwiseAbs().maxCoeff();
    std::printf("head %d: largest error %.1e, at most %.2f of its bound; of log-sum-exps %.1e\n",
                static_cast<int>(h), error.maxCoeff(), (error / bound).maxCoeff(), lse_error);
    good = good && (error <= bound).all() && lse_error < 1e-5;
  }
  return good ? 0 : 1;
}

// Attention on Eigen matrices, where they lie: a projection's output is tokens × (heads · channels).
#include <Eigen/Core>

#include <cmath>
#include <cstdio>
#include <random>
#include <rove/eigen.hpp>
#include <rove/rove.hpp>

using RowMajorMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

namespace {

constexpr int tokens = 24, heads = 4, kv_heads = 2, channels = 16;

/// R_p · row: pair (i, i + channels / 2) turned by p · θ^(−2i / channels).
Eigen::RowVectorXd turned(const Eigen::RowVectorXd& row, int position, double theta) {
  Eigen::RowVectorXd result(row.size());
  const Eigen::Index half = row.size() / 2;
  for (Eigen::Index i = 0; i < half; ++i) {
    const double angle =
        position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(row.size()));
    result(i) = row(i) * std::cos(angle) - row(i + half) * std::sin(angle);
    result(i + half) = row(i) * std::sin(angle) + row(i + half) * std::cos(angle);
  }
  return result;
}

/// y_i = R_i⁻¹ Σ_j A_ij R_j v_j for one head, causal, as the formula is written.
Eigen::MatrixXd by_formula(const Eigen::MatrixXd& q, const Eigen::MatrixXd& k, const Eigen::MatrixXd& v,
                           double theta) {
  Eigen::MatrixXd y(q.rows(), v.cols());
  for (int i = 0; i < q.rows(); ++i) {
    Eigen::VectorXd weight(i + 1);
    Eigen::RowVectorXd sum = Eigen::RowVectorXd::Zero(v.cols());
    for (int j = 0; j <= i; ++j) {
      weight(j) = std::exp(turned(q.row(i), i, theta).dot(turned(k.row(j), j, theta)) / std::sqrt(channels));
      sum += weight(j) * turned(v.row(j), j, theta);
    }
    y.row(i) = turned(sum / weight.sum(), -i, theta);
  }
  return y;
}

}  // namespace

int main() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto draw = [&] { return normal(random); };

  // Queries in columns; keys and values in the halves of one row-major matrix: any layout will do.
  Eigen::MatrixXf q = Eigen::MatrixXf::NullaryExpr(tokens, heads * channels, draw);
  RowMajorMatrix kv = RowMajorMatrix::NullaryExpr(tokens, 2 * kv_heads * channels, draw);
  RowMajorMatrix y(tokens, heads * channels);

  const auto problem =
      rove::attention_problem(rove::view(q, heads), rove::view(kv.leftCols(kv_heads * channels), kv_heads),
                              rove::view(kv.rightCols(kv_heads * channels), kv_heads), rove::view(y, heads))
          .with_mask(rove::causal());
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = channels, .rope_theta = 1e4});
  const auto frame =
      rove::RotaryFrame(rove::RotationTable<float>(frequencies, rove::consecutive_positions(tokens)),
                        rove::Pairing::half_split);
  rove::rove_attention(problem, frame);

  double worst = 0;
  for (int h = 0; h < heads; ++h) {
    const int g = h / (heads / kv_heads);
    const Eigen::MatrixXd expected =
        by_formula(q.middleCols(h * channels, channels).cast<double>(),
                   kv.middleCols(g * channels, channels).cast<double>(),
                   kv.middleCols((kv_heads + g) * channels, channels).cast<double>(), 1e4);
    const Eigen::MatrixXd got = y.middleCols(h * channels, channels).cast<double>();
    worst = std::fmax(worst, (got - expected).cwiseAbs().maxCoeff());
  }
  std::printf("RoVE on Eigen matrices: largest difference from the formula in double %.2e\n", worst);
  // Results are of size 1; float's 2^-24 through 16 channels and 24 keys stays below.
  return worst < 1e-5 ? 0 : 1;
}

// A frame of one's own: an invertible 2 × 2 matrix per token, which is no rotation, so that all four actions
// differ. Then the laws that any frame obeys, as a small suite to put one's own through.
#include <Eigen/Core>
#include <Eigen/LU>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <rove/rove.hpp>
#include <span>
#include <utility>
#include <vector>

#include "support/real_layer.hpp"

namespace {

using rove::Index;

// R_t is `matrices[t]` on every pair (2i, 2i + 1) of channels.
//
// A frame has these seven members. It may also say `static constexpr bool is_orthogonal` and
// `is_one_parameter` (R_a R_b = R_{a+b}) where they hold; this one is neither.
class PairMatrixFrame {
 public:
  PairMatrixFrame(const std::vector<Eigen::Matrix2d>& matrices, Index channels) : channels_(channels) {
    std::vector<Actions> actions;
    for (const Eigen::Matrix2d& r : matrices) actions.push_back({r, r.inverse()});
    actions_ = std::make_shared<const std::vector<Actions>>(std::move(actions));
  }

  Index batch() const { return 1; }  // all batch rows share the matrices
  Index tokens() const { return static_cast<Index>(actions_->size()); }
  Index channels() const { return channels_; }

  // row ← M row in place, for float and double rows, with M one of R, R⁻¹, Rᵀ and R⁻ᵀ.
  template <rove::Accumulator T>
  void apply(Index /*batch*/, Index t, std::span<T> row) const {
    multiply(at(t).forward, row);
  }
  template <rove::Accumulator T>
  void inverse(Index, Index t, std::span<T> row) const {
    multiply(at(t).back, row);
  }
  template <rove::Accumulator T>
  void transpose(Index, Index t, std::span<T> row) const {
    multiply(at(t).forward.transpose(), row);
  }
  template <rove::Accumulator T>
  void inverse_transpose(Index, Index t, std::span<T> row) const {
    multiply(at(t).back.transpose(), row);
  }

 private:
  struct Actions {
    Eigen::Matrix2d forward, back;
  };

  const Actions& at(Index t) const { return (*actions_)[static_cast<std::size_t>(t)]; }

  template <class Matrix, class T>
  void multiply(const Matrix& matrix, std::span<T> row) const {
    const T xx = static_cast<T>(matrix(0, 0)), xy = static_cast<T>(matrix(0, 1));
    const T yx = static_cast<T>(matrix(1, 0)), yy = static_cast<T>(matrix(1, 1));
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels_); c += 2) {
      const T x = row[c], y = row[c + 1];
      // Roundings spelt out: compilers would otherwise fuse an fma here and none there.
      row[c] = rove::mul_add(xy, y, xx * x);
      row[c + 1] = rove::mul_add(yy, y, yx * x);
    }
  }

  Index channels_;
  std::shared_ptr<const std::vector<Actions>>
      actions_;  // a call copies its frames: copies share the matrices
};

// Every token has a zoom and a shear of its own.
std::vector<Eigen::Matrix2d> zooms_and_shears(Index tokens) {
  std::vector<Eigen::Matrix2d> matrices;
  for (Index t = 0; t < tokens; ++t) {
    const double zoom = 1 + 0.3 * std::sin(0.7 * static_cast<double>(t));
    const double shear = 0.5 * std::cos(0.3 * static_cast<double>(t));
    matrices.push_back(Eigen::Matrix2d{{zoom, shear}, {0, 1}});
  }
  return matrices;
}

// The formula in double, by loops over all pairs. Only R_i⁻¹ R_j appears in it:
//   s_ij = scale ⟨R_i⁻ᵀ q_i, R_j k_j⟩ = scale q_iᵀ (R_i⁻¹ R_j) k_j
//   y_i  = R_i⁻¹ Σ_j A_ij R_j v_j     = Σ_j A_ij (R_i⁻¹ R_j) v_j
std::vector<float> by_formula(const support::RealLayer& layer, const std::vector<Eigen::Matrix2d>& r) {
  const auto q = support::view(layer.q), k = support::view(layer.k), v = support::view(layer.v);
  const Index group = layer.heads() / layer.kv_heads();
  const auto pair = [](const float* row, Index c) { return Eigen::Vector2d(row[c], row[c + 1]); };
  std::vector<float> out;
  for (Index h = 0; h < q.heads(); ++h) {
    for (Index i = 0; i < q.tokens(); ++i) {
      std::vector<double> sum(static_cast<std::size_t>(v.channels()));
      double denominator = 0;
      for (Index j = 0; j <= i; ++j) {  // causal
        const Eigen::Matrix2d relative =
            r[static_cast<std::size_t>(i)].inverse() * r[static_cast<std::size_t>(j)];
        double dot = 0;
        for (Index c = 0; c < q.channels(); c += 2) {
          dot += pair(q.row(0, h, i), c).dot(relative * pair(k.row(0, h / group, j), c));
        }
        const double weight = std::exp(dot / std::sqrt(static_cast<double>(q.channels())));
        denominator += weight;
        for (Index c = 0; c < v.channels(); c += 2) {
          const Eigen::Vector2d turned = weight * (relative * pair(v.row(0, h / group, j), c));
          sum[static_cast<std::size_t>(c)] += turned(0);
          sum[static_cast<std::size_t>(c + 1)] += turned(1);
        }
      }
      for (const double x : sum) out.push_back(static_cast<float>(x / denominator));
    }
  }
  return out;
}

// The four actions against one another, on every token: R⁻¹ R x = x, ⟨R x, y⟩ = ⟨x, Rᵀ y⟩ and
// ⟨R⁻ᵀ x, R y⟩ = ⟨x, y⟩, the last of which is why logits do not depend on the frame of one's choice.
template <class Frame>
double worst_action(const Frame& frame) {
  const Eigen::VectorXd x = Eigen::VectorXd::LinSpaced(frame.channels(), -1, 2);
  const Eigen::VectorXd y = x.array().cos();
  const auto span = [](Eigen::VectorXd& row) {
    return std::span(row.data(), static_cast<std::size_t>(row.size()));
  };
  double worst = 0;
  for (Index t = 0; t < frame.tokens(); ++t) {
    Eigen::VectorXd rx = x, ry = y, back = x, transposed = y, dual = x;
    frame.apply(0, t, span(rx));
    frame.apply(0, t, span(ry));
    frame.apply(0, t, span(back));
    frame.inverse(0, t, span(back));
    frame.transpose(0, t, span(transposed));
    frame.inverse_transpose(0, t, span(dual));
    worst = std::fmax(worst, (back - x).cwiseAbs().maxCoeff());
    worst = std::fmax(worst, std::abs(rx.dot(y) - x.dot(transposed)));
    worst = std::fmax(worst, std::abs(dual.dot(ry) - x.dot(y)));
  }
  return worst;
}

bool at_most(const char* law, double difference, double limit) {
  const bool good = difference <= limit;  // NaN is not
  std::printf("%-62s %.1e  %s\n", law, difference, good ? "ok" : "WRONG");
  return good;
}

}  // namespace

int main() {
  const support::RealLayer layer;
  const std::vector<Eigen::Matrix2d> matrices = zooms_and_shears(layer.tokens());
  const PairMatrixFrame frame(matrices, layer.channels());

  std::vector<float> out(layer.q.values.size());
  const auto causal =
      rove::attention_problem(support::view(layer.q), support::view(layer.k), support::view(layer.v),
                              rove::bhtd(out.data(), 1, layer.heads(), layer.tokens(), layer.channels()))
          .with_mask(rove::causal());
  constexpr double rounding = 2e-5;  // float's 2⁻²⁴ times logits and values of size 10
  bool good = true;

  good &= at_most("the four actions fit together", worst_action(frame), 1e-12);

  rove::rove_attention(causal, frame);
  const std::vector<float> expected = by_formula(layer, matrices);
  good &= at_most("the operator is the formula", support::largest_difference(out, expected), rounding);

  // G R_t instead of R_t, for any G: nothing can tell.
  const PairMatrixFrame common({Eigen::Matrix2d{{0.8, -0.6}, {1.1, 0.7}}}, layer.channels());
  rove::rove_attention(causal, rove::left_factor(common, frame));
  good &=
      at_most("a common left factor changes nothing", support::largest_difference(out, expected), rounding);

  // A token that sees itself alone gets its own value, whatever its frame: R_i⁻¹ R_i = 1. Three query heads
  // read one value head.
  rove::rove_attention(causal.with_mask(rove::window(1)), frame);
  std::vector<float> values;
  const auto v = support::view(layer.v);
  for (Index h = 0; h < layer.heads(); ++h) {
    const float* head = v.row(0, h / (layer.heads() / layer.kv_heads()), 0);
    values.insert(values.end(), head, head + layer.tokens() * layer.channels());
  }
  good &= at_most("identity weights give v", support::largest_difference(out, values), 1e-5);

  // The usual slip, harmless for rotations alone: queries turned by R, as keys are. A frame whose R⁻ᵀ is that
  // R does it.
  std::vector<Eigen::Matrix2d> slip;
  for (const Eigen::Matrix2d& r : matrices) slip.push_back(r.inverse().transpose());
  rove::attention(causal, rove::rove_frames(PairMatrixFrame(slip, layer.channels()), frame, frame));
  const double off = support::largest_difference(out, expected);
  std::printf("%-62s %.1e\n", "queries turned by R, not its inverse transpose: off by", off);
  return good && off > 0.1 ? 0 : 1;
}

/// \file
/// Frames of every kind, each with its matrix beside it.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "rove/dense/rotation.hpp"
#include "rove/frame/adaptors.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/position/factored_rotation_table.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"
#include "support/frames.hpp"

namespace rove_fuzz {

using Eigen::MatrixXd;

/// A frame and what it is. Queries use R / s on the channels that turn.
template <class Acc>
struct PlannedFrame {
  using Matrix = std::function<MatrixXd(Index b, Index t, double s)>;
  rove_test::AnyFrame<Acc> frame;
  Matrix matrix;        ///< R
  Matrix size;          ///< at least |R|: an error of ε times it is no fault
  Matrix inverse_size;  ///< the same of R⁻¹
  double attention_factor = 1;
  double logit_factor = 1;
};

/// How many tokens of which width.
struct FrameShape {
  Index batch, tokens, width;
};

/// What a rotary frame is made of.
struct RotaryPlan {
  rove::RotaryFrequencies frequencies;
  rove::Pairing pairing{};
  Index first_channel = 0;
  Index batch = 1;
  std::vector<double> positions;  ///< [batch, tokens]
  Index tokens = 0;
  Index width = 0;  ///< of the rows
  bool backwards = false;

  double position(Index b, Index t) const {
    const double p = positions[static_cast<std::size_t>((batch == 1 ? 0 : b) * tokens + t)];
    return backwards ? -p : p;
  }
  MatrixXd matrix(Index b, Index t, double s) const {
    const Eigen::Map<const Eigen::VectorXd> inv_freq(frequencies.inv_freq.data(),
                                                     static_cast<Index>(frequencies.inv_freq.size()));
    MatrixXd r = rove::dense::rotation_matrix(width, inv_freq, position(b, t),
                                              rove_test::dense_pairing(pairing), first_channel);
    r.middleRows(first_channel, frequencies.rotary_dim()) /= s;
    return r;
  }
  /// |R| and what cosines and sines that were put together from two tables are off by.
  MatrixXd size(Index b, Index t, double s, double epsilon) const {
    MatrixXd r = matrix(b, t, 1).cwiseAbs();
    const Index pairs = frequencies.rotary_dim() / 2;
    for (Index pair = 0; pair < pairs; ++pair) {
      const auto [x, y] =
          rove::dense::pair_channels(pair, pairs, rove_test::dense_pairing(pairing), first_channel);
      const double phase = position(b, t) * frequencies.inv_freq[static_cast<std::size_t>(pair)];
      const double off = (std::abs(phase) * 0x1p-53 + 0x1p-50) / epsilon;
      r(x, x) += off, r(x, y) += off, r(y, x) += off, r(y, y) += off;
    }
    r.middleRows(first_channel, 2 * pairs) /= s;
    return r;
  }
};

inline RotaryPlan rotary_plan(Bytes& bytes, const FrameShape& shape, bool whole_positions) {
  RotaryPlan plan;
  plan.width = shape.width;
  plan.tokens = shape.tokens;
  const Index pairs = bytes.between(1, shape.width / 2);
  plan.first_channel = bytes.below(shape.width - 2 * pairs + 1);
  plan.pairing = bytes.pick({rove::Pairing::half_split, rove::Pairing::interleaved});
  plan.frequencies =
      rove::rotary_frequencies({.rotary_dim = 2 * pairs, .rope_theta = bytes.pick({10000.0, 100.0, 2.0})});
  plan.frequencies.attention_factor = bytes.pick({1.0, 1.25});
  plan.frequencies.logit_factor = bytes.pick({1.0, 1.5});
  plan.batch = bytes.one_in(2) ? (shape.batch > 0 ? shape.batch : 1) : 1;
  const Index order = bytes.below(whole_positions ? 2 : 3);
  const Index first = bytes.pick<Index>({0, 100, -7, 4000});
  Random random(bytes.seed());
  for (Index b = 0; b < plan.batch; ++b) {
    for (Index t = 0; t < plan.tokens; ++t) {
      double p = static_cast<double>(first + 3 * b + t);
      if (order == 1) p = static_cast<double>(random.below(8000) - 4000);
      if (order == 2) p += random.uniform();
      plan.positions.push_back(p);
    }
  }
  return plan;
}

template <class Acc>
PlannedFrame<Acc> planned(rove_test::AnyFrame<Acc> frame, const RotaryPlan& plan) {
  constexpr double epsilon = std::numeric_limits<Acc>::epsilon() / 2;
  const auto size = [plan](Index b, Index t, double s) { return plan.size(b, t, s, epsilon); };
  return {.frame = std::move(frame),
          .matrix = [plan](Index b, Index t, double s) { return plan.matrix(b, t, s); },
          .size = size,
          .inverse_size = [size](Index b, Index t, double s) -> MatrixXd {
            return size(b, t, 1 / s).transpose();
          },
          .attention_factor = plan.frequencies.attention_factor,
          .logit_factor = plan.frequencies.logit_factor};
}

/// D (I + N) with N² = 0 and D powers of two: its inverse is exact, and far from its transpose.
inline MatrixXd shear(Random& random, Index size) {
  MatrixXd r = MatrixXd::Identity(size, size);
  for (Index c = 0; c < size / 2; ++c) {
    for (Index e = size / 2; e < size; ++e) {
      if (random.below(3) == 0) r(c, e) = static_cast<double>(random.below(33) - 16) / 8;
    }
  }
  for (Index c = 0; c < size; ++c) r.row(c) *= std::ldexp(1.0, static_cast<int>(random.below(3)) - 1);
  return r;
}

/// R on the first channels of rows `width` wide; channels past those, of either, stay as they are.
inline MatrixXd embedded(const MatrixXd& r, Index width) {
  const Index both = std::min(r.rows(), width);
  MatrixXd whole = MatrixXd::Identity(width, width);
  whole.topLeftCorner(both, both) = r.topLeftCorner(both, both);
  return whole;
}

template <class Acc>
PlannedFrame<Acc> shear_frame(Bytes& bytes, const FrameShape& shape) {
  const Index batch = bytes.one_in(2) ? (shape.batch > 0 ? shape.batch : 1) : 1;
  const Index channels = bytes.between(1, shape.width);
  Random random(bytes.seed());
  std::vector<MatrixXd> matrices;
  for (Index n = 0; n < batch * shape.tokens; ++n) matrices.push_back(shear(random, channels));
  const auto at = [matrices, batch, shape](Index b, Index t) {
    return embedded(matrices[static_cast<std::size_t>((batch == 1 ? 0 : b) * shape.tokens + t)], shape.width);
  };
  return {.frame = rove_test::AnyFrame<Acc>(rove_test::MatrixFrame<>(matrices, batch)),
          .matrix = [at](Index b, Index t, double) { return at(b, t); },
          .size = [at](Index b, Index t, double) -> MatrixXd { return at(b, t).cwiseAbs(); },
          .inverse_size = [at](Index b, Index t, double) -> MatrixXd {
            return rove_test::inverse_of(at(b, t)).cwiseAbs();
          }};
}

/// A frame of any kind over rows of `shape.width` channels.
template <class Acc>
PlannedFrame<Acc> make_frame(Bytes& bytes, const FrameShape& shape) {
  using rove::RotaryFrame;
  using rove_test::AnyFrame;
  using Table = rove::RotationTable<Acc>;
  const auto positions = [](const RotaryPlan& plan) {
    return rove::Positions(std::span<const double>(plan.positions), plan.batch);
  };
  const Index kind = bytes.below(7);
  if (shape.width < 2 || (kind == 1 && shape.tokens <= 64)) return shear_frame<Acc>(bytes, shape);
  RotaryPlan plan = rotary_plan(bytes, shape, kind == 2);
  const auto rotary = [&](const auto& table) { return RotaryFrame(table, plan.pairing, plan.first_channel); };
  switch (kind) {
    case 2:
      return planned(
          AnyFrame<Acc>(rotary(rove::FactoredRotationTable<Acc>(plan.frequencies, positions(plan)))), plan);
    case 3: {  // a longer table, looked up
      Random random(bytes.seed());
      std::vector<std::int32_t> ids;
      plan.positions.clear();
      for (Index n = 0; n < plan.batch * plan.tokens; ++n) {
        ids.push_back(static_cast<std::int32_t>(random.below(300)));
        plan.positions.push_back(static_cast<double>(ids.back()) - 50);
      }
      return planned(AnyFrame<Acc>(RotaryFrame(Table(plan.frequencies, rove::consecutive_positions(300, -50)),
                                               ids, plan.pairing, plan.first_channel, plan.batch)),
                     plan);
    }
    case 4: {  // some rows of a longer frame
      const Index before = bytes.below(5), after = bytes.below(3);
      const Index total = before + plan.tokens + after;
      std::vector<double> longer(static_cast<std::size_t>(plan.batch * total), 77);
      for (Index b = 0; b < plan.batch; ++b) {
        for (Index t = 0; t < plan.tokens; ++t) {
          longer[static_cast<std::size_t>(b * total + before + t)] = plan.position(b, t);
        }
      }
      const Table table(plan.frequencies, rove::Positions(std::span<const double>(longer), plan.batch));
      return planned(AnyFrame<Acc>(rove::rows(rotary(table), before, plan.tokens)), plan);
    }
    case 5: {
      const AnyFrame<Acc> frame(rove::inverse_frame(rotary(Table(plan.frequencies, positions(plan)))));
      plan.backwards = true;
      return planned(frame, plan);
    }
    case 6: {
      Random random(bytes.seed());
      const MatrixXd g = shear(random, shape.width), back = rove_test::inverse_of(g);
      const auto inner = planned(AnyFrame<Acc>(rotary(Table(plan.frequencies, positions(plan)))), plan);
      PlannedFrame<Acc> both = inner;
      both.frame = AnyFrame<Acc>(
          rove::left_factor(rove_test::MatrixFrame<>({g}), rotary(Table(plan.frequencies, positions(plan)))));
      both.matrix = [=](Index b, Index t, double s) -> MatrixXd {
        return rove_test::product(g, inner.matrix(b, t, s));
      };
      both.size = [=](Index b, Index t, double s) -> MatrixXd {
        return rove_test::product(g.cwiseAbs(), inner.size(b, t, s));
      };
      // The oracle inverts the product by elimination, which leaves rounding where there should be zeros.
      both.inverse_size = [=](Index b, Index t, double s) -> MatrixXd {
        constexpr double epsilon = std::numeric_limits<Acc>::epsilon() / 2;
        const MatrixXd exact = rove_test::product(inner.inverse_size(b, t, s), back.cwiseAbs());
        const MatrixXd size = rove_test::product(g.cwiseAbs(), inner.size(b, t, s));
        return exact + 0x1p-48 / epsilon * rove_test::product(exact, rove_test::product(size, exact));
      };
      return both;
    }
    default:
      return planned(AnyFrame<Acc>(rotary(Table(plan.frequencies, positions(plan)))), plan);
  }
}

}  // namespace rove_fuzz

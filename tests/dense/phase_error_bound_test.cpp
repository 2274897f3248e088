// How far results may move when the phases of rotary frames do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "rove/dense/attention.hpp"
#include "rove/dense/error_bound.hpp"
#include "rove/dense/rotation.hpp"

namespace {

using rove::Index;
using namespace rove::dense;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// R_t with each phase moved by `error(t, pair)`.
FrameMatrix moved(const VectorXd& inv_freq, Pairing pairing, const MatrixXd& error) {
  return [=](Index t) {
    VectorXd phases = static_cast<double>(t) * inv_freq + error.row(t).transpose();
    return rotation_matrix(2 * inv_freq.size(), phases, 1, pairing);
  };
}

TEST(PhaseErrorBound, holds_for_phases_moved_as_far_as_they_may) {
  std::mt19937_64 engine(11);
  std::normal_distribution<double> normal;
  const Index n = 24;
  const Index d = 8;
  const auto random = [&] { return MatrixXd(MatrixXd::NullaryExpr(n, d, [&] { return normal(engine); })); };
  const VectorXd inv_freq = inverse_frequencies(d, 100);
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    for (const double size : {1e-7, 1e-3, 1e-2}) {
      SCOPED_TRACE(size);
      double largest = 0;
      for (int round = 0; round < 20; ++round) {
        AttentionInput in{.q = random(), .k = random(), .v = random()};
        in.visible = [](Index i, Index j) { return j <= i; };
        const FrameMatrix exact = moved(inv_freq, pairing, MatrixXd::Zero(n, d / 2));
        in.query_frame = in.key_frame = exact;
        if (round % 2) in.value_frame = in.output_frame = exact;
        const AttentionResult result = attention(in);
        const MatrixXd delta = MatrixXd::Constant(n, d / 2, size);
        const MatrixXd bound = phase_error_bound(in, result, delta, delta, pairing);
        const auto signs = [&] {
          return MatrixXd(MatrixXd::NullaryExpr(n, d / 2, [&] { return engine() % 2 ? size : -size; }));
        };
        in.query_frame = moved(inv_freq, pairing, signs());
        in.key_frame = moved(inv_freq, pairing, signs());
        const MatrixXd change = (attention(in).out - result.out).cwiseAbs();
        EXPECT_TRUE((change.array() <= bound.array() + 1e-14).all());
        largest = (std::max)(largest, (change.array() / (bound.array() + 1e-14)).maxCoeff());
      }
      EXPECT_GE(largest, 0.1);
    }
  }
}

TEST(PhaseErrorBound, is_infinite_where_the_phases_say_nothing) {
  AttentionInput in{.q = MatrixXd::Ones(1, 2), .k = MatrixXd::Ones(2, 2), .v = MatrixXd{{1, 2}, {3, 4}}};
  const AttentionResult result = attention(in);
  const MatrixXd one = MatrixXd::Ones(2, 1);
  EXPECT_EQ(phase_error_bound(in, result, one.topRows(1), one, Pairing::half_split)(0, 0), infinity);
}

TEST(PhaseErrorBound, refuses_phases_that_do_not_fit) {
  AttentionInput in{.q = MatrixXd::Ones(1, 2), .k = MatrixXd::Ones(2, 2), .v = MatrixXd::Ones(2, 2)};
  const AttentionResult result = attention(in);
  try {
    phase_error_bound(in, result, MatrixXd::Ones(1, 1), MatrixXd::Ones(3, 1), Pairing::half_split);
    FAIL() << "nothing thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "phases are 1 x 1 and 3 x 1 for 1 queries and 2 keys");
  }
  try {
    phase_error_bound(in, result, MatrixXd::Ones(1, 1), MatrixXd::Ones(2, 1), Pairing::half_split, 1);
    FAIL() << "nothing thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "rotary channels 1..3 do not fit into 2 channels");
  }
}

// Pairs that lie beyond other channels: the bound is theirs alone.
TEST(PhaseErrorBound, of_pairs_after_other_channels_is_that_of_the_pairs) {
  AttentionInput pairs{.q = MatrixXd{{3, -4, 1, 2}}, .k = MatrixXd::Ones(2, 4), .v = MatrixXd{{1}, {3}}};
  pairs.k.row(1) << 1, -2, 0.5, 1;
  pairs.scale = 0.1;
  AttentionInput wider = pairs;
  wider.q = MatrixXd::Zero(1, 7);
  wider.q.middleCols(2, 4) = pairs.q;
  wider.k = MatrixXd::Constant(2, 7, 9);
  wider.k.middleCols(2, 4) = pairs.k;
  const MatrixXd phase = MatrixXd::Constant(2, 2, 1e-3);
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const MatrixXd alone = phase_error_bound(pairs, attention(pairs), phase.topRows(1), phase, pairing);
    EXPECT_GT(alone(0, 0), 1e-4);
    EXPECT_DOUBLE_EQ(phase_error_bound(wider, attention(wider), phase.topRows(1), phase, pairing, 2)(0, 0),
                     alone(0, 0));
  }
}

TEST(PhaseErrorBound, float32_angles) {
  const MatrixXd error = float32_phase_error(VectorXd{{0, -2}}, VectorXd{{1, 0.25}});
  EXPECT_TRUE(error.isApprox(3 * 0x1p-24 * MatrixXd{{0, 0}, {2, 0.5}}, 1e-15));
  // What float32 really does to an angle: the frequency as Hugging Face computes it, times the position.
  for (int pair = 0; pair < 32; ++pair) {
    const float inv_freq = 1.0f / std::pow(100000.0f, static_cast<float>(2 * pair) / 64.0f);
    const double exact_freq = std::pow(100000.0, -2.0 * pair / 64);
    for (int p = 0; p < 320; ++p) {
      const double angle = static_cast<float>(p) * inv_freq;
      EXPECT_LE(std::abs(angle - p * exact_freq), 3 * 0x1p-24 * p * exact_freq) << pair << ' ' << p;
    }
  }
}

}  // namespace

// The attention weights for looking inside: the oracle's A, by slot.
#include "rove/op/weights.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "rove/dense/mixer.hpp"
#include "support/error_of.hpp"
#include "support/frames.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::bhtd;
using rove::causal;
using rove::Index;
using rove::TensorView;
using test::error_of;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// A of one call, in memory of exactly its size, filled with a number that no weight is.
template <class T = float>
struct Weights {
  std::vector<T> memory;
  TensorView<T> view;
  template <class Problem>
  explicit Weights(const Problem& problem)
      : memory(
            static_cast<std::size_t>(problem.batch() * problem.heads() * problem.q_len() * problem.kv_len()),
            static_cast<T>(-77.0F)),
        view(bhtd(memory.data(), problem.batch(), problem.heads(), problem.q_len(), problem.kv_len())) {}
};

/// Every weight within c ε (1 + L + √n) of the oracle's, relatively, or within e^−58; rows sum to 1 less the
/// sink's share; where the oracle has 0 there is 0.
template <class Problem, class T>
void expect_oracle(const Problem& problem, const TensorView<T>& weights, const FrameMatrices& frames = {},
                   double rounding = 0) {
  const double epsilon = std::is_same_v<typename Problem::accumulator, double> ? 0x1p-53 : 0x1p-24;
  for (Index b = 0; b < problem.batch(); ++b) {
    for (Index h = 0; h < problem.heads(); ++h) {
      const auto in = dense_input(problem, b, h, frames);
      const auto result = rove::dense::attention(in);
      for (Index i = 0; i < problem.q_len(); ++i) {
        if (std::isnan(result.lse(i))) {
          for (Index j = 0; j < problem.kv_len(); ++j) {
            const double is = static_cast<double>(weights(b, h, i, j));
            EXPECT_TRUE(std::isnan(result.weights(i, j)) ? std::isnan(is) : is == 0)
                << b << ", " << h << ", " << i << ", " << j << " is " << is;
          }
          continue;
        }
        const double growth = 1 + result.logit_size(i) + std::sqrt(static_cast<double>(problem.kv_len()));
        double sum = 0, should_sum = 0;
        for (Index j = 0; j < problem.kv_len(); ++j) {
          const double is = static_cast<double>(weights(b, h, i, j)), should = result.weights(i, j);
          if (should == 0) {
            ASSERT_EQ(is, 0.0) << b << ", " << h << ", " << i << ", " << j;
          }
          ASSERT_NEAR(is, should, (3 * epsilon * growth + rounding) * should + std::exp(-58.0))
              << b << ", " << h << ", " << i << ", " << j;
          sum += is;
          should_sum += should;
        }
        EXPECT_NEAR(sum, should_sum, 3 * epsilon * growth + rounding + 1e-20);
      }
    }
  }
}

TEST(Weights, are_the_oracles) {
  Operands<float> x(2, 4, 2, 7, 9, 16, 8, 1);
  const auto problem = x.problem();
  Weights weights(problem);
  rove::attention_weights(problem, weights.view);
  expect_oracle(problem, weights.view);
  EXPECT_EQ(x.out, std::vector<float>(x.out.size(), -77)) << "out is not written";
  EXPECT_EQ(x.lse, std::vector<float>(x.lse.size(), -77));
  const auto causal_problem = problem.with_mask(causal()).with_query_offset(rove::align_last());
  Weights masked(causal_problem);
  rove::attention_weights(causal_problem, masked.view);
  expect_oracle(causal_problem, masked.view);
}

TEST(Weights, are_the_oracles_through_frames) {
  Operands<float> x(1, 2, 1, 5, 11, 16, 16, 2);
  const auto problem = x.problem().with_mask(causal()).with_query_offset(rove::align_last());
  for (const FrameCase& c : frame_cases()) {
    const auto at = [](const std::function<Eigen::MatrixXd(Index)>& matrix, Index first) {
      return [matrix, first](Index, Index t) { return matrix(first + t); };
    };
    Weights weights(problem);
    rove::attention_weights(problem,
                            rove::rove_frames(c.at(positions_from(106, 5)), c.at(positions_from(100, 11))),
                            weights.view);
    SCOPED_TRACE(c.name);
    expect_oracle(problem, weights.view,
                  {.query = at(c.query_matrix, 106), .key = at(c.matrix, 100), .value = {}, .output = {}});
  }
}

TEST(Weights, logit_factor_sinks_scores_and_scale) {
  Operands<float> x(1, 2, 2, 4, 6, 8, 8, 3);
  const std::vector<float> sinks = {1.5F, -infinity};
  const std::vector<float> bias = normal_numbers<float>(24, 4);
  auto problem = x.problem().with_sinks(sinks).with_score(rove::soft_cap(2.0) |
                                                          rove::additive_bias(bhtd(bias.data(), 1, 1, 4, 6)));
  problem.logit_factor = 1.7;
  Weights weights(problem);
  rove::attention_weights(problem, weights.view);
  expect_oracle(problem, weights.view);
  double sum = 0;
  for (Index j = 0; j < 6; ++j) sum += static_cast<double>(weights.view(0, 0, 0, j));
  EXPECT_LT(sum, 0.95) << "the sink takes its share, once";
  const auto scaled = problem.with_scale(0.2);
  rove::attention_weights(scaled, weights.view);
  expect_oracle(scaled, weights.view);
  // The frames' factor multiplies the default scale.
  rove::Frames<> frames;
  frames.logit_factor = 2;
  rove::attention_weights(problem, frames, weights.view);
  auto twice = problem;
  twice.logit_factor *= 2;
  expect_oracle(twice, weights.view);
}

TEST(Weights, B55_the_sink_enters_once) {
  Operands<float> x(1, 1, 1, 1, 4, 4, 1, 5);
  x.k.assign(x.k.size(), 0);
  const std::vector<float> sinks = {2};
  const auto problem = x.problem().with_sinks(sinks);
  Weights weights(problem);
  rove::attention_weights(problem, weights.view);
  for (const float a : weights.memory) EXPECT_NEAR(a, 0.351214 / 4, 1e-6);
}

TEST(Weights, slots_that_are_not_in_use_are_zero_whatever_they_hold) {
  Operands<float> x(2, 2, 1, 3, 8, 8, 8, 6);
  const std::vector<Index> lengths = {5, 0};
  for (std::size_t at = 5 * 8; at < 16 * 8; ++at) x.k[at] = nan;
  const auto problem = x.problem().with_key_lengths(lengths);
  Weights weights(problem);
  rove::attention_weights(problem, weights.view);
  expect_oracle(problem, weights.view);
  for (Index j = 0; j < 8; ++j) EXPECT_EQ(weights.view(1, 1, 2, j), 0.0F);
  // A ring's dropped slots are columns too.
  Operands<float> y(1, 1, 1, 2, 4, 8, 8, 7);
  const auto ring = y.problem().with_key_values(rove::ring_key_values(y.problem().kv.k, y.problem().kv.v, 7));
  Weights by_slot(ring);
  EXPECT_EQ(by_slot.memory.size(), 14U);
  rove::attention_weights(ring, by_slot.view);
  expect_oracle(ring, by_slot.view);
  EXPECT_EQ(by_slot.view(0, 0, 0, 2), 0.0F);
  EXPECT_GT(by_slot.view(0, 0, 0, 3), 0.0F);
}

TEST(Weights, rows_without_keys_and_rows_that_are_nan) {
  Operands<float> x(1, 1, 1, 4, 4, 8, 8, 8);
  for (std::size_t c = 0; c < 8; ++c) x.k[2 * 8 + c] = nan;
  // Row 0 sees nothing, rows 1 and 3 not key 2, row 2 only key 2 and 3.
  const auto problem = x.problem().with_mask(
      rove::mask([](Index, Index, Index q, Index k) { return q == 2 ? k >= 2 : q != 0 && k != 2; }));
  Weights weights(problem);
  rove::attention_weights(problem, weights.view);
  expect_oracle(problem, weights.view);
  EXPECT_EQ(weights.view(0, 0, 2, 0), 0.0F) << "invisible, in a row that is NaN";
  EXPECT_TRUE(std::isnan(weights.view(0, 0, 2, 3)));
  // A sink that is no number poisons the rows that see something.
  for (const float bad : {nan, infinity}) {
    const std::vector<float> sinks = {bad};
    Operands<float> y(1, 1, 1, 4, 4, 8, 8, 9);
    const auto poisoned = y.problem()
                              .with_mask(rove::mask([](Index, Index, Index q, Index) { return q > 0; }))
                              .with_sinks(sinks);
    rove::attention_weights(poisoned, weights.view);
    expect_oracle(poisoned, weights.view);
    EXPECT_TRUE(std::isnan(weights.view(0, 0, 1, 0)));
    rove::attention(poisoned);
    judge(poisoned);
    EXPECT_TRUE(std::isnan(y.out[8]));
  }
}

TEST(Weights, of_any_scalar_and_stride) {
  Operands<double, float, float> x(1, 2, 1, 3, 5, 8, 8, 10);
  const auto problem = x.problem();
  Weights<double> weights(problem);
  rove::attention_weights(problem, weights.view);
  expect_oracle(problem, weights.view);
  Weights<Eigen::bfloat16> rounded(problem);
  rove::attention_weights(problem, rounded.view);
  expect_oracle(problem, rounded.view, {}, 0x1p-8);
  // Transposed [kv_len, q_len] a head, columns apart.
  std::vector<double> memory(2 * 3 * 5 * 2, -77);
  const TensorView<double> transposed{memory.data(), {1, 2, 3, 5}, {60, 30, 2, 6}};
  rove::attention_weights(problem, transposed);
  for (Index h = 0; h < 2; ++h) {
    for (Index i = 0; i < 3; ++i) {
      for (Index j = 0; j < 5; ++j) EXPECT_EQ(transposed(0, h, i, j), weights.view(0, h, i, j));
    }
  }
  for (std::size_t at = 1; at < memory.size(); at += 2) EXPECT_EQ(memory[at], -77);
}

// The reading as a mixer: A_ij from here, blocks A_ij R_i⁻¹ R_j, is what the operator does to the values.
TEST(Weights, with_the_frames_they_are_the_mixer) {
  Operands<float> x(1, 1, 1, 8, 8, 16, 16, 11);
  const auto problem = x.problem().with_mask(causal());
  for (const FrameCase& c : frame_cases()) {
    SCOPED_TRACE(c.name);
    const auto frames = rove::rove_frames(c.at(positions_from(100, 8)));
    Weights weights(problem);
    rove::attention_weights(problem, frames, weights.view);
    rove::attention(problem, frames);
    Eigen::MatrixXd a(8, 8), v(8, 16);
    for (Index i = 0; i < 8; ++i) {
      for (Index j = 0; j < 8; ++j) a(i, j) = static_cast<double>(weights.view(0, 0, i, j));
      for (Index e = 0; e < 16; ++e) v(i, e) = static_cast<double>(x.v[static_cast<std::size_t>(i * 16 + e)]);
    }
    const auto mixer = rove::dense::block_mixer(a, [&c](Index i, Index j) -> Eigen::MatrixXd {
      return product(inverse_of(c.matrix(100 + i)), c.matrix(100 + j));
    });
    const Eigen::MatrixXd y = mixer.apply(v);
    for (Index i = 0; i < 8; ++i) {
      for (Index e = 0; e < 16; ++e) {
        const double scale = c.name == "shear" ? 1e-3 : 1e-5;  // a shear's terms are some 100 times its sum
        EXPECT_NEAR(problem.out(0, 0, i, e), y(i, e), scale);
      }
    }
  }
}

TEST(Weights, mistakes_are_named_with_their_numbers_before_anything_is_written) {
  Operands<float> x(2, 4, 2, 3, 5, 8, 8, 12);
  const auto problem = x.problem();
  std::vector<float> memory(2 * 4 * 3 * 5, -77);
  const auto refused = [&](const TensorView<float>& view) {
    const std::string message = error_of([&] { rove::attention_weights(problem, view); });
    EXPECT_EQ(error_of([&] { rove::attention_weights(problem, rove::Frames<>{}, view); }), message);
    EXPECT_EQ(memory, std::vector<float>(memory.size(), -77));
    return message;
  };
  const auto of = [&](Index b, Index h, Index n, Index m) { return bhtd(memory.data(), b, h, n, m); };
  EXPECT_EQ(refused(of(1, 4, 3, 5)), "the weights' batch must be 2, got 1");
  EXPECT_EQ(refused(of(2, 2, 3, 5)), "the weights' heads must be 4, got 2");
  EXPECT_EQ(refused(of(2, 4, 2, 5)), "the weights' queries must be 3, got 2");
  EXPECT_EQ(refused(of(2, 4, 3, 4)), "the weights' keys must be 5, got 4");
  auto view = of(2, 4, 3, 5);
  view.stride[1] = 0;
  EXPECT_EQ(refused(view), "the weights overlap themselves: two elements share one place");
  view = bhtd(static_cast<float*>(nullptr), 2, 4, 3, 5);
  EXPECT_EQ(refused(view), "weights is null but has 120 elements");
  EXPECT_EQ(refused(bhtd(x.q.data(), 2, 4, 3, 5)), "the weights share memory with q");
  EXPECT_EQ(refused(bhtd(x.k.data(), 2, 4, 3, 5)), "the weights share memory with the keys or values");
  // What the call itself would refuse.
  EXPECT_EQ(error_of([&] { rove::attention_weights(problem.with_scale(infinity), of(2, 4, 3, 5)); }),
            "scale must be finite, got inf");
  const auto short_frame = frame_cases().front().at(positions_from(0, 2));
  EXPECT_EQ(error_of([&] {
              rove::attention_weights(problem, rove::rope_frames(short_frame, short_frame), of(2, 4, 3, 5));
            }),
            "the query frame turns 16 channels of rows that have 8");
  EXPECT_EQ(memory, std::vector<float>(memory.size(), -77));
}

TEST(Weights, B23_shapes_of_nothing) {
  Operands<float> x(1, 2, 1, 0, 3, 8, 8), y(1, 2, 1, 3, 0, 8, 8);
  rove::attention_weights(x.problem(), Weights(x.problem()).view);
  rove::attention_weights(y.problem(), Weights(y.problem()).view);
}

}  // namespace
}  // namespace rove_test

// The oracle against results found on paper, and what it makes of infinities, NaN, masks, scores and sinks.
#include "rove/dense/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "rove/dense/rotation.hpp"
#include "support/dense.hpp"

namespace {

using rove::Index;
using namespace rove::dense;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using test::causal;
using test::random_matrix;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// A rotation per token at position `shift` + t.
FrameMatrix rotary(Index channels, double shift = 0, Pairing pairing = Pairing::half_split) {
  return [=](Index t) {
    return rotation_matrix(channels, inverse_frequencies(channels, 10000), shift + static_cast<double>(t),
                           pairing);
  };
}

void set_all_frames(AttentionInput& in, const FrameMatrix& frame) {
  in.query_frame = in.key_frame = in.value_frame = in.output_frame = frame;
}

AttentionInput random_input(unsigned seed, Index queries, Index keys, Index channels, Index value_channels) {
  std::mt19937_64 engine(seed);
  AttentionInput in;
  in.q = random_matrix(engine, queries, channels);
  in.k = random_matrix(engine, keys, channels);
  in.v = random_matrix(engine, keys, value_channels);
  return in;
}

/// All logits 0, all values 1, one channel.
AttentionInput flat_input(Index queries, Index keys) {
  AttentionInput in;
  in.q = MatrixXd::Zero(queries, 1);
  in.k = MatrixXd::Zero(keys, 1);
  in.v = MatrixXd::Ones(keys, 1);
  return in;
}

// Two tokens, one pair, a quarter turn a token: R_0 = 1, R_1 (x, y) = (-y, x). Row 1: R_1 q_1 = (0, 1), its
// logits are (0, 1)·(0, ln 3) = ln 3 and (0, 1)·(-5, 0) = 0, its weights 3/4 and 1/4.
AttentionInput on_paper() {
  AttentionInput in;
  in.q = MatrixXd{{1, 0}, {1, 0}};
  in.k = MatrixXd{{0, std::log(3.0)}, {0, 5}};
  in.v = MatrixXd{{4, 8}, {12, 16}};
  in.scale = 1;
  in.visible = causal;
  const FrameMatrix quarter_turns = [](Index t) {
    return t == 0 ? MatrixXd{{1, 0}, {0, 1}} : MatrixXd{{0, -1}, {1, 0}};
  };
  in.query_frame = in.key_frame = quarter_turns;
  return in;
}

TEST(DenseAttention, rope_on_paper) {
  const AttentionResult result = attention(on_paper());
  EXPECT_TRUE(result.weights.isApprox(MatrixXd{{1, 0}, {0.75, 0.25}}, 1e-15));
  EXPECT_TRUE(result.out.isApprox(MatrixXd{{4, 8}, {6, 10}}, 1e-15));
  EXPECT_NEAR(result.lse(0), 0, 1e-15);
  EXPECT_NEAR(result.lse(1), std::log(4.0), 1e-15);
  EXPECT_NEAR(result.logit_size(1), std::log(3.0), 1e-15);
  EXPECT_EQ(result.visible_keys, (std::vector<Index>{1, 2}));
}

TEST(DenseAttention, rove_on_paper) {
  AttentionInput in = on_paper();
  in.value_frame = in.output_frame = in.key_frame;
  const AttentionResult result = attention(in);
  // R_1 v_1 = (-16, 12); 3/4 (4, 8) + 1/4 (-16, 12) = (-1, 9); R_1⁻¹ (x, y) = (y, -x).
  EXPECT_TRUE(result.out.isApprox(MatrixXd{{4, 8}, {9, 1}}, 1e-15));
  // 3/4 (4, 8) + 1/4 (16, 12) = (7, 9), turned by |R_1⁻¹|.
  EXPECT_TRUE(result.magnitude.isApprox(MatrixXd{{4, 8}, {9, 7}}, 1e-15));
}

TEST(DenseAttention, a_shear_needs_the_inverse_not_the_transpose) {
  AttentionInput in;
  in.q = MatrixXd{{1, 1}, {1, 1}};
  in.k = MatrixXd{{std::log(3.0), 7}, {1, -1}};
  in.v = MatrixXd{{4, 8}, {2, 3}};
  in.scale = 1;
  in.visible = causal;
  set_all_frames(in, [](Index t) { return MatrixXd{{1, static_cast<double>(t)}, {0, 1}}; });
  const AttentionResult result = attention(in);
  // R_1⁻ᵀ q_1 = (1, 0) meets k_0 in ln 3 and R_1 k_1 = (0, -1) in 0; R_1 v_1 = (5, 3);
  // 3/4 (4, 8) + 1/4 (5, 3) = (4.25, 6.75); R_1⁻¹ (x, y) = (x - y, y).
  EXPECT_TRUE(result.weights.row(1).isApprox(Eigen::RowVector2d(0.75, 0.25), 1e-15));
  EXPECT_TRUE(result.out.row(1).isApprox(Eigen::RowVector2d(-2.5, 6.75), 1e-15));
  EXPECT_TRUE(result.magnitude.row(1).isApprox(Eigen::RowVector2d(11, 6.75), 1e-15));
}

TEST(DenseAttention, scale_is_one_over_root_channels_unless_given) {
  AttentionInput in = random_input(1, 3, 4, 9, 2);
  const MatrixXd out = attention(in).out;
  in.scale = 1.0 / 3;
  EXPECT_EQ(out, attention(in).out);
  in.scale = 0.5;
  EXPECT_NE(out, attention(in).out);
}

TEST(DenseAttention, B49_identity_weights_give_v) {
  AttentionInput in = random_input(2, 5, 5, 4, 6);
  in.visible = [](Index i, Index j) { return i == j; };
  in.query_frame = in.key_frame = rotary(4, 100);
  in.value_frame = in.output_frame = rotary(6, 100);
  EXPECT_TRUE(attention(in).out.isApprox(in.v, 1e-14));
}

TEST(DenseAttention, B50_shifting_all_positions_changes_nothing) {
  AttentionInput in = random_input(3, 7, 7, 8, 8);
  in.visible = causal;
  set_all_frames(in, rotary(8));
  const AttentionResult here = attention(in);
  set_all_frames(in, rotary(8, 1000));
  const AttentionResult there = attention(in);
  EXPECT_TRUE(there.out.isApprox(here.out, 1e-11));
  EXPECT_TRUE(there.lse.isApprox(here.lse, 1e-11));
  in.output_frame = nullptr;
  EXPECT_GT((attention(in).out - here.out).cwiseAbs().maxCoeff(), 0.1);
}

TEST(DenseAttention, zero_positions_are_plain_attention) {
  AttentionInput in = random_input(4, 6, 6, 8, 8);
  const MatrixXd plain = attention(in).out;
  set_all_frames(in, [](Index) { return MatrixXd::Identity(8, 8); });
  EXPECT_TRUE(attention(in).out.isApprox(plain, 1e-15));
}

TEST(DenseAttention, values_may_have_a_frame_and_a_width_of_their_own) {
  AttentionInput in = random_input(5, 4, 4, 6, 10);
  in.query_frame = in.key_frame = rotary(6, 0, Pairing::interleaved);
  in.value_frame = in.output_frame = rotary(10, 3);
  const AttentionResult result = attention(in);
  for (Index i = 0; i < 4; ++i) {
    Eigen::VectorXd expected = Eigen::VectorXd::Zero(10);
    for (Index j = 0; j < 4; ++j) {
      const auto turn = static_cast<double>(j - i);
      expected += result.weights(i, j) *
                  (rotation_matrix(10, inverse_frequencies(10, 10000), turn, Pairing::half_split) *
                   in.v.row(j).transpose());
    }
    EXPECT_TRUE(result.out.row(i).transpose().isApprox(expected, 1e-14)) << i;
  }
}

TEST(DenseAttention, weights_sum_to_one_and_lse_is_the_logarithm_of_their_sum) {
  AttentionInput in = random_input(6, 5, 9, 4, 3);
  const AttentionResult result = attention(in);
  const MatrixXd logits = in.q * in.k.transpose() / 2;
  for (Index i = 0; i < 5; ++i) {
    EXPECT_NEAR(result.weights.row(i).sum(), 1, 1e-15);
    EXPECT_NEAR(result.lse(i), std::log(logits.row(i).array().exp().sum()), 1e-14);
  }
}

TEST(DenseAttention, large_logits_do_not_overflow) {
  AttentionInput in = flat_input(1, 2);
  in.q(0, 0) = 1;
  in.k << 5000, 4999;
  const AttentionResult result = attention(in);
  EXPECT_NEAR(result.lse(0), 5000 + std::log1p(std::exp(-1.0)), 1e-12);
  EXPECT_NEAR(result.weights(0, 1), 1 / (1 + std::exp(1.0)), 1e-15);
}

TEST(DenseAttention, B01_B02_B05_rows_that_see_nothing_are_zero) {
  AttentionInput in = flat_input(3, 3);
  in.visible = [](Index i, Index j) { return j <= i && i != 1 && j != 0; };  // causal and a mask
  const AttentionResult result = attention(in);
  for (const Index i : {0, 1}) {
    EXPECT_EQ(result.out(i, 0), 0);
    EXPECT_EQ(result.weights.row(i).sum(), 0);
    EXPECT_EQ(result.lse(i), -infinity);
  }
  EXPECT_EQ(result.out(2, 0), 1);
  EXPECT_NEAR(result.lse(2), std::log(2.0), 1e-15);
}

TEST(DenseAttention, logits_of_minus_infinity_alone_are_an_empty_row) {
  AttentionInput in = flat_input(2, 2);
  in.v(0, 0) = nan;
  in.score = [](double s, Index i, Index) { return i == 0 ? -infinity : s; };
  const AttentionResult result = attention(in);
  EXPECT_EQ(result.out(0, 0), 0);
  EXPECT_EQ(result.lse(0), -infinity);
  EXPECT_TRUE(std::isnan(result.out(1, 0)));
}

TEST(DenseAttention, a_minus_infinite_logit_has_no_weight_and_does_not_shield) {
  AttentionInput in = flat_input(1, 2);
  in.score = [](double s, Index, Index j) { return j == 0 ? -infinity : s; };
  const AttentionResult result = attention(in);
  EXPECT_EQ(result.weights(0, 0), 0);
  EXPECT_EQ(result.out(0, 0), 1);
  EXPECT_EQ(result.lse(0), 0);
  in.v(0, 0) = infinity;
  EXPECT_TRUE(std::isnan(attention(in).out(0, 0)));
}

TEST(DenseAttention, an_infinite_or_nan_logit_gives_nan) {
  for (const double bad : {infinity, nan}) {
    AttentionInput in = flat_input(2, 2);
    in.score = [bad](double s, Index i, Index j) { return i == 1 && j == 0 ? bad : s; };
    const AttentionResult result = attention(in);
    EXPECT_EQ(result.out(0, 0), 1);
    EXPECT_TRUE(std::isnan(result.out(1, 0)));
    EXPECT_TRUE(std::isnan(result.lse(1)));
  }
}

TEST(DenseAttention, B06_B07_N02_nan_that_is_not_seen_stays_away) {
  AttentionInput in = random_input(7, 6, 6, 4, 4);
  in.visible = causal;
  set_all_frames(in, rotary(4));
  const AttentionResult clean = attention(in);
  in.k.row(4).setConstant(nan);
  in.v(4, 1) = nan;
  in.k.row(5).setConstant(infinity);
  const AttentionResult poisoned = attention(in);
  EXPECT_EQ(poisoned.out.topRows(4), clean.out.topRows(4));
  EXPECT_EQ(poisoned.lse.head(4), clean.lse.head(4));
  EXPECT_TRUE(poisoned.out.bottomRows(2).array().isNaN().all());
}

TEST(DenseAttention, nan_in_one_channel_of_v_stays_in_its_pair) {
  AttentionInput in = random_input(8, 3, 3, 4, 4);
  in.visible = causal;
  set_all_frames(in, rotary(4));
  in.v(1, 3) = nan;
  const AttentionResult result = attention(in);
  for (Index i = 0; i < 3; ++i) {
    for (Index c = 0; c < 4; ++c) EXPECT_EQ(std::isnan(result.out(i, c)), i >= 1 && c % 2 == 1) << i << c;
  }
}

TEST(DenseAttention, B11_score_comes_before_the_mask) {
  AttentionInput in = flat_input(1, 2);
  in.score = [](double s, Index, Index) { return std::tanh(s); };
  in.visible = [](Index, Index j) { return j == 0; };
  EXPECT_EQ(attention(in).weights(0, 1), 0);
}

TEST(DenseAttention, B12_score_gets_the_scaled_logit) {
  AttentionInput in = flat_input(1, 2);
  in.q(0, 0) = 1;
  in.k << 6, 2;
  in.scale = 0.5;
  in.score = [](double s, Index, Index) { return 2 * std::tanh(s / 2); };
  const double difference = 2 * (std::tanh(1.5) - std::tanh(0.5));
  EXPECT_NEAR(attention(in).weights(0, 0), 1 / (1 + std::exp(-difference)), 1e-15);
}

TEST(DenseAttention, score_gets_query_and_key) {
  AttentionInput in = flat_input(3, 3);
  in.score = [](double s, Index i, Index j) {
    return s - 0.5 * std::abs(static_cast<double>(i - j));
  };  // ALiBi
  const MatrixXd weights = attention(in).weights;
  EXPECT_NEAR(weights(0, 2) / weights(0, 0), std::exp(-1.0), 1e-15);
  EXPECT_NEAR(weights(2, 1) / weights(2, 2), std::exp(-0.5), 1e-15);
}

TEST(DenseAttention, B55_the_sink_takes_weight_and_has_no_value) {
  AttentionInput in = flat_input(1, 4);
  in.sink = 2;
  const AttentionResult result = attention(in);
  EXPECT_NEAR(result.out(0, 0), 0.351214, 5e-7);
  EXPECT_NEAR(result.out(0, 0), 4 / (4 + std::exp(2.0)), 1e-15);
  EXPECT_NEAR(result.lse(0), std::log(4 + std::exp(2.0)), 1e-15);
}

TEST(DenseAttention, the_sink_alone_is_the_lse_of_an_empty_row) {
  AttentionInput in = flat_input(1, 2);
  in.sink = 2;
  in.visible = [](Index, Index) { return false; };
  const AttentionResult result = attention(in);
  EXPECT_EQ(result.out(0, 0), 0);
  EXPECT_EQ(result.lse(0), 2);
}

TEST(DenseAttention, a_huge_sink_does_not_overflow_and_an_infinite_one_is_nan) {
  AttentionInput in = flat_input(1, 2);
  in.sink = 1000;
  EXPECT_EQ(attention(in).lse(0), 1000);
  EXPECT_EQ(attention(in).out(0, 0), 0);
  in.sink = -infinity;
  EXPECT_EQ(attention(in).out(0, 0), 1);
  in.sink = infinity;
  EXPECT_TRUE(std::isnan(attention(in).out(0, 0)));
  in.sink = nan;
  EXPECT_TRUE(std::isnan(attention(in).lse(0)));
}

TEST(DenseAttention, partial_rows_merge_by_their_lse) {
  AttentionInput in = random_input(9, 4, 10, 4, 3);
  const AttentionResult whole = attention(in);
  const auto part = [&](Index first, Index last) {
    AttentionInput piece = in;
    piece.visible = [=](Index, Index j) { return first <= j && j < last; };
    return attention(piece);
  };
  const AttentionResult a = part(0, 3);
  const AttentionResult b = part(3, 10);
  for (Index i = 0; i < 4; ++i) {
    const double wa = std::exp(a.lse(i) - whole.lse(i));
    const double wb = std::exp(b.lse(i) - whole.lse(i));
    EXPECT_NEAR(wa + wb, 1, 1e-14);
    EXPECT_TRUE((wa * a.out.row(i) + wb * b.out.row(i)).isApprox(whole.out.row(i), 1e-14));
  }
}

TEST(DenseAttention, shapes_of_nothing) {
  AttentionInput in = flat_input(0, 3);
  EXPECT_EQ(attention(in).out.rows(), 0);
  in = flat_input(2, 0);
  const AttentionResult result = attention(in);
  EXPECT_EQ(result.out, MatrixXd::Zero(2, 1));
  EXPECT_EQ(result.lse, VectorXd::Constant(2, -infinity));
}

TEST(DenseAttention, refuses_shapes_that_do_not_fit) {
  const auto message = [](auto change) {
    AttentionInput in = random_input(10, 2, 3, 4, 5);
    change(in);
    try {
      attention(in);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(message([](AttentionInput&) {}), "none");
  EXPECT_EQ(message([](AttentionInput& in) { in.q.resize(2, 0); }), "q has no channels");
  EXPECT_EQ(message([](AttentionInput& in) { in.k.resize(3, 5); }), "q has 4 channels, k has 5");
  EXPECT_EQ(message([](AttentionInput& in) { in.v.resize(4, 5); }), "k has 3 tokens, v has 4");
  EXPECT_EQ(message([](AttentionInput& in) { in.value_frame = rotary(4); }),
            "value_frame of token 0 is 4 x 4, the rows have 5 channels");
  EXPECT_EQ(message([](AttentionInput& in) { in.query_frame = rotary(6); }),
            "query_frame of token 0 is 6 x 6, the rows have 4 channels");
}

}  // namespace

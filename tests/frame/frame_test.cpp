// What a frame is by itself: the four actions, the traits, frames made from frames.
#include "rove/frame/frame.hpp"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "laws/frame_laws.hpp"
#include "rove/frame/adaptors.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "support/error_of.hpp"
#include "support/frames.hpp"

namespace rove_test {
namespace {

using Eigen::MatrixXd;
using rove::Index;
using rove::Pairing;
using test::error_of;

constexpr Index width = 16;

using Table = rove::RotationTable<float>;
using Rotary = rove::RotaryFrame<Table>;

Rotary rotary(const rove::Positions& positions, double m = 1, double logit_factor = 1) {
  auto frequencies = rove::rotary_frequencies({.rotary_dim = 8, .rope_theta = 100});
  frequencies.attention_factor = m;
  frequencies.logit_factor = logit_factor;
  return Rotary(Table(frequencies, positions), Pairing::half_split);
}

/// What an action makes of one and the same row.
template <class F>
std::vector<float> acted(const F& frame, Index b, Index t, int action) {
  std::vector<float> row(width);
  for (std::size_t c = 0; c < row.size(); ++c) row[c] = static_cast<float>(c) + 0.5F;
  const std::span<float> span(row);
  if (action == 0) frame.apply(b, t, span);
  if (action == 1) frame.inverse(b, t, span);
  if (action == 2) frame.transpose(b, t, span);
  if (action == 3) frame.inverse_transpose(b, t, span);
  return row;
}

class FrameLaws : public ::testing::TestWithParam<FrameCase> {};

TEST_P(FrameLaws, actions_belong_together) {
  // One-parameter frames with token t at position t; the others anywhere.
  const AnyFrame<float> frame = GetParam().at(positions_from(0, 12));
  expect_frame_laws<float>(frame, width, 0x1p-21, frame.orthogonal(), frame.one_parameter());
  expect_frame_laws<float>(GetParam().at({101, 350, 1999, 128}), width, 0x1p-21, frame.orthogonal(), false);
  if (frame.channels() < width) {
    expect_frame_laws<float>(frame, width + 5, 0x1p-21, frame.orthogonal(), frame.one_parameter());
  }
}

// B16: the pairings agree at position 0 alone.
TEST_P(FrameLaws, B16_apply_is_the_matrix_at_far_positions) {
  for (const Index position : {0, 1, 100, 512, 2047}) {
    const AnyFrame<float> frame = GetParam().at({position});
    const AnyFrame<float> query = query_frame(frame, rove::KeyFactor::in_queries);
    const MatrixXd r = GetParam().matrix(position), q = GetParam().query_matrix(position);
    for (Index e = 0; e < width; ++e) {
      const MatrixXd columns[4] = {r.col(e), inverse_of(r).col(e), r.transpose().col(e),
                                   inverse_of(q).transpose().col(e)};
      for (int action = 0; action < 4; ++action) {
        std::vector<float> row(width, 0.0F);
        row[static_cast<std::size_t>(e)] = 1;
        const std::span<float> span(row);
        if (action == 0) frame.apply(0, 0, span);
        if (action == 1) frame.inverse(0, 0, span);
        if (action == 2) frame.transpose(0, 0, span);
        if (action == 3) query.inverse_transpose(0, 0, span);
        for (Index c = 0; c < width; ++c) {
          const double should = columns[action](c, 0);
          ASSERT_NEAR(row[static_cast<std::size_t>(c)], should, 0x1p-21 * (1 + std::abs(should)))
              << "position " << position << ", action " << action << ", (" << c << ", " << e << ")";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Frames, FrameLaws, ::testing::ValuesIn(frame_cases()),
                         [](const auto& chosen) { return chosen.param.name; });

// ---- Concept and traits -------------------------------------------------------------------------

struct WithoutTranspose {
  Index batch() const { return 1; }
  Index tokens() const { return 1; }
  Index channels() const { return 1; }
  void apply(Index, Index, std::span<float>) const {}
  void inverse(Index, Index, std::span<float>) const {}
  void inverse_transpose(Index, Index, std::span<float>) const {}
};
struct FloatOnly : WithoutTranspose {
  void transpose(Index, Index, std::span<float>) const {}
};

static_assert(rove::Frame<Rotary> && rove::Frame<rove::IdentityFrame> && rove::Frame<MatrixFrame<>>);
static_assert(rove::FrameOn<MatrixFrame<>, float> && rove::FrameOn<MatrixFrame<>, double>);
static_assert(!rove::Frame<WithoutTranspose> && !rove::Frame<int>);
static_assert(rove::Frame<FloatOnly> && !rove::FrameOn<FloatOnly, double>);

static_assert(rove::is_orthogonal_v<Rotary> && rove::is_one_parameter_v<Rotary> &&
              !rove::is_identity_v<Rotary>);
static_assert(!rove::is_orthogonal_v<rove::ScaledRotaryFrame<Table>> &&
              !rove::is_one_parameter_v<rove::ScaledRotaryFrame<Table>>);
static_assert(!rove::is_orthogonal_v<FloatOnly> && !rove::is_one_parameter_v<FloatOnly> &&
              !rove::is_identity_v<FloatOnly>);
static_assert(!rove::is_orthogonal_v<MatrixFrame<>> && rove::is_one_parameter_v<MatrixFrame<true>>);
static_assert(rove::is_identity_v<rove::IdentityFrame> && rove::is_orthogonal_v<rove::IdentityFrame> &&
              rove::is_one_parameter_v<rove::IdentityFrame>);

using RotaryRows = rove::FrameRows<Rotary>;
using RotaryInverse = rove::InverseFrame<Rotary>;
using RotaryLeft = rove::LeftFactor<Rotary, Rotary>;
static_assert(rove::is_orthogonal_v<RotaryRows> && rove::is_one_parameter_v<RotaryRows>);
static_assert(rove::is_orthogonal_v<RotaryInverse> && rove::is_one_parameter_v<RotaryInverse>);
static_assert(rove::is_orthogonal_v<RotaryLeft> && !rove::is_one_parameter_v<RotaryLeft>);
static_assert(!rove::is_orthogonal_v<rove::LeftFactor<MatrixFrame<>, Rotary>> &&
              !rove::is_orthogonal_v<rove::LeftFactor<Rotary, MatrixFrame<>>>);
static_assert(rove::is_identity_v<rove::FrameRows<rove::IdentityFrame>> &&
              rove::is_identity_v<rove::InverseFrame<rove::IdentityFrame>> &&
              rove::is_identity_v<rove::LeftFactor<rove::IdentityFrame, rove::IdentityFrame>> &&
              !rove::is_identity_v<rove::LeftFactor<rove::IdentityFrame, Rotary>>);

TEST(IdentityFrame, leaves_rows_alone_and_has_every_token) {
  const rove::IdentityFrame identity;
  expect_frame_laws<double>(rove::rows(identity, 5, 3), 4, 0);
  EXPECT_EQ(identity.channels(), 0);
  EXPECT_EQ(rove::rows(identity, Index{1} << 60, 7).tokens(), 7);
  EXPECT_EQ(rove::frame_logit_factor(identity), 1);
}

/// 2R: inherits a form for many rows that is not its own.
struct Twice : Rotary {
  explicit Twice(const Rotary& frame) : Rotary(frame) {}
  void apply(Index b, Index t, std::span<float> row) const {
    Rotary::apply(b, t, row);
    for (float& x : row) x *= 2;
  }
};

TEST(ActRows, a_form_that_is_inherited_does_not_stand_for_what_was_replaced) {
  const Twice frame(rotary(rove::consecutive_positions(3)));
  expect_rows_like_a_row<float>(frame, width);
  expect_rows_like_a_row<float>(rove::rows(frame, 1, 2), width);
}

// ---- Frames made from frames --------------------------------------------------------------------

TEST(Rows, renumber_tokens_and_share_batch_rows) {
  const std::array<Index, 2> starts = {3, 40};
  const Rotary whole = rotary(rove::consecutive_positions(10, starts));
  const auto part = rove::rows(whole, 4, 3);
  EXPECT_EQ(part.tokens(), 3);
  EXPECT_EQ(part.batch(), 2);
  EXPECT_EQ(part.channels(), 8);
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 3; ++t) {
      for (int action = 0; action < 4; ++action)
        EXPECT_EQ(acted(part, b, t, action), acted(whole, b, t + 4, action));
    }
  }
  EXPECT_EQ(rove::rows(whole, 10, 0).tokens(), 0);
}

TEST(Rows, refuse_what_the_frame_does_not_have) {
  const Rotary whole = rotary(rove::consecutive_positions(10));
  EXPECT_EQ(error_of([&] { rove::rows(whole, 8, 3); }), "rows [8, 8 + 3) are outside the frame's 10 tokens");
  EXPECT_EQ(error_of([&] { rove::rows(whole, -1, 3); }),
            "rows [-1, -1 + 3) are outside the frame's 10 tokens");
  EXPECT_EQ(error_of([&] { rove::rows(whole, 1, -1); }),
            "rows [1, 1 + -1) are outside the frame's 10 tokens");
  EXPECT_EQ(error_of([&] { rove::rows(whole, Index{1} << 62, Index{1} << 62); }),
            "rows [4611686018427387904, 4611686018427387904 + 4611686018427387904) are outside the frame's "
            "10 tokens");
}

TEST(LeftFactor, comes_after_the_frame_and_its_batch_spreads) {
  std::vector<MatrixXd> two = {random_frame_matrix(width, 1), random_frame_matrix(width, 2)};
  const MatrixFrame<> factor(two, 2);
  const std::array<Index, 2> starts = {3, 40};
  const Rotary shared = rotary(rove::consecutive_positions(4, 100)),
               own = rotary(rove::consecutive_positions(4, starts));
  const auto check = [&](const auto& both, const auto& factor_of, const Rotary& frame, Index factor_batch,
                         Index frame_batch) {
    EXPECT_EQ(both.batch(), 2);
    EXPECT_EQ(both.tokens(), 4);
    EXPECT_EQ(both.channels(), width);
    for (Index b = 0; b < 2; ++b) {
      std::vector<float> row = acted(frame, frame_batch == 1 ? 0 : b, 3, 0);
      factor_of.apply(factor_batch == 1 ? 0 : b, 0, std::span<float>(row));
      EXPECT_EQ(acted(both, b, 3, 0), row);
    }
    expect_frame_laws<float>(both, width, 0x1p-21);
  };
  check(rove::left_factor(factor, shared), factor, shared, 2, 1);
  check(rove::left_factor(factor, own), factor, own, 2, 2);
  check(rove::left_factor(MatrixFrame<>({two[0]}), own), MatrixFrame<>({two[0]}), own, 1, 2);
  // The wider of the two says how many channels there must be.
  EXPECT_EQ(rove::left_factor(shared, MatrixFrame<>({two[0]})).channels(), width);
}

TEST(LeftFactor, mistakes_are_named_with_their_numbers) {
  const MatrixFrame<> none({});
  const std::array<Index, 3> three = {0, 1, 2};
  const std::array<Index, 2> two = {0, 1};
  EXPECT_EQ(error_of([&] { rove::left_factor(none, rotary(rove::consecutive_positions(4))); }),
            "a left factor has one token, got 0");
  EXPECT_EQ(error_of([&] {
              rove::left_factor(rotary(rove::consecutive_positions(1, three)),
                                rotary(rove::consecutive_positions(4, two)));
            }),
            "the left factor has batch 3, the frame has 2");
}

TEST(InverseFrame, is_the_other_way_round) {
  std::vector<MatrixXd> two = {random_frame_matrix(width, 1), random_frame_matrix(width, 2)};
  const MatrixFrame<> frame(two, 2);
  const auto inverse = rove::inverse_frame(frame);
  EXPECT_EQ(inverse.batch(), 2);
  EXPECT_EQ(inverse.tokens(), 1);
  EXPECT_EQ(inverse.channels(), width);
  const int other[4] = {1, 0, 3, 2};
  for (Index b = 0; b < 2; ++b) {
    for (int action = 0; action < 4; ++action) {
      EXPECT_EQ(acted(inverse, b, 0, action), acted(frame, b, 0, other[action]));
    }
  }
}

// ---- What queries use ---------------------------------------------------------------------------

TEST(QueryFrame, is_the_frame_itself_unless_it_says_otherwise) {
  static_assert(
      std::is_same_v<decltype(query_frame(MatrixFrame<>({}), rove::KeyFactor::in_queries)), MatrixFrame<>>);
  static_assert(std::is_same_v<decltype(query_frame(rove::inverse_frame(MatrixFrame<>({})),
                                                    rove::KeyFactor::in_queries)),
                               rove::InverseFrame<MatrixFrame<>>>);
  static_assert(std::is_same_v<decltype(query_frame(rove::IdentityFrame{}, rove::KeyFactor::in_queries)),
                               rove::IdentityFrame>);
}

TEST(QueryFrame, of_an_inverse_without_a_factor_is_that_inverse) {
  const auto inverse = rove::inverse_frame(MatrixFrame<>({random_frame_matrix(width, 1)}));
  for (const rove::KeyFactor keys : {rove::KeyFactor::in_queries, rove::KeyFactor::already_in_keys}) {
    const auto query = query_frame(inverse, keys);
    EXPECT_EQ(query.tokens(), 1);
    for (int action = 0; action < 4; ++action) {
      EXPECT_EQ(acted(query, 0, 0, action), acted(inverse, 0, 0, action));
    }
  }
}

// The factor goes through every adaptor, onto the channels that turn and no others, in R⁻ᵀ (queries) and in
// R⁻¹ (their gradients).
TEST(QueryFrame, adaptors_hand_the_factor_on) {
  constexpr double m = 1.25;
  const Rotary pure = rotary(rove::consecutive_positions(6, 100)),
               scaled = rotary(rove::consecutive_positions(6, 100), m);
  const auto check = [](const auto& frame, const auto& plain, double factor, const char* what) {
    const auto query =
        query_frame(frame, factor == m ? rove::KeyFactor::already_in_keys : rove::KeyFactor::in_queries);
    EXPECT_EQ(query.batch(), frame.batch());
    EXPECT_EQ(query.tokens(), frame.tokens());
    EXPECT_EQ(query.channels(), frame.channels());
    for (const int action : {0, 1, 2, 3}) {
      const double by = action == 1 || action == 3 ? factor : 1 / factor;
      const std::vector<float> is = acted(query, 0, 1, action), should = acted(plain, 0, 1, action);
      for (std::size_t c = 0; c < is.size(); ++c) {
        const double wanted = static_cast<double>(should[c]) * (c < 8 ? by : 1);
        EXPECT_NEAR(static_cast<double>(is[c]), wanted, 0x1p-22 * (1 + std::abs(wanted)))
            << what << ", factor " << factor << ", action " << action << ", channel " << c;
      }
    }
  };
  const rove::IdentityFrame nothing;
  for (const double factor : {m * m, m}) {
    check(scaled, pure, factor, "rotary");
    check(rove::rows(scaled, 2, 3), rove::rows(pure, 2, 3), factor, "rows");
    check(rove::left_factor(nothing, scaled), rove::left_factor(nothing, pure), factor, "left factor");
    check(rove::inverse_frame(scaled), rove::inverse_frame(pure), factor, "inverse");
    check(rove::rows(rove::inverse_frame(scaled), 2, 3), rove::rows(rove::inverse_frame(pure), 2, 3), factor,
          "rows of the inverse");
  }
  // A factor of 1 leaves the bits.
  for (const int action : {0, 1, 2, 3}) {
    EXPECT_EQ(acted(query_frame(pure, rove::KeyFactor::in_queries), 0, 3, action), acted(pure, 0, 3, action));
  }
}

TEST(QueryFrame, adaptors_hand_the_logit_factor_on) {
  const Rotary frame = rotary(rove::consecutive_positions(6), 1, 1.5);
  EXPECT_EQ(rove::frame_logit_factor(frame), 1.5);
  EXPECT_EQ(rove::frame_logit_factor(rove::rows(frame, 1, 2)), 1.5);
  EXPECT_EQ(rove::frame_logit_factor(rove::left_factor(MatrixFrame<>({MatrixXd::Identity(4, 4)}), frame)),
            1.5);
  EXPECT_EQ(rove::frame_logit_factor(rove::inverse_frame(frame)), 1.5);
  EXPECT_EQ(rove::frame_logit_factor(query_frame(frame, rove::KeyFactor::in_queries)), 1.5);
  EXPECT_EQ(rove::frame_logit_factor(MatrixFrame<>({})), 1);
}

}  // namespace
}  // namespace rove_test

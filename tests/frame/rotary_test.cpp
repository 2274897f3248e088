// Rotary frames: which channels turn, by which row of the table, in every way of saying so.
#include "rove/frame/rotary.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "laws/frame_laws.hpp"
#include "rove/dense/rotation.hpp"
#include "rove/position/factored_rotation_table.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"
#include "support/error_of.hpp"
#include "support/frames.hpp"

namespace rove_test {
namespace {

using Eigen::MatrixXd;
using rove::consecutive_positions;
using rove::Index;
using rove::Pairing;
using test::error_of;

rove::RotaryFrequencies frequencies(Index rotary_dim, double theta = 10000) {
  return rove::rotary_frequencies({.rotary_dim = rotary_dim, .rope_theta = theta});
}

template <class T = float>
rove::RotationTable<T> table(Index rotary_dim, const rove::Positions& positions) {
  return rove::RotationTable<T>(frequencies(rotary_dim), positions);
}

template <class Acc>
std::vector<Acc> numbers(Index width) {
  std::vector<Acc> row;
  for (Index c = 0; c < width; ++c)
    row.push_back(static_cast<Acc>(std::cos(2.3 * static_cast<double>(c) + 1)));
  return row;
}

/// What an action makes of numbers(width).
template <class Acc, class F>
std::vector<Acc> acted(const F& frame, Index width, Index b, Index t, int action) {
  std::vector<Acc> row = numbers<Acc>(width);
  const std::span<Acc> span(row);
  if (action == 0) frame.apply(b, t, span);
  if (action == 1) frame.inverse(b, t, span);
  if (action == 2) frame.transpose(b, t, span);
  if (action == 3) frame.inverse_transpose(b, t, span);
  return row;
}

template <class Acc>
void expect_is_matrix(const rove::RotaryFrame<rove::RotationTable<Acc>>& frame, Index width, Index token,
                      double position) {
  const MatrixXd r =
      rove::dense::rotation_matrix(width, rove::dense::inverse_frequencies(frame.rotary_dim(), 10000),
                                   position, dense_pairing(frame.pairing()), frame.first_channel());
  Eigen::VectorXd x(width);
  const std::vector<Acc> row = numbers<Acc>(width);
  for (Index c = 0; c < width; ++c) x(c) = static_cast<double>(row[static_cast<std::size_t>(c)]);
  const Eigen::VectorXd forward = r * x, backward = r.transpose() * x;
  const double epsilon = std::is_same_v<Acc, double> ? 0x1p-53 : 0x1p-24;
  // Two products and one sum of numbers up to 1, plus cos and sin rounded; the phase in double is off by
  // pω·2⁻⁵³.
  const double tolerance = 4 * epsilon + 2 * std::abs(position) * 0x1p-53;
  for (int action = 0; action < 4; ++action) {
    const std::vector<Acc> is = acted<Acc>(frame, width, 0, token, action);
    const Eigen::VectorXd& should = action == 0 || action == 3 ? forward : backward;
    for (Index c = 0; c < width; ++c) {
      ASSERT_NEAR(static_cast<double>(is[static_cast<std::size_t>(c)]), should(c), tolerance)
          << "width " << width << ", position " << position << ", action " << action << ", channel " << c;
    }
  }
}

// B26: half widths that are no multiple of a packet; guards round the row catch what reads or writes past it.
TEST(RotaryFrame, B16_B26_every_width_and_pairing_at_far_positions) {
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    for (const Index width : {2, 4, 6, 14, 18, 38, 40, 64, 72, 80, 96, 112, 128, 256}) {
      const rove::RotaryFrame frame(table(width, consecutive_positions(3, 100)), pairing);
      EXPECT_EQ(frame.channels(), width);
      expect_is_matrix<float>(frame, width, 0, 100);
      expect_is_matrix<float>(frame, width, 2, 102);
      expect_is_matrix<float>(rove::RotaryFrame(table(width, consecutive_positions(1, 131071)), pairing),
                              width, 0, 131071);
      expect_is_matrix<double>(
          rove::RotaryFrame(table<double>(width, consecutive_positions(1, -4097)), pairing), width, 0, -4097);
      // In heap memory of exactly this length, from an odd address on.
      const std::unique_ptr<float[]> memory(new float[static_cast<std::size_t>(width) + 1]);
      memory[0] = 77;
      const std::vector<float> row = numbers<float>(width);
      std::copy(row.begin(), row.end(), memory.get() + 1);
      frame.apply(0, 1, std::span<float>(memory.get() + 1, static_cast<std::size_t>(width)));
      const std::vector<float> turned = acted<float>(frame, width, 0, 1, 0);
      EXPECT_EQ(0, std::memcmp(memory.get() + 1, turned.data(), turned.size() * sizeof(float)));
      EXPECT_EQ(memory[0], 77);
    }
  }
}

TEST(RotaryFrame, B14_partial_with_an_offset_leaves_the_others_by_bits) {
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    for (const Index first : {0, 1, 8, 31}) {
      const rove::RotaryFrame frame(table(32, consecutive_positions(2, 100)), pairing, first);
      EXPECT_EQ(frame.channels(), first + 32);
      EXPECT_EQ(frame.first_channel(), first);
      EXPECT_EQ(frame.rotary_dim(), 32);
      expect_is_matrix<float>(frame, 80, 1, 101);
      const std::vector<float> before = numbers<float>(80);
      for (int action = 0; action < 4; ++action) {
        const std::vector<float> after = acted<float>(frame, 80, 0, 1, action);
        for (Index c = 0; c < 80; ++c) {
          const auto at = static_cast<std::size_t>(c);
          if (c < first || c >= first + 32) {
            EXPECT_EQ(after[at], before[at]) << c;
          }
        }
      }
    }
  }
}

TEST(RotaryFrame, the_four_actions_are_two) {
  const rove::RotaryFrame frame(table(16, consecutive_positions(5, 100)), Pairing::half_split);
  for (Index t = 0; t < 5; ++t) {
    EXPECT_EQ(acted<float>(frame, 16, 0, t, 0), acted<float>(frame, 16, 0, t, 3));
    EXPECT_EQ(acted<float>(frame, 16, 0, t, 1), acted<float>(frame, 16, 0, t, 2));
    EXPECT_NE(acted<float>(frame, 16, 0, t, 0), acted<float>(frame, 16, 0, t, 1));
  }
  expect_frame_laws<float>(rove::RotaryFrame(table(16, consecutive_positions(9)), Pairing::interleaved), 20,
                           0x1p-21);
  expect_frame_laws<double>(
      rove::RotaryFrame(table<double>(16, consecutive_positions(9)), Pairing::half_split), 16, 0x1p-50);
}

TEST(RotaryFrame, a_factored_table_gives_the_bits_of_a_plain_one) {
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const rove::Positions positions = consecutive_positions(3000, -1000);
    const rove::RotaryFrame plain(table(40, positions), pairing, 3);
    const rove::RotaryFrame factored(rove::FactoredRotationTable<float>(frequencies(40), positions), pairing,
                                     3);
    EXPECT_EQ(factored.tokens(), 3000);
    EXPECT_EQ(factored.channels(), 43);
    Index different = 0;
    for (Index t = 0; t < 3000; ++t) {
      for (int action = 0; action < 2; ++action) {
        const auto a = acted<float>(plain, 48, 0, t, action), b = acted<float>(factored, 48, 0, t, action);
        if (a != b) ++different;
        for (std::size_t c = 0; c < a.size(); ++c) ASSERT_NEAR(a[c], b[c], 0x1p-22) << "token " << t;
      }
    }
    // cos and sin are rounded to float from two doubles that are some 2⁻⁵¹ apart: one in 2²⁶ rounds the other
    // way.
    EXPECT_LE(different, 1);
  }
}

TEST(RotaryFrame, a_double_table_serves_float_rows) {
  const rove::RotaryFrame wide(table<double>(24, consecutive_positions(4, 100)), Pairing::interleaved);
  const rove::RotaryFrame narrow(table(24, consecutive_positions(4, 100)), Pairing::interleaved);
  for (Index t = 0; t < 4; ++t) EXPECT_EQ(acted<float>(wide, 24, 0, t, 0), acted<float>(narrow, 24, 0, t, 0));
}

TEST(RotaryFrame, tables_with_rows_per_batch) {
  const std::array<Index, 3> starts = {-5, 0, 100};
  const rove::RotaryFrame frame(table(16, consecutive_positions(4, starts)), Pairing::half_split);
  EXPECT_EQ(frame.batch(), 3);
  EXPECT_EQ(frame.tokens(), 4);
  for (Index b = 0; b < 3; ++b) {
    const rove::RotaryFrame alone(table(16, consecutive_positions(4, starts[static_cast<std::size_t>(b)])),
                                  Pairing::half_split);
    EXPECT_EQ(alone.batch(), 1);
    for (Index t = 0; t < 4; ++t)
      EXPECT_EQ(acted<float>(frame, 16, b, t, 0), acted<float>(alone, 16, 0, t, 0));
  }
}

// ---- Position ids -------------------------------------------------------------------------------

template <class Integer>
void expect_position_ids() {
  const rove::RotaryFrame whole(table(16, consecutive_positions(200)), Pairing::interleaved, 2);
  const std::vector<Integer> ids = {199, 0, 100, 100, 7, 3};
  const rove::RotaryFrame shared(table(16, consecutive_positions(200)), ids, Pairing::interleaved, 2);
  EXPECT_EQ(shared.tokens(), 6);
  EXPECT_EQ(shared.batch(), 1);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    EXPECT_EQ(acted<float>(shared, 20, 0, static_cast<Index>(t), 0),
              acted<float>(whole, 20, 0, static_cast<Index>(ids[t]), 0));
  }
  const rove::RotaryFrame per_batch(table(16, consecutive_positions(200)), ids, Pairing::interleaved, 2, 3);
  EXPECT_EQ(per_batch.tokens(), 2);
  EXPECT_EQ(per_batch.batch(), 3);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    EXPECT_EQ(acted<float>(per_batch, 20, static_cast<Index>(t / 2), static_cast<Index>(t % 2), 1),
              acted<float>(whole, 20, 0, static_cast<Index>(ids[t]), 1));
  }
}

TEST(RotaryFrame, position_ids_of_both_widths_shared_or_per_batch) {
  expect_position_ids<std::int32_t>();
  expect_position_ids<std::int64_t>();
}

TEST(RotaryFrame, position_ids_are_copied) {
  std::vector<Index> ids = {5, 6};
  const rove::RotaryFrame frame(table(8, consecutive_positions(10)), ids, Pairing::half_split);
  const auto before = acted<float>(frame, 8, 0, 0, 0);
  ids = {1, 1};
  EXPECT_EQ(acted<float>(frame, 8, 0, 0, 0), before);
}

TEST(RotaryFrame, position_ids_into_a_table_with_rows_per_batch) {
  const std::array<Index, 2> starts = {10, 500};
  const rove::RotaryFrame whole(table(8, consecutive_positions(4, starts)), Pairing::half_split);
  const std::vector<Index> shared = {3, 1}, own = {3, 1, 0, 2};
  const rove::RotaryFrame by_shared(table(8, consecutive_positions(4, starts)), shared, Pairing::half_split);
  const rove::RotaryFrame by_own(table(8, consecutive_positions(4, starts)), own, Pairing::half_split, 0, 2);
  EXPECT_EQ(by_shared.batch(), 2);
  EXPECT_EQ(by_shared.tokens(), 2);
  expect_rows_like_a_row<float>(by_shared, 11);
  expect_rows_like_a_row<float>(by_own, 11);
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 2; ++t) {
      const auto at = static_cast<std::size_t>(t);
      EXPECT_EQ(acted<float>(by_shared, 8, b, t, 0), acted<float>(whole, 8, b, shared[at], 0));
      EXPECT_EQ(acted<float>(by_own, 8, b, t, 0),
                acted<float>(whole, 8, b, own[static_cast<std::size_t>(2 * b) + at], 0));
    }
  }
}

TEST(RotaryFrame, B21_position_ids_outside_of_the_table_are_refused) {
  const auto lookup = [](std::vector<Index> ids, Index batch = 1) {
    return error_of(
        [&] { rove::RotaryFrame(table(8, consecutive_positions(10)), ids, Pairing::half_split, 0, batch); });
  };
  EXPECT_EQ(lookup({0, 9}), "(no error)");
  EXPECT_EQ(lookup({}), "(no error)");
  EXPECT_EQ(lookup({0, 10, 3}), "position id 10 (number 1) is outside the table's 10 rows");
  EXPECT_EQ(lookup({-1}), "position id -1 (number 0) is outside the table's 10 rows");
  EXPECT_EQ(lookup({0, 1, 2}, 2), "3 position ids cannot be shared out to 2 batch rows");
  EXPECT_EQ(lookup({0, 1}, 0), "2 position ids cannot be shared out to 0 batch rows");
  EXPECT_EQ(lookup({0, 1}, -2), "2 position ids cannot be shared out to -2 batch rows");
  const std::array<Index, 3> starts = {0, 1, 2};
  const std::vector<Index> ids = {0, 1};
  EXPECT_EQ(error_of([&] {
              rove::RotaryFrame(table(8, consecutive_positions(10, starts)), ids, Pairing::half_split, 0, 2);
            }),
            "the position ids have batch 2, the table has 3");
  // A table that is computed for such positions has them.
  expect_is_matrix<float>(rove::RotaryFrame(table(8, consecutive_positions(1, -3)), Pairing::half_split), 8,
                          0, -3);
}

TEST(RotaryFrame, mistakes_are_named_with_their_numbers) {
  EXPECT_EQ(error_of([] { rove::RotaryFrame(table(8, consecutive_positions(2)), Pairing::half_split, -2); }),
            "the first rotary channel must not be negative, got -2");
  EXPECT_EQ(error_of([] {
              rove::RotaryFrame(
                  rove::FactoredRotationTable<float>(frequencies(2050), consecutive_positions(2)),
                  Pairing::half_split);
            }),
            "a table that computes its rows serves rotary widths up to 2048, got 2050");
  EXPECT_EQ(error_of([] {
              rove::RotaryFrame(
                  rove::FactoredRotationTable<float>(frequencies(2048), consecutive_positions(2)),
                  Pairing::half_split);
            }),
            "(no error)");
}

// ---- Factors ------------------------------------------------------------------------------------

TEST(RotaryFrame, is_pure_whatever_the_tables_factor) {
  auto with_factor = frequencies(16);
  with_factor.attention_factor = 1.7;
  with_factor.logit_factor = 1.3;
  const rove::RotaryFrame scaled(rove::RotationTable<float>(with_factor, consecutive_positions(3, 100)),
                                 Pairing::half_split);
  const rove::RotaryFrame pure(table(16, consecutive_positions(3, 100)), Pairing::half_split);
  for (int action = 0; action < 4; ++action) {
    EXPECT_EQ(acted<float>(scaled, 16, 0, 2, action), acted<float>(pure, 16, 0, 2, action));
  }
  EXPECT_EQ(scaled.attention_factor(), 1.7);
  EXPECT_EQ(scaled.logit_factor(), 1.3);
  EXPECT_EQ(query_frame(scaled, rove::KeyFactor::in_queries).scale(), 1.7 * 1.7);
  EXPECT_EQ(query_frame(scaled, rove::KeyFactor::already_in_keys).scale(), 1.7);
}

TEST(ScaledRotaryFrame, divides_the_channels_that_turn_and_queries_grow) {
  const rove::RotaryFrame frame(table(8, consecutive_positions(3, 100)), Pairing::interleaved, 2);
  const rove::ScaledRotaryFrame scaled(frame, 4.0);  // a power of two: exact
  EXPECT_EQ(scaled.batch(), 1);
  EXPECT_EQ(scaled.tokens(), 3);
  EXPECT_EQ(scaled.channels(), 10);
  EXPECT_EQ(scaled.rotation().rotary_dim(), 8);
  for (int action = 0; action < 4; ++action) {
    const auto is = acted<float>(scaled, 13, 0, 1, action), turned = acted<float>(frame, 13, 0, 1, action);
    for (Index c = 0; c < 13; ++c) {
      const float by = c < 2 || c >= 10 ? 1.0F : action == 1 || action == 3 ? 4.0F : 0.25F;
      EXPECT_EQ(is[static_cast<std::size_t>(c)], turned[static_cast<std::size_t>(c)] * by)
          << "action " << action << ", channel " << c;
    }
  }
  expect_frame_laws<float>(scaled, 13, 0x1p-21);
  EXPECT_EQ(error_of([&] { rove::ScaledRotaryFrame(frame, 0.0); }),
            "the factor on rotated queries must be positive, got 0");
  EXPECT_EQ(error_of([&] { rove::ScaledRotaryFrame(frame, -1.5); }),
            "the factor on rotated queries must be positive, got -1.5");
}

TEST(RotaryFrame, copies_share_a_table_that_lives_as_long_as_they_do) {
  std::unique_ptr<rove::RotaryFrame<rove::RotationTable<float>>> copy;
  std::vector<float> before;
  {
    const rove::RotaryFrame frame(table(16, consecutive_positions(3, 100)), Pairing::half_split);
    before = acted<float>(frame, 16, 0, 2, 0);
    copy = std::make_unique<rove::RotaryFrame<rove::RotationTable<float>>>(frame);
    EXPECT_EQ(frame.table().cos(0, 0), copy->table().cos(0, 0));
  }
  EXPECT_EQ(acted<float>(*copy, 16, 0, 2, 0), before);
}

}  // namespace
}  // namespace rove_test

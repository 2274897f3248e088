#include "rove/position/positions.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "position/golden.hpp"

namespace {

using rove::consecutive_positions;
using rove::Index;
using rove::Positions;
using rove_test::message_of;

constexpr Index two53 = Index{1} << 53;

TEST(Positions, consecutive_from_zero_and_from_anywhere) {
  const Positions plain = consecutive_positions(3);
  EXPECT_EQ(plain.batch(), 1);
  EXPECT_EQ(plain.tokens(), 3);
  EXPECT_TRUE(plain.is_consecutive());
  for (Index t = 0; t < 3; ++t) EXPECT_EQ(plain(0, t), static_cast<double>(t));
  EXPECT_EQ(plain(7, 2), 2.0);  // shared by every batch row
  const Positions later = consecutive_positions(2, -5);
  EXPECT_EQ(later(0, 0), -5.0);
  EXPECT_EQ(later(0, 1), -4.0);
  EXPECT_EQ(consecutive_positions(0).tokens(), 0);
}

TEST(Positions, B20_left_padded_rows_start_below_zero) {
  const std::array<Index, 2> first{-5, 0};
  const Positions positions = consecutive_positions(10, first);
  EXPECT_EQ(positions.batch(), 2);
  for (Index t = 0; t < 10; ++t) {
    EXPECT_EQ(positions(0, t), static_cast<double>(t - 5));
    EXPECT_EQ(positions(1, t), static_cast<double>(t));
  }
}

TEST(Positions, arrays_of_every_type_are_copied) {
  std::vector<std::int32_t> narrow{3, -1, 4, 1};
  const std::vector<std::int64_t> wide{3, -1, 4, 1};
  const std::vector<double> fractional{0.5, -1.25, 4, 1};
  const Positions a(narrow);
  narrow[0] = 0;
  EXPECT_EQ(a(0, 0), 3.0);
  EXPECT_FALSE(a.is_consecutive());
  const Positions b(wide, 2);
  EXPECT_EQ(b.batch(), 2);
  EXPECT_EQ(b.tokens(), 2);
  EXPECT_EQ(b(0, 1), -1.0);
  EXPECT_EQ(b(1, 0), 4.0);
  EXPECT_EQ(Positions(fractional)(0, 1), -1.25);
  EXPECT_EQ(Positions(std::vector<double>{}).tokens(), 0);
}

TEST(Positions, B19_whole_numbers_are_exact_up_to_two_to_the_53) {
  const std::vector<std::int64_t> ids{65536, 65537, 1 << 24, (1 << 24) + 1, two53 - 1, two53, -two53};
  const Positions positions(ids);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    EXPECT_EQ(static_cast<std::int64_t>(positions(0, static_cast<Index>(t))), ids[t]);
  }
  const Positions last = consecutive_positions(2, two53 - 1);
  EXPECT_EQ(static_cast<Index>(last(0, 1)), two53);

  const std::vector<std::int64_t> beyond{0, two53 + 1};
  EXPECT_EQ(message_of([&] { Positions{beyond}; }),
            "positions[1] is 9007199254740993; it must be no further from 0 than 2^53");
  const std::vector<std::int64_t> before{-two53 - 1};
  EXPECT_EQ(message_of([&] { Positions{before}; }),
            "positions[0] is -9007199254740993; it must be no further from 0 than 2^53");
  EXPECT_EQ(message_of([] { consecutive_positions(3, two53 - 1); }),
            "positions run from 9007199254740991 for 3 tokens; none may be further from 0 than 2^53");
  EXPECT_EQ(message_of([] { consecutive_positions(3, -two53 - 1); }),
            "positions run from -9007199254740993 for 3 tokens; none may be further from 0 than 2^53");
  EXPECT_EQ(message_of([] { consecutive_positions((std::numeric_limits<Index>::max)(), 1); }),
            "positions run from 1 for 9223372036854775807 tokens; none may be further from 0 than 2^53");
}

TEST(Positions, refusals) {
  const std::vector<double> nan{std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(message_of([&] { Positions{nan}; }),
            "positions[0] is nan; it must be finite and no further from 0 than 2^53");
  const std::vector<std::int32_t> three{1, 2, 3};
  EXPECT_EQ(message_of([&] { Positions(three, 2); }),
            "positions hold 3 numbers, which 2 batch rows cannot share equally");
  EXPECT_EQ(message_of([&] { Positions(three, 0); }),
            "positions are given for 0 batch rows; there must be at least 1");
  EXPECT_EQ(message_of([] { consecutive_positions(-1); }),
            "consecutive_positions was asked for -1 positions");
  EXPECT_EQ(message_of([] { consecutive_positions(1, std::span<const Index>{}); }),
            "first_of_row is empty; there must be at least 1 batch row");
}

TEST(Positions, extended_goes_on_where_it_is_known_how) {
  const std::array<Index, 2> first{-5, 7};
  const Positions longer = consecutive_positions(1, first).extended(4);
  EXPECT_EQ(longer.tokens(), 4);
  EXPECT_EQ(longer(0, 3), -2.0);
  EXPECT_EQ(longer(1, 3), 10.0);
  EXPECT_EQ(consecutive_positions(1, first).longest(), two53 - 7 + 1);
  const std::vector<std::int32_t> ids{1, 2, 3};
  EXPECT_EQ(Positions(ids).longest(), 0);
  EXPECT_EQ(
      message_of([&] { Positions(ids).extended(4); }),
      "positions that were given one by one cannot be extended to 4 tokens: only consecutive ones say what "
      "comes next");
}

}  // namespace

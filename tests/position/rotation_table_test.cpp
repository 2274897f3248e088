// Tables against golden angles, against each other, and against the ways in which they have gone wrong.

#include "rove/position/rotation_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "position/golden.hpp"
#include "rove/core/huge_pages.hpp"
#include "rove/position/rotary_frequencies.hpp"

namespace {

using rove::consecutive_positions;
using rove::Index;
using rove::InverseFrequencies;
using rove::Positions;
using rove::RotaryFrequencies;
using rove::RotationTable;
using rove_test::Json;
using rove_test::message_of;

constexpr Index two53 = Index{1} << 53;

static_assert(rove::RotationSource<RotationTable<float>>);
static_assert(rove::RotationSource<RotationTable<double>>);
static_assert(rove::StoredRotationSource<RotationTable<float>>);
static_assert(RotationTable<float>::scratch_size() == 0);

/// A position of one pair of frequency 1 turns by one radian.
RotaryFrequencies one_radian() {
  return {.inv_freq = {1.0}};
}

/// |phase|·2⁻⁵³ + 2⁻⁵², and half an ulp of float where cos and sin are rounded to it.
template <class T>
double bound(double phase) {
  return std::abs(phase) * 0x1p-53 + 0x1p-52 + (std::is_same_v<T, float> ? 0x1p-25 : 0.0);
}

template <class T>
class RotationTableOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(RotationTableOf, Scalars);

TYPED_TEST(RotationTableOf, golden_angles) {
  const Json angles = rove_test::load_json("angles.json");
  ASSERT_EQ(angles.size(), 187U);
  for (const Json& a : angles) {
    SCOPED_TRACE(a.dump());
    const auto inv_freq =
        rove_test::golden(a["case"].get<std::string>())["inv_freq"].get<std::vector<double>>();
    const std::vector<Index> position{a["position"].get<Index>()};
    const RotationTable<TypeParam> table(rove::frequencies_from(InverseFrequencies(inv_freq)),
                                         Positions(position));
    const auto pair = a["pair"].get<Index>();
    const double within = bound<TypeParam>(static_cast<double>(position[0]) * a["inv_freq"].get<double>());
    EXPECT_NEAR(table.cos(0, 0)[pair], a["cos"].get<double>(), within);
    EXPECT_NEAR(table.sin(0, 0)[pair], a["sin"].get<double>(), within);
  }
}

TYPED_TEST(RotationTableOf, B17_large_angles_do_not_drift) {
  const RotationTable<TypeParam> table(one_radian(), consecutive_positions(1, 131071));
  EXPECT_NEAR(table.cos(0, 0)[0], -0.81798350, 5e-9 + bound<TypeParam>(131071));
  EXPECT_NEAR(table.sin(0, 0)[0], -0.57524168, 5e-9 + bound<TypeParam>(131071));
}

TYPED_TEST(RotationTableOf, B18_phases_are_double_whatever_T_is) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 64});
  const RotationTable<TypeParam> table(frequencies, consecutive_positions(1, 4095));
  for (std::size_t k = 0; k < 32; ++k) {
    const double phase = 4095 * frequencies.inv_freq[k];
    EXPECT_NEAR(table.cos(0, 0)[k], std::cos(phase), bound<TypeParam>(0)) << k;
    EXPECT_NEAR(table.sin(0, 0)[k], std::sin(phase), bound<TypeParam>(0)) << k;
  }
  // The size of the fault: pair 7's frequency in bfloat16, 8 significant bits.
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(frequencies.inv_freq[7], 10)), -10);
  EXPECT_NEAR(4095 * std::abs(rounded - frequencies.inv_freq[7]), 1.789, 5e-4);
}

TYPED_TEST(RotationTableOf, B19_positions_past_16_24_and_32_bits) {
  const std::vector<std::int64_t> ids{1, 65537, (1 << 24) + 1, (std::int64_t{1} << 32) + 1, two53 - 1, two53};
  const RotationTable<TypeParam> table(one_radian(), Positions(ids));
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const auto position = static_cast<double>(ids[t]);
    EXPECT_NEAR(table.cos(0, static_cast<Index>(t))[0], std::cos(position), bound<TypeParam>(0)) << ids[t];
    EXPECT_NEAR(table.sin(0, static_cast<Index>(t))[0], std::sin(position), bound<TypeParam>(0)) << ids[t];
  }
}

TYPED_TEST(RotationTableOf, B20_left_padded_rows_hold_the_unpadded_rotations) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 20});
  const std::array<Index, 2> first{-5, 0};
  const RotationTable<TypeParam> padded(frequencies, consecutive_positions(10, first));
  const RotationTable<TypeParam> plain(frequencies, consecutive_positions(5));
  EXPECT_EQ(padded.batch(), 2);
  for (Index t = 0; t < 5; ++t) {
    for (Index k = 0; k < 10; ++k) {
      EXPECT_EQ(padded.cos(0, t + 5)[k], plain.cos(0, t)[k]);
      EXPECT_EQ(padded.sin(0, t + 5)[k], plain.sin(0, t)[k]);
      EXPECT_EQ(padded.cos(1, t)[k], plain.cos(0, t)[k]);
    }
  }
}

TYPED_TEST(RotationTableOf, B21_negative_positions_are_computed) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 20});
  const RotationTable<TypeParam> table(frequencies, consecutive_positions(9, -4));
  for (Index p = 1; p <= 4; ++p) {
    for (Index k = 0; k < 10; ++k) {
      EXPECT_EQ(table.cos(0, 4 - p)[k], table.cos(0, 4 + p)[k]);
      EXPECT_EQ(table.sin(0, 4 - p)[k], -table.sin(0, 4 + p)[k]);
    }
    EXPECT_GT(table.sin(0, 4 + p)[9], TypeParam{0});  // slow pairs: +p·ω
  }
}

TYPED_TEST(RotationTableOf, B21_rows_that_are_not_there_are_refused_with_both_numbers) {
  const RotationTable<TypeParam> shared(one_radian(), consecutive_positions(3));
  EXPECT_EQ(message_of([&] { rove::checked_row(shared, 0, 3, std::span<TypeParam>{}); }),
            "row 3 was asked of a rotation table with 3 rows");
  EXPECT_EQ(message_of([&] { rove::checked_row(shared, 0, -1, std::span<TypeParam>{}); }),
            "row -1 was asked of a rotation table with 3 rows");
  EXPECT_EQ(rove::checked_row(shared, 5, 2, std::span<TypeParam>{}).cos, shared.cos(0, 2));
  const std::array<Index, 2> first{0, 1};
  const RotationTable<TypeParam> two(one_radian(), consecutive_positions(3, first));
  EXPECT_EQ(message_of([&] { rove::checked_row(two, 2, 0, std::span<TypeParam>{}); }),
            "batch row 2 was asked of a rotation table with 2");
  EXPECT_EQ(message_of([&] { rove::checked_row(shared, -1, 0, std::span<TypeParam>{}); }),
            "batch row -1 was asked of a rotation table with 1");
}

TYPED_TEST(RotationTableOf, B22_two_offsets_are_two_tables) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 20});
  const RotationTable<TypeParam> at_0(frequencies, consecutive_positions(4));
  const RotationTable<TypeParam> at_2(frequencies, consecutive_positions(4, 2));
  for (Index k = 0; k < 10; ++k) {
    EXPECT_NE(at_0.sin(0, 1)[k], at_2.sin(0, 1)[k]);
    EXPECT_EQ(at_0.sin(0, 2)[k], at_2.sin(0, 0)[k]);
    EXPECT_EQ(at_0.cos(0, 3)[k], at_2.cos(0, 1)[k]);
  }
}

// Under longrope and dynamic NTK a frequency depends on how long the sequence will be. Keys turned for one
// length and queries turned for another meet at an angle that depends on where they stand, not only on how
// far apart.
TYPED_TEST(RotationTableOf, B38_one_table_serves_one_sequence) {
  auto options = rove_test::options_of(rove_test::golden("phi3_at_original"));
  options.seq_len = 4096;
  const auto short_frequencies = rove::rotary_frequencies(options);
  options.seq_len = 4097;
  const auto long_frequencies = rove::rotary_frequencies(options);
  const RotationTable<TypeParam> at_short(short_frequencies, consecutive_positions(4097));
  const RotationTable<TypeParam> at_long(long_frequencies, consecutive_positions(4097));
  const auto& scaling = std::get<rove::LongRope>(options.scaling);

  // The long list from position 0 on, not only past the original length.
  const std::size_t k = 20;
  const double plain = std::exp(-std::log(1e4) * static_cast<double>(k) / 48);
  EXPECT_NEAR(at_long.sin(0, 3)[k], std::sin(3 * plain / scaling.long_factor[k]), 1e-7);
  EXPECT_NEAR(at_short.sin(0, 3)[k], std::sin(3 * plain / scaling.short_factor[k]), 1e-7);

  // cos of the angle between a query at i and a key at j
  const auto between = [&](const auto& queries, Index i, const auto& keys, Index j) {
    return static_cast<double>(queries.cos(0, i)[k]) * static_cast<double>(keys.cos(0, j)[k]) +
           static_cast<double>(queries.sin(0, i)[k]) * static_cast<double>(keys.sin(0, j)[k]);
  };
  EXPECT_NEAR(between(at_long, 4096, at_long, 4090), between(at_long, 6, at_long, 0), 1e-6);
  EXPECT_GT(std::abs(between(at_long, 4096, at_short, 4090) - between(at_long, 6, at_short, 0)), 0.01);

  // A table that grows past the original length keeps the frequencies it was built from.
  RotationTable<TypeParam> grown(short_frequencies, consecutive_positions(4096));
  grown.extend(5000);
  EXPECT_EQ(grown.cos(0, 4096)[k], at_short.cos(0, 4096)[k]);
}

TYPED_TEST(RotationTableOf, fractional_positions) {
  const std::vector<double> positions{0.5, -1.75, 1e6 + 0.125};
  const RotationTable<TypeParam> table(one_radian(), Positions(positions));
  for (std::size_t t = 0; t < positions.size(); ++t) {
    EXPECT_EQ(table.cos(0, static_cast<Index>(t))[0], static_cast<TypeParam>(std::cos(positions[t])));
    EXPECT_EQ(table.sin(0, static_cast<Index>(t))[0], static_cast<TypeParam>(std::sin(positions[t])));
  }
}

TYPED_TEST(RotationTableOf, positions_of_each_batch_row) {
  const std::vector<std::int32_t> ids{3, 1, 2, 9, 8, 7};
  const RotationTable<TypeParam> table(one_radian(), Positions(ids, 2));
  EXPECT_EQ(table.batch(), 2);
  EXPECT_EQ(table.rows(), 3);
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 3; ++t) {
      const auto position = static_cast<double>(ids[static_cast<std::size_t>(3 * b + t)]);
      EXPECT_EQ(table.cos(b, t)[0], static_cast<TypeParam>(std::cos(position)));
    }
  }
}

TYPED_TEST(RotationTableOf, a_run_has_every_row_of_its_batch_row) {
  const std::vector<std::int32_t> ids{0, 1, 2, 5, 6, 7};
  const RotationTable<TypeParam> shared(one_radian(), consecutive_positions(3));
  const RotationTable<TypeParam> apart(rove::rotary_frequencies({.rotary_dim = 34}), Positions(ids, 2));
  for (const auto* table : {&shared, &apart}) {
    for (Index b = 0; b < 2; ++b) {
      const auto run = table->run(b);
      for (Index t = 0; t < 3; ++t) {
        EXPECT_EQ(run[t].cos, table->row(b, t).cos);
        EXPECT_EQ(run[t].sin, table->row(b, t).sin);
      }
    }
  }
}

TYPED_TEST(RotationTableOf, shape_alignment_and_padding) {
  for (const Index pairs : {1, 7, 8, 16, 17, 32, 33}) {
    const RotationTable<TypeParam> table(rove::rotary_frequencies({.rotary_dim = 2 * pairs}),
                                         consecutive_positions(3));
    EXPECT_EQ(table.pairs(), pairs);
    EXPECT_EQ(table.rotary_dim(), 2 * pairs);
    EXPECT_EQ(table.rows(), 3);
    for (Index t = 0; t < 3; ++t) {
      const auto row = table.row(0, t);
      EXPECT_EQ(row.cos, table.cos(0, t));
      EXPECT_EQ(row.sin, table.sin(0, t));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(row.cos) % 64, 0U);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(row.sin) % 64, 0U);
      for (Index k = pairs; k * static_cast<Index>(sizeof(TypeParam)) % 64 != 0; ++k) {
        EXPECT_EQ(row.cos[k], TypeParam{1});
        EXPECT_EQ(row.sin[k], TypeParam{0});
      }
    }
  }
}

TYPED_TEST(RotationTableOf, is_pure_and_carries_the_factors_beside) {
  const auto frequencies =
      rove::rotary_frequencies({.rotary_dim = 64,
                                .scaling = rove::Yarn{.factor = 40,
                                                      .original_max_position_embeddings = 4096,
                                                      .mscale_all_dim = 0.707,
                                                      .logits = rove::YarnLogits::deepseek}});
  const RotationTable<TypeParam> table(frequencies, consecutive_positions(50, 100));
  EXPECT_EQ(table.attention_factor(), frequencies.attention_factor);
  EXPECT_EQ(table.logit_factor(), frequencies.logit_factor);
  EXPECT_NE(table.attention_factor(), 1.0);
  for (Index t = 0; t < 50; ++t) {
    for (Index k = 0; k < 32; ++k) {
      const double c = table.cos(0, t)[k];
      const double s = table.sin(0, t)[k];
      EXPECT_NEAR(c * c + s * s, 1, 2 * std::numeric_limits<TypeParam>::epsilon());
    }
  }
}

TYPED_TEST(RotationTableOf, no_tokens) {
  const RotationTable<TypeParam> table(one_radian(), consecutive_positions(0));
  EXPECT_EQ(table.rows(), 0);
  EXPECT_EQ(table.pairs(), 1);
}

TYPED_TEST(RotationTableOf, copies_share_the_numbers) {
  const RotationTable<TypeParam> table(one_radian(), consecutive_positions(3));
  const RotationTable<TypeParam> copy = table;
  EXPECT_EQ(copy.cos(0, 1), table.cos(0, 1));
}

TYPED_TEST(RotationTableOf, extend_goes_on_and_leaves_copies_alone) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 20});
  const std::array<Index, 2> first{-3, 1000};
  const RotationTable<TypeParam> whole(frequencies, consecutive_positions(40, first));
  RotationTable<TypeParam> table(frequencies, consecutive_positions(2, first));
  const RotationTable<TypeParam> before = table;
  const TypeParam* const row = before.cos(1, 1);
  const std::vector<TypeParam> kept(row, row + 10);
  for (const Index rows : {3, 3, 1, 4, 5, 11, 40}) {
    const Index expected = (std::max)(rows, table.rows());
    table.extend(rows);
    ASSERT_EQ(table.rows(), expected);
    for (Index b = 0; b < 2; ++b) {
      for (Index t = 0; t < table.rows(); ++t) {
        for (Index k = 0; k < 10; ++k) {
          ASSERT_EQ(table.cos(b, t)[k], whole.cos(b, t)[k]) << b << ' ' << t << ' ' << k;
          ASSERT_EQ(table.sin(b, t)[k], whole.sin(b, t)[k]) << b << ' ' << t << ' ' << k;
        }
      }
    }
  }
  EXPECT_EQ(before.rows(), 2);
  EXPECT_EQ(before.cos(1, 1), row);
  EXPECT_EQ(std::memcmp(row, kept.data(), 10 * sizeof(TypeParam)), 0);
}

TYPED_TEST(RotationTableOf, extend_row_by_row_rarely_moves) {
  RotationTable<TypeParam> table(one_radian(), consecutive_positions(1));
  int moves = 0;
  for (Index rows = 2; rows <= 4096; ++rows) {
    const TypeParam* const before = table.cos(0, 0);
    const RotationTable<TypeParam> holder = table;  // so that no address is used twice
    table.extend(rows);
    moves += table.cos(0, 0) != before;
  }
  EXPECT_EQ(moves, 12);
}

TYPED_TEST(RotationTableOf, extend_from_nothing_and_up_to_the_last_position) {
  RotationTable<TypeParam> table(one_radian(), consecutive_positions(0));
  table.extend(2);
  EXPECT_EQ(table.cos(0, 1)[0], static_cast<TypeParam>(std::cos(1.0)));
  RotationTable<TypeParam> last(one_radian(), consecutive_positions(2, two53 - 2));
  last.extend(3);
  EXPECT_EQ(last.cos(0, 2)[0], static_cast<TypeParam>(std::cos(0x1p53)));
  EXPECT_EQ(message_of([&] { last.extend(4); }),
            "positions run from 9007199254740990 for 4 tokens; none may be further from 0 than 2^53");
  EXPECT_EQ(last.rows(), 3);
}

TYPED_TEST(RotationTableOf, refusals) {
  const std::vector<std::int32_t> ids{4, 2};
  RotationTable<TypeParam> table(one_radian(), Positions(ids));
  EXPECT_EQ(
      message_of([&] { table.extend(3); }),
      "a table of 2 rows cannot be extended to 3: only one made from consecutive positions says what comes "
      "next");
  using Table = RotationTable<TypeParam>;
  EXPECT_EQ(message_of([] { Table({.inv_freq = {}}, consecutive_positions(1)); }),
            "inv_freq is empty; there must be at least 1 pair of channels");
  EXPECT_EQ(message_of([] { Table({.inv_freq = {1}, .attention_factor = 0}, consecutive_positions(1)); }),
            "attention_factor is 0; it must be positive and finite");
  EXPECT_EQ(message_of([] { Table({.inv_freq = {1}, .logit_factor = -1}, consecutive_positions(1)); }),
            "logit_factor is -1; it must be positive and finite");
  EXPECT_EQ(
      message_of([] { Table(rove::rotary_frequencies({.rotary_dim = 128}), consecutive_positions(two53)); }),
      "a rotation table of 1 batch rows, 9007199254740992 tokens and 64 pairs does not fit into memory");
}

TEST(RotationTable, large_ones_lie_on_large_pages) {
  // 1 MiB of floats, the least that counts as large, and a row less.
  const auto starts_a_page = [](Index tokens) {
    const RotationTable<float> table(rove::rotary_frequencies({.rotary_dim = 64}),
                                     consecutive_positions(tokens));
    EXPECT_EQ(table.row(0, tokens - 1).cos[0], static_cast<float>(std::cos(static_cast<double>(tokens - 1))));
    return reinterpret_cast<std::uintptr_t>(table.row(0, 0).cos) % rove::detail::huge_page == 0;
  };
  EXPECT_TRUE(starts_a_page(4096));
  EXPECT_TRUE(starts_a_page(20000));
  // By chance one may start there, several will not.
  EXPECT_FALSE(starts_a_page(4095) && starts_a_page(4000) && starts_a_page(3000));
}

}  // namespace

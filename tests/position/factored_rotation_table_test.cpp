// The factored table against golden angles, extended precision and the plain table.

#include "rove/position/factored_rotation_table.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "position/golden.hpp"
#include "rove/position/rotary_frequencies.hpp"

namespace {

using rove::consecutive_positions;
using rove::FactoredRotationTable;
using rove::Index;
using rove::InverseFrequencies;
using rove::Positions;
using rove::RotationTable;
using rove_test::Json;
using rove_test::message_of;

static_assert(rove::RotationSource<FactoredRotationTable<float>>);
static_assert(rove::RotationSource<FactoredRotationTable<double>>);
static_assert(!rove::StoredRotationSource<FactoredRotationTable<double>>);

template <class T>
constexpr double float_rounding = std::is_same_v<T, float> ? 0x1p-25 : 0.0;

/// One row, read.
template <class T>
struct Row {
  Row(const FactoredRotationTable<T>& table, Index b, Index t)
      : cos(static_cast<std::size_t>(table.pairs())), sin(cos.size()) {
    table.read(b, t, cos.data(), sin.data());
  }
  std::vector<T> cos, sin;
};

template <class T>
class FactoredTableOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(FactoredTableOf, Scalars);

TYPED_TEST(FactoredTableOf, golden_angles) {
  const Json angles = rove_test::load_json("angles.json");
  ASSERT_EQ(angles.size(), 187U);
  for (const char* name : {"llama2", "smollm2", "llama31_8b"}) {
    const auto inv_freq = rove_test::golden(name)["inv_freq"].get<std::vector<double>>();
    std::vector<Index> ids;
    for (const Json& a : angles) ids.push_back(a["position"].get<Index>());
    const FactoredRotationTable<TypeParam> table(rove::frequencies_from(InverseFrequencies(inv_freq)),
                                                 Positions(ids));
    for (std::size_t i = 0; i < angles.size(); ++i) {
      const Json& a = angles[i];
      if (a["case"] != name) continue;
      SCOPED_TRACE(a.dump());
      const Row<TypeParam> row(table, 0, static_cast<Index>(i));
      const auto pair = a["pair"].get<std::size_t>();
      const double phase = static_cast<double>(ids[i]) * a["inv_freq"].get<double>();
      const double bound = std::abs(phase) * 0x1p-53 + 0x1p-52 + float_rounding<TypeParam>;
      EXPECT_NEAR(row.cos[pair], a["cos"].get<double>(), bound);
      EXPECT_NEAR(row.sin[pair], a["sin"].get<double>(), bound);
    }
  }
}

TYPED_TEST(FactoredTableOf, millions_of_positions_within_the_stated_bound) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 64, .rope_theta = 1e5});
  std::mt19937_64 random(20260611);
  std::uniform_int_distribution<Index> any(-20'000'000, 20'000'000);
  std::vector<Index> ids{0, 1, -1, 8191, 8192, 8193, -8192, 67108863, -67108863};
  for (int i = 0; i < 2000; ++i) ids.push_back(any(random));
  const FactoredRotationTable<TypeParam> table(frequencies, Positions(ids));
  double worst = 0;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const Row<TypeParam> row(table, 0, static_cast<Index>(t));
    for (std::size_t k = 0; k < 32; ++k) {
      // 64 bits or more: exact beside a double.
      const long double phase =
          static_cast<long double>(ids[t]) * static_cast<long double>(frequencies.inv_freq[k]);
      const auto bound = static_cast<double>(std::abs(phase)) * 0x1p-53 + 0x1p-51 + float_rounding<TypeParam>;
      const auto cos_error =
          static_cast<double>(std::abs(static_cast<long double>(row.cos[k]) - std::cos(phase)));
      const auto sin_error =
          static_cast<double>(std::abs(static_cast<long double>(row.sin[k]) - std::sin(phase)));
      ASSERT_LE(cos_error, bound) << ids[t] << ' ' << k;
      ASSERT_LE(sin_error, bound) << ids[t] << ' ' << k;
      worst = (std::max)(worst, (std::max)(cos_error, sin_error) / bound);
    }
  }
  EXPECT_GT(worst, 0.2);  // the bound says something, and truth was not compared with itself
}

TYPED_TEST(FactoredTableOf, agrees_with_the_plain_table) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 20, .scaling = rove::Linear{.factor = 3}});
  const std::array<Index, 3> first{-700, 0, 123456};
  const FactoredRotationTable<TypeParam> table(frequencies, consecutive_positions(1500, first));
  const RotationTable<TypeParam> plain(frequencies, consecutive_positions(1500, first));
  EXPECT_EQ(table.batch(), 3);
  EXPECT_EQ(table.rows(), 1500);
  EXPECT_EQ(table.pairs(), 10);
  EXPECT_EQ(table.rotary_dim(), 20);
  for (Index b = 0; b < 3; ++b) {
    for (Index t = 0; t < 1500; ++t) {
      const Row<TypeParam> row(table, b, t);
      const double position = std::abs(static_cast<double>(first[static_cast<std::size_t>(b)] + t));
      for (Index k = 0; k < 10; ++k) {
        const auto pair = static_cast<std::size_t>(k);
        const double bound =
            2 * (position * frequencies.inv_freq[pair] * 0x1p-53 + 0x1p-51 + float_rounding<TypeParam>);
        ASSERT_NEAR(row.cos[pair], plain.cos(b, t)[k], bound) << b << ' ' << t << ' ' << k;
        ASSERT_NEAR(row.sin[pair], plain.sin(b, t)[k], bound) << b << ' ' << t << ' ' << k;
      }
    }
  }
}

TYPED_TEST(FactoredTableOf, opposite_positions_are_exact_transposes) {
  const FactoredRotationTable<TypeParam> table(rove::rotary_frequencies({.rotary_dim = 20}),
                                               consecutive_positions(2001, -1000));
  for (Index p = 1; p <= 1000; ++p) {
    const Row<TypeParam> before(table, 0, 1000 - p);
    const Row<TypeParam> after(table, 0, 1000 + p);
    EXPECT_EQ(before.cos, after.cos);
    for (std::size_t k = 0; k < 10; ++k) EXPECT_EQ(before.sin[k], -after.sin[k]);
  }
}

TYPED_TEST(FactoredTableOf, row_reads_into_the_scratch) {
  const FactoredRotationTable<TypeParam> table(rove::rotary_frequencies({.rotary_dim = 20}),
                                               consecutive_positions(50));
  EXPECT_EQ(table.scratch_size(), 20);
  std::vector<TypeParam> scratch(21, TypeParam{7});
  const auto row = rove::checked_row(table, 0, 49, std::span(scratch));
  const Row<TypeParam> read(table, 0, 49);
  EXPECT_EQ(row.cos, scratch.data());
  EXPECT_EQ(std::vector<TypeParam>(row.cos, row.cos + 10), read.cos);
  EXPECT_EQ(std::vector<TypeParam>(row.sin, row.sin + 10), read.sin);
  EXPECT_EQ(scratch[20], TypeParam{7});
  EXPECT_EQ(message_of([&] { rove::checked_row(table, 0, 50, std::span(scratch)); }),
            "row 50 was asked of a rotation table with 50 rows");
  EXPECT_EQ(message_of([&] { rove::checked_row(table, 0, 1, std::span(scratch).first(19)); }),
            "scratch holds 19 numbers; a row of this table needs 20");
}

TYPED_TEST(FactoredTableOf, memory_grows_with_the_root) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 128});
  const FactoredRotationTable<TypeParam> table(frequencies, consecutive_positions(Index{1} << 22));
  EXPECT_EQ(table.table_bytes(), 2 * 2048 * 2 * 64 * 8);
  const FactoredRotationTable<TypeParam> one(frequencies, consecutive_positions(1));
  EXPECT_EQ(one.table_bytes(), 2 * 2 * 64 * 8);
}

TYPED_TEST(FactoredTableOf, carries_the_factors_beside) {
  const FactoredRotationTable<TypeParam> table(
      {.inv_freq = {1, 0.5}, .attention_factor = 1.5, .logit_factor = 1.25}, consecutive_positions(100));
  EXPECT_EQ(table.attention_factor(), 1.5);
  EXPECT_EQ(table.logit_factor(), 1.25);
  const Row<TypeParam> row(table, 0, 77);
  EXPECT_NEAR(row.cos[0] * row.cos[0] + row.sin[0] * row.sin[0], 1, 1e-6);
}

TYPED_TEST(FactoredTableOf, extend_goes_on_and_leaves_copies_alone) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 4});
  FactoredRotationTable<TypeParam> table(frequencies, consecutive_positions(3, -1));
  const FactoredRotationTable<TypeParam> before = table;
  const RotationTable<TypeParam> plain(frequencies, consecutive_positions(300, -1));
  for (const Index rows : {4, 2, 5, 6, 18, 300}) {
    const Index expected = (std::max)(rows, table.rows());
    table.extend(rows);
    ASSERT_EQ(table.rows(), expected);
    for (Index t = 0; t < table.rows(); ++t) {
      const Row<TypeParam> row(table, 0, t);
      ASSERT_NEAR(row.cos[0], plain.cos(0, t)[0], 1e-12 + 2 * float_rounding<TypeParam>);
      ASSERT_NEAR(row.sin[1], plain.sin(0, t)[1], 1e-12 + 2 * float_rounding<TypeParam>);
    }
  }
  EXPECT_EQ(before.rows(), 3);
  EXPECT_EQ(Row<TypeParam>(before, 0, 2).cos[0], Row<TypeParam>(table, 0, 2).cos[0]);
}

TYPED_TEST(FactoredTableOf, reaches_just_as_far_as_its_positions) {
  // B² = 16, 64, 256: the position before, the first that needs a larger block, and the one behind it.
  for (const Index last : {0, 1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257}) {
    for (const Index first : {Index{0}, -last}) {
      const FactoredRotationTable<TypeParam> table({.inv_freq = {1}}, consecutive_positions(last + 1, first));
      const Row<TypeParam> row(table, 0, first == 0 ? last : 0);
      EXPECT_NEAR(row.cos[0], std::cos(static_cast<double>(last)), 1e-13 + float_rounding<TypeParam>) << last;
    }
  }
}

TYPED_TEST(FactoredTableOf, no_tokens) {
  EXPECT_EQ(FactoredRotationTable<TypeParam>({.inv_freq = {1}}, consecutive_positions(0)).rows(), 0);
}

TYPED_TEST(FactoredTableOf, refusals) {
  using Table = FactoredRotationTable<TypeParam>;
  const std::vector<double> fractional{1, 2.5};
  EXPECT_EQ(message_of([&] { Table({.inv_freq = {1}}, Positions(fractional)); }),
            "positions[0][1] is 2.5; a factored table needs whole positions (RotationTable takes any)");
  EXPECT_EQ(message_of([] { Table({.inv_freq = {}}, consecutive_positions(1)); }),
            "inv_freq is empty; there must be at least 1 pair of channels");
  const std::vector<std::int32_t> ids{1, 2};
  Table table({.inv_freq = {1}}, Positions(ids));
  EXPECT_EQ(
      message_of([&] { table.extend(3); }),
      "a table of 2 rows cannot be extended to 3: only one made from consecutive positions says what comes "
      "next");
}

}  // namespace

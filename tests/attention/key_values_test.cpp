// The concept of a cache, how rows are read, and a model of one's own; the library's models have files of
// their own in key_values/.
#include "rove/attention/key_values.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/key_values/int8.hpp"
#include "rove/attention/key_values/paged.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/key_values/tensor.hpp"
#include "support/error_of.hpp"
#include "support/key_values.hpp"

namespace rove_test {
namespace {

using test::error_of;

// ---- The concept ----

static_assert(rove::KeyValues<rove::TensorKeyValues<float, Eigen::half>>);
static_assert(rove::KeyValues<rove::RingKeyValues<Eigen::bfloat16, double>>);
static_assert(rove::KeyValues<rove::PagedKeyValues<Eigen::half, Eigen::half>>);
static_assert(rove::KeyValues<rove::Int8KeyValues>);
static_assert(rove::KeyValues<rove::DisplacedKeyValues<rove::DisplacedKeyValues<rove::Int8KeyValues>>>);

// A storage that no RowCodec knows is refused, and so is what merely looks like a tensor.
static_assert(!rove::KeyValues<rove::TensorKeyValues<std::uint16_t, float>>);
static_assert(!rove::KeyValues<rove::TensorView<float>>);
static_assert(!rove::RowStorage<unsigned char> && !rove::RowStorage<const float>);

static_assert(
    std::is_same_v<rove::key_value_accumulator_t<rove::TensorKeyValues<float, Eigen::half>>, float>);
static_assert(std::is_same_v<rove::key_value_accumulator_t<rove::TensorKeyValues<float, double>>, double>);
static_assert(std::is_same_v<rove::key_value_accumulator_t<rove::Int8KeyValues>, float>);

// What crosses translation units is plain.
static_assert(std::is_aggregate_v<rove::RowRun<float>> && std::is_trivially_copyable_v<rove::RowRun<float>>);
static_assert(std::is_aggregate_v<rove::PagedKeyValues<float, float>> &&
              std::is_trivially_copyable_v<rove::PagedKeyValues<float, float>>);
static_assert(std::is_trivially_copyable_v<rove::DisplacedKeyValues<rove::RingKeyValues<float, float>>>);

template <class Acc, class T>
concept Reads = requires(const rove::RowRun<T>& run, std::span<Acc> out) {
  rove::RowCodec<T>::read(run, 0, out);
};
static_assert(Reads<float, float> && Reads<double, float> && Reads<double, double> &&
              Reads<float, std::int8_t>);
static_assert(!Reads<float, double>);  // it would round

// ---- Rows ----

TEST(RowCodec, reads_rows_of_any_stride) {
  std::vector<float> memory(200);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  std::vector<float> out(5);
  // A packed panel: row 3 of 16, channels 16 apart.
  rove::RowCodec<float>::read({memory.data(), 16, 1, 16}, 3, std::span<float>(out));
  EXPECT_EQ(out, (std::vector<float>{3, 19, 35, 51, 67}));
  rove::RowCodec<float>::read({memory.data() + 50, 3, -10, -2}, 2, std::span<float>(out));
  EXPECT_EQ(out, (std::vector<float>{30, 28, 26, 24, 22}));
  rove::RowCodec<float>::read({memory.data() + 50, 3, 0, 0}, 2, std::span<float>(out));
  EXPECT_EQ(out, (std::vector<float>{50, 50, 50, 50, 50}));
}

TEST(RowCodec, every_tail_of_a_contiguous_row) {
  for (std::size_t n = 0; n <= 37; ++n) {
    std::vector<Eigen::bfloat16> row(n);
    for (std::size_t c = 0; c < n; ++c) row[c] = as<Eigen::bfloat16>(static_cast<int>(c) - 9);
    std::vector<float> out(n + 2, -1000);
    rove::RowCodec<Eigen::bfloat16>::read({row.data(), 1, 1, 1}, 0, std::span<float>(out.data() + 1, n));
    EXPECT_EQ(out.front(), -1000);
    EXPECT_EQ(out.back(), -1000);
    for (std::size_t c = 0; c < n; ++c) EXPECT_EQ(out[c + 1], static_cast<float>(c) - 9);
  }
}

TEST(RowCodec, widening_is_exact_and_keeps_what_is_not_finite) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> special{inf, -inf, nan, -0.0F, std::numeric_limits<float>::denorm_min()};
  std::vector<double> out(5);
  rove::RowCodec<float>::read({special.data(), 1, 5, 1}, 0, std::span<double>(out));
  EXPECT_EQ(out[0], inf);
  EXPECT_EQ(out[1], -inf);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_TRUE(out[3] == 0 && std::signbit(out[3]));
  EXPECT_EQ(out[4], 0x1p-149);

  const std::uint16_t halves[] = {0x7c00, 0x7e00, 0x0001, 0xfbff, 0x8000};
  rove::RowCodec<Eigen::half>::read({rove::as_half(halves), 1, 5, 1}, 0, std::span<double>(out));
  EXPECT_EQ(out[0], inf);
  EXPECT_TRUE(std::isnan(out[1]));
  EXPECT_EQ(out[2], 0x1p-24);
  EXPECT_EQ(out[3], -65504);
  EXPECT_TRUE(std::signbit(out[4]));
}

TEST(RowCodec, scale_times_integer_is_rounded_once) {
  const std::int8_t row[] = {-128, -127, -1, 0, 1, 3, 127};
  const float scales[] = {5, 0.1F, 1e-38F};
  std::vector<float> narrow(7);
  std::vector<double> wide(7);
  const rove::RowRun<std::int8_t> run{row, 3, 0, 1, scales, 1};
  for (Index r = 0; r < 3; ++r) {
    rove::RowCodec<std::int8_t>::read(run, r, std::span<float>(narrow));
    rove::RowCodec<std::int8_t>::read(run, r, std::span<double>(wide));
    for (std::size_t c = 0; c < 7; ++c) {
      EXPECT_EQ(wide[c], static_cast<double>(scales[r]) * row[c]);  // 24 + 8 bits: exact
      EXPECT_EQ(narrow[c], static_cast<float>(static_cast<double>(scales[r]) * row[c]));
    }
  }
  rove::RowCodec<std::int8_t>::read({row, 1, 0, 1}, 0, std::span<float>(narrow));
  EXPECT_EQ(narrow[0], -128);  // no scale: 1
  EXPECT_EQ(run.row_scale(1), 0.1F);
  EXPECT_EQ(rove::RowRun<float>{}.row_scale(7), 1.0F);
}

TEST(RowCodec, scale_applies_to_floating_rows_too) {
  const Eigen::half row[] = {as<Eigen::half>(3), as<Eigen::half>(-4)};
  const float scale = 0.25F;
  std::vector<float> out(2);
  rove::RowCodec<Eigen::half>::read({row, 9, 0, 1, &scale, 0}, 8, std::span<float>(out));
  EXPECT_EQ(out, (std::vector<float>{0.75F, -1}));
}

// ---- A model of one's own ----

/// Keys that are computed, one at a time: the least that the concept asks for.
struct OwnKeyValues {
  using key_storage = float;
  using value_storage = float;
  const float* number;
  rove::SlotRange held = {0, 3};
  Index rows = 1;

  Index batch() const { return rows; }
  Index heads() const { return 1; }
  Index key_channels() const { return 1; }
  Index value_channels() const { return 1; }
  Index length() const { return 3; }
  rove::SlotRange slots(Index) const { return held; }
  rove::RowRun<float> keys(Index, Index, Index slot) const { return {number + slot, 1, 1, 1}; }
  rove::RowRun<float> values(Index, Index, Index slot) const { return {number + slot, 1, 1, 1}; }
  rove::IndexRun indices(Index, Index slot) const { return {slot, 1}; }
};
static_assert(rove::KeyValues<OwnKeyValues>);

TEST(KeyValues, a_model_of_ones_own) {
  const float numbers[] = {4, 5, 6};
  const OwnKeyValues kv{numbers};
  EXPECT_NO_THROW(rove::check_key_values(kv));
  EXPECT_NO_THROW(rove::check_key_values(rove::displaced(kv, 3)));
  float out = 0;
  rove::read_key(kv, 0, 0, 2, std::span<float>(&out, 1));
  EXPECT_EQ(out, 6);
  EXPECT_EQ(rove::displaced(kv, 3).indices(0, 2).first, 5);
}

TEST(KeyValues, messages) {
  const float numbers[] = {4, 5, 6};
  const auto with = [&](rove::SlotRange held, Index rows) {
    return error_of([&] { rove::check_key_values(OwnKeyValues{numbers, held, rows}); });
  };
  EXPECT_EQ(with({0, 4}, 1), "key-values: batch row 0 holds the slots [0, 4), which do not lie in [0, 3)");
  EXPECT_EQ(with({-1, 2}, 1), "key-values: batch row 0 holds the slots [-1, 2), which do not lie in [0, 3)");
  EXPECT_EQ(with({2, 1}, 1), "key-values: batch row 0 holds the slots [2, 1), which do not lie in [0, 3)");
  EXPECT_EQ(with({0, 1}, -1),
            "key-values: negative extent in [batch, heads, key channels, value channels] = [-1, 1, 1, 1]");
}

TEST(KeyValues, overlap_with_an_output) {
  std::vector<float> x(400);
  const auto [q, k, v] = rove::packed_qkv(x.data(), 1, 8, 2, 2, 4);
  const auto kv = rove::key_values(k, v);
  EXPECT_FALSE(kv.overlaps(q));  // interleaved with the keys, in place of the queries
  EXPECT_TRUE(kv.overlaps(k) && kv.overlaps(v.slice(2, 7, 1)));
  const auto ring = rove::ring_key_values(k, v, 11);
  EXPECT_TRUE(!ring.overlaps(q) && ring.overlaps(k) && ring.overlaps(v));
  const auto moved = rove::displaced(ring, 3);
  EXPECT_TRUE(!moved.overlaps(q) && moved.overlaps(v));
  const std::vector<std::int32_t> zero{0};
  const auto pages = rove::paged_key_values(k, v, rove::page_table(zero, 1), zero);
  EXPECT_TRUE(!pages.overlaps(q) && pages.overlaps(k) && pages.overlaps(v));
  auto keys = storage<std::int8_t>(1, 1, 4, 4, Layout::bhtd), values = keys;
  values.view.data = values.memory.data();
  const auto scale = rove::RowView<const float>(rove::bht(x.data(), 1, 1, 4));
  const auto small = rove::int8_key_values(read_only(keys), scale, read_only(values), scale);
  EXPECT_TRUE(!small.overlaps(q) && small.overlaps(keys.view) && small.overlaps(values.view));
}

}  // namespace
}  // namespace rove_test

#include "rove/attention/key_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/key_values/int8.hpp"
#include "rove/attention/key_values/paged.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/key_values/tensor.hpp"

namespace test {

/// ggml's q8_0: 32 channels, their factor inside.
struct Q8Block {
  std::uint16_t scale;  ///< binary16
  std::int8_t q[32];
};

}  // namespace test

template <>
inline constexpr rove::Index rove::channels_per_element<test::Q8Block> = 32;

template <>
struct rove::RowCodec<test::Q8Block> {
  template <rove::Accumulator Acc>
  static void read(const rove::RowRun<test::Q8Block>& run, rove::Index row, std::span<Acc> out) {
    for (std::size_t c = 0; c < out.size(); ++c) {
      const test::Q8Block& block = run.row(row)[static_cast<rove::Index>(c / 32) * run.channel_stride];
      const Acc scale = rove::load_widened<Acc>(rove::as_half(&block.scale));
      out[c] = scale * static_cast<Acc>(block.q[c % 32]);
    }
  }
};

namespace {

using rove::Index;

template <class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const rove::Error& error) {
    return error.what();
  }
  return "no error";
}

/// The key and the value that were appended as slot `slot`: small integers, exact in every storage.
int appended_key(Index b, Index h, Index slot, Index c) {
  return static_cast<int>((97 * b + 41 * h + 13 * slot + c) % 251) - 125;
}
int appended_value(Index b, Index h, Index slot, Index c) {
  return static_cast<int>((89 * b + 31 * h + 17 * slot + 3 * c + 7) % 241) - 120;
}

template <class T>
T as(int number) {
  return rove::round_to<T>(static_cast<float>(number));
}
template <>
std::int8_t as<std::int8_t>(int number) {
  return static_cast<std::int8_t>(number);
}

/// What a model should say.
struct Expected {
  std::vector<rove::SlotRange> held;
  Index heads, key_channels, value_channels, length;
  std::function<double(Index, Index, Index, Index)> key = appended_key;
  std::function<double(Index, Index, Index, Index)> value = appended_value;
  std::function<Index(Index, Index)> index = [](Index, Index slot) { return slot; };
};

/// Walks `rows(slot)` from the first slot on: the runs must cover the range exactly, in rows that `want`
/// knows; so must the run that begins at any slot.
template <class Rows, class Want>
void expect_rows(rove::SlotRange held, Index channels, const Rows& rows, const Want& want) {
  std::vector<double> row(static_cast<std::size_t>(channels));
  Index slot = held.first;
  while (slot < held.last) {
    const auto run = rows(slot);
    using Storage = std::remove_const_t<std::remove_pointer_t<decltype(run.data)>>;
    ASSERT_GE(run.count, 1) << "at slot " << slot;
    ASSERT_LE(slot + run.count, held.last) << "at slot " << slot;
    for (Index r = 0; r < run.count; ++r) {
      rove::RowCodec<Storage>::read(run, r, std::span<double>(row));
      for (Index c = 0; c < channels; ++c) {
        ASSERT_EQ(row[static_cast<std::size_t>(c)], want(slot + r, c))
            << "slot " << slot + r << " channel " << c;
      }
      const auto inner = rows(slot + r);
      ASSERT_EQ(inner.count, run.count - r);
      ASSERT_EQ(inner.data, run.row(r));
    }
    slot += run.count;
  }
  EXPECT_EQ(slot, (std::max)(held.first, held.last));
}

template <rove::KeyValues KV>
void expect_model(const KV& kv, const Expected& expected) {
  ASSERT_NO_THROW(rove::check_key_values(kv));
  ASSERT_EQ(kv.batch(), static_cast<Index>(expected.held.size()));
  ASSERT_EQ(kv.heads(), expected.heads);
  ASSERT_EQ(kv.key_channels(), expected.key_channels);
  ASSERT_EQ(kv.value_channels(), expected.value_channels);
  ASSERT_EQ(kv.length(), expected.length);
  for (Index b = 0; b < kv.batch(); ++b) {
    const rove::SlotRange held = kv.slots(b);
    ASSERT_EQ(held.first, expected.held[static_cast<std::size_t>(b)].first) << "batch row " << b;
    ASSERT_EQ(held.last, expected.held[static_cast<std::size_t>(b)].last) << "batch row " << b;
    for (Index h = 0; h < kv.heads(); ++h) {
      SCOPED_TRACE("batch row " + std::to_string(b) + " head " + std::to_string(h));
      expect_rows(
          held, kv.key_channels(), [&](Index slot) { return kv.keys(b, h, slot); },
          [&](Index slot, Index c) { return expected.key(b, h, slot, c); });
      expect_rows(
          held, kv.value_channels(), [&](Index slot) { return kv.values(b, h, slot); },
          [&](Index slot, Index c) { return expected.value(b, h, slot, c); });
      if (!held.empty()) {
        std::vector<float> key(static_cast<std::size_t>(kv.key_channels()));
        std::vector<double> value(static_cast<std::size_t>(kv.value_channels()));
        if constexpr (!std::is_same_v<typename KV::key_storage, double>) {
          rove::read_key(kv, b, h, held.last - 1, std::span<float>(key));
          EXPECT_EQ(key.back(), static_cast<float>(expected.key(b, h, held.last - 1, kv.key_channels() - 1)));
        }
        rove::read_value(kv, b, h, held.first, std::span<double>(value));
        EXPECT_EQ(value.front(), expected.value(b, h, held.first, 0));
      }
    }
    for (Index slot = held.first; slot < held.last; ++slot) {
      const rove::IndexRun run = kv.indices(b, slot);
      ASSERT_GE(run.count, 1);
      for (Index i = 0; i < run.count && slot + i < held.last; ++i) {
        ASSERT_EQ(run.first + i, expected.index(b, slot + i)) << "slot " << slot << " + " << i;
      }
    }
  }
}

/// A tensor of its own memory, in a choice of layouts.
template <class T>
struct Storage {
  std::vector<T> memory;
  rove::TensorView<T> view;
};

enum class Layout { bhtd, bthd, transposed, backwards, gaps };

template <class T>
Storage<T> storage(Index batch, Index heads, Index tokens, Index channels, Layout layout) {
  const Index n = batch * heads * tokens * channels;
  Storage<T> made;
  made.memory.resize(static_cast<std::size_t>(2 * n + 8), T{});
  T* const data = made.memory.data();
  switch (layout) {
    case Layout::bhtd:
      made.view = rove::bhtd(data, batch, heads, tokens, channels);
      break;
    case Layout::bthd:
      made.view = rove::bthd(data, batch, tokens, heads, channels);
      break;
    case Layout::transposed:  // channels before tokens
      made.view = {
          data, {batch, heads, tokens, channels}, {heads * tokens * channels, tokens * channels, 1, tokens}};
      break;
    case Layout::backwards:
      made.view = {data + (n > 0 ? n - 1 : 0),
                   {batch, heads, tokens, channels},
                   {-heads * tokens * channels, -tokens * channels, -channels, -1}};
      break;
    case Layout::gaps:  // every other number is not ours
      made.view = {data + 1,
                   {batch, heads, tokens, channels},
                   {2 * heads * tokens * channels, 2 * tokens * channels, 2 * channels, 2}};
      break;
  }
  return made;
}

constexpr Layout layouts[] = {Layout::bhtd, Layout::bthd, Layout::transposed, Layout::backwards,
                              Layout::gaps};

template <class T>
rove::TensorView<const T> read_only(const Storage<T>& made) {
  return made.view;
}

// ---- The concept ----

static_assert(rove::KeyValues<rove::TensorKeyValues<float, Eigen::half>>);
static_assert(rove::KeyValues<rove::RingKeyValues<Eigen::bfloat16, double>>);
static_assert(rove::KeyValues<rove::PagedKeyValues<Eigen::half, Eigen::half>>);
static_assert(rove::KeyValues<rove::Int8KeyValues>);
static_assert(rove::KeyValues<rove::DisplacedKeyValues<rove::DisplacedKeyValues<rove::Int8KeyValues>>>);
static_assert(rove::KeyValues<rove::TensorKeyValues<test::Q8Block, test::Q8Block>>);

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

// ---- Two tensors ----

template <class K, class V>
void two_tensors() {
  for (const Layout layout : layouts) {
    SCOPED_TRACE("layout " + std::to_string(static_cast<int>(layout)));
    auto k = storage<K>(2, 3, 5, 4, layout);
    auto v = storage<V>(2, 3, 5, 7, layouts[(static_cast<std::size_t>(layout) + 2) % 5]);
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 3; ++h)
        for (Index s = 0; s < 5; ++s) {
          for (Index c = 0; c < 4; ++c) k.view(b, h, s, c) = as<K>(appended_key(b, h, s, c));
          for (Index c = 0; c < 7; ++c) v.view(b, h, s, c) = as<V>(appended_value(b, h, s, c));
        }
    expect_model(rove::key_values(read_only(k), v.view), {{{0, 5}, {0, 5}}, 3, 4, 7, 5});
  }
}

TEST(TensorKeyValues, holds_every_token_of_every_storage_and_layout) {
  two_tensors<float, float>();
  two_tensors<double, float>();
  two_tensors<Eigen::half, Eigen::bfloat16>();
  two_tensors<Eigen::bfloat16, double>();
}

TEST(TensorKeyValues, B27_B28_only_v_a_transposed_view) {
  auto k = storage<float>(1, 2, 6, 4, Layout::bhtd);
  auto v = storage<float>(1, 2, 6, 4, Layout::transposed);
  for (Index h = 0; h < 2; ++h)
    for (Index s = 0; s < 6; ++s)
      for (Index c = 0; c < 4; ++c) {
        k.view(0, h, s, c) = static_cast<float>(appended_key(0, h, s, c));
        v.view(0, h, s, c) = static_cast<float>(appended_value(0, h, s, c));
      }
  const auto kv = rove::key_values(k.view, v.view);
  EXPECT_EQ(kv.keys(0, 1, 0).channel_stride, 1);
  EXPECT_EQ(kv.values(0, 1, 0).channel_stride, 6);
  EXPECT_EQ(kv.values(0, 1, 0).row_stride, 1);
  expect_model(kv, {{{0, 6}}, 2, 4, 4, 6});
}

TEST(TensorKeyValues, one_sequence_shared_by_all_batch_rows) {
  auto k = storage<float>(1, 1, 3, 2, Layout::bhtd);
  for (Index s = 0; s < 3; ++s)
    for (Index c = 0; c < 2; ++c) k.view(0, 0, s, c) = static_cast<float>(appended_key(0, 0, s, c));
  auto shared = k.view;
  shared.extent[0] = 4;
  shared.stride[0] = 0;
  Expected expected{{{0, 3}, {0, 3}, {0, 3}, {0, 3}}, 1, 2, 2, 3};
  expected.key = expected.value = [](Index, Index h, Index s, Index c) { return appended_key(0, h, s, c); };
  expect_model(rove::key_values(shared, shared), expected);
}

TEST(TensorKeyValues, B23_shapes_of_nothing) {
  rove::TensorView<const float> none{nullptr, {2, 3, 0, 4}, {0, 0, 4, 1}};
  expect_model(rove::key_values(none, none), {{{0, 0}, {0, 0}}, 3, 4, 4, 0});
  none.extent[0] = 0, none.extent[2] = 5;
  expect_model(rove::key_values(none, none), {{}, 3, 4, 4, 5});
  none.extent[0] = 1, none.extent[1] = 0;
  expect_model(rove::key_values(none, none), {{{0, 5}}, 0, 4, 4, 5});
}

TEST(TensorKeyValues, B75_rows_beyond_32_bits) {
  const std::uintptr_t base = std::uintptr_t{1} << 42;
  const auto* data = reinterpret_cast<const std::int8_t*>(base);
  const rove::TensorView<const std::int8_t> view{data, {2, 3, 70000, 1}, {1, 1, 70000, 1}};
  const auto run = rove::key_values(view, view).keys(0, 0, 60000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(run.data) - base, std::uintptr_t{60000} * 70000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(run.row(9999)) - base, std::uintptr_t{69999} * 70000);
}

TEST(TensorKeyValues, messages) {
  float x[64] = {};
  const auto tensor = [&](Index b, Index h, Index n) { return rove::bhtd(x, b, h, n, 2); };
  EXPECT_EQ(message_of([&] { rove::key_values(tensor(2, 1, 3), tensor(1, 1, 3)); }),
            "k has 2 batch rows, v has 1");
  EXPECT_EQ(message_of([&] { rove::key_values(tensor(1, 2, 3), tensor(1, 4, 3)); }),
            "k has 2 heads, v has 4");
  EXPECT_EQ(message_of([&] { rove::key_values(tensor(1, 2, 3), tensor(1, 2, 5)); }),
            "k has 3 tokens, v has 5");
  EXPECT_EQ(message_of([&] { rove::key_values(tensor(1, 2, -3), tensor(1, 2, -3)); }),
            "k: tokens must not be negative, got -3");
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

// ---- A ring ----

/// Appends n keys to batch row b, one after the other, each over the oldest.
template <class K, class V>
void append(const rove::TensorView<K>& k, const rove::TensorView<V>& v, Index b, Index n) {
  Index place = 0;
  for (Index slot = 0; slot < n; ++slot) {
    for (Index h = 0; h < k.heads(); ++h) {
      for (Index c = 0; c < k.channels(); ++c) k(b, h, place, c) = as<K>(appended_key(b, h, slot, c));
      for (Index c = 0; c < v.channels(); ++c) v(b, h, place, c) = as<V>(appended_value(b, h, slot, c));
    }
    if (++place == k.tokens()) place = 0;
  }
}

TEST(RingKeyValues, wraps_at_every_offset) {
  for (Index capacity = 1; capacity <= 7; ++capacity) {
    for (Index n = 0; n <= 4 * capacity + 1; ++n) {
      SCOPED_TRACE("capacity " + std::to_string(capacity) + " appended " + std::to_string(n));
      const Layout layout = layouts[static_cast<std::size_t>(n) % 5];
      auto k = storage<float>(2, 2, capacity, 3, layout);
      auto v = storage<Eigen::half>(2, 2, capacity, 2, Layout::bthd);
      for (Index b = 0; b < 2; ++b) append(k.view, v.view, b, n);
      const Index first = (std::max)(Index{0}, n - capacity);
      expect_model(rove::ring_key_values(read_only(k), v.view, n), {{{first, n}, {first, n}}, 2, 3, 2, n});
    }
  }
}

TEST(RingKeyValues, runs_end_at_the_wrap) {
  auto k = storage<float>(1, 1, 8, 1, Layout::bhtd);
  append(k.view, k.view, 0, 19);
  const auto kv = rove::ring_key_values(k.view, k.view, 19);
  // Slots 11 … 18 in places 3 … 7, 0 … 2.
  EXPECT_EQ(kv.keys(0, 0, 11).count, 5);
  EXPECT_EQ(kv.keys(0, 0, 11).data, k.memory.data() + 3);
  EXPECT_EQ(kv.values(0, 0, 16).count, 3);
  EXPECT_EQ(kv.values(0, 0, 16).data, k.memory.data());
  EXPECT_EQ(kv.indices(0, 11).count, 8);
}

TEST(RingKeyValues, batch_rows_of_different_lengths) {
  const std::vector<std::int32_t> lengths{0, 3, 5, 6, 13};
  auto k = storage<double>(5, 1, 5, 3, Layout::bhtd);
  auto v = storage<double>(5, 1, 5, 3, Layout::backwards);
  for (Index b = 0; b < 5; ++b) append(k.view, v.view, b, lengths[static_cast<std::size_t>(b)]);
  expect_model(rove::ring_key_values(k.view, v.view, lengths),
               {{{0, 0}, {0, 3}, {0, 5}, {1, 6}, {8, 13}}, 1, 3, 3, 13});
}

TEST(RingKeyValues, lengths_are_read_anew) {
  std::vector<std::int64_t> lengths{2};
  auto k = storage<float>(1, 1, 4, 1, Layout::bhtd);
  const auto kv = rove::ring_key_values(k.view, k.view, lengths);
  EXPECT_EQ(kv.length(), 2);
  lengths[0] = 9;
  EXPECT_EQ(kv.length(), 9);
  EXPECT_EQ(kv.slots(0).first, 5);
}

TEST(RingKeyValues, messages) {
  float x[64] = {};
  const auto tensor = [&](Index b, Index h, Index n) { return rove::bhtd(x, b, h, n, 2); };
  const std::vector<std::int64_t> one{3}, negative{3, -1};
  EXPECT_EQ(message_of([&] { rove::ring_key_values(tensor(1, 2, 3), tensor(1, 2, 5), 1); }),
            "k has 3 tokens, v has 5");
  EXPECT_EQ(message_of([&] { rove::ring_key_values(tensor(1, 2, 3), tensor(1, 2, 3), -4); }),
            "appended must not be negative, got -4");
  EXPECT_EQ(message_of([&] { rove::ring_key_values(tensor(2, 2, 3), tensor(2, 2, 3), one); }),
            "appended has 1 entries for 2 batch rows");
  EXPECT_EQ(message_of([&] { rove::ring_key_values(tensor(2, 2, 3), tensor(2, 2, 3), negative); }),
            "appended[1] must not be negative, got -1");
  EXPECT_EQ(message_of([&] { rove::ring_key_values(tensor(1, 2, 0), tensor(1, 2, 0), 3); }),
            "the ring has no room, but 3 keys were appended");
  expect_model(rove::ring_key_values(tensor(1, 2, 0), tensor(1, 2, 0), 0), {{{0, 0}}, 2, 2, 2, 0});
}

// ---- Pages ----

template <class PageNumber>
void permuted_pages(Index page_size, unsigned seed) {
  constexpr Index batch = 3, heads = 2, pool = 40;
  const std::vector<std::int32_t> lengths{17, 0, 4 * static_cast<std::int32_t>(page_size)};
  const Index max_pages = 18;
  std::vector<PageNumber> order(static_cast<std::size_t>(pool));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<PageNumber>(i);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));

  auto k = storage<Eigen::bfloat16>(pool, heads, page_size, 3, Layout::bthd);
  auto v = storage<float>(pool, heads, page_size, 5, layouts[seed % 5]);
  std::vector<PageNumber> table(static_cast<std::size_t>(batch * max_pages),
                                PageNumber{-1});  // unused: nonsense
  std::size_t taken = 0;
  for (Index b = 0; b < batch; ++b) {
    for (Index slot = 0; slot < lengths[static_cast<std::size_t>(b)]; ++slot) {
      PageNumber& entry = table[static_cast<std::size_t>(b * max_pages + slot / page_size)];
      if (slot % page_size == 0) entry = order[taken++];
      for (Index h = 0; h < heads; ++h) {
        for (Index c = 0; c < 3; ++c)
          k.view(entry, h, slot % page_size, c) = as<Eigen::bfloat16>(appended_key(b, h, slot, c));
        for (Index c = 0; c < 5; ++c)
          v.view(entry, h, slot % page_size, c) = as<float>(appended_value(b, h, slot, c));
      }
    }
  }
  const Index longest = (std::max)(Index{17}, 4 * page_size);
  expect_model(rove::paged_key_values(k.view, read_only(v), rove::page_table(table, batch), lengths),
               {{{0, 17}, {0, 0}, {0, 4 * page_size}}, heads, 3, 5, longest});
}

TEST(PagedKeyValues, permuted_tables_of_both_integer_widths) {
  for (const Index page_size : {1, 2, 3, 4, 7}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      permuted_pages<std::int32_t>(page_size, seed);
      permuted_pages<std::int64_t>(page_size, seed);
    }
  }
}

TEST(PagedKeyValues, a_page_shared_by_batch_rows_and_a_padded_table) {
  auto pool = storage<float>(3, 1, 2, 1, Layout::bhtd);
  for (Index i = 0; i < 6; ++i) pool.memory[static_cast<std::size_t>(i)] = static_cast<float>(10 + i);
  const std::vector<std::int32_t> entries{2, 0, 99, 2, 1};  // two rows of two, three apart
  const std::vector<std::int64_t> lengths{3, 4};
  const auto kv = rove::paged_key_values(pool.view, pool.view, rove::PageTable{entries, 2, 2, 3}, lengths);
  Expected expected{{{0, 3}, {0, 4}}, 1, 1, 1, 4};
  const double rows[2][4] = {{14, 15, 10, 0}, {14, 15, 12, 13}};
  expected.key = expected.value = [&](Index b, Index, Index s, Index) { return rows[b][s]; };
  expect_model(kv, expected);
  EXPECT_EQ(kv.keys(0, 0, 2).count, 1);  // the page has two rows, the sequence only one of them
}

TEST(PagedKeyValues, messages) {
  float x[64] = {};
  const auto pool = [&](Index pages, Index h, Index size) { return rove::bhtd(x, pages, h, size, 2); };
  std::vector<std::int32_t> entries{0, 1, 2, 3}, lengths{4, 3};
  const auto make = [&](Index batch = 2) {
    return message_of([&] {
      rove::paged_key_values(pool(4, 1, 2), pool(4, 1, 2), rove::page_table(entries, batch), lengths);
    });
  };
  EXPECT_EQ(make(), "no error");
  EXPECT_EQ(make(3), "page table: 4 entries cannot be shared out evenly among 3 batch rows");
  EXPECT_EQ(make(-1), "page table: 4 entries cannot be shared out evenly among -1 batch rows");
  EXPECT_EQ(make(0), "page table: 4 entries cannot be shared out evenly among 0 batch rows");
  EXPECT_EQ(make(1), "lengths has 2 entries for 1 batch rows");
  lengths = {5, 3};
  EXPECT_EQ(make(), "lengths[0] is 5: needs 3 pages of 2 tokens, the table has 2 a row");
  lengths = {4, -3};
  EXPECT_EQ(make(), "lengths[1] must not be negative, got -3");
  lengths = {4, 3};
  entries[3] = 4;
  EXPECT_EQ(make(), "page table: entry (1, 1) is 4, the pool has 4 pages");
  entries[3] = -1;
  EXPECT_EQ(make(), "page table: entry (1, 1) is -1, the pool has 4 pages");
  lengths = {4, 2};  // the bad entry is not in use
  EXPECT_EQ(make(), "no error");

  const auto with = [&](rove::TensorView<float> k, rove::TensorView<float> v, rove::PageTable table,
                        rove::IntegerSpan held) {
    return message_of([&] { rove::paged_key_values(k, v, table, held); });
  };
  const rove::PageTable table = rove::page_table(entries, 2);
  EXPECT_EQ(with(pool(4, 1, 2), pool(3, 1, 2), table, lengths), "k has 4 pages, v has 3");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 2, 2), table, lengths), "k has 1 heads, v has 2");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 3), table, lengths), "k has 2 tokens a page, v has 3");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), table, {}), "lengths are missing for 2 batch rows");
  EXPECT_EQ(with(pool(4, 1, 0), pool(4, 1, 0), table, lengths),
            "lengths[0] is 4, but the pages hold 0 tokens");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), {entries, 2, 2, 3}, lengths),
            "page table: 4 entries are too few for 2 batch rows of 2, 3 apart");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), {entries, 1, 5, 5}, lengths),
            "page table: 4 entries are too few for 1 batch rows of 5, 5 apart");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), {entries, 2, -1, 3}, lengths),
            "page table: negative batch, max_pages or row_stride (2, -1, 3)");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), {}, {}), "no error");  // no batch rows
}

TEST(PagedKeyValues, table_is_checked_again_by_each_call) {
  float x[16] = {};
  std::vector<std::int32_t> entries{0}, lengths{2};
  const auto pool = rove::bhtd(x, 1, 1, 2, 2);
  const auto kv = rove::paged_key_values(pool, pool, rove::page_table(entries, 1), lengths);
  entries[0] = 7;
  EXPECT_EQ(message_of([&] { rove::check_key_values(kv); }),
            "page table: entry (0, 0) is 7, the pool has 1 pages");
}

// ---- 8-bit rows ----

TEST(Int8KeyValues, each_row_has_its_own_scale) {
  for (const Layout layout : layouts) {
    SCOPED_TRACE("layout " + std::to_string(static_cast<int>(layout)));
    auto k = storage<std::int8_t>(2, 3, 4, 5, layout);
    auto v = storage<std::int8_t>(2, 3, 4, 6, Layout::bthd);
    std::vector<float> k_scales(24), v_scales(24);
    const auto k_scale = rove::bht(k_scales.data(), 2, 3, 4);
    const rove::RowView<float> v_scale{v_scales.data() + 23, {2, 3, 4}, {-12, -1, -3}};  // any order
    const auto scale_of = [](Index b, Index h, Index s, float unit) {
      return unit * static_cast<float>(1 + s + 4 * h + 12 * b);
    };
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 3; ++h)
        for (Index s = 0; s < 4; ++s) {
          k_scale(b, h, s) = scale_of(b, h, s, 0.125F);
          v_scale(b, h, s) = scale_of(b, h, s, 0.1F);
          for (Index c = 0; c < 5; ++c) k.view(b, h, s, c) = as<std::int8_t>(appended_key(b, h, s, c));
          for (Index c = 0; c < 6; ++c) v.view(b, h, s, c) = as<std::int8_t>(appended_value(b, h, s, c));
        }
    Expected expected{{{0, 4}, {0, 4}}, 3, 5, 6, 4};
    expected.key = [&](Index b, Index h, Index s, Index c) {
      return static_cast<double>(scale_of(b, h, s, 0.125F)) * appended_key(b, h, s, c);
    };
    expected.value = [&](Index b, Index h, Index s, Index c) {
      return static_cast<double>(scale_of(b, h, s, 0.1F)) * appended_value(b, h, s, c);
    };
    expect_model(rove::int8_key_values(read_only(k), k_scale, v.view, v_scale), expected);
  }
}

TEST(Int8KeyValues, one_scale_for_all_rows) {
  const float half = 0.5F;
  auto k = storage<std::int8_t>(1, 2, 3, 2, Layout::bhtd);
  for (Index h = 0; h < 2; ++h)
    for (Index s = 0; s < 3; ++s)
      for (Index c = 0; c < 2; ++c) k.view(0, h, s, c) = as<std::int8_t>(appended_key(0, h, s, c));
  const rove::RowView<const float> scale{&half, {1, 2, 3}, {0, 0, 0}};
  Expected expected{{{0, 3}}, 2, 2, 2, 3};
  expected.key =
      expected.value = [](Index b, Index h, Index s, Index c) { return 0.5 * appended_key(b, h, s, c); };
  expect_model(rove::int8_key_values(read_only(k), scale, read_only(k), scale), expected);
}

TEST(Int8KeyValues, messages) {
  std::int8_t q[64] = {};
  float x[64] = {};
  const auto rows = [&](Index n) { return rove::TensorView<const std::int8_t>(rove::bhtd(q, 1, 2, n, 2)); };
  const auto scales = [&](Index b, Index h, Index n) {
    return rove::RowView<const float>(rove::bht(x, b, h, n));
  };
  EXPECT_EQ(message_of([&] { rove::int8_key_values(rows(3), scales(1, 2, 3), rows(4), scales(1, 2, 4)); }),
            "k has 3 tokens, v has 4");
  EXPECT_EQ(message_of([&] { rove::int8_key_values(rows(3), scales(1, 2, 4), rows(3), scales(1, 2, 3)); }),
            "k_scale has 4 tokens, the rows it scales have 3");
  EXPECT_EQ(message_of([&] { rove::int8_key_values(rows(3), scales(1, 2, 3), rows(3), scales(1, 1, 3)); }),
            "v_scale has 1 heads, the rows it scales have 2");
  EXPECT_EQ(message_of([&] { rove::int8_key_values(rows(3), scales(2, 2, 3), rows(3), scales(1, 2, 3)); }),
            "k_scale has 2 batch rows, the rows it scales have 1");
  const rove::RowView<const float> null{nullptr, {1, 2, 3}, {6, 3, 1}};
  EXPECT_EQ(message_of([&] { rove::int8_key_values(rows(3), null, rows(3), scales(1, 2, 3)); }),
            "k_scale is null");
  const rove::RowView<const float> nothing{nullptr, {1, 2, 0}, {}};
  EXPECT_EQ(message_of([&] { rove::int8_key_values(rows(0), nothing, rows(0), nothing); }), "no error");
}

// ---- Blocks with their scale inside ----

/// Key b, h, slot as two q8_0 blocks, with a factor that differs from block to block.
void store_blocks(test::Q8Block* blocks, Index stride, Index b, Index h, Index slot) {
  for (Index i = 0; i < 2; ++i) {
    test::Q8Block& block = blocks[i * stride];
    block.scale = i == 0 ? 0x3800 : 0x4400;  // 1/2 and 4
    for (Index c = 0; c < 32; ++c) block.q[c] = as<std::int8_t>(appended_key(b, h, slot, 32 * i + c));
  }
}
double block_number(Index b, Index h, Index slot, Index c) {
  return (c < 32 ? 0.5 : 4.0) * appended_key(b, h, slot, c);
}

TEST(BlockStorage, q8_0_rows_in_tensors_rings_and_pages) {
  for (const Layout layout : {Layout::bhtd, Layout::transposed}) {
    auto k = storage<test::Q8Block>(1, 2, 5, 2, layout);
    for (Index h = 0; h < 2; ++h)
      for (Index s = 0; s < 5; ++s) store_blocks(k.view.row(0, h, s), k.view.stride[3], 0, h, s);
    Expected expected{{{0, 5}}, 2, 64, 64, 5};
    expected.key = expected.value = block_number;
    expect_model(rove::key_values(k.view, k.view), expected);

    for (Index h = 0; h < 2; ++h)
      for (Index s = 5; s < 7; ++s) store_blocks(k.view.row(0, h, s - 5), k.view.stride[3], 0, h, s);
    expected.held = {{2, 7}};
    expected.length = 7;
    expect_model(rove::ring_key_values(k.view, k.view, 7), expected);
  }
  auto pool = storage<test::Q8Block>(2, 1, 4, 2, Layout::bthd);
  const std::vector<std::int32_t> entries{1, 0}, lengths{6};
  for (Index s = 0; s < 6; ++s) store_blocks(pool.view.row(s < 4 ? 1 : 0, 0, s % 4), 1, 0, 0, s);
  Expected expected{{{0, 6}}, 1, 64, 64, 6};
  expected.key = expected.value = block_number;
  expect_model(rove::paged_key_values(pool.view, pool.view, rove::page_table(entries, 1), lengths), expected);
}

// ---- Displaced indices ----

TEST(DisplacedKeyValues, moves_indices_and_nothing_else) {
  auto k = storage<float>(2, 1, 5, 2, Layout::bhtd);
  for (Index b = 0; b < 2; ++b) append(k.view, k.view, b, 13);
  Expected expected{{{8, 13}, {8, 13}}, 1, 2, 2, 13};
  expected.value = appended_value;
  expected.key = appended_value;  // k and v share memory: the values were written last
  const auto ring = rove::ring_key_values(k.view, k.view, 13);
  expect_model(ring, expected);
  expected.index = [](Index, Index slot) { return slot - 1000; };
  expect_model(rove::displaced(ring, -1000), expected);
  const std::vector<std::int64_t> by{7, Index{1} << 40};
  expected.index = [&](Index b, Index slot) { return slot + by[static_cast<std::size_t>(b)]; };
  expect_model(rove::displaced(ring, by), expected);
  expected.index = [&](Index b, Index slot) { return slot + 5 + by[static_cast<std::size_t>(b)]; };
  expect_model(rove::displaced(rove::displaced(ring, by), 5), expected);
}

TEST(DisplacedKeyValues, spans_that_moved) {
  auto k = storage<float>(1, 1, 10, 1, Layout::bhtd);
  for (Index s = 0; s < 10; ++s) k.view(0, 0, s, 0) = static_cast<float>(s);
  const auto kv = rove::key_values(k.view, k.view);
  const std::vector<rove::IndexShift> shifts{{3, 100}, {4, 100}, {7, 250}};
  const auto moved = rove::displaced(kv, std::span<const rove::IndexShift>(shifts));
  Expected expected{{{0, 10}}, 1, 1, 1, 10};
  expected.key = expected.value = [](Index, Index, Index slot, Index) { return static_cast<double>(slot); };
  expected.index = [](Index, Index slot) { return slot < 3 ? slot : slot < 7 ? slot + 100 : slot + 250; };
  expect_model(moved, expected);
  EXPECT_EQ(moved.indices(0, 0).count, 3);
  EXPECT_EQ(moved.indices(0, 5).count, 2);
  EXPECT_EQ(moved.indices(0, 7).count, 3);
  const std::vector<rove::IndexShift> all{{0, -50}};
  EXPECT_EQ(rove::displaced(kv, std::span<const rove::IndexShift>(all)).indices(0, 4).first, -46);
}

TEST(DisplacedKeyValues, messages) {
  float x[8] = {};
  const auto kv = rove::key_values(rove::bhtd(x, 1, 1, 4, 2), rove::bhtd(x, 1, 1, 4, 2));
  const std::vector<std::int32_t> two{1, 2};
  EXPECT_EQ(message_of([&] { rove::displaced(kv, two); }), "displacements: 2 entries for 1 batch rows");
  const auto with = [&](std::vector<rove::IndexShift> shifts) {
    return message_of([&] { rove::displaced(kv, std::span<const rove::IndexShift>(shifts)); });
  };
  EXPECT_EQ(with({{-1, 5}}), "shifts[0] begins at slot -1");
  EXPECT_EQ(with({{2, 5}, {2, 6}}), "shifts[1] begins at slot 2, which is not after the one before it, at 2");
  EXPECT_EQ(with({{0, 5}, {2, 4}}), "shifts[1] moves indices by 4 after 5: indices must rise with the slot");
  EXPECT_EQ(with({{2, -1}}), "shifts[0] moves indices by -1 after 0: indices must rise with the slot");
  EXPECT_EQ(with({}), "no error");
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
    return message_of([&] { rove::check_key_values(OwnKeyValues{numbers, held, rows}); });
  };
  EXPECT_EQ(with({0, 4}, 1), "key-values: batch row 0 holds the slots [0, 4), which do not lie in [0, 3)");
  EXPECT_EQ(with({-1, 2}, 1), "key-values: batch row 0 holds the slots [-1, 2), which do not lie in [0, 3)");
  EXPECT_EQ(with({2, 1}, 1), "key-values: batch row 0 holds the slots [2, 1), which do not lie in [0, 3)");
  EXPECT_EQ(with({0, 1}, -1),
            "key-values: negative extent in [batch, heads, key channels, value channels] = [-1, 1, 1, 1]");
}

}  // namespace

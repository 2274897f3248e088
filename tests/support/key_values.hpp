/// \file
/// Caches for tests: tensors in every layout, what was appended to them, and a walk over all that a model of
/// `KeyValues` says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "rove/attention/key_values.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"

namespace rove_test {

using rove::Index;

/// The key and the value that were appended as slot `slot`: small integers, exact in every storage.
inline int appended_key(Index b, Index h, Index slot, Index c) {
  return static_cast<int>((97 * b + 41 * h + 13 * slot + c) % 251) - 125;
}
inline int appended_value(Index b, Index h, Index slot, Index c) {
  return static_cast<int>((89 * b + 31 * h + 17 * slot + 3 * c + 7) % 241) - 120;
}

template <class T>
T as(int number) {
  return rove::round_to<T>(static_cast<float>(number));
}
template <>
inline std::int8_t as<std::int8_t>(int number) {
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

inline constexpr Layout layouts[] = {Layout::bhtd, Layout::bthd, Layout::transposed, Layout::backwards,
                                     Layout::gaps};

template <class T>
rove::TensorView<const T> read_only(const Storage<T>& made) {
  return made.view;
}

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

}  // namespace rove_test

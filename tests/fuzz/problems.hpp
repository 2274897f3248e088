/// \file
/// Random problems over given storages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "attempt.hpp"
#include "bytes.hpp"
#include "key_values.hpp"
#include "masks_and_scores.hpp"
#include "rove/attention/problem.hpp"
#include "tensors.hpp"

namespace rove_fuzz {

/// What a call reads and writes beside keys and values.
template <class TQ, class TOut, class Acc>
struct Rows {
  Tensor<TQ> q;
  Tensor<TOut> out;
  Tensor<Acc> lse;
};

/// Queries, keys or values that are NaN here and there. What sees them is NaN, nothing else.
template <class Problem>
void poison(Bytes& bytes, const Problem& problem, rove::TensorView<typename Problem::query_storage> q) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  using Key = typename Problem::key_storage;
  for (Index n = bytes.below(3); n > 0; --n) {
    const Index b = bytes.below(problem.batch());
    if (bytes.one_in(2)) {
      if (q.empty()) continue;
      q(b, bytes.below(q.heads()), bytes.below(q.tokens()), bytes.below(q.channels())) =
          static_cast<typename Problem::query_storage>(nan);
      continue;
    }
    if (problem.batch() == 0 || problem.kv_heads() == 0) continue;
    const rove::SlotRange slots = problem.slots(b);
    if (slots.empty()) continue;
    const auto key =
        problem.kv.keys(b, bytes.below(problem.kv_heads()), slots.first + bytes.below(slots.count()));
    if constexpr (std::is_same_v<Key, std::int8_t>) {
      const_cast<float&>(*key.scale) = nan;
    } else {
      const_cast<Key&>(key.data[bytes.below(problem.channels()) * key.channel_stride]) =
          static_cast<Key>(nan);
    }
  }
}

/// Values that are NaN where no query sees them.
template <class Problem>
void poison_unseen_values(const Problem& problem) {
  using Value = typename Problem::value_storage;
  for (Index b = 0; b < problem.batch(); ++b) {
    const rove::SlotRange slots = problem.slots(b);
    for (Index h = 0; h < problem.kv_heads(); ++h) {
      for (Index slot = slots.first; slot < slots.last; ++slot) {
        bool seen = false;
        for (Index head = h * problem.group(); head < (h + 1) * problem.group(); ++head) {
          for (Index i = 0; i < problem.q_len(); ++i) {
            seen = seen || problem.mask.visible(problem.site(b, head, i, slot));
          }
        }
        const auto value = problem.kv.values(b, h, slot);
        if constexpr (std::is_same_v<Value, std::int8_t>) {
          if (!seen) const_cast<float&>(*value.scale) = std::numeric_limits<float>::quiet_NaN();
        } else {
          if (!seen)
            const_cast<Value&>(*value.data) = static_cast<Value>(std::numeric_limits<float>::quiet_NaN());
        }
      }
    }
  }
}

/// Every value row in use has memory of its own.
template <class Problem>
bool values_are_apart(const Problem& problem) {
  std::vector<const void*> rows;
  for (Index b = 0; b < problem.batch(); ++b) {
    const rove::SlotRange slots = problem.slots(b);
    for (Index h = 0; h < problem.kv_heads(); ++h) {
      for (Index slot = slots.first; slot < slots.last; ++slot) {
        const auto value = problem.kv.values(b, h, slot);
        if (value.scale != nullptr)
          rows.push_back(value.scale);
        else
          rows.push_back(value.data);
      }
    }
  }
  std::sort(rows.begin(), rows.end());
  return std::adjacent_find(rows.begin(), rows.end()) == rows.end();
}

/// Offsets, lengths, scale and sinks.
template <class Problem>
Problem with_options(Bytes& bytes, Problem problem, rove::IntegerSpan key_lengths, Store& store) {
  using Acc = typename Problem::accumulator;
  problem.key_lengths = key_lengths;
  switch (bytes.below(problem.q_len() == problem.kv_len() ? 5 : 4)) {
    case 0:
      problem.query_offset = rove::align_last();
      break;
    case 1:
      problem.query_offset = rove::align_first();
      break;
    case 2:
      problem = problem.with_query_offset(bytes.between(-10, 45));
      break;
    case 3: {
      auto& offsets = store.keep(std::vector<std::int32_t>());
      for (Index b = 0; b < problem.batch(); ++b) {
        offsets.push_back(static_cast<std::int32_t>(bytes.between(-10, 45)));
      }
      problem = problem.with_query_offsets(offsets);
      break;
    }
    default:
      break;  // as many queries as keys: none is needed
  }
  if (bytes.one_in(3)) problem.scale = bytes.pick({0.3, 1.0, -0.5, 0.0});
  if (bytes.one_in(3)) {
    constexpr Acc infinity = std::numeric_limits<Acc>::infinity();
    auto& sinks = store.keep(std::vector<Acc>());
    for (Index h = 0; h < problem.heads(); ++h) {
      sinks.push_back(
          bytes.pick<Acc>({0, Acc(1.5), -3, 30, -infinity, infinity, std::numeric_limits<Acc>::quiet_NaN()}));
    }
    problem.sinks = sinks;
  }
  return problem;
}

/// Masks and scores join, NaN falls in, and the attempt is made.
///
/// \tparam every_path  also without mask and score, or with rope: what kernels have shortcuts for
template <bool every_path, class TQ, class Problem, class RowMemory>
void attempt(Bytes& bytes, Problem problem, RowMemory& rows, bool in_place, Store& store) {
  const auto run = [&](const auto& whole) {
    if (bytes.one_in(4)) poison(bytes, whole, rows.q.view());
    if (bytes.one_in(4) && values_are_apart(whole)) poison_unseen_values(whole);
    if constexpr (std::is_same_v<TQ, typename Problem::output_storage>) {
      using Whole = std::remove_cvref_t<decltype(whole)>;
      Attempt<Whole, every_path>(bytes, whole, in_place ? rows.q : rows.out, rows.lse, in_place).run();
    } else {
      using Whole = std::remove_cvref_t<decltype(whole)>;
      Attempt<Whole, every_path>(bytes, whole, rows.out, rows.lse, false).run();
    }
  };
  if constexpr (every_path) {
    if (bytes.one_in(4)) return run(problem);
  }
  const AnyMask mask = make_mask(bytes, problem.shape(), store);
  run(problem.with_mask(mask).with_score(make_score(bytes, problem.shape(), store)));
}

/// Key lengths for a cache, none half of the time.
template <class KV>
rove::IntegerSpan make_key_lengths(Bytes& bytes, const KV& kv, Store& store) {
  if (!bytes.one_in(2) || kv.batch() == 0) return {};
  auto& lengths = store.keep(std::vector<std::int64_t>());
  for (Index b = 0; b < kv.batch(); ++b) lengths.push_back(bytes.below(kv.slots(b).last + 1));
  return lengths;
}

template <class KV>
inline constexpr bool is_tensors = false;
template <class Key, class Value>
inline constexpr bool is_tensors<rove::TensorKeyValues<Key, Value>> = true;

/// One problem with these storages: any cache, or two tensors of floats.
template <class TQ, class TK, class TV, class TOut>
void fuzz(Bytes& bytes) {
  using Acc = rove::row_accumulator_t<TQ, TK, TV, TOut>;
  constexpr bool floats = std::is_same_v<TK, float>;
  Store store;
  const Index batch = bytes.pick<Index>({1, 2, 3, 0}), kv_heads = bytes.pick<Index>({1, 2, 3});
  const Index heads = kv_heads * bytes.pick<Index>({1, 2, 3, 0});
  const Index widest = bytes.one_in(4) ? 40 : 12;
  const Index channels = bytes.between(1, widest), other = bytes.between(1, widest);
  const Index value_channels = bytes.one_in(2) ? other : channels;
  // The oracle takes its time: few tokens where there are many heads or channels.
  const Index most = (widest > 12 ? 80 : 300) / std::max<Index>(1, batch * heads);
  const Index q_len = std::min(token_count(bytes), most);
  const Index kv_len = bytes.one_in(2) ? std::min(token_count(bytes), most) : q_len;
  const CacheShape cache{batch, kv_heads, channels, value_channels, batch * heads * widest <= 24};
  const bool in_place = std::is_same_v<TQ, TOut> && channels == value_channels && bytes.one_in(8);
  const bool tensors = bytes.one_in(2);

  Rows<TQ, TOut, Acc> rows{
      Tensor<TQ>(bytes, {batch, heads, q_len, channels}, in_place ? Use::output : Use::input),
      Tensor<TOut>(bytes, {batch, heads, q_len, value_channels}, Use::output),
      Tensor<Acc>(bytes, {batch, heads, q_len, 1}, Use::output)};
  Numbers numbers(bytes);
  fill(rows.q.view(), numbers);

  const auto with_kv = [&](const auto& kv) {
    const rove::IntegerSpan key_lengths = make_key_lengths(bytes, kv, store);
    fill_rows(kv, cache, key_lengths, numbers);
    auto out = rows.out.view();
    if constexpr (std::is_same_v<TQ, TOut>) {
      if (in_place) out = rows.q.view();
    }
    auto problem = rove::attention_problem(rows.q.view(), kv, out);
    const auto lse = rows.lse.view();
    problem.lse = {lse.data,
                   {lse.extent[0], lse.extent[1], lse.extent[2]},
                   {lse.stride[0], lse.stride[1], lse.stride[2]}};
    constexpr bool every_path = is_tensors<std::remove_cvref_t<decltype(kv)>>;
    attempt<every_path, TQ>(bytes, with_options(bytes, problem, key_lengths, store), rows, in_place, store);
  };
  using Any = AnyKeyValues<TK, TV, TOut, Acc>;
  if constexpr (floats) {
    if (tensors) {
      auto& k = store.keep(Tensor<TK>(bytes, {batch, kv_heads, kv_len, channels}, Use::input));
      auto& v = store.keep(Tensor<TV>(bytes, {batch, kv_heads, kv_len, value_channels}, Use::input));
      return with_kv(rove::key_values(k.view(), v.view()));
    }
  }
  with_kv(CacheMaker<Any>(bytes, cache, store).make(kv_len));
}

}  // namespace rove_fuzz

/// \file
/// Turned operands in memory, for kernels that do not read rows through transforms.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>

#include "rove/attention/kernel.hpp"
#include "rove/attention/key_values.hpp"
#include "rove/attention/key_values/tensor.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/row_io.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"

namespace rove {

/// Keys and values that were turned into two tensors, with the slots and indices of the cache they came from:
/// what a kernel without a fused entry finds in `problem.kv` where it is not a `TensorKeyValues` already.
///
/// Token t of `k` and `v` is slot `first_slot + t`. Only slots in use are there: `slots(b)` are the cache's,
/// cut by the problem's key lengths.
template <class KV, class Key, class Value>
struct MaterialisedKeyValues {
  TensorView<const Key> k;
  TensorView<const Value> v;
  Index first_slot = 0;
  KV source;
  IntegerSpan key_lengths = {};

  using key_storage = Key;
  using value_storage = Value;

  Index batch() const { return k.batch(); }
  Index heads() const { return k.heads(); }
  Index key_channels() const { return k.channels(); }
  Index value_channels() const { return v.channels(); }
  Index length() const { return source.length(); }
  SlotRange slots(Index b) const {
    SlotRange range = source.slots(b);
    if (key_lengths) range.last = (std::min)(range.last, key_lengths[b]);
    range.last = (std::max)(range.first, range.last);
    return range;
  }
  IndexRun indices(Index b, Index slot) const { return source.indices(b, slot); }
  RowRun<Key> keys(Index b, Index h, Index slot) const {
    return {k.row(b, h, slot - first_slot), first_slot + k.tokens() - slot, k.stride[2], k.stride[3]};
  }
  RowRun<Value> values(Index b, Index h, Index slot) const {
    return {v.row(b, h, slot - first_slot), first_slot + v.tokens() - slot, v.stride[2], v.stride[3]};
  }
};

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

/// Rows to a task, so that small shapes are still shared out.
inline constexpr Index rows_per_task = 32;

/// Calls f(b, h, t, worker) for every row.
template <class F>
void for_each_row(const Context& context, Index batch, Index heads, Index tokens, const F& f) {
  const Index slices = (tokens + rows_per_task - 1) / rows_per_task;
  context.for_each(batch * heads * slices, [&](Index task, int worker) {
    const Index first = task % slices * rows_per_task;
    const Index head = task / slices;
    for (Index t = first; t < (std::min)(first + rows_per_task, tokens); ++t)
      f(head / heads, head % heads, t, worker);
  });
}

/// Slots that any batch row uses.
template <class Problem>
SlotRange used_slots(const Problem& problem) {
  SlotRange used{problem.kv_len(), 0};
  for (Index b = 0; b < problem.batch(); ++b) {
    const SlotRange slots = problem.slots(b);
    if (slots.empty()) continue;
    used = {(std::min)(used.first, slots.first), (std::max)(used.last, slots.last)};
  }
  return used.last <= used.first ? SlotRange{0, 0} : used;
}

/// What one operand costs to materialise, and the element type it gets. `Asked` is the caller's where the
/// kernel wants the caller's scalars and that is a number; otherwise the accumulator.
template <class K, class Storage, class Acc>
using materialised_storage_t = std::conditional_t<WantsCallersScalars<K> && Scalar<Storage>, Storage, Acc>;

template <class KV>
inline constexpr bool is_tensor_key_values = false;
template <class Key, class Value>
inline constexpr bool is_tensor_key_values<TensorKeyValues<Key, Value>> = true;

/// The materialised path of one call. An operand that needs no turning and lies in memory in the right type
/// already is handed on as it is.
template <class K, class Problem, class Transforms>
class MaterialisedCall {
  using Acc = typename Problem::accumulator;
  using TQ = materialised_storage_t<K, typename Problem::query_storage, Acc>;
  using TK = materialised_storage_t<K, typename Problem::key_storage, Acc>;
  using TV = materialised_storage_t<K, typename Problem::value_storage, Acc>;
  using TOut = materialised_storage_t<K, typename Problem::output_storage, Acc>;
  using KV = typename Problem::key_values_type;
  static constexpr bool turns_query = !decltype(Transforms::query)::is_identity;
  static constexpr bool turns_key = !decltype(Transforms::key)::is_identity;
  static constexpr bool turns_value = !decltype(Transforms::value)::is_identity;
  static constexpr bool turns_output = !decltype(Transforms::output)::is_identity;

 public:
  static constexpr bool copies_query = turns_query || !std::is_same_v<TQ, typename Problem::query_storage>;
  static constexpr bool copies_kv = turns_key || turns_value || !is_tensor_key_values<KV> ||
                                    !std::is_same_v<TK, typename Problem::key_storage> ||
                                    !std::is_same_v<TV, typename Problem::value_storage>;
  static constexpr bool copies_output =
      turns_output || !std::is_same_v<TOut, typename Problem::output_storage>;

  MaterialisedCall(const Problem& problem, const Transforms& transforms)
      : problem_(problem), transforms_(transforms), used_(used_slots(problem)) {}

  Index query_elements() const { return copies_query ? rows() * problem_.channels() : 0; }
  Index key_elements() const { return copies_kv ? slots() * problem_.channels() : 0; }
  Index value_elements() const { return copies_kv ? slots() * problem_.value_channels() : 0; }
  Index output_elements() const { return copies_output ? rows() * problem_.value_channels() : 0; }
  Index row_elements() const {
    return copies_query || copies_kv || copies_output
               ? (std::max)(problem_.channels(), problem_.value_channels())
               : 0;
  }

  /// The problem that the kernel is given, with no memory behind its operands yet: for asking the kernel
  /// about it.
  auto turned() const { return with_kv(with_rows(nullptr, nullptr), nullptr, nullptr); }

  /// Adds what `operator()` allocates, apart from the kernel's own.
  void add_to(WorkspaceSize& size, int workers) const {
    size.add<TQ>(query_elements());
    size.add<TK>(key_elements());
    size.add<TV>(value_elements());
    size.add<TOut>(output_elements());
    size.add_per_worker<Acc>(row_elements(), workers);
  }

  void operator()(const K& kernel, const Context& context) const {
    Context::Scope scope(context);
    const auto query = scope.template allocate<TQ>(query_elements());
    const auto key = scope.template allocate<TK>(key_elements());
    const auto value = scope.template allocate<TV>(value_elements());
    const auto output = scope.template allocate<TOut>(output_elements());
    const auto scratch = scope.template per_worker<Acc>(row_elements());

    const auto turned = with_kv(with_rows(query.data(), output.data()), key.data(), value.data());
    if constexpr (copies_query) {
      for_each_row(context, problem_.batch(), problem_.heads(), problem_.q_len(),
                   [&](Index b, Index h, Index t, int worker) {
                     const auto row = scratch(worker).first(static_cast<std::size_t>(problem_.channels()));
                     read_query(problem_, transforms_.query, b, h, t, row);
                     store(row, query.data() + ((b * problem_.heads() + h) * problem_.q_len() + t) *
                                                   problem_.channels());
                   });
    }
    if constexpr (copies_kv) {
      for_each_row(context, problem_.batch(), problem_.kv_heads(), used_.count(),
                   [&](Index b, Index h, Index t, int worker) {
                     turn_slot(b, h, t, scratch(worker), key.data(), value.data());
                   });
    }
    kernel(turned, context);
    if constexpr (copies_output) {
      for_each_row(context, problem_.batch(), problem_.heads(), problem_.q_len(),
                   [&](Index b, Index h, Index t, int worker) {
                     const auto row =
                         scratch(worker).first(static_cast<std::size_t>(problem_.value_channels()));
                     const TOut* from = output.data() + ((b * problem_.heads() + h) * problem_.q_len() + t) *
                                                            problem_.value_channels();
                     for (Acc& x : row) x = load_widened<Acc>(from++);
                     write_output(problem_, transforms_.output, b, h, t, row);
                   });
    }
  }

 private:
  Index rows() const { return problem_.batch() * problem_.heads() * problem_.q_len(); }
  Index slots() const { return problem_.batch() * problem_.kv_heads() * used_.count(); }

  template <class T>
  static void store(std::span<const Acc> row, T* to) {
    for (const Acc x : row) store_rounded(to++, x);
  }

  /// Slots that this batch row does not use stay zeros: a kernel that multiplies by weights of 0 meets no NaN
  /// there.
  void turn_slot(Index b, Index h, Index t, std::span<Acc> scratch, TK* keys, TV* values) const {
    const SlotRange slots = problem_.slots(b);
    const Index slot = used_.first + t;
    const bool present = slot >= slots.first && slot < slots.last;
    const Index place = (b * problem_.kv_heads() + h) * used_.count() + t;
    const auto key = scratch.first(static_cast<std::size_t>(problem_.channels()));
    std::fill(key.begin(), key.end(), Acc(0));
    if (present) read_key(problem_, transforms_.key, b, h, slot, key);
    store(key, keys + place * problem_.channels());
    const auto value = scratch.first(static_cast<std::size_t>(problem_.value_channels()));
    std::fill(value.begin(), value.end(), Acc(0));
    if (present) read_value(problem_, transforms_.value, b, h, slot, value);
    store(value, values + place * problem_.value_channels());
  }

  auto with_rows(TQ* query, TOut* output) const {
    using Turned = AttentionProblem<TQ, KV, TOut, typename Problem::mask_type, typename Problem::score_type>;
    const auto q = [&] {
      if constexpr (copies_query) {
        return bhtd(static_cast<const TQ*>(query), problem_.batch(), problem_.heads(), problem_.q_len(),
                    problem_.channels());
      } else {
        return problem_.q;
      }
    }();
    const auto out = [&] {
      if constexpr (copies_output) {
        return bhtd(output, problem_.batch(), problem_.heads(), problem_.q_len(), problem_.value_channels());
      } else {
        return problem_.out;
      }
    }();
    return Turned{q,
                  problem_.kv,
                  out,
                  problem_.mask,
                  problem_.score,
                  problem_.scale,
                  problem_.logit_factor,
                  problem_.query_offset,
                  problem_.key_lengths,
                  problem_.lse,
                  problem_.sinks};
  }

  template <class Turned>
  auto with_kv(const Turned& turned, TK* key, TV* value) const {
    if constexpr (copies_kv) {
      const Index n = used_.count();
      return turned.with_key_values(MaterialisedKeyValues<KV, TK, TV>{
          bhtd(static_cast<const TK*>(key), problem_.batch(), problem_.kv_heads(), n, problem_.channels()),
          bhtd(static_cast<const TV*>(value), problem_.batch(), problem_.kv_heads(), n,
               problem_.value_channels()),
          used_.first, problem_.kv, problem_.key_lengths});
    } else {
      return turned;
    }
  }

  const Problem& problem_;
  const Transforms& transforms_;
  SlotRange used_;
};

}  // namespace detail

ROVE_END_TAGGED

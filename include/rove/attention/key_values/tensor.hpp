/// \file
/// Keys and values in two plain tensors: what a forward pass over whole sequences has.
#pragma once

#include <type_traits>

#include "rove/attention/key_values.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/core/view_checks.hpp"

namespace rove {

/// Keys `[batch, kv_heads, n, d]` and values `[batch, kv_heads, n, d_v]`, slot = index = token.
///
/// Strides may be anything, zero (shared between batch rows, say) and negative included. How many of the n
/// slots a batch row really uses is told to the problem (`key_lengths`).
template <class Key, class Value>
struct TensorKeyValues {
  TensorView<const Key> k;
  TensorView<const Value> v;
  static constexpr Index first_slot = 0;  ///< token t of `k` and `v` is slot first_slot + t

  using key_storage = Key;
  using value_storage = Value;

  ROVE_ALWAYS_INLINE constexpr Index batch() const { return k.batch(); }
  ROVE_ALWAYS_INLINE constexpr Index heads() const { return k.heads(); }
  ROVE_ALWAYS_INLINE constexpr Index key_channels() const { return k.channels() * channels_per_element<Key>; }
  ROVE_ALWAYS_INLINE constexpr Index value_channels() const {
    return v.channels() * channels_per_element<Value>;
  }
  ROVE_ALWAYS_INLINE constexpr Index length() const { return k.tokens(); }
  ROVE_ALWAYS_INLINE constexpr SlotRange slots(Index) const { return {0, k.tokens()}; }

  ROVE_ALWAYS_INLINE constexpr RowRun<Key> keys(Index b, Index h, Index slot) const {
    return {k.row(b, h, slot), k.tokens() - slot, k.stride[2], k.stride[3]};
  }
  ROVE_ALWAYS_INLINE constexpr RowRun<Value> values(Index b, Index h, Index slot) const {
    return {v.row(b, h, slot), v.tokens() - slot, v.stride[2], v.stride[3]};
  }
  ROVE_ALWAYS_INLINE constexpr IndexRun indices(Index, Index slot) const { return {slot, k.tokens() - slot}; }

  template <class Out>
  ROVE_ALWAYS_INLINE bool overlaps(const TensorView<Out>& out) const {
    return rove::overlaps(k, out) || rove::overlaps(v, out);
  }
  ROVE_ALWAYS_INLINE void check() const { detail::check_extents_agree(k, v); }
};

}  // namespace rove

ROVE_BEGIN_TAGGED

/// Keys and values in two tensors, const or not, borrowed.
///
/// Throws `Error` unless both have the same batch, heads and tokens.
template <class Key, class Value>
TensorKeyValues<std::remove_const_t<Key>, std::remove_const_t<Value>> key_values(TensorView<Key> k,
                                                                                 TensorView<Value> v) {
  const TensorKeyValues<std::remove_const_t<Key>, std::remove_const_t<Value>> kv{k, v};
  kv.check();
  return kv;
}

ROVE_END_TAGGED

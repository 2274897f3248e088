/// \file
/// Keys and values in a ring: a sliding window's cache, in which the newest keys overwrite the oldest.
#pragma once

#include <type_traits>

#include "rove/attention/key_values.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/core/view_checks.hpp"

namespace rove {

/// Keys `[batch, kv_heads, W, d]` and values `[batch, kv_heads, W, d_v]` of which batch row b holds the slots
/// [max(0, n_b − W), n_b), slot s in place s mod W, after n_b keys were appended to it.
///
/// Masks that know order go by index = slot, never by the place in the ring.
template <class Key, class Value>
struct RingKeyValues {
  TensorView<const Key> k;
  TensorView<const Value> v;
  Index appended = 0;                ///< n, where all batch rows agree
  IntegerSpan appended_by_row = {};  ///< otherwise n_b, borrowed

  using key_storage = Key;
  using value_storage = Value;

  ROVE_ALWAYS_INLINE constexpr Index batch() const { return k.batch(); }
  ROVE_ALWAYS_INLINE constexpr Index heads() const { return k.heads(); }
  ROVE_ALWAYS_INLINE constexpr Index key_channels() const { return k.channels() * channels_per_element<Key>; }
  ROVE_ALWAYS_INLINE constexpr Index value_channels() const {
    return v.channels() * channels_per_element<Value>;
  }
  /// W, the most slots that a batch row can hold.
  ROVE_ALWAYS_INLINE constexpr Index capacity() const { return k.tokens(); }
  ROVE_ALWAYS_INLINE Index appended_to(Index b) const {
    return appended_by_row ? appended_by_row[b] : appended;
  }
  ROVE_ALWAYS_INLINE Index length() const { return untagged::longest(appended, appended_by_row); }
  ROVE_ALWAYS_INLINE SlotRange slots(Index b) const {
    const Index n = appended_to(b);
    return {n > capacity() ? n - capacity() : 0, n};
  }

  ROVE_ALWAYS_INLINE RowRun<Key> keys(Index b, Index h, Index slot) const {
    return {k.row(b, h, slot % capacity()), run(b, slot), k.stride[2], k.stride[3]};
  }
  ROVE_ALWAYS_INLINE RowRun<Value> values(Index b, Index h, Index slot) const {
    return {v.row(b, h, slot % capacity()), run(b, slot), v.stride[2], v.stride[3]};
  }
  ROVE_ALWAYS_INLINE IndexRun indices(Index b, Index slot) const { return {slot, appended_to(b) - slot}; }

  template <class Out>
  ROVE_ALWAYS_INLINE bool overlaps(const TensorView<Out>& out) const {
    return rove::overlaps(k, out) || rove::overlaps(v, out);
  }
  ROVE_ALWAYS_INLINE void check() const {
    detail::check_extents_agree(k, v);
    detail::check_row_counts(appended, appended_by_row, batch(), "appended");
    ROVE_EXPECT(capacity() > 0 || length() == 0, "the ring has no room, but ", length(),
                " keys were appended");
  }

 private:
  ROVE_ALWAYS_INLINE Index run(Index b, Index slot) const {
    const Index to_end = appended_to(b) - slot, to_wrap = capacity() - slot % capacity();
    return to_end < to_wrap ? to_end : to_wrap;
  }
};

}  // namespace rove

ROVE_BEGIN_TAGGED

/// A ring to every batch row of which `appended` keys were appended so far, dropped ones included.
///
/// Throws `Error` unless k and v have the same batch, heads and capacity and `appended` ≥ 0.
template <class Key, class Value>
auto ring_key_values(TensorView<Key> k, TensorView<Value> v, Index appended) {
  const RingKeyValues<std::remove_const_t<Key>, std::remove_const_t<Value>> kv{k, v, appended, {}};
  kv.check();
  return kv;
}

/// The same with a number of appended keys per batch row; `appended` is borrowed, and read anew by every
/// call.
template <class Key, class Value>
auto ring_key_values(TensorView<Key> k, TensorView<Value> v, IntegerSpan appended) {
  const RingKeyValues<std::remove_const_t<Key>, std::remove_const_t<Value>> kv{k, v, 0, appended};
  kv.check();
  return kv;
}

ROVE_END_TAGGED

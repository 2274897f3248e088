/// \file
/// Keys whose absolute indices are not their slots: left padding, and spans that were moved.
#pragma once

#include <cstddef>
#include <span>

#include "rove/attention/key_values.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/tensor_view.hpp"

namespace rove {

/// From slot `first_slot` on, up to the next shift of a list, indices are moved by `by`.
struct IndexShift {
  Index first_slot = 0;
  Index by = 0;
};

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

/// One number a batch row; shifts that keep the indices rising with the slot.
inline void check_displacement(const IntegerSpan& by_row, std::span<const IndexShift> shifts, Index batch) {
  ROVE_EXPECT(!by_row || by_row.size() == batch, "displacements: ", by_row.size(), " entries for ", batch,
              " batch rows");
  for (std::size_t i = 0; i < shifts.size(); ++i) {
    ROVE_EXPECT(shifts[i].first_slot >= 0, "shifts[", i, "] begins at slot ", shifts[i].first_slot);
    ROVE_EXPECT(i == 0 || shifts[i - 1].first_slot < shifts[i].first_slot, "shifts[", i, "] begins at slot ",
                shifts[i].first_slot, ", which is not after the one before it, at ",
                shifts[i - 1].first_slot);
    const Index before = i == 0 ? 0 : shifts[i - 1].by;
    ROVE_EXPECT(shifts[i].by >= before || shifts[i].first_slot == 0, "shifts[", i, "] moves indices by ",
                shifts[i].by, " after ", before, ": indices must rise with the slot");
  }
}

}  // namespace detail

ROVE_END_TAGGED

namespace rove {

/// Another model's keys and values under other indices: the same slots and rows; the index of slot s of batch
/// row b is the model's, plus `by`, `by_row[b]` and what the last of `shifts` with first_slot ≤ s says, those
/// that are given.
template <class KV>
struct DisplacedKeyValues {
  KV base;
  Index by = 0;
  IntegerSpan by_row = {};                  ///< borrowed
  std::span<const IndexShift> shifts = {};  ///< by rising first_slot, borrowed

  using key_storage = typename KV::key_storage;
  using value_storage = typename KV::value_storage;

  ROVE_ALWAYS_INLINE Index batch() const { return base.batch(); }
  ROVE_ALWAYS_INLINE Index heads() const { return base.heads(); }
  ROVE_ALWAYS_INLINE Index key_channels() const { return base.key_channels(); }
  ROVE_ALWAYS_INLINE Index value_channels() const { return base.value_channels(); }
  ROVE_ALWAYS_INLINE Index length() const { return base.length(); }
  ROVE_ALWAYS_INLINE SlotRange slots(Index b) const { return base.slots(b); }
  ROVE_ALWAYS_INLINE RowRun<key_storage> keys(Index b, Index h, Index slot) const {
    return base.keys(b, h, slot);
  }
  ROVE_ALWAYS_INLINE RowRun<value_storage> values(Index b, Index h, Index slot) const {
    return base.values(b, h, slot);
  }
  ROVE_ALWAYS_INLINE IndexRun indices(Index b, Index slot) const {
    IndexRun run = base.indices(b, slot);
    run.first += by + (by_row ? by_row[b] : 0);
    Index moved = 0;
    for (const IndexShift& shift : shifts) {
      if (shift.first_slot > slot) {
        const Index until = shift.first_slot - slot;
        run.count = run.count < until ? run.count : until;
        break;
      }
      moved = shift.by;
    }
    run.first += moved;
    return run;
  }

  template <class Out>
  requires requires(const KV& kv, const TensorView<Out>& out) { kv.overlaps(out); }
  ROVE_ALWAYS_INLINE bool overlaps(const TensorView<Out>& out) const { return base.overlaps(out); }
  ROVE_ALWAYS_INLINE void check() const {
    if constexpr (requires { base.check(); }) base.check();
    detail::check_displacement(by_row, shifts, base.batch());
  }
};

}  // namespace rove

ROVE_BEGIN_TAGGED

/// The same keys and values, every index moved by `by`.
template <KeyValues KV>
DisplacedKeyValues<KV> displaced(const KV& kv, Index by) {
  return {kv, by, {}, {}};
}

/// The same, the indices of batch row b moved by `by[b]` (minus its padding, where rows are padded on the
/// left).
template <KeyValues KV>
DisplacedKeyValues<KV> displaced(const KV& kv, IntegerSpan by) {
  const DisplacedKeyValues<KV> moved{kv, 0, by, {}};
  moved.check();
  return moved;
}

/// The same, indices moved from certain slots on, in all batch rows. Shifts must not fall, as indices rise
/// with the slot.
template <KeyValues KV>
DisplacedKeyValues<KV> displaced(const KV& kv, std::span<const IndexShift> shifts) {
  const DisplacedKeyValues<KV> moved{kv, 0, {}, shifts};
  moved.check();
  return moved;
}

ROVE_END_TAGGED

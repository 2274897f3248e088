/// \file
/// A tensor over the logits, `[batch, heads, q_len, kv_len]`, whose extents are full or 1: what boolean masks
/// and additive biases read.
#pragma once

#include "rove/attention/site.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/tensor_view.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Goes by local row and slot, never by absolute index: a query offset does not move it.
template <class T>
class LogitTensor {
 public:
  constexpr explicit LogitTensor(TensorView<const T> view) : view_(view) {
    for (int i = 0; i < 4; ++i) step_[i] = view.extent[i] == 1 ? 0 : view.stride[i];
  }

  ROVE_ALWAYS_INLINE constexpr const T* at(Index b, Index head, Index row, Index slot) const {
    return view_.data + (b * step_[0] + head * step_[1] + row * step_[2] + slot * step_[3]);
  }
  ROVE_ALWAYS_INLINE constexpr const T* at(const Site& site) const {
    return at(site.batch, site.head, site.row, site.slot);
  }
  ROVE_ALWAYS_INLINE constexpr Index slot_step() const { return step_[3]; }

  /// Asks for the elements of `count` slots of one row, where they lie side by side.
  void prefetch(const Site& first, Index count) const {
    if (slot_step() != 1) return;
    const T* const row = at(first);
    for (Index i = 0; i < count; i += static_cast<Index>(64 / sizeof(T))) simd::prefetch(row + i);
    simd::prefetch(row + count - 1);
  }

  /// One value for all rows.
  constexpr bool repeats_rows() const { return view_.extent[2] == 1; }

  /// Throws where an extent is neither 1 nor the call's; `name` says whose.
  constexpr void check(const char* name, const AttentionShape& shape) const {
    const Index full[4] = {shape.batch, shape.heads, shape.q_len, shape.kv_len};
    constexpr const char* extents[4] = {"batch", "heads", "q_len", "kv_len"};
    for (int i = 0; i < 4; ++i) {
      ROVE_EXPECT(view_.extent[i] == full[i] || view_.extent[i] == 1, name, ": extent ", i, " (", extents[i],
                  ") is ", view_.extent[i], ", must be ", full[i], " or 1");
    }
    ROVE_EXPECT(view_.data != nullptr || view_.empty(), name, ": data is null");
  }

 private:
  TensorView<const T> view_;
  Index step_[4] = {};
};

}  // namespace detail

ROVE_END_TAGGED

/// \file
/// Keys and values as 8-bit integers with one factor per row: a quarter of float's memory.
#pragma once

#include <cstdint>

#include "rove/attention/key_values.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/core/view_checks.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// One factor per row of `rows`.
inline void check_scales(const RowView<const float>& scales, const TensorView<const std::int8_t>& rows,
                         const char* name) {
  constexpr const char* names[3] = {"batch rows", "heads", "tokens"};
  for (int d = 0; d < 3; ++d) {
    ROVE_EXPECT(scales.extent[d] == rows.extent[d], name, " has ", scales.extent[d], ' ', names[d],
                ", the rows it scales have ", rows.extent[d]);
  }
  ROVE_EXPECT(scales || rows.batch() == 0 || rows.heads() == 0 || rows.tokens() == 0, name, " is null");
}

}  // namespace detail

ROVE_END_TAGGED

namespace rove {

/// Keys `k_scale(b, h, s) · k(b, h, s, c)` and values likewise, slot = index = token; the product is rounded
/// to the accumulator type. A scale shared along a dimension (one per head, say) has stride 0 there.
struct Int8KeyValues {
  TensorView<const std::int8_t> k;  ///< [batch, kv_heads, n, d]
  TensorView<const std::int8_t> v;  ///< [batch, kv_heads, n, d_v]
  RowView<const float> k_scale;     ///< [batch, kv_heads, n]
  RowView<const float> v_scale;     ///< [batch, kv_heads, n]

  using key_storage = std::int8_t;
  using value_storage = std::int8_t;

  ROVE_ALWAYS_INLINE constexpr Index batch() const { return k.batch(); }
  ROVE_ALWAYS_INLINE constexpr Index heads() const { return k.heads(); }
  ROVE_ALWAYS_INLINE constexpr Index key_channels() const { return k.channels(); }
  ROVE_ALWAYS_INLINE constexpr Index value_channels() const { return v.channels(); }
  ROVE_ALWAYS_INLINE constexpr Index length() const { return k.tokens(); }
  ROVE_ALWAYS_INLINE constexpr SlotRange slots(Index) const { return {0, k.tokens()}; }

  ROVE_ALWAYS_INLINE constexpr RowRun<std::int8_t> keys(Index b, Index h, Index slot) const {
    return {k.row(b, h, slot), k.tokens() - slot,    k.stride[2],
            k.stride[3],       &k_scale(b, h, slot), k_scale.stride[2]};
  }
  ROVE_ALWAYS_INLINE constexpr RowRun<std::int8_t> values(Index b, Index h, Index slot) const {
    return {v.row(b, h, slot), v.tokens() - slot,    v.stride[2],
            v.stride[3],       &v_scale(b, h, slot), v_scale.stride[2]};
  }
  ROVE_ALWAYS_INLINE constexpr IndexRun indices(Index, Index slot) const { return {slot, k.tokens() - slot}; }

  template <class Out>
  ROVE_ALWAYS_INLINE bool overlaps(const TensorView<Out>& out) const {
    return rove::overlaps(k, out) || rove::overlaps(v, out);
  }
  ROVE_ALWAYS_INLINE void check() const {
    detail::check_extents_agree(k, v);
    detail::check_scales(k_scale, k, "k_scale");
    detail::check_scales(v_scale, v, "v_scale");
  }
};

}  // namespace rove

ROVE_BEGIN_TAGGED

/// 8-bit keys and values with a factor per row each, borrowed.
///
/// Throws `Error` unless k and v have the same batch, heads and tokens and both scales have them too.
inline Int8KeyValues int8_key_values(TensorView<const std::int8_t> k, RowView<const float> k_scale,
                                     TensorView<const std::int8_t> v, RowView<const float> v_scale) {
  const Int8KeyValues kv{k, v, k_scale, v_scale};
  kv.check();
  return kv;
}

ROVE_END_TAGGED

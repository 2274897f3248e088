/// \file
/// A mask read from memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "rove/attention/logit_tensor.hpp"
#include "rove/attention/mask.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/config.hpp"
#include "rove/core/simd_bytes.hpp"
#include "rove/core/tensor_view.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

template <class T>
concept BooleanElement = std::is_same_v<T, bool> || std::is_same_v<T, unsigned char>;

}  // namespace detail

/// Visible where the tensor's element is true (not 0); see `boolean_mask()`.
template <detail::BooleanElement T>
class BooleanMask {
 public:
  constexpr explicit BooleanMask(TensorView<const T> tensor) : tensor_(tensor) {}

  constexpr bool visible(const Site& site) const { return static_cast<bool>(*tensor_.at(site)); }
  constexpr void check(const AttentionShape& shape) const { tensor_.check("boolean_mask", shape); }
  static constexpr bool order_aware() { return false; }
  constexpr TileVisibility tile(const TileRange& range) const {
    // Where every row has the same keys (a padding mask) they are fewer to read than the tile has logits.
    if (!tensor_.repeats_rows()) return TileVisibility::some;
    bool any = false;
    bool all = true;
    for (Index slot = range.slot_first; slot < range.slot_last; ++slot) {
      const bool seen = static_cast<bool>(*tensor_.at(range.batch, range.head, 0, slot));
      any |= seen;
      all &= seen;
    }
    return all ? TileVisibility::all : any ? TileVisibility::some : TileVisibility::none;
  }
  std::uint64_t bits(const Site& first, int count) const {
    std::uint64_t bits = 0;
    const T* element = tensor_.at(first);
    int i = 0;
    if (tensor_.slot_step() == 1) {
      if (count == 64) return simd::bits_of_64_bytes(element);
      for (; i + 8 <= count; i += 8) bits |= simd::bits_of_8_bytes(element + i) << i;
    }
    for (; i < count; ++i) {
      bits |= static_cast<std::uint64_t>(static_cast<bool>(element[i * tensor_.slot_step()])) << i;
    }
    return bits;
  }
  void prefetch(const Site& first, Index count) const { tensor_.prefetch(first, count); }

 private:
  detail::LogitTensor<T> tensor_;
};

/// A pair is visible where the tensor `[batch, heads, q_len, kv_len]` of bool or unsigned char is true (not
/// 0), as in PyTorch's `attn_mask`. Each extent is the call's or 1, which serves all (other extents are
/// errors of the call). Rows and slots are local: query_offset and displaced keys do not move it. Any
/// strides; borrowed.
template <class T>
constexpr auto boolean_mask(TensorView<T> tensor) {
  return BooleanMask<std::remove_const_t<T>>(TensorView<const T>(tensor));
}

ROVE_END_TAGGED

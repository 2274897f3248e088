/// \file
/// Views of tensors `[batch, heads, tokens, channels]` and of per-row numbers `[batch, heads, tokens]`.
///
/// A view owns nothing, is copied freely and passes between translation units that were compiled for
/// different instruction sets: it is a plain aggregate whose members are always inlined.
#pragma once

#include <cstdint>
#include <type_traits>

#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"

namespace rove {

/// A borrowed tensor `[batch, heads, tokens, channels]` with 64-bit strides, counted in elements.
///
/// Strides may come in any order; as an input a view may also repeat itself (stride 0) or run backwards
/// (negative stride). An output must give each element a place of its own.
template <class T>
struct TensorView {
  T* data = nullptr;     ///< element (0, 0, 0, 0)
  Index extent[4] = {};  ///< batch, heads, tokens, channels
  Index stride[4] = {};  ///< elements from one index to the next, in the same order

  using value_type = std::remove_const_t<T>;

  ROVE_ALWAYS_INLINE constexpr Index batch() const { return extent[0]; }
  ROVE_ALWAYS_INLINE constexpr Index heads() const { return extent[1]; }
  ROVE_ALWAYS_INLINE constexpr Index tokens() const { return extent[2]; }
  ROVE_ALWAYS_INLINE constexpr Index channels() const { return extent[3]; }
  ROVE_ALWAYS_INLINE constexpr Index channel_stride() const { return stride[3]; }
  ROVE_ALWAYS_INLINE constexpr Index size() const { return extent[0] * extent[1] * extent[2] * extent[3]; }
  ROVE_ALWAYS_INLINE constexpr bool empty() const {
    return extent[0] == 0 || extent[1] == 0 || extent[2] == 0 || extent[3] == 0;
  }

  /// First channel of token t; the channels follow at `channel_stride()`. Indices are not checked.
  ROVE_ALWAYS_INLINE constexpr T* row(Index b, Index h, Index t) const {
    return data + (b * stride[0] + h * stride[1] + t * stride[2]);
  }
  /// Element (b, h, t, c); indices are not checked.
  ROVE_ALWAYS_INLINE constexpr T& operator()(Index b, Index h, Index t, Index c) const {
    return row(b, h, t)[c * stride[3]];
  }

  /// The part [first, first + count) of one dimension (0 batch … 3 channels), of the same storage. Indices
  /// are not checked; `checked_slice` does.
  ROVE_ALWAYS_INLINE constexpr TensorView slice(int dimension, Index first, Index count) const {
    TensorView part = *this;
    part.data += first * stride[dimension];
    part.extent[dimension] = count;
    return part;
  }

  ROVE_ALWAYS_INLINE constexpr operator TensorView<const T>() const requires(!std::is_const_v<T>) {
    return {data, {extent[0], extent[1], extent[2], extent[3]}, {stride[0], stride[1], stride[2], stride[3]}};
  }
};

/// A borrowed array of one number per row, `[batch, heads, tokens]`: log-sum-exps, row maxima. Strides in
/// elements.
template <class T>
struct RowView {
  T* data = nullptr;     ///< element (0, 0, 0); null: there is none
  Index extent[3] = {};  ///< batch, heads, tokens
  Index stride[3] = {};  ///< elements from one index to the next

  ROVE_ALWAYS_INLINE constexpr Index batch() const { return extent[0]; }
  ROVE_ALWAYS_INLINE constexpr Index heads() const { return extent[1]; }
  ROVE_ALWAYS_INLINE constexpr Index tokens() const { return extent[2]; }
  ROVE_ALWAYS_INLINE constexpr T& operator()(Index b, Index h, Index t) const {
    return data[b * stride[0] + h * stride[1] + t * stride[2]];
  }
  ROVE_ALWAYS_INLINE constexpr explicit operator bool() const { return data != nullptr; }

  ROVE_ALWAYS_INLINE constexpr operator RowView<const T>() const requires(!std::is_const_v<T>) {
    return {data, {extent[0], extent[1], extent[2]}, {stride[0], stride[1], stride[2]}};
  }
};

/// A borrowed list of 32- or 64-bit integers (key lengths, offsets, cumulative lengths, position ids), as the
/// caller happens to hold them. Null means that there is none.
struct IntegerSpan {
  const void* data = nullptr;
  Index count = 0;
  bool wide = true;  ///< 64-bit entries; otherwise 32-bit

  constexpr IntegerSpan() = default;
  ROVE_ALWAYS_INLINE IntegerSpan(const std::int64_t* first, Index n) : data(first), count(n), wide(true) {}
  ROVE_ALWAYS_INLINE IntegerSpan(const std::int32_t* first, Index n) : data(first), count(n), wide(false) {}
  /// From a vector, array or span of signed 32- or 64-bit integers; borrows it.
  template <class Container>
  requires requires(const Container& c) {
    c.data();
    c.size();
    requires std::is_integral_v<std::remove_cvref_t<decltype(*c.data())>> &&
        std::is_signed_v<std::remove_cvref_t<decltype(*c.data())>> &&
        (sizeof(*c.data()) == 4 || sizeof(*c.data()) == 8);
  }
  ROVE_ALWAYS_INLINE IntegerSpan(const Container& c)
      : data(c.data()), count(static_cast<Index>(c.size())), wide(sizeof(*c.data()) == 8) {}

  ROVE_ALWAYS_INLINE Index operator[](Index i) const {
    return wide ? static_cast<Index>(static_cast<const std::int64_t*>(data)[i])
                : static_cast<Index>(static_cast<const std::int32_t*>(data)[i]);
  }
  ROVE_ALWAYS_INLINE Index size() const { return count; }
  ROVE_ALWAYS_INLINE explicit operator bool() const { return data != nullptr; }
};

/// The same view of other 16-bit storage of binary16 numbers, without a copy (see `as_half` of a pointer).
template <class Storage>
ROVE_ALWAYS_INLINE auto as_half(const TensorView<Storage>& view) {
  auto* const data = as_half(view.data);
  return TensorView<std::remove_pointer_t<std::remove_const_t<decltype(data)>>>{
      data,
      {view.extent[0], view.extent[1], view.extent[2], view.extent[3]},
      {view.stride[0], view.stride[1], view.stride[2], view.stride[3]}};
}

/// The same view of other bfloat16 storage, without a copy (see `as_bfloat16` of a pointer).
template <class Storage>
ROVE_ALWAYS_INLINE auto as_bfloat16(const TensorView<Storage>& view) {
  auto* const data = as_bfloat16(view.data);
  return TensorView<std::remove_pointer_t<std::remove_const_t<decltype(data)>>>{
      data,
      {view.extent[0], view.extent[1], view.extent[2], view.extent[3]},
      {view.stride[0], view.stride[1], view.stride[2], view.stride[3]}};
}

/// Contiguous `[batch, heads, tokens, channels]`.
template <class T>
ROVE_ALWAYS_INLINE constexpr TensorView<T> bhtd(T* data, Index batch, Index heads, Index tokens,
                                                Index channels) {
  return {
      data, {batch, heads, tokens, channels}, {heads * tokens * channels, tokens * channels, channels, 1}};
}

/// Contiguous `[batch, tokens, heads, channels]`, the layout of a projection's output.
template <class T>
ROVE_ALWAYS_INLINE constexpr TensorView<T> bthd(T* data, Index batch, Index tokens, Index heads,
                                                Index channels) {
  return {data, {batch, heads, tokens, channels}, {tokens * heads * channels, channels, heads * channels, 1}};
}

/// Contiguous `[batch, heads, tokens]`, the layout of log-sum-exps.
template <class T>
ROVE_ALWAYS_INLINE constexpr RowView<T> bht(T* data, Index batch, Index heads, Index tokens) {
  return {data, {batch, heads, tokens}, {heads * tokens, tokens, 1}};
}

/// The three views into one projection's output.
template <class T>
struct PackedQkv {
  TensorView<T> q, k, v;
};

/// Packed `[batch, tokens, (heads · d | kv_heads · d | kv_heads · d_v)]`: each token's queries, then its
/// keys, then its values, as a fused QKV projection writes them. `value_channels` < 0 means d.
template <class T>
ROVE_ALWAYS_INLINE constexpr PackedQkv<T> packed_qkv(T* data, Index batch, Index tokens, Index heads,
                                                     Index kv_heads, Index channels,
                                                     Index value_channels = -1) {
  const Index dv = value_channels < 0 ? channels : value_channels;
  const Index row = heads * channels + kv_heads * (channels + dv);
  return {{data, {batch, heads, tokens, channels}, {tokens * row, channels, row, 1}},
          {data + heads * channels, {batch, kv_heads, tokens, channels}, {tokens * row, channels, row, 1}},
          {data + (heads + kv_heads) * channels, {batch, kv_heads, tokens, dv}, {tokens * row, dv, row, 1}}};
}

}  // namespace rove

/// \file
/// Several rows of numbers in memory.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"

namespace rove {

/// `count` rows of `channels` numbers, each row contiguous: row r begins at `data + r * stride`. Borrowed.
template <class T>
struct RowBlock {
  T* data = nullptr;
  Index count = 0;
  Index channels = 0;
  Index stride = 0;  ///< elements from a row to the next

  ROVE_ALWAYS_INLINE constexpr std::span<T> row(Index r) const {
    return {data + r * stride, static_cast<std::size_t>(channels)};
  }
  /// Rows [first, first + rows); indices are not checked.
  ROVE_ALWAYS_INLINE constexpr RowBlock part(Index first, Index rows) const {
    return {data + first * stride, rows, channels, stride};
  }
  ROVE_ALWAYS_INLINE constexpr operator RowBlock<const T>() const requires(!std::is_const_v<T>) {
    return {data, count, channels, stride};
  }
  /// One row.
  ROVE_ALWAYS_INLINE static constexpr RowBlock of(std::span<T> row) {
    const auto channels = static_cast<Index>(row.size());
    return {row.data(), 1, channels, channels};
  }
};

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

/// The loop of copy_rows, out of line: most frames copy nothing. Rows by their numbers, not from one to the
/// next: the stride of a single row is any number.
template <class T>
ROVE_NO_INLINE void copy_row_channels(const T* from, Index from_stride, T* to, Index to_stride, Index rows,
                                      Index channels) {
  for (Index r = 0; r < rows; ++r) {
    const T* const row = from + r * from_stride;
    T* const target = to + r * to_stride;
    for (Index c = 0; c < channels; ++c) target[c] = row[c];
  }
}

}  // namespace detail

/// Copies the channels [first, last) of rows, unless they are the same rows; otherwise they must lie apart.
template <class T>
ROVE_ALWAYS_INLINE void copy_rows(RowBlock<const T> from, RowBlock<T> to, Index first, Index last) {
  ROVE_ASSERT(from.data != to.data || from.stride == to.stride || to.count < 2);
  if (from.data == to.data || first >= last) return;
  detail::copy_row_channels(from.data + first, from.stride, to.data + first, to.stride, to.count,
                            last - first);
}
/// All channels.
template <class T>
ROVE_ALWAYS_INLINE void copy_rows(RowBlock<const T> from, RowBlock<T> to) {
  copy_rows(from, to, 0, to.channels);
}

ROVE_END_TAGGED

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

/// Copies the channels [first, last) of rows, unless they are the same rows; otherwise they must lie apart.
template <class T>
ROVE_ALWAYS_INLINE void copy_rows(RowBlock<const T> from, RowBlock<T> to, Index first, Index last) {
  ROVE_ASSERT(from.data != to.data || from.stride == to.stride || to.count < 2);
  if (from.data == to.data || first >= last) return;
  for (Index r = 0; r < to.count; ++r) {
    const T* const row = from.data + r * from.stride;
    T* const target = to.data + r * to.stride;
    for (Index c = first; c < last; ++c) target[c] = row[c];
  }
}

}  // namespace rove

/// \file
/// Rows that will be read or written soon, asked for while others are at hand.
#pragma once

#include <algorithm>

#include "rove/attention/key_values.hpp"
#include "rove/core/config.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// How many rows before: two groups of the 16 keys or values that are packed at a time, whole pages of most
/// caches.
inline constexpr Index rows_ahead = 32;

/// Asks for a row, where its channels lie side by side.
template <class T>
ROVE_ALWAYS_INLINE void prefetch_row(const T* row, Index channels, Index channel_stride) {
  if (channel_stride != 1) return;
  constexpr Index line = (std::max)(Index{1}, simd::cache_line / static_cast<Index>(sizeof(T)));
  for (Index i = 0; i * channels_per_element<T> < channels; i += line) simd::prefetch(row + i);
}

/// Rows that are asked for a cache line at a time, in the order of memory: many requests at once, or column
/// by column, gain nothing.
class RowsAhead {
 public:
  /// The first `count` rows of a run, as far as it goes; none where channels do not lie side by side.
  template <class Storage>
  RowsAhead(const RowRun<Storage>& run, Index count, Index channels)
      : row_(reinterpret_cast<const char*>(run.data)),
        place_(row_),
        row_bytes_(static_cast<Index>(sizeof(Storage)) * channels / channels_per_element<Storage>),
        rows_(run.channel_stride == 1 ? (std::min)(run.count, count) : 0),
        // The stride of a single row is any number.
        stride_(rows_ > 1 ? static_cast<Index>(sizeof(Storage)) * run.row_stride : 0) {}

  /// The next line's address; null when all have been.
  ROVE_ALWAYS_INLINE const char* next() {
    if (rows_ <= 0) return nullptr;
    const char* const line_at = place_;
    place_ += simd::cache_line;
    if (place_ - row_ >= row_bytes_ && --rows_ > 0) {
      row_ += stride_;
      place_ = row_;
    }
    return line_at;
  }
  /// Asks for it.
  ROVE_ALWAYS_INLINE void ask() {
    if (const char* const address = next()) simd::prefetch<1>(address);
  }

 private:
  const char* row_;
  const char* place_;
  Index row_bytes_;
  Index rows_;  ///< from this one on
  Index stride_;
};

}  // namespace detail

ROVE_END_TAGGED

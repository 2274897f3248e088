/// \file
/// Rows on their way in and out of a kernel: widened and transformed, transformed and rounded. Every path
/// uses these, so that all paths agree by bits.
#pragma once

#include <cstddef>
#include <span>

#include "rove/attention/key_values.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/row_transform.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_convert.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

template <class Problem, class Transform, class Acc>
void read_query(const Problem& problem, const Transform& transform, Index b, Index head, Index row,
                std::span<Acc> into) {
  RowCodec<typename Problem::query_storage>::read(
      {problem.q.row(b, head, row), 1, 0, problem.q.channel_stride()}, 0, into);
  if constexpr (!Transform::is_identity) transform.forward(b, row, into);
}

template <class Problem, class Transform, class Acc>
void read_key(const Problem& problem, const Transform& transform, Index b, Index kv_head, Index slot,
              std::span<Acc> into) {
  rove::read_key(problem.kv, b, kv_head, slot, into);
  if constexpr (!Transform::is_identity) transform.forward(b, slot, into);
}

template <class Problem, class Transform, class Acc>
void read_value(const Problem& problem, const Transform& transform, Index b, Index kv_head, Index slot,
                std::span<Acc> into) {
  rove::read_value(problem.kv, b, kv_head, slot, into);
  if constexpr (!Transform::is_identity) transform.forward(b, slot, into);
}

/// Asks for a row that will be read or written soon, where its channels lie side by side.
template <class T>
ROVE_ALWAYS_INLINE void prefetch_row(const T* row, Index channels, Index channel_stride) {
  if (channel_stride != 1) return;
  constexpr Index line = sizeof(T) < 64 ? static_cast<Index>(64 / sizeof(T)) : 1;
  for (Index i = 0; i * channels_per_element<T> < channels; i += line) simd::prefetch(row + i);
}

/// Rounds a row to elements of any type, `stride` apart.
template <Scalar T, Accumulator Acc>
void store_row(T* to, Index stride, std::span<const Acc> row) {
  using P = simd::packet_t<Acc>;
  constexpr Index width = simd::width<P>;
  const Index count = static_cast<Index>(row.size());
  Index c = 0;
  if (stride == 1) {
    for (; c + width <= count; c += width) simd::store(to + c, simd::load<P>(row.data() + c));
  }
  for (; c < count; ++c) store_rounded(to + c * stride, row[static_cast<std::size_t>(c)]);
}

/// Whether all of a row are zeros, of either sign.
template <Accumulator Acc>
bool is_zero_row(std::span<const Acc> row) {
  using P = simd::packet_t<Acc>;
  constexpr Index width = simd::width<P>;
  const Index count = static_cast<Index>(row.size());
  Index c = 0;
  for (; c + width <= count; c += width) {
    if (simd::any(!(simd::load<P>(row.data() + c) == simd::broadcast<P>(0)))) return false;
  }
  for (; c < count; ++c) {
    if (!(row[static_cast<std::size_t>(c)] == Acc(0))) return false;
  }
  return true;
}

/// Transforms `row` in place, then rounds it into the problem's output. A row of zeros stays one whatever its
/// transform, so that a row without keys is +0 on every path.
template <class Problem, class Transform, class Acc>
void write_output(const Problem& problem, const Transform& transform, Index b, Index head, Index row,
                  std::span<Acc> values) {
  if constexpr (!Transform::is_identity) {
    if (!is_zero_row(std::span<const Acc>(values))) transform.forward(b, row, values);
  }
  store_row(problem.out.row(b, head, row), problem.out.channel_stride(), std::span<const Acc>(values));
}

}  // namespace detail

ROVE_END_TAGGED

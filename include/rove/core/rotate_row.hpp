/// \file
/// Turning the pairs of one row: the inner loop of every rotary frame.
#pragma once

#include <cstddef>
#include <type_traits>

#include "rove/core/config.hpp"
#include "rove/core/pairing.hpp"
#include "rove/core/row_block.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_convert.hpp"
#include "rove/core/simd_lanes.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// The first `count` of a table's numbers in the type that rows are turned in.
template <simd::PacketLike P, Accumulator Table>
ROVE_ALWAYS_INLINE P load_angles(const Table* from, int count) {
  using Acc = simd::lane_t<P>;
  if constexpr (std::is_same_v<Table, Acc>) {
    if (count == simd::width<P>) return simd::load<P>(from);
  }
  Acc lanes[simd::width<P>];
  for (int i = 0; i < simd::width<P>; ++i) lanes[i] = i < count ? static_cast<Acc>(from[i]) : Acc(0);
  return simd::load<P>(lanes);
}

/// A run of pairs: x_k at `x + k * step`, y_k at `y + k * step`.
template <class T>
struct PairRun {
  T *x, *y;
  Index step;
};

/// x' = x cos - y sin and y' = y cos + x sin, the products by cos rounded first.
template <Direction direction, simd::PacketLike P>
ROVE_ALWAYS_INLINE void turn(P& x, P& y, P c, P s) {
  const P old_x = x;
  if constexpr (direction == Direction::inverse) s = -s;
  x = simd::mul_add(-y, s, old_x * c);
  y = simd::mul_add(old_x, s, y * c);
}

/// Turns n packets of contiguous pairs, all loads in address order before all stores: memory sees one stream
/// up the row, where x and y by turns would be two that jump back and forth and that prefetchers do not
/// follow.
template <Direction direction, int n, simd::PacketLike P, Accumulator Table, Scalar T>
ROVE_ALWAYS_INLINE void rotate_packets(const Table* cos, const Table* sin, const T* from_x, const T* from_y,
                                       T* to_x, T* to_y) {
  constexpr int width = simd::width<P>;
  P x[std::size_t{n}], y[std::size_t{n}];
  for (int i = 0; i < n; ++i) x[i] = simd::load<P>(from_x + i * width);
  for (int i = 0; i < n; ++i) y[i] = simd::load<P>(from_y + i * width);
  for (int i = 0; i < n; ++i) {
    turn<direction>(x[i], y[i], load_angles<P>(cos + i * width, width),
                    load_angles<P>(sin + i * width, width));
  }
  for (int i = 0; i < n; ++i) simd::store(to_x + i * width, x[i]);
  for (int i = 0; i < n; ++i) simd::store(to_y + i * width, y[i]);
}

/// Turns pairs whose x lie side by side, and whose y do, by whole packets; returns how many pairs those were.
template <Direction direction, simd::PacketLike P, Accumulator Table, Scalar T>
ROVE_ALWAYS_INLINE Index rotate_contiguous(const Table* cos, const Table* sin, Index pairs, const T* from_x,
                                           const T* from_y, T* to_x, T* to_y) {
  constexpr int width = simd::width<P>;
  Index k = 0;
  for (; k + 4 * width <= pairs; k += 4 * width) {
    rotate_packets<direction, 4, P>(cos + k, sin + k, from_x + k, from_y + k, to_x + k, to_y + k);
  }
  for (; k + width <= pairs; k += width) {
    rotate_packets<direction, 1, P>(cos + k, sin + k, from_x + k, from_y + k, to_x + k, to_y + k);
  }
  return k;
}

/// Turns a run of pairs, any distance apart. Both of a pair are read before either is written. Apart from the
/// loops above so that rows of whole packets do not pay for it.
template <Direction direction, simd::PacketLike P, Accumulator Table, Scalar T>
ROVE_NO_INLINE void rotate_pairs(const Table* cos, const Table* sin, Index pairs, PairRun<const T> from,
                                 PairRun<T> to) {
  constexpr int width = simd::width<P>;
  for (Index k = 0; k < pairs; k += width) {
    const int count = pairs - k < width ? static_cast<int>(pairs - k) : width;
    P x = simd::gather<P>(from.x + k * from.step, from.step, count);
    P y = simd::gather<P>(from.y + k * from.step, from.step, count);
    turn<direction>(x, y, load_angles<P>(cos + k, count), load_angles<P>(sin + k, count));
    simd::scatter(to.x + k * to.step, to.step, x, count);
    simd::scatter(to.y + k * to.step, to.step, y, count);
  }
}

/// The same for pairs (2k, 2k + 1) side by side, by whole packets; returns how many pairs those were. In
/// lanes x y x y …, a row times (c, c) plus the row with its pairs swapped times (-s, s).
template <Direction direction, simd::PacketLike P, Accumulator Table, Scalar T>
ROVE_ALWAYS_INLINE Index rotate_adjacent(const Table* cos, const Table* sin, Index pairs, const T* from,
                                         T* to) {
  constexpr Index step = simd::width<P> / 2;
  Index k = 0;
  for (; k + step <= pairs; k += step) {
    const P row = simd::load<P>(from + 2 * k);
    const P c = simd::load_dup<P>(cos + k);
    P s = simd::negate_even(simd::load_dup<P>(sin + k));
    if constexpr (direction == Direction::inverse) s = -s;
    simd::store(to + 2 * k, simd::mul_add(simd::swap_pairs(row), s, row * c));
  }
  return k;
}

}  // namespace detail

/// Turns the `pairs` pairs of one row by their angles (`inverse`: by minus their angles):
///
///     (x, y) ← (x cos − y sin, x sin + y cos)
///
/// computed as x' = mul_add(−y, sin, x·cos), y' = mul_add(x, sin, y·cos) in double for double rows, in float
/// for all others, and rounded to T once: the same bits for either pairing, any strides, any alignment and
/// any number of pairs.
///
/// \param cos, sin  `pairs` numbers each; a float table serves no double rows, a double table is rounded
/// \param from, to  the first rotary channel of the row as it is and as it will be, 2 · pairs channels,
///                  `from_stride` and `to_stride` elements apart; `to` is `from` with the same stride, or
///                  overlaps neither it nor the table
template <Direction direction, Accumulator Table, Scalar T>
void rotate_row(Pairing pairing, const Table* cos, const Table* sin, Index pairs, const T* from,
                Index from_stride, T* to, Index to_stride) {
  using Acc = accumulator_t<T>;
  using P = simd::packet_t<Acc>;
  static_assert(!(std::is_same_v<Acc, double> && std::is_same_v<Table, float>),
                "rows in double need a table in double: a float table would be the least accurate part");
  if (pairs == 0) return;  // the pointers may be null
  const bool contiguous = from_stride == 1 && to_stride == 1;
  Index done = 0;
  // From the first x to the first y, and from one pair to the next, in channels.
  Index other = 1, step = 2;
  if (pairing == Pairing::half_split) {
    other = pairs;
    step = 1;
    if (contiguous) {
      done = detail::rotate_contiguous<direction, P>(cos, sin, pairs, from, from + pairs, to, to + pairs);
    }
  } else if constexpr (!simd::is_scalar<P> && std::is_same_v<Table, Acc>) {
    if (contiguous) done = detail::rotate_adjacent<direction, P>(cos, sin, pairs, from, to);
  }
  if (done == pairs) return;
  from += done * step * from_stride;
  to += done * step * to_stride;
  detail::rotate_pairs<direction, P>(
      cos + done, sin + done, pairs - done,
      detail::PairRun<const T>{from, from + other * from_stride, step * from_stride},
      detail::PairRun<T>{to, to + other * to_stride, step * to_stride});
}

/// The same in place.
template <Direction direction, Accumulator Table, Scalar T>
void rotate_row(Pairing pairing, const Table* cos, const Table* sin, Index pairs, T* row, Index stride = 1) {
  rotate_row<direction>(pairing, cos, sin, pairs, static_cast<const T*>(row), stride, row, stride);
}

namespace detail {

/// Turns rows of n packets of x followed by n of y. A function of its own, and what it is given by reference
/// copied: with registers for nothing else it runs at the pace of its loads and stores.
template <Direction direction, int n, class WithAngles, Accumulator Acc>
ROVE_NO_INLINE void rotate_short_rows(const Acc* from, Index from_stride, Acc* to, Index to_stride,
                                      Index count, const WithAngles& angles) {
  using P = simd::packet_t<Acc>;
  constexpr int half = n * simd::width<P>;
  const WithAngles with_angles = angles;
  for (Index r = 0; r < count; ++r) {
    const Acc* const x = from + r * from_stride;
    Acc* const target = to + r * to_stride;
    with_angles(r, [x, target](const auto* cos, const auto* sin) ROVE_INLINE_LAMBDA {
      rotate_packets<direction, n, P>(cos, sin, x, x + half, target, target + half);
    });
  }
}

/// Turns rows of any width.
template <Direction direction, class WithAngles, Accumulator Acc>
ROVE_NO_INLINE void rotate_long_rows(Pairing pairing, Index pairs, RowBlock<const Acc> from, RowBlock<Acc> to,
                                     const WithAngles& with_angles) {
  using P = simd::packet_t<Acc>;
  const auto each = [&](const auto& turn) ROVE_INLINE_LAMBDA {
    for (Index r = 0; r < to.count; ++r) {
      with_angles(r, [&](const auto* cos, const auto* sin) ROVE_INLINE_LAMBDA {
        turn(cos, sin, from.data + r * from.stride, to.data + r * to.stride);
      });
    }
  };
  if (pairing == Pairing::half_split && pairs % simd::width<P> == 0) {
    each([pairs](const auto* cos, const auto* sin, const Acc* x, Acc* y) ROVE_INLINE_LAMBDA {
      rotate_contiguous<direction, P>(cos, sin, pairs, x, x + pairs, y, y + pairs);
    });
  } else {
    each([pairing, pairs](const auto* cos, const auto* sin, const Acc* x, Acc* y) ROVE_INLINE_LAMBDA {
      rotate_row<direction>(pairing, cos, sin, pairs, x, Index{1}, y, Index{1});
    });
  }
}

}  // namespace detail

/// The same for the first 2 · pairs channels of several rows, `from` and `to` being the same or apart:
/// `with_angles(r, use)` calls use(cos, sin) with the angles of row r; it may be copied. Rows of whole
/// packets go without asking anew what they are, which costs a short row more than its arithmetic.
template <Direction direction, class WithAngles, Accumulator Acc>
ROVE_ALWAYS_INLINE void rotate_rows(Pairing pairing, Index pairs, RowBlock<const Acc> from, RowBlock<Acc> to,
                                    const WithAngles& with_angles) {
  constexpr int width = simd::native_width<Acc>;
  const auto rotate_short = [&](auto packets) ROVE_INLINE_LAMBDA {
    detail::rotate_short_rows<direction, packets>(from.data, from.stride, to.data, to.stride, to.count,
                                                  with_angles);
  };
  // 64 and 128 channels in packets of 16, 32 and 64 in packets of 8.
  if (pairing == Pairing::half_split && pairs == 2 * width) {
    rotate_short(std::integral_constant<int, 2>{});
  } else if (pairing == Pairing::half_split && pairs == 4 * width) {
    rotate_short(std::integral_constant<int, 4>{});
  } else {
    detail::rotate_long_rows<direction>(pairing, pairs, from, to, with_angles);
  }
}

ROVE_END_TAGGED

/// \file
/// The online softmax over a tile of rows and one key block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "rove/attention/softmax_state.hpp"
#include "rove/attention/tiled/tile.hpp"
#include "rove/attention/tiled/view.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_lanes.hpp"
#include "rove/core/simd_math.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// `SoftmaxState` of each row of a tile, side by side.
template <Accumulator Acc>
struct SoftmaxTile {
  static constexpr int width = simd::native_width<Acc>;
  static constexpr int rows = (TileShape<Acc>::rows + width - 1) / width * width;

  Acc max[std::size_t{rows}];
  Acc sum[std::size_t{rows}];

  void clear() {
    for (int r = 0; r < rows; ++r) {
      max[r] = -std::numeric_limits<Acc>::infinity();
      sum[r] = 0;
    }
  }
  SoftmaxState<Acc> row(int r) const { return {max[r], sum[r]}; }
  void set(int r, SoftmaxState<Acc> state) {
    max[r] = state.max;
    sum[r] = state.sum;
  }
};

/// The largest logits of row r, lane by lane, NaN passed over; what the row does not see becomes −∞ in place.
template <int rows, Accumulator Acc>
ROVE_ALWAYS_INLINE simd::packet_t<Acc> largest_of_row(Acc* logits, Index first, Index last,
                                                      const BlockView<rows>& view, int r) {
  using P = simd::packet_t<Acc>;
  constexpr int width = simd::width<P>;
  const P minus_infinity = simd::broadcast<P>(-std::numeric_limits<Acc>::infinity());
  P top = minus_infinity;
  if (view.all && view.first == first && view.last == last) {
    for (Index j = first; j < last; j += width) top = simd::maximum<P>(top, simd::load<P>(logits + j));
    return top;
  }
  const auto hide = [&](Index j, std::uint64_t visible) ROVE_INLINE_LAMBDA {
    const P x = simd::select<P>(simd::mask_from_bits<P>(static_cast<std::uint32_t>(visible)),
                                simd::load<P>(logits + j), minus_infinity);
    simd::store<P>(logits + j, x);
    top = simd::maximum<P>(top, x);
  };
  if (view.all) {
    for (Index j = first; j < last; j += width) hide(j, bit_range(view.first - j, view.last - j, width));
  } else {
    const std::uint64_t* const bits = view.bits[r];
    for (auto j = static_cast<std::size_t>(first); j < static_cast<std::size_t>(last); j += width) {
      hide(static_cast<Index>(j), bits[j / 64] >> (j % 64));
    }
  }
  return top;
}

/// logits[j] ← 2^(logits[j] − reference); returns their sum in 16 lanes, folded to one packet.
template <Accumulator Acc>
ROVE_ALWAYS_INLINE simd::packet_t<Acc> exponentiate_row(Acc* logits, Index first, Index last, Acc reference) {
  using P = simd::packet_t<Acc>;
  constexpr int width = simd::width<P>;
  const P shift = simd::broadcast<P>(reference);
  P lanes[simd::parts<P>];
  for (P& lane : lanes) lane = simd::broadcast<P>(0);
  const auto exponentiate = [&](Index j, P& lane) ROVE_INLINE_LAMBDA {
    const P x = simd::exp2_kernel<P>(simd::load<P>(logits + j) - shift);
    simd::store<P>(logits + j, x);
    lane = lane + x;
  };
  if constexpr (simd::parts<P> == 1) {
    for (Index j = first; j < last; j += width) exponentiate(j, lanes[0]);
  } else {
    // 16 at a time, but for ends that lie between: what is there counts as 0.
    for (Index j = first / 16 * 16; j < last; j += 16) {
      for (int i = 0; i < simd::parts<P>; ++i) {
        const Index k = j + i * width;
        if (k >= first && k < last) exponentiate(k, lanes[i]);
      }
    }
  }
  return simd::fold_parts<P>(lanes, [](P a, P b) ROVE_INLINE_LAMBDA { return a + b; });
}

/// Turns the logits (in units of log 2) of a tile's rows at the places [first, last) of a block into weights,
/// in place, those of keys that a row does not see 0; `state` takes them up. rescale[r] becomes the factor
/// that what row r summed before takes. first and last are multiples of the packet's width; rows are
/// `weights_stride` apart.
template <int rows, Accumulator Acc>
ROVE_NO_INLINE void softmax_tile(Acc* weights, Index first, Index last, const BlockView<rows>& view,
                                 int count, SoftmaxTile<Acc>& state, Acc* rescale) {
  using P = simd::packet_t<Acc>;
  constexpr int width = simd::width<P>;
  const P minus_infinity = simd::broadcast<P>(-std::numeric_limits<Acc>::infinity());
  // As many rows as a packet has lanes at a time, so that maxima and sums are folded together.
  for (int group = 0; group < count; group += width) {
    const int some = count - group < width ? count - group : width;
    P row[std::size_t{width}];
    for (int r = 0; r < width; ++r) {
      row[r] = r < some ? largest_of_row(weights + (group + r) * weights_stride, first, last, view, group + r)
                        : minus_infinity;
    }
    const P largest =
        simd::reduce_each<P>(row, [](P a, P b) ROVE_INLINE_LAMBDA { return simd::maximum<P>(a, b); });
    // SoftmaxState::raise, reference and add, in every lane.
    const P old = simd::load<P>(state.max + group);
    const auto raised = old < largest;
    const P now = simd::select<P>(raised, largest, old);
    const P factor = simd::select<P>(raised, simd::exp2_kernel<P>(old - largest), simd::broadcast<P>(1));
    Acc reference[std::size_t{width}];
    simd::store<P>(reference, simd::select<P>(now == minus_infinity, simd::broadcast<P>(0), now));
    for (int r = 0; r < width; ++r) {
      row[r] = r < some ? exponentiate_row(weights + (group + r) * weights_stride, first, last, reference[r])
                        : simd::broadcast<P>(0);
    }
    const P sum = simd::reduce_each<P>(row, [](P a, P b) ROVE_INLINE_LAMBDA { return a + b; });
    simd::store<P>(state.max + group, now);
    simd::store<P>(state.sum + group, simd::mul_add(simd::load<P>(state.sum + group), factor, sum));
    simd::store<P>(rescale + group, factor);
  }
}

}  // namespace detail

ROVE_END_TAGGED

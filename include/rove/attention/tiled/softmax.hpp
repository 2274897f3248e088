/// \file
/// The online softmax over one row of a tile and one key block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "rove/attention/softmax_state.hpp"
#include "rove/attention/tiled/view.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_math.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Row r's weights from its logits (in units of log 2) at the places [first, last) of the block, in place,
/// those of keys that it does not see 0; `state` takes them up. Returns the factor that what was summed
/// before takes. first and last are multiples of the packet's width.
template <int rows, Accumulator Acc>
ROVE_NO_INLINE Acc softmax_row(Acc* weights, Index first, Index last, const BlockView<rows>& view, int r,
                               SoftmaxState<Acc>& state) {
  using P = simd::packet_t<Acc>;
  constexpr int width = simd::width<P>;
  const P minus_infinity = simd::broadcast<P>(-std::numeric_limits<Acc>::infinity());
  P top = minus_infinity;
  if (view.all && view.first == first && view.last == last) {
    for (Index j = first; j < last; j += width) top = simd::maximum<P>(top, simd::load<P>(weights + j));
  } else {
    for (Index j = first; j < last; j += width) {
      const auto bits = static_cast<std::uint32_t>(view.lanes(r, j, width));
      const P x = simd::select<P>(simd::mask_from_bits<P>(bits), simd::load<P>(weights + j), minus_infinity);
      simd::store<P>(weights + j, x);
      top = simd::maximum<P>(top, x);
    }
  }
  Acc lanes_top[std::size_t{width}], largest = -std::numeric_limits<Acc>::infinity();
  simd::store<P>(lanes_top, top);
  for (const Acc x : lanes_top) largest = x > largest ? x : largest;
  const Acc rescale = state.raise(largest);
  const P reference = simd::broadcast<P>(state.reference());
  P lanes[simd::parts<P>];
  for (P& lane : lanes) lane = simd::broadcast<P>(0);
  // 16 at a time; the ends of a range that starts or stops between are zeros already or become so here.
  for (Index j = first / 16 * 16; j < last; j += 16) {
    for (int i = 0; i < simd::parts<P>; ++i) {
      const Index k = j + i * width;
      if (k < first || k >= last) continue;
      const P x = simd::exp2_kernel<P>(simd::load<P>(weights + k) - reference);
      simd::store<P>(weights + k, x);
      lanes[i] = lanes[i] + x;
    }
  }
  state.add(rescale, simd::reduce_add<P>(lanes));
  return rescale;
}

}  // namespace detail

ROVE_END_TAGGED

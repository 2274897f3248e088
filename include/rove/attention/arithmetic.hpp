/// \file
/// The order in which every kernel of this library adds up, so that results can be compared by bits.
///
///  - ⟨q, k⟩: channels in index order, one multiply-add a step, starting at zero.
///  - Keys fall into blocks of `key_block_length` slots, blocks into chunks of `chunk_length` slots, both
///  counted from
///    slot 0; the length depends on the widths and the accumulator type alone. A displaced index moves no
///    block.
///  - A block's weights are summed in 16 virtual lanes, lane = slot mod 16, folded by a fixed tree.
///  - Σ A v starts at zero in each block, keys in slot order, one multiply-add a step; it joins the row's
///  running output
///    by one multiply-add, o ← o · rescale + block.
///  - Each chunk has a softmax state of its own; chunks are merged in order.
///  - The logits are kept in units of log 2; log₂e joins the scale where no score has to see natural logits.
///  - The sink enters last; 1/Σ is multiplied and rounded before the output's frame is undone.
///
/// A row's bits therefore depend on its own inputs alone, not on what else is in the batch, on how the work
/// is sliced, or on which tiles are skipped.
#pragma once

#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_lanes.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

inline constexpr Index chunk_length = 4096;
inline constexpr Index longest_key_block = 256;

/// Slots to a key block: the largest power of two in [32, `longest_key_block`] whose keys and values fit in
/// 256 KiB (32 where none does). It divides `chunk_length`.
template <Accumulator Acc>
constexpr Index key_block_length(Index channels, Index value_channels) {
  constexpr Index budget = 256 * 1024;
  Index length = longest_key_block;
  while (length > 32 && length * (channels + value_channels) * static_cast<Index>(sizeof(Acc)) > budget)
    length /= 2;
  return length;
}

/// Sum of `count` weights (a multiple of 16, unused ones zero): 16 virtual lanes, folded by
/// `simd::reduce_add`.
template <Accumulator Acc>
Acc sum_of_lanes(const Acc* weights, Index count) {
  using P = simd::packet_t<Acc>;
  P lanes[simd::parts<P>];
  for (P& lane : lanes) lane = simd::broadcast<P>(0);
  for (Index j = 0; j < count; j += simd::virtual_lanes) {
    for (int i = 0; i < simd::parts<P>; ++i)
      lanes[i] = lanes[i] + simd::load<P>(weights + j + i * simd::width<P>);
  }
  return simd::reduce_add<P>(lanes);
}

}  // namespace detail

ROVE_END_TAGGED

/// \file
/// Keys and values as the tile products read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/key_values.hpp"
#include "rove/attention/tiled/tile.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// One key block in memory. Keys: panels of 16 slots, [panel][channel][16]. Values: panels of as many
/// channels as a tile is wide, [panel][slot][channels of the panel]; channels are filled up with zeros to
/// whole packets.
template <Accumulator Acc>
struct PackedLayout {
  static constexpr Index width = simd::native_width<Acc>;
  static constexpr Index panel = width * TileShape<Acc>::packets;

  Index channels;
  Index value_channels;
  Index value_width;  ///< value channels in whole packets
  Index block;        ///< slots

  PackedLayout(Index channels_, Index value_channels_)
      : channels(channels_),
        value_channels(value_channels_),
        value_width((value_channels_ + width - 1) / width * width),
        block(key_block_length<Acc>(channels_, value_channels_)) {}

  Index key_block() const { return block * channels; }
  Index value_block() const { return block * value_width; }
  /// Where channel c of the value in place j of the block is.
  Index value_at(Index j, Index c) const {
    const Index whole = value_width / panel * panel;
    const Index base = c < whole ? c / panel * panel : whole + (c - whole) / width * width;
    const Index columns = c < whole ? panel : width;
    return base * block + j * columns + (c - base);
  }
};

/// Packs the keys of the block that starts at slot `origin`; slots that are not in use become zeros.
/// `read(slot, row)` gives a key, turned.
template <Accumulator Acc, class Read>
void pack_keys(const PackedLayout<Acc>& layout, Index origin, SlotRange used, Acc* to, Acc* scratch,
               const Read& read) {
  for (Index j = 0; j < layout.block; j += 16) {
    if (origin + j + 16 <= used.first || origin + j >= used.last) {
      std::fill_n(to, 16 * layout.channels, Acc(0));
    } else {
      for (Index l = 0; l < 16; ++l) {
        const Index slot = origin + j + l;
        const std::span<Acc> row(scratch + l * layout.channels, static_cast<std::size_t>(layout.channels));
        if (slot >= used.first && slot < used.last) {
          read(slot, row);
        } else {
          std::fill(row.begin(), row.end(), Acc(0));
        }
      }
      for (Index c = 0; c < layout.channels; ++c) {
        for (Index l = 0; l < 16; ++l) to[c * 16 + l] = scratch[l * layout.channels + c];
      }
    }
    to += 16 * layout.channels;
  }
}

/// Packs the values likewise; returns whether all of them are finite.
template <Accumulator Acc, class Read>
bool pack_values(const PackedLayout<Acc>& layout, Index origin, SlotRange used, Acc* to, Acc* scratch,
                 const Read& read) {
  using P = simd::packet_t<Acc>;
  const Index whole = layout.value_width / layout.panel * layout.panel;
  std::fill_n(scratch, layout.value_width, Acc(0));
  const std::span<Acc> row(scratch, static_cast<std::size_t>(layout.value_channels));
  bool finite = true;
  for (Index j = 0; j < layout.block; ++j) {
    const Index slot = origin + j;
    const bool present = slot >= used.first && slot < used.last;
    if (present) {
      read(slot, row);
      auto good = simd::is_finite<P>(simd::load<P>(scratch));
      for (Index c = layout.width; c < layout.value_width; c += layout.width) {
        good = good & simd::is_finite<P>(simd::load<P>(scratch + c));
      }
      finite = finite && !simd::any(!good);
    }
    for (Index c = 0; c < layout.value_width;) {
      const Index columns = c < whole ? layout.panel : layout.width;
      Acc* const place = to + c * layout.block + j * columns;
      for (Index e = 0; e < columns; e += layout.width) {
        simd::store<P>(place + e, present ? simd::load<P>(scratch + c + e) : simd::broadcast<P>(0));
      }
      c += columns;
    }
  }
  return finite;
}

}  // namespace detail

ROVE_END_TAGGED

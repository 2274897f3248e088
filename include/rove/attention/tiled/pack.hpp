/// \file
/// Queries, keys and values as the tile products read them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/key_values.hpp"
#include "rove/attention/tiled/tile.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_lanes.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// One key block in memory: its keys, then its values. Keys: panels of 16 slots, [panel][channel][16].
/// Values: panels of as many channels as a tile is wide, [panel][slot][channels of the panel]; channels are
/// filled up with zeros to whole packets. Queries: [channel][rows of a tile].
template <Accumulator Acc>
struct PackedLayout {
  static constexpr Index width = simd::native_width<Acc>;
  static constexpr Index panel = width * TileShape<Acc>::packets;

  Index channels;
  Index value_channels;
  Index key_width;    ///< key channels in whole packets, for rows on their way
  Index value_width;  ///< value channels in whole packets
  Index block;        ///< slots

  PackedLayout(Index channels_, Index value_channels_)
      : channels(channels_),
        value_channels(value_channels_),
        key_width((channels_ + width - 1) / width * width),
        value_width((value_channels_ + width - 1) / width * width),
        block(key_block_length<Acc>(channels_, value_channels_)) {}

  Index key_block() const { return block * channels; }
  Index value_block() const { return block * value_width; }
  Index elements() const { return key_block() + value_block(); }
  Index query_tile() const { return TileShape<Acc>::rows * channels; }
  /// Numbers that a worker needs to pack keys, values or a tile of queries.
  Index scratch() const {
    return (std::max)((std::max)(Index{16}, TileShape<Acc>::rows + width) * key_width, value_width);
  }
  /// Where channel c of the value in place j of the block is.
  Index value_at(Index j, Index c) const {
    const Index whole = value_width / panel * panel;
    const Index base = c < whole ? c / panel * panel : whole + (c - whole) / width * width;
    const Index columns = c < whole ? panel : width;
    return base * block + j * columns + (c - base);
  }
};

/// A key block that is asked for while tiles of rows go through the one before it. Packed keys and values of
/// a long sequence are beyond the core's own cache; without this the first tile of every block waits for
/// them.
template <Accumulator Acc>
class BlockAhead {
 public:
  /// `block` is where it starts, `tiles` the number of tiles that go through the one before.
  BlockAhead(const PackedLayout<Acc>& layout, Index tiles, const Acc* block)
      : block_(block), elements_(layout.elements()) {
    const Index requests = layout.block / layout.panel * (layout.channels / 2);  // of score_tiles
    step_ = std::clamp(elements_ / (std::max)(Index{1}, tiles * requests), Index{1}, line);
    part_ = requests * step_;
  }
  /// What to ask for with tile t; the block's start over and over where the tiles before have asked for all.
  Ahead<Acc> part(Index t) const {
    if ((t + 1) * part_ > elements_) return {block_, 0};
    return {block_ + t * part_, step_};
  }

 private:
  static constexpr Index line = 64 / sizeof(Acc);
  const Acc* block_;
  Index elements_;
  Index step_;
  Index part_;
};

/// to[c · to_stride + r] = map(from[r · from_stride + c]) for r < width and c < columns, by packets: rows are
/// read in whole packets, and `width` numbers are written for each c, in the order of c.
template <Accumulator Acc, class Map>
ROVE_ALWAYS_INLINE void transpose_rows(const Acc* from, Index from_stride, Index columns, Acc* to,
                                       Index to_stride, const Map& map) {
  using P = simd::packet_t<Acc>;
  constexpr int width = simd::width<P>;
  for (Index c = 0; c < columns; c += width) {
    P rows[std::size_t{width}];
    for (int r = 0; r < width; ++r) rows[r] = simd::load<P>(from + r * from_stride + c);
    simd::transpose<P>(rows);
    const int count = static_cast<int>((std::min)(Index{width}, columns - c));
    for (int i = 0; i < count; ++i) {
      simd::store<P>(to + (c + i) * to_stride, map(rows[i]));
    }
  }
}

/// Packs the keys of the block that starts at slot `origin`, as far as tiles that have some of the used slots
/// reach; their other places become zeros. `read(slot, row)` gives a key, turned.
template <Accumulator Acc, class Read>
void pack_keys(const PackedLayout<Acc>& layout, Index origin, SlotRange used, Acc* to, Acc* scratch,
               const Read& read) {
  constexpr Index width = PackedLayout<Acc>::width;
  constexpr Index step = (std::max)(Index{16}, TileShape<Acc>::packets * width);
  const auto channels = static_cast<std::size_t>(layout.channels);
  const Index last = (used.last - origin + step - 1) / step * step;
  for (Index j = (used.first - origin) / step * step; j < last; j += 16) {
    Acc* const panel = to + j * layout.channels;
    if (origin + j + 16 <= used.first || origin + j >= used.last) {
      std::fill_n(panel, 16 * layout.channels, Acc(0));
      continue;
    }
    for (Index l = 0; l < 16; ++l) {
      const Index slot = origin + j + l;
      const std::span<Acc> row(scratch + l * layout.key_width, channels);
      if (slot >= used.first && slot < used.last) {
        read(slot, row);
      } else {
        std::fill(row.begin(), row.end(), Acc(0));
      }
    }
    for (Index l = 0; l < 16; l += width) {
      transpose_rows(scratch + l * layout.key_width, layout.key_width, layout.channels, panel + l, Index{16},
                     [](auto x) ROVE_INLINE_LAMBDA { return x; });
    }
  }
}

/// Packs the values of the used slots likewise; returns whether all of them are finite.
template <Accumulator Acc, class Read>
bool pack_values(const PackedLayout<Acc>& layout, Index origin, SlotRange used, Acc* to, Acc* scratch,
                 const Read& read) {
  using P = simd::packet_t<Acc>;
  const Index whole = layout.value_width / layout.panel * layout.panel;
  std::fill_n(scratch, layout.value_width, Acc(0));
  const std::span<Acc> row(scratch, static_cast<std::size_t>(layout.value_channels));
  bool finite = true;
  for (Index slot = used.first; slot < used.last; ++slot) {
    read(slot, row);
    auto good = simd::is_finite<P>(simd::load<P>(scratch));
    for (Index c = layout.width; c < layout.value_width; c += layout.width) {
      good = good & simd::is_finite<P>(simd::load<P>(scratch + c));
    }
    finite = finite && !simd::any(!good);
    for (Index c = 0; c < layout.value_width;) {
      const Index columns = c < whole ? layout.panel : layout.width;
      Acc* const place = to + c * layout.block + (slot - origin) * columns;
      for (Index e = 0; e < columns; e += layout.width) {
        simd::store<P>(place + e, simd::load<P>(scratch + c + e));
      }
      c += columns;
    }
  }
  return finite;
}

/// Packs a tile of query rows times `factor`; `read(r, row)` gives query r, turned. Writes up to a packet
/// past the tile's end.
template <Accumulator Acc, class Read>
void pack_queries(const PackedLayout<Acc>& layout, int rows, Acc factor, Acc* to, Acc* scratch,
                  const Read& read) {
  using P = simd::packet_t<Acc>;
  constexpr Index stride = TileShape<Acc>::rows;
  constexpr Index width = PackedLayout<Acc>::width;
  constexpr Index last_group = (stride - 1) / width * width;
  for (int r = 0; r < rows; ++r) {
    read(r, std::span<Acc>(scratch + r * layout.key_width, static_cast<std::size_t>(layout.channels)));
  }
  std::fill_n(scratch + rows * layout.key_width, (last_group + layout.width - rows) * layout.key_width,
              Acc(0));
  // The last group first: what it writes past the tile's rows, into the next channel, the others write over.
  for (Index r = last_group; r >= 0; r -= layout.width) {
    transpose_rows(scratch + r * layout.key_width, layout.key_width, layout.channels, to + r, stride,
                   [factor](P x) ROVE_INLINE_LAMBDA { return x * simd::broadcast<P>(factor); });
  }
}

}  // namespace detail

ROVE_END_TAGGED

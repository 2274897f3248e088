/// \file
/// Queries, keys and values as the tile products read them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/key_values.hpp"
#include "rove/attention/row_prefetch.hpp"
#include "rove/attention/tiled/tile.hpp"
#include "rove/core/config.hpp"
#include "rove/core/row_block.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_lanes.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// One key block in memory: its keys, then its values. Keys: panels of 16 slots, [panel][channel][16].
/// Values: panels of as many channels as a tile is wide, [panel][slot][channels of the panel]; channels are
/// filled up with zeros to whole packets. Queries: [panel of 16 channels][row of the tile][16].
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
  Index query_tile() const {
    return TileShape<Acc>::rows * ((channels + query_panel - 1) / query_panel * query_panel);
  }
  /// Numbers that a worker needs to pack keys, values or a tile of queries, or to finish a tile of outputs.
  Index scratch() const {
    static_assert(TileShape<Acc>::rows <= 16);
    return 16 * (std::max)(key_width, value_width);
  }
  /// Where channel c of the value in place j of the block is.
  Index value_at(Index j, Index c) const {
    const Index whole = value_width / panel * panel;
    const Index base = c < whole ? c / panel * panel : whole + (c - whole) / width * width;
    const Index columns = c < whole ? panel : width;
    return base * block + j * columns + (c - base);
  }
};

/// Whether a cache line begins with number i of a run that begins with one.
template <Accumulator Acc>
ROVE_ALWAYS_INLINE constexpr bool begins_line(Index i) {
  return i * static_cast<Index>(sizeof(Acc)) % simd::cache_line == 0;
}

/// to[c · to_stride + r] = from[r · from_stride + c] for r < width and c < columns, by packets: rows are read
/// in whole packets, and `width` numbers are written for each c, in the order of c. Calls between() as often
/// as a cache line's worth is written.
template <Accumulator Acc, class Between>
ROVE_ALWAYS_INLINE void transpose_rows(const Acc* from, Index from_stride, Index columns, Acc* to,
                                       Index to_stride, const Between& between) {
  using P = simd::packet_t<Acc>;
  constexpr int width = simd::width<P>;
  for (Index c = 0; c < columns; c += width) {
    P rows[std::size_t{width}];
    for (int r = 0; r < width; ++r) rows[r] = simd::load<P>(from + r * from_stride + c);
    simd::transpose<P>(rows);
    const auto write = [&](int i) ROVE_INLINE_LAMBDA {
      simd::store<P>(to + (c + i) * to_stride, rows[i]);
      if (begins_line<Acc>(i * width)) between();
    };
    if (columns - c >= width) {  // by constants, so that the packets stay in registers
      unrolled<width>([&](auto i) ROVE_INLINE_LAMBDA { write(i); });
    } else {
      for (int i = 0; i < static_cast<int>(columns - c); ++i) write(i);
    }
  }
}

/// Packs the keys of the block that starts at slot `origin`, as far as tiles that have some of the used slots
/// reach; their other places become zeros. `read(slot, rows)` gives the keys from a slot on, turned, in
/// `rows` or elsewhere; `ahead(slot)` gives a run of rows that will be read later, none perhaps, to be asked
/// for on the way.
template <Accumulator Acc, class Read, class RunAhead>
void pack_keys(const PackedLayout<Acc>& layout, Index origin, SlotRange used, Acc* to, Acc* scratch,
               const Read& read, const RunAhead& ahead) {
  constexpr Index width = PackedLayout<Acc>::width;
  constexpr Index step = (std::max)(Index{16}, TileShape<Acc>::packets * width);
  const RowBlock<Acc> rows{scratch, 16, layout.channels, layout.key_width};
  const Index last = (used.last - origin + step - 1) / step * step;
  for (Index j = (used.first - origin) / step * step; j < last; j += 16) {
    Acc* const panel = to + j * layout.channels;
    // Those of the 16 slots that are used.
    const Index begin = (std::max)(used.first - origin - j, Index{0});
    const Index end = (std::min)(used.last - origin - j, Index{16});
    if (begin >= end) {
      std::fill_n(panel, 16 * layout.channels, Acc(0));
      continue;
    }
    RowsAhead later(ahead(origin + j), 16, layout.channels);
    const RowBlock<Acc> some = rows.part(begin, end - begin);
    RowBlock<const Acc> from = read(origin + j + begin, some);
    if (some.count < 16) {
      copy_rows(from, some);
      std::fill_n(scratch, begin * layout.key_width, Acc(0));
      std::fill_n(scratch + end * layout.key_width, (16 - end) * layout.key_width, Acc(0));
      from = rows;
    }
    for (Index l = 0; l < 16; l += width) {
      transpose_rows(from.data + l * from.stride, from.stride, layout.channels, panel + l, Index{16},
                     [&]() ROVE_INLINE_LAMBDA { later.ask(); });
    }
  }
}

/// Packs the values of the used slots likewise; returns whether all of them are finite.
template <Accumulator Acc, class Read, class RunAhead>
bool pack_values(const PackedLayout<Acc>& layout, Index origin, SlotRange used, Acc* to, Acc* scratch,
                 const Read& read, const RunAhead& ahead) {
  using P = simd::packet_t<Acc>;
  constexpr Index width = PackedLayout<Acc>::width, panel = PackedLayout<Acc>::panel;
  const Index whole = layout.value_width / panel * panel;
  std::fill_n(scratch, 16 * layout.value_width, Acc(0));
  auto good = simd::is_finite<P>(simd::broadcast<P>(0));
  for (Index slot = used.first; slot < used.last; slot += 16) {
    const Index count = (std::min)(Index{16}, used.last - slot);
    RowsAhead later(ahead(slot), 16, layout.value_channels);
    const RowBlock<const Acc> rows =
        read(slot, RowBlock<Acc>{scratch, count, layout.value_channels, layout.value_width});
    const auto store = [&](Index c, auto columns) ROVE_INLINE_LAMBDA {
      Acc* place = to + c * layout.block + (slot - origin) * columns;
      for (Index j = 0; j < count; ++j, place += columns) {
        const Acc* const from = rows.data + j * rows.stride + c;
        for (Index e = 0; e < columns; e += width) {
          const P x = simd::load<P>(from + e);
          good = good & simd::is_finite<P>(x);
          simd::store<P>(place + e, x);
          if (begins_line<Acc>(e)) later.ask();
        }
      }
    };
    Index c = 0;
    for (; c < whole; c += panel) store(c, std::integral_constant<Index, panel>{});
    for (; c < layout.value_width; c += width) store(c, std::integral_constant<Index, width>{});
  }
  return !simd::any(!good);
}

/// Packs a tile of query rows times `factor`; `read(rows)` gives them, turned; `later` are rows to ask for on
/// the way.
template <Accumulator Acc, class Read>
void pack_queries(const PackedLayout<Acc>& layout, int rows, Acc factor, Acc* to, Acc* scratch,
                  const Read& read, RowsAhead later) {
  using P = simd::packet_t<Acc>;
  constexpr Index width = PackedLayout<Acc>::width;
  const RowBlock<const Acc> queries = read(RowBlock<Acc>{scratch, rows, layout.channels, layout.key_width});
  for (int r = 0; r < rows; ++r) {
    const Acc* const from = queries.data + r * queries.stride;
    for (Index c = 0; c < layout.key_width; c += width) {
      Acc* const place = to + (c / query_panel * TileShape<Acc>::rows + r) * query_panel + c % query_panel;
      simd::store<P>(place, simd::load<P>(from + c) * simd::broadcast<P>(factor));
      if (begins_line<Acc>(c)) later.ask();
    }
  }
}

}  // namespace detail

ROVE_END_TAGGED

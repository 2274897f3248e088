/// \file
/// The two tile products of attention, in registers.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "rove/attention/arithmetic.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// How many query rows and packets a register tile has: as many accumulators as registers allow beside one
/// row of operands, so that multiply-adds, not loads, set the pace.
template <Accumulator Acc>
struct TileShape {
  static constexpr int width = simd::native_width<Acc>;
#if defined(__AVX512F__)
  static constexpr int rows = 14, packets = 2;  // 28 of 32 registers
#elif defined(__aarch64__) || defined(_M_ARM64)
  static constexpr int rows = 6, packets = 4;  // 24 of 32
#else
  static constexpr int rows = 6, packets = 2;  // 12 of 16
#endif
};

/// Calls f with 0, 1, … n − 1 as constants, so that accumulators become registers and not an array in memory.
template <int n, class F>
ROVE_ALWAYS_INLINE void unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) ROVE_INLINE_LAMBDA {
    (f(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, n>{});
}

/// The left operand of a product: row r begins at `from + r · row` with `run` numbers side by side, and goes
/// on `next` past the end of these.
template <Accumulator Acc>
struct LeftRows {
  const Acc* from;
  Index row;
  Index run;
  Index next;
};

/// Pairs of steps in a product.
constexpr Index pairs_of(Index steps) {
  return steps / 2;
}

/// One product of `rows` broadcast numbers a step with `packets` packets a step:
///
///     sum[r][p] = Σ_t left[r][t] · right[p · right_packet + t · right_step]
///
/// over t = 0 … steps − 1 in order, one multiply-add each, starting at zero; then done(r, p, sum). Calls
/// between() before every two steps, `pairs_of(steps)` times; runs of the left operand that others follow are
/// of even length.
template <int rows, int packets, simd::PacketLike P, class Acc, class Between, class Done>
ROVE_ALWAYS_INLINE void tile_product(LeftRows<Acc> left_rows, const Acc* right, Index right_packet,
                                     Index right_step, Index steps, Between between, Done done) {
  P sum[std::size_t{rows}][std::size_t{packets}];
  unrolled<rows>([&](auto r) ROVE_INLINE_LAMBDA {
    unrolled<packets>([&](auto p) ROVE_INLINE_LAMBDA { sum[r][p] = simd::broadcast<P>(0); });
  });
  const Acc* left = left_rows.from;
  const auto step = [&]() ROVE_INLINE_LAMBDA {
    P x[std::size_t{packets}];
    unrolled<packets>([&](auto p) ROVE_INLINE_LAMBDA { x[p] = simd::load<P>(right + p * right_packet); });
    unrolled<rows>([&](auto r) ROVE_INLINE_LAMBDA {
      const P a = simd::broadcast<P>(left[r * left_rows.row]);
      unrolled<packets>([&](auto p) ROVE_INLINE_LAMBDA { sum[r][p] = simd::mul_add(a, x[p], sum[r][p]); });
    });
    ++left;
    right += right_step;
  };
  // By twos: counting and branching compete with the multiply-adds for ports.
  for (; steps > 0; steps -= left_rows.run) {
    const Index some = steps < left_rows.run ? steps : left_rows.run;
    for (Index t = 2; t <= some; t += 2) {
      between();
      step();
      step();
    }
    if (some % 2 != 0) step();
    left += left_rows.next;
  }
  unrolled<rows>([&](auto r) ROVE_INLINE_LAMBDA {
    unrolled<packets>([&](auto p) ROVE_INLINE_LAMBDA { done(r, p, sum[r][p]); });
  });
}

/// Memory to ask for on the way, a little with every two steps of a product.
struct Ahead {
  const char* from;
  Index step;  ///< bytes to the next place
};

/// Calls f(rows, first) with a number of rows that is a constant: a whole tile at once, one of fewer
/// rows in parts of 8, 4, 2 and 1.
template <Accumulator Acc, class F>
ROVE_ALWAYS_INLINE void in_parts(int rows, const F& f) {
  constexpr int whole = TileShape<Acc>::rows;
  if (rows == whole) return f(std::integral_constant<int, whole>{}, 0);
  int r = 0;
  if constexpr (whole > 8) {
    if ((rows & 8) != 0) f(std::integral_constant<int, 8>{}, r), r += 8;
  }
  if ((rows & 4) != 0) f(std::integral_constant<int, 4>{}, r), r += 4;
  if ((rows & 2) != 0) f(std::integral_constant<int, 2>{}, r), r += 2;
  if ((rows & 1) != 0) f(std::integral_constant<int, 1>{}, r);
}

/// How rows are cut into tiles: whole ones, then one of what is left. Where that would be two rows, too few
/// multiply-adds to hide how long each takes, the last two tiles share theirs evenly.
template <Accumulator Acc>
class RowTiles {
  static constexpr Index whole = TileShape<Acc>::rows;
  static_assert(whole % 2 == 0);

 public:
  explicit RowTiles(Index rows)
      : rows_(rows), count_((rows + whole - 1) / whole), shares_(rows > whole && rows % whole == 2) {}

  Index count() const { return count_; }
  /// The first row of tile t; the number of rows where t is count().
  Index first(Index t) const {
    if (t == count_) return rows_;
    return t * whole - (shares_ && t + 1 == count_ ? whole / 2 - 1 : 0);
  }
  int rows(Index t) const { return static_cast<int>(first(t + 1) - first(t)); }

 private:
  Index rows_;
  Index count_;
  bool shares_;
};

/// Numbers from one row of weights to the next: a constant, so that a tile's rows are at constant distances,
/// and no power of two, so that they lie in different sets of a cache.
inline constexpr Index weights_stride = longest_key_block + 16;

/// Channels of a packed query that lie side by side.
inline constexpr Index query_panel = 16;

/// weights[r][key] = Σ_c query[c / 16][r][c % 16] · keys[key / 16][c][key % 16] for the keys [first, last),
/// whole tiles. `query` is `[panels of query_panel channels][TileShape::rows][query_panel]`. Tile i of the
/// block's keys asks for pairs_of(channels) places of `ahead` from place i · pairs_of(channels) on.
template <int rows, Accumulator Acc>
ROVE_NO_INLINE void score_tiles(const Acc* query, const Acc* keys, Index channels, Index first, Index last,
                                Acc* weights, Ahead ahead) {
  using Shape = TileShape<Acc>;
  using P = simd::packet_t<Acc>;
  constexpr int width = simd::width<P>;
  for (Index key = first; key < last; key += Shape::packets * width) {
    const Acc* right = keys + key / 16 * 16 * channels + key % 16;
    const char* request = ahead.from + key / (Shape::packets * width) * pairs_of(channels) * ahead.step;
    Acc* const to = weights + key;
    tile_product<rows, Shape::packets, P>(
        LeftRows<Acc>{query, query_panel, query_panel, (Shape::rows - 1) * query_panel}, right,
        width == 16 ? channels * 16 : width, 16, channels,
        [&]() ROVE_INLINE_LAMBDA {
          simd::prefetch(request);
          request += ahead.step;
        },
        [&](auto r, auto p, P sum)
            ROVE_INLINE_LAMBDA { simd::store<P>(to + r * weights_stride + p * width, sum); });
  }
}

/// output[r] = output[r] · rescale[r] + Σ_j weights[r][j] · values[j] over `count` values, where a panel of
/// `columns` channels has its value j at `values + channel · block + j · columns` and the output has `stride`
/// channels.
template <int rows, Accumulator Acc>
ROVE_NO_INLINE void value_tiles(const Acc* weights, const Acc* values, Index block, Index first, Index count,
                                const Acc* rescale, Acc* output, Index stride) {
  using Shape = TileShape<Acc>;
  using P = simd::packet_t<Acc>;
  constexpr int width = simd::width<P>;
  Index c = 0;
  const auto panel = [&](auto packets) ROVE_INLINE_LAMBDA {
    constexpr int n = packets;
    Acc* const to = output + c;
    tile_product<rows, n, P>(
        LeftRows<Acc>{weights + first, weights_stride, count, 0}, values + c * block + first * n * width,
        width, n * width, count, []() ROVE_INLINE_LAMBDA {},
        [&](auto r, auto p, P sum) ROVE_INLINE_LAMBDA {
          Acc* const o = to + r * stride + p * width;
          simd::store<P>(o, simd::mul_add(simd::load<P>(o), simd::broadcast<P>(rescale[r]), sum));
        });
  };
  for (; c + Shape::packets * width <= stride; c += Shape::packets * width) {
    panel(std::integral_constant<int, Shape::packets>{});
  }
  for (; c < stride; c += width) panel(std::integral_constant<int, 1>{});
}

}  // namespace detail

ROVE_END_TAGGED

/// \file
/// Lanes of packets that change places, and folds over them.
#pragma once

#include <cstddef>
#include <utility>

#include "rove/core/config.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

template <class Words, class Word, int... I>
ROVE_ALWAYS_INLINE Words even_signs(std::integer_sequence<int, I...>) {
  constexpr Word sign = Word{1} << (sizeof(Word) * 8 - 1);
  return Words{(I % 2 == 0 ? sign : Word{0})...};
}

template <class Words, class Lanes, int... I>
ROVE_ALWAYS_INLINE Lanes swap_lanes(Lanes lanes, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(lanes, lanes, (I ^ 1)...);
#elif defined(__GNUC__)
  return __builtin_shuffle(lanes, Words{(I ^ 1)...});
#endif
}

/// Lane i of a where i & bit is 0, else lane i - bit of b; or, of the odd halves: lane i + bit of a, else
/// lane i of b.
template <int bit, bool odd, class Words, class Lanes, int... I>
ROVE_ALWAYS_INLINE Lanes exchange_lanes(Lanes a, Lanes b, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I), shift = odd ? bit : 0;
#if defined(__clang__)
  return __builtin_shufflevector(a, b, ((I & bit) == 0 ? I + shift : n + I - bit + shift)...);
#elif defined(__GNUC__)
  return __builtin_shuffle(a, b, Words{((I & bit) == 0 ? I + shift : n + I - bit + shift)...});
#endif
}

/// Transposes 2 × 2 blocks of block × block numbers, then within each.
template <int block, class P, std::size_t n>
ROVE_ALWAYS_INLINE void transpose_blocks(P (&rows)[n]) {
  if constexpr (block > 0) {
    using Words = typename P::Words;
    constexpr std::make_integer_sequence<int, static_cast<int>(n)> lanes;
    for (std::size_t i = 0; i < n; ++i) {
      if ((i & std::size_t{block}) != 0) continue;
      P &a = rows[i], &b = rows[i + std::size_t{block}];
      const P upper = {exchange_lanes<block, false, Words>(a.lanes, b.lanes, lanes)};
      b = {exchange_lanes<block, true, Words>(a.lanes, b.lanes, lanes)};
      a = upper;
    }
    transpose_blocks<block / 2>(rows);
  }
}

/// Folds lane l with lane l + half, then by quarters, …: the result is in lane 0.
template <int half, class P, class Fold>
ROVE_ALWAYS_INLINE void fold_halves(P& packet, const Fold& fold) {
  if constexpr (half > 0) {
    constexpr std::make_integer_sequence<int, P::width> lanes;
    packet =
        fold(packet, P{exchange_lanes<half, true, typename P::Words>(packet.lanes, packet.lanes, lanes)});
    fold_halves<half / 2>(packet, fold);
  }
}

/// The same for as many packets as one has lanes, packet i to lane i of the first.
template <int half, class P, std::size_t n, class Fold>
ROVE_ALWAYS_INLINE void fold_rows(P (&rows)[n], const Fold& fold) {
  if constexpr (half > 0) {
    using Words = typename P::Words;
    constexpr std::make_integer_sequence<int, P::width> lanes;
    for (std::size_t i = 0; i < std::size_t{half}; ++i) {
      const auto a = rows[i].lanes, b = rows[i + std::size_t{half}].lanes;
      rows[i] = fold(P{exchange_lanes<half, false, Words>(a, b, lanes)},
                     P{exchange_lanes<half, true, Words>(a, b, lanes)});
    }
    fold_rows<half / 2>(rows, fold);
  }
}

}  // namespace detail

namespace simd {

// ------------------------------------------------------------------------------------------ pairs

/// x0 y0 x1 y1 … → y0 x0 y1 x1 …
template <PacketLike P>
requires(!is_scalar<P>) ROVE_ALWAYS_INLINE P swap_pairs(P packet) {
  return {detail::swap_lanes<typename P::Words>(packet.lanes, std::make_integer_sequence<int, width<P>>{})};
}

/// Turns the sign of lanes 0, 2, 4, …
template <PacketLike P>
requires(!is_scalar<P>) ROVE_ALWAYS_INLINE P negate_even(P packet) {
  const auto signs =
      detail::even_signs<typename P::Words, typename P::Word>(std::make_integer_sequence<int, width<P>>{});
  return {(typename P::Lanes)((typename P::Words)(packet.lanes) ^ signs)};
}

/// Rows become columns: lane j of packet i and lane i of packet j change places. Blocks of half the width
/// first, then of a quarter, …
template <PacketLike P>
ROVE_ALWAYS_INLINE void transpose(P (&rows)[width<P>]) {
  if constexpr (!is_scalar<P>) detail::transpose_blocks<width<P> / 2>(rows);
}

// ------------------------------------------------------------------------------------- reductions

/// How many P make the 16 virtual lanes: lane l is lane l % width of part l / width.
template <PacketLike P>
inline constexpr int parts = virtual_lanes / width<P>;

/// The first steps of `reduce`, down to one packet.
template <PacketLike P, class Fold>
ROVE_ALWAYS_INLINE P fold_parts(const P (&lanes)[parts<P>], Fold fold) {
  P folded[parts<P>];
  for (int i = 0; i < parts<P>; ++i) folded[i] = lanes[i];
  for (int half = parts<P> / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) folded[i] = fold(folded[i], folded[i + half]);
  }
  return folded[0];
}

/// Folds the 16 lanes by a fixed tree, l with l + 8, then 4, 2, 1: the same bits at every width.
template <PacketLike P, class Fold>
ROVE_ALWAYS_INLINE lane_t<P> reduce(const P (&lanes)[parts<P>], Fold fold) {
  P packet = fold_parts<P>(lanes, fold);
  if constexpr (is_scalar<P>) {
    return packet;
  } else {
    detail::fold_halves<width<P> / 2>(packet, fold);
    return packet.lanes[0];
  }
}

/// `reduce` of `width<P>` times 16 lanes at once, those of rows[i] to lane i; `rows` is used up.
template <PacketLike P, class Fold>
ROVE_ALWAYS_INLINE P reduce_each(P (&rows)[width<P>], Fold fold) {
  if constexpr (!is_scalar<P>) detail::fold_rows<width<P> / 2>(rows, fold);
  return rows[0];
}

/// The sum of 16 lanes, by the tree of `reduce`.
template <PacketLike P>
ROVE_ALWAYS_INLINE lane_t<P> reduce_add(const P (&lanes)[parts<P>]) {
  return reduce<P>(lanes, [](auto a, auto b) { return a + b; });
}

/// The largest of 16 lanes; NaN if any is NaN.
template <PacketLike P>
ROVE_ALWAYS_INLINE lane_t<P> reduce_max(const P (&lanes)[parts<P>]) {
  return reduce<P>(lanes, [](auto a, auto b) { return maximum_or_nan(a, b); });
}

}  // namespace simd

ROVE_END_TAGGED

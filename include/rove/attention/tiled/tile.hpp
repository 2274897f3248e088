/// \file
/// The two tile products of attention, in registers.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

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

/// One product of `rows` broadcast numbers a step with `packets` packets a step:
///
///     sum[r][p] = Σ_t left[r · left_row + t · left_step] · right[p · right_packet + t · right_step]
///
/// over t = 0 … steps − 1 in order, one multiply-add each, starting at zero; then done(r, p, sum).
template <int rows, int packets, simd::PacketLike P, class Acc, class Done>
ROVE_ALWAYS_INLINE void tile_product(const Acc* left, Index left_row, Index left_step, const Acc* right,
                                     Index right_packet, Index right_step, Index steps, Done done) {
  P sum[std::size_t{rows}][std::size_t{packets}];
  unrolled<rows>([&](auto r) ROVE_INLINE_LAMBDA {
    unrolled<packets>([&](auto p) ROVE_INLINE_LAMBDA { sum[r][p] = simd::broadcast<P>(0); });
  });
  for (Index t = 0; t < steps; ++t) {
    P x[std::size_t{packets}];
    unrolled<packets>([&](auto p) ROVE_INLINE_LAMBDA { x[p] = simd::load<P>(right + p * right_packet); });
    unrolled<rows>([&](auto r) ROVE_INLINE_LAMBDA {
      const P a = simd::broadcast<P>(left[r * left_row]);
      unrolled<packets>([&](auto p) ROVE_INLINE_LAMBDA { sum[r][p] = simd::mul_add(a, x[p], sum[r][p]); });
    });
    left += left_step;
    right += right_step;
  }
  unrolled<rows>([&](auto r) ROVE_INLINE_LAMBDA {
    unrolled<packets>([&](auto p) ROVE_INLINE_LAMBDA { done(r, p, sum[r][p]); });
  });
}

}  // namespace detail

ROVE_END_TAGGED

/// \file
/// Exponentials, and what is made of them, for packets: the library's own, so that a weight has the same bits
/// in a vector, in its tail, in the scalar fallback and on every target that has a fused multiply-add.
///
/// Range reduction by magic-number rounding: adding 1.5 · 2^23 (1.5 · 2^52) to a number rounds it to an
/// integer, which then stands in the low bits of the sum; with the exponent's bias added too, those bits
/// shifted up are 2^n. The polynomials are minimax in relative error (Remez exchange in 40 digits,
/// coefficients then rounded), with 2^0 and e^0 exactly 1; their own errors are given beside them in units of
/// 2^-24 and 2^-53.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

#if defined(__AVX512DQ__)
#include <immintrin.h>
#endif

ROVE_BEGIN_TAGGED

namespace detail {

template <Accumulator Acc>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  static constexpr float magic = 0x1.8p23F + 127;
  /// For 2^(n − 1); even, so that ties go to the even n, as in the hardware's own rounding.
  static constexpr float half_magic = 0x1.8p23F + 126;
  /// 2 · 2^f on [-1/2, 1/2], highest power first; error 1.54.
  static constexpr float exp2[] = {0x1.5bba14p-9F, 0x1.3cea88p-6F, 0x1.c6b752p-4F,
                                   0x1.ebf9bcp-2F, 0x1.62e42ap0F,  2};
  /// (e^r - 1 - r) / r² on [-ln 2 / 2, ln 2 / 2]; error 0.06.
  static constexpr float exp[] = {0x1.6a244ep-10F, 0x1.1239d4p-7F, 0x1.5558f2p-5F, 0x1.555492p-3F,
                                  0x1.fffffcp-2F};
  static constexpr float lowest = -104, highest = 89;
};

template <>
struct ExpConstants<double> {
  static constexpr double magic = 0x1.8p52 + 1023;
  static constexpr double half_magic = 0x1.8p52 + 1022;
  /// Error 0.04.
  static constexpr double exp2[] = {0x1.e79bc326c624cp-31, 0x1.e61b4fa45d051p-27, 0x1.b5267cd81c738p-23,
                                    0x1.62bfc79d4678dp-19, 0x1.ffcbfba9847c7p-16, 0x1.4309130ed8cefp-12,
                                    0x1.5d87fe78cd6c4p-9,  0x1.3b2ab6fba011ap-6,  0x1.c6b08d7049fe8p-4,
                                    0x1.ebfbdff82c5a4p-2,  0x1.62e42fefa39efp0,   2};
  /// Error 0.04.
  static constexpr double exp[] = {0x1.ad7f719363562p-26, 0x1.28ad68b4f2ff5p-22, 0x1.71df253fa407fp-19,
                                   0x1.a0199a16d13cap-16, 0x1.a01a012a67844p-13, 0x1.6c16c18426721p-10,
                                   0x1.1111111127ba1p-7,  0x1.555555555088cp-5,  0x1.55555555554fap-3,
                                   0x1.000000000000ap-1};
  static constexpr double lowest = -746, highest = 710;
};

/// ln 2 as a number with so few bits that its product with any exponent is exact, and the rest.
template <Accumulator Acc>
inline constexpr Acc ln2_high = std::is_same_v<Acc, float> ? Acc(0x1.62e4p-1) : Acc(0x1.62e42fefa3p-1);
template <Accumulator Acc>
inline constexpr Acc ln2_low = std::is_same_v<Acc, float> ? Acc(0x1.7f7d1cp-20F) : Acc(0x1.3de6af278ece6p-42);

/// Horner's rule, one multiply-add a step.
template <simd::PacketLike P, std::size_t n>
ROVE_ALWAYS_INLINE P horner(P x, const simd::lane_t<P> (&coefficients)[n]) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) ROVE_INLINE_LAMBDA {  // no loop to be left rolled
    P sum = simd::broadcast<P>(coefficients[0]);
    ((sum = simd::mul_add(sum, x, simd::broadcast<P>(coefficients[i + 1]))), ...);
    return sum;
  }
  (std::make_index_sequence<n - 1>{});
}

/// 2^n out of magic + n: the low bits become the exponent.
template <simd::PacketLike P>
ROVE_ALWAYS_INLINE P power_of_two(P shifted) {
  constexpr int fraction_bits = Format<simd::lane_t<P>>::fraction_bits;
  if constexpr (simd::is_scalar<P>) {
    return from_bits<P>(to_bits(shifted) << fraction_bits);
  } else {
    return {(typename P::Lanes)((typename P::Words)(shifted.lanes) << fraction_bits)};
  }
}

/// x = n ln 2 + r and e^r = 1 + r + r² tail, |r| <= ln 2 / 2.
template <class P>
struct ReducedExponent {
  P n, r, tail;
};

template <simd::PacketLike P>
ROVE_ALWAYS_INLINE ReducedExponent<P> reduce_exponent(P x) {
  using Acc = simd::lane_t<P>;
  constexpr Acc log2_e = static_cast<Acc>(1.4426950408889634074);
  const P magic = simd::broadcast<P>(ExpConstants<Acc>::magic);
  const P n = simd::mul_add(x, simd::broadcast<P>(log2_e), magic) - magic;
  P r = simd::mul_add(n, simd::broadcast<P>(-ln2_high<Acc>), x);  // exact
  r = simd::mul_add(n, simd::broadcast<P>(-ln2_low<Acc>), r);
  return {n, r, horner(r, ExpConstants<Acc>::exp)};
}

}  // namespace detail

namespace simd {

/// log₂ e: `exp2_kernel` takes logits times this.
template <Accumulator Acc>
inline constexpr Acc log2_e = static_cast<Acc>(1.4426950408889634074);

/// −60·log₂ e, rounded: a weight below e^−60 of the row's largest becomes 0.
template <Accumulator Acc>
inline constexpr Acc exp2_cut = static_cast<Acc>(-86.561702453337804444);

}  // namespace simd

namespace detail {

/// x = n + fraction with n the nearest integer, ties to even, and half = 2^(n − 1), which below the cut is
/// exactly 0: the bits of 2^n could be anything there, and products a slow subnormal. A NaN is in fraction,
/// whatever its bits make of half.
template <class P>
struct SplitExponent {
  P half, fraction;
};

template <simd::PacketLike P>
ROVE_ALWAYS_INLINE SplitExponent<P> split_exponent(P x) {
  using Acc = simd::lane_t<P>;
  const P magic = simd::broadcast<P>(ExpConstants<Acc>::half_magic);
  const auto below = x < simd::broadcast<P>(simd::exp2_cut<Acc>);
#if defined(__AVX512DQ__) && (defined(__GNUC__) || defined(__clang__))
  // One instruction for the fraction, which of −∞ is 0; and the one that computes half can put zeros.
  if constexpr (!simd::is_scalar<P>) {
    constexpr int nearest = 8;  // ties to even; raises nothing
    const P half = simd::select<P>(below, simd::broadcast<P>(0), power_of_two(x + magic));
    if constexpr (std::is_same_v<Acc, float>) {
      return {half, {(typename P::Lanes)_mm512_reduce_ps((__m512)x.lanes, nearest)}};
    } else {
      return {half, {(typename P::Lanes)_mm512_reduce_pd((__m512d)x.lanes, nearest)}};
    }
  } else
#endif
  {
    // The exponent whose bits are all zeros.
    x = simd::select<P>(below, simd::broadcast<P>(1 - Format<Acc>::bias), x);
    const P shifted = x + magic;
    return {power_of_two(shifted), x - (shifted - magic)};
  }
}

}  // namespace detail

namespace simd {

/// The nearest integer, ties to even, of a number below 2^22 (2^51 in double) in size.
template <PacketLike P>
ROVE_ALWAYS_INLINE P nearest_integer(P x) {
  const P magic = broadcast<P>(std::is_same_v<lane_t<P>, float> ? lane_t<P>(0x1.8p23) : lane_t<P>(0x1.8p52));
  return (x + magic) - magic;
}

/// 2^x for the softmax, x = log₂ e · (logit − the row's maximum).
///
/// Within 3 ulp for exp2_cut ≤ x ≤ 127 (2 ulp and x ≤ 1023 in double); exactly 1 at 0; exactly 0 below
/// exp2_cut and at −∞, so that no subnormal weight or product ever arises; NaN stays NaN. Above that range
/// the result is unspecified: a running maximum keeps x at or below 0.
template <PacketLike P>
ROVE_ALWAYS_INLINE P exp2_kernel(P x) {
  using Acc = lane_t<P>;
  const auto [half, fraction] = detail::split_exponent(x);
  return half * detail::horner(fraction, detail::ExpConstants<Acc>::exp2);
}

/// e^x within 2 ulp wherever the result is normal; gradual underflow below, 0 at −∞, ∞ beyond the largest
/// number, NaN for NaN.
template <PacketLike P>
ROVE_ALWAYS_INLINE P exp(P x) {
  using Acc = lane_t<P>;
  using Constants = detail::ExpConstants<Acc>;
  x = minimum(maximum(x, broadcast<P>(Constants::lowest)), broadcast<P>(Constants::highest));  // NaN passes
  const P magic = broadcast<P>(Constants::magic);
  const auto [n, r, tail] = detail::reduce_exponent(x);
  const P mantissa = broadcast<P>(1) + simd::mul_add(r * r, tail, r);
  // Two factors: 2^n itself may be out of range where the result is not.
  const P half = simd::mul_add(n, broadcast<P>(Acc(0.5)), magic);
  const P rest = (n - (half - magic)) + magic;
  return mantissa * detail::power_of_two(half) * detail::power_of_two(rest);
}

/// tanh x within 4 ulp, ±1 from ±10 on (±20 in double), NaN for NaN:
///
///     tanh x = u / (u + 2) ,  u = e^2x − 1 = 2^n (e^r − 1) + (2^n − 1) for x >= 0
///
/// with no cancellation anywhere: n >= 0, and near 0 n = 0.
template <PacketLike P>
ROVE_ALWAYS_INLINE P tanh(P x) {
  using Acc = lane_t<P>;
  const P twice = minimum(abs(x + x), broadcast<P>(std::is_same_v<Acc, float> ? Acc(20) : Acc(40)));
  const auto [n, r, tail] = detail::reduce_exponent(twice);
  const P power = detail::power_of_two(n + broadcast<P>(detail::ExpConstants<Acc>::magic));
  const P u = simd::mul_add(power, simd::mul_add(r * r, tail, r), power - broadcast<P>(1));
  return with_sign(u / (u + broadcast<P>(2)), x);
}

}  // namespace simd

ROVE_END_TAGGED

/// \file
/// The element types of tensors and the arithmetic they share: exact widening, one rounding on the way back,
/// and a multiply-add whose rounding does not depend on the compiler's mood.
///
/// Storage is float, double, bfloat16 (8 exponent and 7 fraction bits) or IEEE binary16; sums run in float,
/// or in double where any operand is double. Roundings are to nearest, ties to even, straight from the
/// accumulator: Eigen's own cast from double to bfloat16 goes through float, and two roundings are not one
/// (1 + 2^-8 + 2^-40 is 1.0078125, not 1).
#pragma once

#include <Eigen/Core>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "rove/core/config.hpp"

#if !EIGEN_VERSION_AT_LEAST(3, 3, 90)
#error "rove needs Eigen 3.4 or newer"
#endif

#if !defined(__GNUC__) && !defined(__clang__)
#include <cmath>
#endif

namespace rove {

/// An element type of tensors.
template <class T>
concept Scalar = std::is_same_v<T, float> || std::is_same_v<T, double> ||
    std::is_same_v<T, Eigen::bfloat16> || std::is_same_v<T, Eigen::half>;

/// A type that sums, softmax, rotations and log-sum-exp are computed in.
template <class T>
concept Accumulator = std::is_same_v<T, float> || std::is_same_v<T, double>;

/// double if any of the (possibly const) element types is double, otherwise float.
template <class... Ts>
requires(Scalar<std::remove_cv_t<Ts>>&&...) using accumulator_t =
    std::conditional_t<(std::is_same_v<std::remove_cv_t<Ts>, double> || ...), double, float>;

namespace untagged {

template <class Target, class Storage>
struct Storage16 {
  static_assert(sizeof(Storage) == 2 && std::is_trivially_copyable_v<Storage> && !std::is_volatile_v<Storage>,
                "as_half and as_bfloat16 take pointers to trivially copyable 16-bit elements");
  static_assert(alignof(Storage) >= alignof(Target), "the elements are not aligned as 16-bit numbers are");
  static_assert(std::is_same_v<std::remove_const_t<Storage>, Target> || !Scalar<std::remove_const_t<Storage>>,
                "a half is no bfloat16: convert the values instead");
  using type = std::conditional_t<std::is_const_v<Storage>, const Target, Target>;
};

}  // namespace untagged

/// Sees other 16-bit storage of IEEE binary16 numbers (`std::uint16_t`, `_Float16`, `__fp16`, a struct of
/// one's own) as `Eigen::half`, without a copy; const stays const.
///
/// The library reads and writes such elements bytewise (`load_widened`, `store_rounded`), so that the view
/// may alias the original type under strict aliasing. Dereferencing the pointer directly has no such licence.
template <class Storage>
ROVE_ALWAYS_INLINE auto as_half(Storage* data) {
  return reinterpret_cast<typename untagged::Storage16<Eigen::half, Storage>::type*>(data);
}

/// The same for bfloat16 storage (`std::uint16_t`, `__bf16`, a framework's own type).
template <class Storage>
ROVE_ALWAYS_INLINE auto as_bfloat16(Storage* data) {
  return reinterpret_cast<typename untagged::Storage16<Eigen::bfloat16, Storage>::type*>(data);
}

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

/// std::bit_cast, but always inlined: a shared out-of-line copy would be compiled for some other unit's ISA.
template <class To, class From>
requires(sizeof(To) == sizeof(From)) ROVE_ALWAYS_INLINE constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}

/// The layout of a binary floating-point format: sign, exponent, fraction.
template <class T>
struct Format;
template <>
struct Format<Eigen::half> {
  using Bits = std::uint16_t;
  static constexpr int fraction_bits = 10, bias = 15;
};
template <>
struct Format<Eigen::bfloat16> {
  using Bits = std::uint16_t;
  static constexpr int fraction_bits = 7, bias = 127;
};
template <>
struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr int fraction_bits = 23, bias = 127;
};
template <>
struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr int fraction_bits = 52, bias = 1023;
};

template <class T>
using bits_t = typename Format<T>::Bits;

template <class T>
ROVE_ALWAYS_INLINE bits_t<T> to_bits(T value) {
  return bit_cast<bits_t<T>>(value);
}

template <class T>
ROVE_ALWAYS_INLINE T from_bits(bits_t<T> bits) {
  return bit_cast<T>(bits);
}

/// The bits of +infinity.
template <class T>
inline constexpr bits_t<T> infinity_bits = static_cast<bits_t<T>>(bits_t<T>{2 * Format<T>::bias + 1}
                                                                  << Format<T>::fraction_bits);

// The conversions below are written once for numbers and for packets of them: Words is an unsigned integer or
// a vector of them, Lanes the floating-point type or vector of the same size. They select instead of
// branching.

/// bfloat16 is the upper half of a float: shifting loses nothing, quiets no NaN, knows no special cases.
template <class Lanes, class Words>
ROVE_ALWAYS_INLINE Lanes bfloat16_to_float(Words bits) {
  return bit_cast<Lanes>(bits << 16);
}

template <class Lanes, class Words>
ROVE_ALWAYS_INLINE Lanes half_to_float(Words bits) {
  const Words magnitude = bits & 0x7fffU;
  const Words sign = (bits & 0x8000U) << 16;
  // A subnormal is its integer m times 2^-24. 2^23 + m has m in its last bits; all of this is normal in
  // float, so a processor that flushes subnormals to zero does no harm.
  const Words tiny = bit_cast<Words>((bit_cast<Lanes>(magnitude | 0x4b000000U) - 0x1p23F) * 0x1p-24F);
  const Words one_bias = Words{} + ((127U - 15) << 23), two_biases = one_bias + one_bias;
  const Words normal = (magnitude << 13) + (magnitude > 0x7bffU ? two_biases : one_bias);  // infinity, NaN
  return bit_cast<Lanes>(sign | (magnitude < 0x0400U ? tiny : normal));
}

/// The bits of the T nearest to each From in `lanes`, ties to even, whatever the two formats are.
template <class T, class From, class Words, class Lanes>
ROVE_ALWAYS_INLINE Words narrow(Lanes lanes) {
  using Bits = bits_t<From>;
  constexpr int fraction_bits = Format<From>::fraction_bits;
  constexpr int dropped = fraction_bits - Format<T>::fraction_bits;
  constexpr Bits rebias = static_cast<Bits>(Format<From>::bias - Format<T>::bias);
  constexpr Bits smallest_normal = (rebias + 1) << fraction_bits;
  constexpr Bits quiet = Bits{1} << (Format<T>::fraction_bits - 1);
  const Words infinity = Words{} + Bits{infinity_bits<T>};

  const Words bits = bit_cast<Words>(lanes);
  const Words magnitude = bits & (~Bits{0} >> 1);
  const Words sign = (bits >> (static_cast<int>(sizeof(Bits)) * 8 - 16)) & Bits{0x8000};
  // The carry of a rounding up runs into the exponent, which is where it belongs, up to infinity.
  const Words odd = (magnitude >> dropped) & Bits{1};
  const Words rounded =
      (magnitude - (rebias << fraction_bits) + (Bits{1} << (dropped - 1)) - Bits{1} + odd) >> dropped;
  Words result = rounded < infinity ? rounded : infinity;
  if constexpr (rebias != 0) {
    // In a sum with 2^fraction_bits steps of T's subnormals the last bit is one step: the addition rounds.
    constexpr int step_exponent = 1 - Format<T>::bias - Format<T>::fraction_bits;
    constexpr Bits shifter = static_cast<Bits>(step_exponent + fraction_bits + Format<From>::bias)
                             << fraction_bits;
    const Words tiny = bit_cast<Words>(bit_cast<Lanes>(magnitude) + from_bits<From>(shifter)) - shifter;
    result = magnitude < smallest_normal ? tiny : result;
  }
  result = magnitude > infinity_bits<From> ? infinity | quiet : result;
  return sign | result;
}

}  // namespace detail

/// `value` in the accumulator type, exactly: subnormals, infinities and NaN included.
template <Accumulator Acc, Scalar T>
requires(!(std::is_same_v<Acc, float> && std::is_same_v<T, double>)) ROVE_ALWAYS_INLINE Acc widen(T value) {
  if constexpr (std::is_same_v<T, Eigen::bfloat16>) {
    return static_cast<Acc>(detail::bfloat16_to_float<float>(std::uint32_t{detail::to_bits(value)}));
  } else if constexpr (std::is_same_v<T, Eigen::half>) {
    return static_cast<Acc>(detail::half_to_float<float>(std::uint32_t{detail::to_bits(value)}));
  } else {
    return static_cast<Acc>(value);
  }
}

/// The T nearest to `value`, ties to even, by one rounding: overflow goes to infinity, subnormals are kept,
/// NaN becomes a quiet NaN of the same sign. The identity where the types agree.
template <Scalar T, Accumulator Acc>
ROVE_ALWAYS_INLINE T round_to(Acc value) {
  if constexpr (sizeof(T) == 2) {
    using Bits = detail::bits_t<Acc>;
    return detail::from_bits<T>(static_cast<std::uint16_t>(detail::narrow<T, Acc, Bits>(value)));
  } else {
    return static_cast<T>(value);
  }
}

/// `widen` of an element in memory, read bytewise (see `as_half`).
template <Accumulator Acc, Scalar T>
ROVE_ALWAYS_INLINE Acc load_widened(const T* element) {
  if constexpr (sizeof(T) == 2) {
    std::uint16_t bits;
    std::memcpy(&bits, element, sizeof bits);
    return widen<Acc>(detail::from_bits<T>(bits));
  } else {
    return widen<Acc>(*element);
  }
}

/// `round_to` into an element in memory, written bytewise (see `as_half`).
template <Scalar T, Accumulator Acc>
ROVE_ALWAYS_INLINE void store_rounded(T* element, Acc value) {
  if constexpr (sizeof(T) == 2) {
    const std::uint16_t bits = detail::to_bits(round_to<T>(value));
    std::memcpy(static_cast<void*>(element), &bits, sizeof bits);
  } else {
    *element = round_to<T>(value);
  }
}

/// a·b + c with a rounding that is part of the library's contract: once, by one instruction, where the
/// hardware has a fused multiply-add; otherwise after the product and after the sum (libm's fma would be some
/// ten times slower). Never left to the compiler, whose contraction differs from the next one's.
template <Accumulator Acc>
ROVE_ALWAYS_INLINE Acc mul_add(Acc a, Acc b, Acc c) {
#if !ROVE_HAS_FMA
  return a * b + c;
#elif defined(__GNUC__) || defined(__clang__)
  if constexpr (std::is_same_v<Acc, float>) {
    return __builtin_fmaf(a, b, c);
  } else {
    return __builtin_fma(a, b, c);
  }
#else
  return std::fma(a, b, c);
#endif
}

ROVE_END_TAGGED

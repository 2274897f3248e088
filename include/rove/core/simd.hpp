/// \file
/// Packets: as many floats or doubles as one register holds. The only file that touches `Eigen::internal`.
///
/// Everything here is written for a packet type P, and a plain float or double is a packet of width 1, so
/// that one template serves the vector loop, its tail and the scalar fallback, with the same bits in every
/// lane. `packet_t<Acc>` is the widest packet of the target: Eigen decides (`EIGEN_DONT_VECTORIZE` included).
///
/// - `+`, `-`, `*` round each result. A product that feeds a sum is always `mul_add`: compilers contract
///   a * b + c, or do not, as they like.
/// - Loads and stores take any alignment. They touch exactly the lanes they are asked for.
/// - Lane order never depends on the width: sums over keys run in 16 virtual lanes (simd_lanes.hpp).
#pragma once

#include <Eigen/Core>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"

// GCC 12 takes the deliberately undefined operands inside AVX-512 intrinsics for uninitialised variables.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

ROVE_BEGIN_TAGGED

namespace detail {

/// Constant vectors and shuffles: the two compilers spell them differently.
template <class Words, class Word, int... I>
ROVE_ALWAYS_INLINE Words lane_bits(std::integer_sequence<int, I...>) {
  return Words{(Word{1} << I)...};
}

template <class Lanes, int... I>
ROVE_ALWAYS_INLINE Lanes count_lanes(std::integer_sequence<int, I...>) {
  return Lanes{I...};
}

template <Accumulator Acc>
inline constexpr bits_t<Acc> sign_bit = bits_t<Acc>{1} << (sizeof(Acc) * 8 - 1);

}  // namespace detail

namespace simd {

/// Lanes of the target's widest register; 1 where there is none, or where vectorisation is switched off.
#if defined(__GNUC__) || defined(__clang__)
template <Accumulator Acc>
inline constexpr int native_width = static_cast<int>(Eigen::internal::packet_traits<Acc>::size);
#else
template <Accumulator Acc>
inline constexpr int native_width = 1;
#endif

/// Sums and maxima over keys run in this many lanes, however many registers they take.
inline constexpr int virtual_lanes = 16;

#if defined(__GNUC__) || defined(__clang__)

/// A register of `native_width<Acc>` numbers. The compilers' vector extension does the elementwise work (it
/// also selects and shuffles, where Eigen's primitives are missing or differ between targets).
template <Accumulator Acc>
struct Packet {
  static constexpr int width = native_width<Acc>;
  static constexpr int bytes = width * static_cast<int>(sizeof(Acc));
  using Word = detail::bits_t<Acc>;
  using SignedWord = std::make_signed_t<Word>;
  typedef Acc Lanes __attribute__((vector_size(bytes)));
  typedef Word Words __attribute__((vector_size(bytes)));
  typedef SignedWord SignedWords __attribute__((vector_size(bytes)));

  Lanes lanes;

  friend ROVE_ALWAYS_INLINE Packet operator+(Packet a, Packet b) { return {a.lanes + b.lanes}; }
  friend ROVE_ALWAYS_INLINE Packet operator-(Packet a, Packet b) { return {a.lanes - b.lanes}; }
  friend ROVE_ALWAYS_INLINE Packet operator*(Packet a, Packet b) { return {a.lanes * b.lanes}; }
  friend ROVE_ALWAYS_INLINE Packet operator/(Packet a, Packet b) { return {a.lanes / b.lanes}; }
  friend ROVE_ALWAYS_INLINE Packet operator-(Packet a) { return {-a.lanes}; }
};

/// One truth value a lane.
template <Accumulator Acc>
struct Mask {
  typename Packet<Acc>::SignedWords lanes;  // 0 or -1

  friend ROVE_ALWAYS_INLINE Mask operator&(Mask a, Mask b) { return {a.lanes & b.lanes}; }
  friend ROVE_ALWAYS_INLINE Mask operator|(Mask a, Mask b) { return {a.lanes | b.lanes}; }
  friend ROVE_ALWAYS_INLINE Mask operator!(Mask a) { return {~a.lanes}; }
};

template <Accumulator Acc>
ROVE_ALWAYS_INLINE Mask<Acc> operator<(Packet<Acc> a, Packet<Acc> b) {
  return {a.lanes < b.lanes};
}
template <Accumulator Acc>
ROVE_ALWAYS_INLINE Mask<Acc> operator==(Packet<Acc> a, Packet<Acc> b) {
  return {a.lanes == b.lanes};
}

/// The widest packet of the target.
template <Accumulator Acc>
using packet_t = std::conditional_t<native_width<Acc> == 1, Acc, Packet<Acc>>;

template <class P>
struct PacketTraits {};
template <Accumulator Acc>
struct PacketTraits<Packet<Acc>> {
  using Lane = Acc;
  using MaskType = Mask<Acc>;
  static constexpr int width = Packet<Acc>::width;
};

#else

template <Accumulator Acc>
using packet_t = Acc;

template <class P>
struct PacketTraits {};

#endif

template <Accumulator Acc>
struct PacketTraits<Acc> {
  using Lane = Acc;
  using MaskType = bool;
  static constexpr int width = 1;
};

/// float, double or a packet of them.
template <class P>
concept PacketLike = requires {
  typename PacketTraits<P>::Lane;
};

/// float or double: what the lanes of P hold.
template <PacketLike P>
using lane_t = typename PacketTraits<P>::Lane;

/// What comparing two P gives: bool, or one truth value a lane.
template <PacketLike P>
using mask_t = typename PacketTraits<P>::MaskType;

template <PacketLike P>
inline constexpr int width = PacketTraits<P>::width;

template <PacketLike P>
inline constexpr bool is_scalar = Accumulator<P>;

// ------------------------------------------------------------------------------------ loads and stores

/// `width<P>` numbers from any address.
template <PacketLike P>
ROVE_ALWAYS_INLINE P load(const lane_t<P>* from) {
  P packet;
  std::memcpy(&packet, from, sizeof packet);
  return packet;
}

/// `width<P>` numbers to any address.
template <PacketLike P>
ROVE_ALWAYS_INLINE void store(lane_t<P>* to, P packet) {
  std::memcpy(to, &packet, sizeof packet);
}

/// Bytes of a cache line, as most processors have it: a guess that is only speed.
inline constexpr Index cache_line = 64;

/// Asks for the cache line of an address that will be read soon, into the core's second-level cache or, with
/// a `level` of 1, into its first; a hint, and any address will do.
template <int level = 2>
requires(level == 1 || level == 2) ROVE_ALWAYS_INLINE void prefetch([[maybe_unused]] const void* address) {
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(address, 0, level == 1 ? 3 : 2);
  __asm__ volatile("" : : "r"(address));  // GCC takes functions that only prefetch for ones without effect
#endif
}

/// The same number in every lane.
template <PacketLike P>
ROVE_ALWAYS_INLINE P broadcast(lane_t<P> value) {
  if constexpr (is_scalar<P>) {
    return value;
  } else {
    return {value - typename P::Lanes{}};  // x - 0 is x, for -0 too
  }
}

/// c0 c0 c1 c1 …: reads half as many numbers as the packet has lanes.
template <PacketLike P>
requires(!is_scalar<P>) ROVE_ALWAYS_INLINE P load_dup(const lane_t<P>* from) {
  using Register = typename Eigen::internal::packet_traits<lane_t<P>>::type;
  return {(typename P::Lanes)(Eigen::internal::ploaddup<Register>(from))};
}

/// Lane `i`, for tests and for what happens once a row.
template <PacketLike P>
ROVE_ALWAYS_INLINE lane_t<P> lane(P packet, int i) {
  lane_t<P> lanes[width<P>];
  store(lanes, packet);
  return lanes[i];
}

/// `count` elements of any scalar type, `stride` apart, widened; the lanes beyond hold `fill`. Reads nothing
/// else, so that it serves tails and channel strides other than 1.
template <PacketLike P, Scalar T>
ROVE_ALWAYS_INLINE P gather(const T* from, Index stride, int count = width<P>, lane_t<P> fill = 0) {
  lane_t<P> lanes[width<P>];
  for (int i = 0; i < width<P>; ++i) lanes[i] = i < count ? load_widened<lane_t<P>>(from + i * stride) : fill;
  return load<P>(lanes);
}

/// The first `count` lanes, rounded to T once, to elements `stride` apart. Writes nothing else.
template <PacketLike P, Scalar T>
ROVE_ALWAYS_INLINE void scatter(T* to, Index stride, P packet, int count = width<P>) {
  lane_t<P> lanes[width<P>];
  store(lanes, packet);
  for (int i = 0; i < count; ++i) store_rounded(to + i * stride, lanes[i]);
}

// --------------------------------------------------------------------------------------- arithmetic

using ::rove::mul_add;

#if defined(__GNUC__) || defined(__clang__)
/// a·b + c in every lane, rounded as the scalar `rove::mul_add` is.
template <Accumulator Acc>
requires(native_width<Acc> > 1) ROVE_ALWAYS_INLINE Packet<Acc> mul_add(Packet<Acc> a, Packet<Acc> b,
                                                                       Packet<Acc> c) {
#if ROVE_HAS_FMA
  using Register = typename Eigen::internal::packet_traits<Acc>::type;
  using Lanes = typename Packet<Acc>::Lanes;
  // With types that are deduced: no attribute of theirs is lost.
  const Register sum = Eigen::internal::pmadd(Register(a.lanes), Register(b.lanes), Register(c.lanes));
  return {Lanes(sum)};
#else
  return {a.lanes * b.lanes + c.lanes};
#endif
}
#endif

/// Where the mask is true the lane of `yes`, otherwise that of `no`. Nothing is computed from the other one:
/// a NaN that is not chosen leaves no trace.
template <PacketLike P>
ROVE_ALWAYS_INLINE P select(mask_t<P> mask, P yes, P no) {
  if constexpr (is_scalar<P>) {
    return mask ? yes : no;
  } else {
    return {mask.lanes ? yes.lanes : no.lanes};
  }
}

/// The larger, as std::max has it: a < b ? b : a, so the *first* argument wherever either is NaN or both are
/// zero. A running maximum as first argument skips NaN; as second argument, it takes it on.
template <PacketLike P>
ROVE_ALWAYS_INLINE P maximum(P a, P b) {
  return select<P>(a < b, b, a);
}

/// The smaller, as std::min has it: b < a ? b : a.
template <PacketLike P>
ROVE_ALWAYS_INLINE P minimum(P a, P b) {
  return select<P>(b < a, b, a);
}

/// The larger, and NaN wherever either is NaN.
template <PacketLike P>
ROVE_ALWAYS_INLINE P maximum_or_nan(P a, P b) {
  return select<P>(b == b, maximum(a, b), b);
}

/// The size of each lane: its sign bit cleared.
template <PacketLike P>
ROVE_ALWAYS_INLINE P abs(P packet) {
  constexpr auto sign = detail::sign_bit<lane_t<P>>;
  if constexpr (is_scalar<P>) {
    return detail::from_bits<P>(detail::to_bits(packet) & ~sign);
  } else {
    return {(typename P::Lanes)((typename P::Words)(packet.lanes) & ~sign)};
  }
}

/// Lanes of `size`, which have no sign, with the signs of `sign`.
template <PacketLike P>
ROVE_ALWAYS_INLINE P with_sign(P size, P sign) {
  constexpr auto bit = detail::sign_bit<lane_t<P>>;
  if constexpr (is_scalar<P>) {
    return detail::from_bits<P>(detail::to_bits(size) | (detail::to_bits(sign) & bit));
  } else {
    using Words = typename P::Words;
    return {(typename P::Lanes)((Words)(size.lanes) | ((Words)(sign.lanes) & bit))};
  }
}

/// 0, 1, 2, …
template <PacketLike P>
ROVE_ALWAYS_INLINE P lane_numbers() {
  if constexpr (is_scalar<P>) {
    return 0;
  } else {
    return {detail::count_lanes<typename P::Lanes>(std::make_integer_sequence<int, width<P>>{})};
  }
}

/// True where the lane is neither infinite nor NaN: an integer test, which no compiler flag can fold away.
template <PacketLike P>
ROVE_ALWAYS_INLINE mask_t<P> is_finite(P packet) {
  constexpr auto infinity = detail::infinity_bits<lane_t<P>>;
  if constexpr (is_scalar<P>) {
    return (detail::to_bits(packet) & infinity) != infinity;
  } else {
    return {((typename P::Words)(packet.lanes) & infinity) != infinity};
  }
}

/// True if any lane is.
template <class M>
ROVE_ALWAYS_INLINE bool any(M mask) {
  if constexpr (std::is_same_v<M, bool>) {
    return mask;
  } else {
    std::uint64_t words[sizeof mask / sizeof(std::uint64_t)], joined = 0;
    std::memcpy(words, &mask, sizeof mask);
    for (const std::uint64_t word : words) joined |= word;
    return joined != 0;
  }
}

/// Lane i is true where bit i is set.
template <PacketLike P>
ROVE_ALWAYS_INLINE mask_t<P> mask_from_bits(std::uint32_t bits) {
  if constexpr (is_scalar<P>) {
    return (bits & 1U) != 0;
  } else {
    using Words = typename P::Words;
    const Words mine =
        detail::lane_bits<Words, typename P::Word>(std::make_integer_sequence<int, width<P>>{});
    return {(mine & typename P::Word{bits}) != 0};
  }
}

}  // namespace simd

ROVE_END_TAGGED

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

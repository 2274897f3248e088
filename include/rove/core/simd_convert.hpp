/// \file
/// Packets from and to tensors of any scalar type: widened as they are read, rounded once as they are
/// written, lane by lane what `load_widened` and `store_rounded` do. No instruction set's own conversions are
/// used: they are missing here, and differ in NaN there.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

#if defined(__GNUC__) || defined(__clang__)
/// `count` elements side by side, in whatever register holds them.
template <class Element, int count>
struct Vector {
  typedef Element type __attribute__((vector_size(static_cast<int>(sizeof(Element)) * count)));
};
template <class Element, int count>
using vector_t = typename Vector<Element, count>::type;
#endif

}  // namespace detail

namespace simd {

/// `width<P>` elements of any scalar type, widened.
template <PacketLike P, Scalar T>
requires(!std::is_same_v<T, lane_t<P>>) ROVE_ALWAYS_INLINE P load(const T* from) {
  if constexpr (is_scalar<P>) {
    return load_widened<P>(from);
  } else {
    using Acc = lane_t<P>;
    using Floats = detail::vector_t<float, width<P>>;
    static_assert(!std::is_same_v<T, double>, "a double does not widen to float");
    Floats floats;
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(&floats, from, sizeof floats);
    } else {
      detail::vector_t<std::uint16_t, width<P>> packed;
      std::memcpy(&packed, from, sizeof packed);
      const auto bits = __builtin_convertvector(packed, detail::vector_t<std::uint32_t, width<P>>);
      if constexpr (std::is_same_v<T, Eigen::half>) {
        floats = detail::half_to_float<Floats>(bits);
      } else {
        floats = detail::bfloat16_to_float<Floats>(bits);
      }
    }
    if constexpr (std::is_same_v<Acc, float>) {
      return {(typename P::Lanes)(floats)};
    } else {
      return {__builtin_convertvector(floats, typename P::Lanes)};
    }
  }
}

/// `width<P>` elements of any scalar type, each rounded once.
template <Scalar T, PacketLike P>
requires(!std::is_same_v<T, lane_t<P>>) ROVE_ALWAYS_INLINE void store(T* to, P packet) {
  if constexpr (is_scalar<P>) {
    store_rounded(to, packet);
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    const auto converted = __builtin_convertvector(packet.lanes, detail::vector_t<T, width<P>>);
    std::memcpy(to, &converted, sizeof converted);
  } else {
    const auto bits = detail::narrow<T, lane_t<P>, typename P::Words>(packet.lanes);
    const auto packed = __builtin_convertvector(bits, detail::vector_t<std::uint16_t, width<P>>);
    std::memcpy(static_cast<void*>(to), &packed, sizeof packed);
  }
}

}  // namespace simd

ROVE_END_TAGGED

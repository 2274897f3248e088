/// \file
/// Which bytes are not 0: booleans in memory as bits.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "rove/core/config.hpp"

#if defined(__AVX512BW__) || defined(__SSE2__)
#include <immintrin.h>
#endif

ROVE_BEGIN_TAGGED

namespace simd {

/// Bit i is whether byte i is not 0, of 8 bytes.
inline std::uint64_t bits_of_8_bytes(const void* bytes) {
  if constexpr (std::endian::native == std::endian::little) {
    constexpr std::uint64_t low_seven = 0x7f7f7f7f7f7f7f7f, gather = 0x0102040810204080;
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    // The top bit of each byte: set by a carry from the other seven, or there already.
    const std::uint64_t set = (((word & low_seven) + low_seven) | word) & ~low_seven;
    return ((set >> 7) * gather) >> 56;
  } else {
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= std::uint64_t{static_cast<const unsigned char*>(bytes)[i] != 0} << i;
    return bits;
  }
}

/// The same of 64 bytes.
inline std::uint64_t bits_of_64_bytes(const void* bytes) {
#if defined(__AVX512BW__)
  const __m512i all = _mm512_loadu_si512(bytes);
  return _mm512_test_epi8_mask(all, all);
#else
  const char* const from = static_cast<const char*>(bytes);
  std::uint64_t bits = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 64; i += 16) {
    __m128i some;
    std::memcpy(&some, from + i, sizeof some);
    const int zeros = _mm_movemask_epi8(_mm_cmpeq_epi8(some, _mm_setzero_si128()));
    bits |= std::uint64_t{static_cast<std::uint16_t>(~zeros)} << i;
  }
#else
  for (int i = 0; i < 64; i += 8) bits |= bits_of_8_bytes(from + i) << i;
#endif
  return bits;
#endif
}

}  // namespace simd

ROVE_END_TAGGED

/// \file
/// Version, the compiler contract and the ISA-tagged inline namespace.
///
/// Everything whose inline code depends on how a translation unit is compiled (vector width, FMA, assertions,
/// exceptions) lives in an inline namespace that is named after those settings, so that objects built with
/// different flags can be linked into one program. What may cross between such translation units, views,
/// option structs and `rove::Error`, is declared outside of it.
#pragma once

#include <cstddef>
#include <cstdint>

#define ROVE_VERSION_MAJOR 0
#define ROVE_VERSION_MINOR 1
#define ROVE_VERSION_PATCH 0
/// One comparable number: 10000 · major + 100 · minor + patch.
#define ROVE_VERSION (ROVE_VERSION_MAJOR * 10000 + ROVE_VERSION_MINOR * 100 + ROVE_VERSION_PATCH)

#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 202002L
#error "rove needs C++20: compile with -std=c++20 or newer"
#endif

// An online softmax needs infinities (an empty row is -inf), NaN (to show a poisoned input) and sums in the
// order written. Clang and GCC 11 do not announce every one of these flags: see docs/building.md.
#if (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || defined(__ASSOCIATIVE_MATH__) || \
    defined(__FAST_MATH__)
#error \
    "rove does not work under -ffast-math, -ffinite-math-only or -fassociative-math: softmax needs \
infinities, NaN and a fixed order of summation"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define ROVE_ALWAYS_INLINE inline __attribute__((always_inline))
#define ROVE_INLINE_LAMBDA \
  __attribute__((always_inline))  // stands between a lambda's parameters and its body
#define ROVE_NO_INLINE __attribute__((noinline))
#define ROVE_RESTRICT __restrict__
#elif defined(_MSC_VER)
#define ROVE_ALWAYS_INLINE __forceinline
#define ROVE_INLINE_LAMBDA
#define ROVE_NO_INLINE __declspec(noinline)
#define ROVE_RESTRICT __restrict
#else
#define ROVE_ALWAYS_INLINE inline
#define ROVE_INLINE_LAMBDA
#define ROVE_NO_INLINE
#define ROVE_RESTRICT
#endif

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define ROVE_HAS_EXCEPTIONS 1
#else
#define ROVE_HAS_EXCEPTIONS 0
#endif

/// 1 where a fused multiply-add is one instruction.
#if defined(__FMA__) || defined(__aarch64__) || defined(_M_ARM64) || defined(__ARM_FEATURE_FMA)
#define ROVE_HAS_FMA 1
#else
#define ROVE_HAS_FMA 0
#endif

#if defined(__AVX512F__)
#define ROVE_TAG_ISA avx512
#elif defined(__AVX2__)
#define ROVE_TAG_ISA avx2
#elif defined(__AVX__)
#define ROVE_TAG_ISA avx
#elif defined(__SSE4_2__)
#define ROVE_TAG_ISA sse42
#elif defined(__SSE2__) || defined(_M_X64)
#define ROVE_TAG_ISA sse2
#elif defined(__ARM_NEON) || defined(_M_ARM64)
#define ROVE_TAG_ISA neon
#else
#define ROVE_TAG_ISA generic
#endif
#if ROVE_HAS_FMA
#define ROVE_TAG_FMA fma
#else
#define ROVE_TAG_FMA nofma
#endif
#if defined(EIGEN_DONT_VECTORIZE)
#define ROVE_TAG_VECTORIZE scalar
#else
#define ROVE_TAG_VECTORIZE packet
#endif
#if defined(NDEBUG)
#define ROVE_TAG_DEBUG ndebug
#else
#define ROVE_TAG_DEBUG debug
#endif
#if ROVE_HAS_EXCEPTIONS
#define ROVE_TAG_EXCEPTIONS throws
#else
#define ROVE_TAG_EXCEPTIONS nothrow
#endif
#if defined(ROVE_EXPECT) || defined(ROVE_ASSERT)
#define ROVE_TAG_CHECKS userchecks
#else
#define ROVE_TAG_CHECKS checks
#endif

#define ROVE_DETAIL_TAG(a, b, c, d, e, f) v0_##a##_##b##_##c##_##d##_##e##_##f
#define ROVE_DETAIL_EXPAND_TAG(a, b, c, d, e, f) ROVE_DETAIL_TAG(a, b, c, d, e, f)
#define ROVE_TAG                                                                         \
  ROVE_DETAIL_EXPAND_TAG(ROVE_TAG_ISA, ROVE_TAG_FMA, ROVE_TAG_VECTORIZE, ROVE_TAG_DEBUG, \
                         ROVE_TAG_EXCEPTIONS, ROVE_TAG_CHECKS)

/// Open and close the part of namespace rove that is tagged by the translation unit's flags.
#define ROVE_BEGIN_TAGGED \
  namespace rove {        \
  inline namespace ROVE_TAG {
#define ROVE_END_TAGGED \
  }                     \
  }

namespace rove {

/// Every extent, stride, position, slot and index: 64 bits, signed.
using Index = std::int64_t;

}  // namespace rove

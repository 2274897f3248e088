// Packets from and to tensors of any scalar type: lane by lane what the conversions of scalars do.
#include "rove/core/simd_convert.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "support/packets.hpp"

namespace {

namespace simd = rove::simd;
using Eigen::bfloat16;
using Eigen::half;
using rove_test::same;

using rove_test::Packets;
using rove_test::PacketTypes;
TYPED_TEST_SUITE(Packets, PacketTypes);

template <class P, class T>
void conversions_match_scalars() {
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  if constexpr (sizeof(T) == 2) {
    for (unsigned start = 0; start < 0x10000; start += static_cast<unsigned>(width)) {
      std::vector<std::uint16_t> patterns(static_cast<std::size_t>(width));
      for (int i = 0; i < width; ++i) {
        patterns[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(start + static_cast<unsigned>(i));
      }
      T elements[simd::width<P>];
      std::memcpy(static_cast<void*>(elements), patterns.data(), sizeof elements);
      const P widened = simd::load<P>(static_cast<const T*>(elements));
      for (int i = 0; i < width; ++i) {
        ASSERT_TRUE(same(simd::lane(widened, i), rove::load_widened<Acc>(elements + i)))
            << start << " + " << i;
      }
    }
  }
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 40000; ++trial) {
    Acc numbers[simd::width<P>];
    for (Acc& number : numbers) {
      // Any exponent that matters to T, and now and then any pattern at all.
      const std::uint64_t pattern = random();
      std::memcpy(&number, &pattern, sizeof number);
      if (trial % 2 == 0) {
        number = static_cast<Acc>(std::ldexp(1 + std::ldexp(static_cast<double>(pattern >> 12), -52),
                                             static_cast<int>(pattern % 300) - 150));
      }
      if (trial % 8 == 1) number = std::numeric_limits<Acc>::quiet_NaN();
    }
    const P packet = simd::load<P>(numbers);
    T written[simd::width<P> + 2], right[simd::width<P> + 2];
    std::memset(static_cast<void*>(written), 0x5a, sizeof written);
    std::memset(static_cast<void*>(right), 0x5a, sizeof right);
    simd::store(written + 1, packet);
    for (int i = 0; i < width; ++i) rove::store_rounded(right + 1 + i, numbers[i]);
    if constexpr (sizeof(T) == 2) {
      ASSERT_EQ(std::memcmp(written, right, sizeof written), 0);
    } else {
      for (int i = 0; i < width + 2; ++i) ASSERT_TRUE(same(written[i], right[i]));
    }
  }
}

TYPED_TEST(Packets, conversions_are_those_of_scalars) {
  conversions_match_scalars<TypeParam, bfloat16>();
  conversions_match_scalars<TypeParam, half>();
  conversions_match_scalars<TypeParam, float>();
  if constexpr (std::is_same_v<simd::lane_t<TypeParam>, double>)
    conversions_match_scalars<TypeParam, double>();
}

TYPED_TEST(Packets, widening_floats_is_exact) {
  if constexpr (std::is_same_v<simd::lane_t<TypeParam>, double>) {
    const std::vector<float> from(static_cast<std::size_t>(simd::width<TypeParam>), 0.1F);
    const auto packet = simd::load<TypeParam>(from.data());
    EXPECT_EQ(simd::lane(packet, simd::width<TypeParam> - 1), static_cast<double>(0.1F));
  }
}

}  // namespace

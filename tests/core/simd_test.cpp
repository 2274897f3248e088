#include "rove/core/simd.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <vector>

#include "rove/core/scalar.hpp"
#include "support/packets.hpp"

namespace {

namespace simd = rove::simd;
using Eigen::bfloat16;
using Eigen::half;
using rove::Index;
using rove_test::awkward;
using rove_test::bytes;
using rove_test::same;

using rove_test::Packets;
using rove_test::PacketTypes;
TYPED_TEST_SUITE(Packets, PacketTypes);

TYPED_TEST(Packets, width_divides_the_virtual_lanes) {
  EXPECT_EQ(simd::virtual_lanes % simd::width<TypeParam>, 0);
  EXPECT_EQ(sizeof(TypeParam),
            sizeof(simd::lane_t<TypeParam>) * static_cast<std::size_t>(simd::width<TypeParam>));
#if defined(EIGEN_DONT_VECTORIZE)
  EXPECT_EQ(simd::width<TypeParam>, 1);
#elif defined(__AVX512F__)
  if (!simd::is_scalar<TypeParam>) {
    EXPECT_EQ(sizeof(TypeParam), 64U);
  }
#elif defined(__AVX__)
  if (!simd::is_scalar<TypeParam>) {
    EXPECT_EQ(sizeof(TypeParam), 32U);
  }
#elif defined(__SSE2__) || defined(__aarch64__)
  if (!simd::is_scalar<TypeParam>) {
    EXPECT_EQ(sizeof(TypeParam), 16U);
  }
  EXPECT_FALSE(simd::is_scalar<simd::packet_t<float>>);
#endif
}

TYPED_TEST(Packets, loads_and_stores_take_any_alignment_and_touch_nothing_else) {
  using Acc = simd::lane_t<TypeParam>;
  constexpr int width = simd::width<TypeParam>;
  for (int offset = 0; offset < 17; ++offset) {
    // Exactly as long as needed: the sanitizer sees a read beyond, the guards a write.
    std::vector<Acc> from(static_cast<std::size_t>(offset + width));
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<Acc>(i) + Acc(0.5);
    const auto packet = simd::load<TypeParam>(from.data() + offset);
    std::vector<Acc> to(static_cast<std::size_t>(offset + width + 1), Acc(-7));
    simd::store(to.data() + offset, packet);
    for (int i = 0; i < width; ++i) {
      EXPECT_EQ(to[static_cast<std::size_t>(offset + i)], static_cast<Acc>(offset + i) + Acc(0.5));
      EXPECT_EQ(simd::lane(packet, i), static_cast<Acc>(offset + i) + Acc(0.5));
    }
    EXPECT_EQ(to.back(), -7);
    if (offset > 0) {
      EXPECT_EQ(to[static_cast<std::size_t>(offset - 1)], -7);
    }
  }
}

TYPED_TEST(Packets, broadcast_fills_every_lane_with_the_bits) {
  using Acc = simd::lane_t<TypeParam>;
  for (const Acc value : {Acc(1.5), Acc(0), Acc(-0.0), -std::numeric_limits<Acc>::infinity()}) {
    const auto packet = simd::broadcast<TypeParam>(value);
    for (int i = 0; i < simd::width<TypeParam>; ++i) EXPECT_EQ(bytes(simd::lane(packet, i)), bytes(value));
  }
}

TYPED_TEST(Packets, every_lane_computes_what_the_scalar_form_does) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  const std::size_t count = 4096;
  const auto a = awkward<Acc>(count, 1), b = awkward<Acc>(count, 2), c = awkward<Acc>(count, 3);
  for (std::size_t start = 0; start + width <= count; start += width) {
    const P x = simd::load<P>(&a[start]), y = simd::load<P>(&b[start]), z = simd::load<P>(&c[start]);
    const P sum = x + y, difference = x - y, product = x * y, quotient = x / y, negative = -x;
    const P fused = simd::mul_add(x, y, z), larger = simd::maximum(x, y), smaller = simd::minimum(x, y);
    const P poisoned = simd::maximum_or_nan(x, y);
    const P less = simd::select<P>(x < y, z, x), equal = simd::select<P>(x == y, z, x);
    const P both = simd::select<P>((x < y) & simd::is_finite(z), y, z);
    const P finite = simd::select<P>(simd::is_finite(x), x, y);
    bool any_less = false;
    for (int i = 0; i < width; ++i) {
      const std::size_t at = start + static_cast<std::size_t>(i);
      const Acc p = a[at], q = b[at], r = c[at];
      any_less = any_less || p < q;
      SCOPED_TRACE(testing::Message() << p << ' ' << q << ' ' << r);
      ASSERT_TRUE(same(simd::lane(sum, i), p + q));
      ASSERT_TRUE(same(simd::lane(difference, i), p - q));
      ASSERT_TRUE(same(simd::lane(product, i), p * q));
      ASSERT_TRUE(same(simd::lane(quotient, i), p / q));
      ASSERT_TRUE(same(simd::lane(negative, i), -p));
      ASSERT_TRUE(same(simd::lane(fused, i), rove::mul_add(p, q, r)));
      ASSERT_TRUE(same(simd::lane(larger, i), (std::max)(p, q)));
      ASSERT_TRUE(same(simd::lane(smaller, i), (std::min)(p, q)));
      ASSERT_TRUE(same(simd::lane(poisoned, i), std::isnan(p) ? p : std::isnan(q) ? q : (std::max)(p, q)));
      ASSERT_TRUE(same(simd::lane(less, i), p < q ? r : p));
      ASSERT_TRUE(same(simd::lane(equal, i), p == q ? r : p));
      ASSERT_TRUE(same(simd::lane(both, i), p < q && std::isfinite(r) ? q : r));
      ASSERT_TRUE(same(simd::lane(finite, i), std::isfinite(p) ? p : q));
    }
    ASSERT_EQ(simd::any(x < y), any_less);
  }
}

TYPED_TEST(Packets, multiply_add_rounds_once_exactly_where_the_hardware_does) {
  using Acc = simd::lane_t<TypeParam>;
  constexpr int digits = std::numeric_limits<Acc>::digits;
  const volatile Acc step = std::ldexp(Acc(1), -(digits / 2 + 1));
  const auto product = simd::mul_add(simd::broadcast<TypeParam>(1 + step),
                                     simd::broadcast<TypeParam>(1 - step), simd::broadcast<TypeParam>(-1));
  for (int i = 0; i < simd::width<TypeParam>; ++i) {
    EXPECT_EQ(simd::lane(product, i), ROVE_HAS_FMA ? -step * step : Acc(0));
  }
}

TYPED_TEST(Packets, masks_from_bits_choose_lanes) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  for (unsigned bits = 0; bits<1U << simd::width<P>; bits += simd::width<P>> 8 ? 37U : 1U) {
    const auto mask = simd::mask_from_bits<P>(bits);
    const P chosen = simd::select<P>(mask, simd::broadcast<P>(1), simd::broadcast<P>(Acc(2)));
    for (int i = 0; i < simd::width<P>; ++i) {
      ASSERT_EQ(simd::lane(chosen, i), (bits >> i & 1U) != 0 ? Acc(1) : Acc(2)) << bits;
    }
    ASSERT_EQ(simd::any(mask), bits != 0);
  }
}

TYPED_TEST(Packets, any_sees_each_single_lane) {
  for (int i = 0; i < simd::width<TypeParam>; ++i) {
    EXPECT_TRUE(simd::any(simd::mask_from_bits<TypeParam>(1U << i)));
  }
}

TYPED_TEST(Packets, size_and_sign_of_every_lane) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  const std::size_t count = 4096;
  const auto a = awkward<Acc>(count, 6), b = awkward<Acc>(count, 7);
  for (std::size_t start = 0; start + width <= count; start += width) {
    const P size = simd::abs(simd::load<P>(&a[start])), sign = simd::load<P>(&b[start]);
    const P joined = simd::with_sign(size, sign);
    for (int i = 0; i < width; ++i) {
      const Acc x = a[start + static_cast<std::size_t>(i)], y = b[start + static_cast<std::size_t>(i)];
      // By bits, for NaN and zeros too.
      ASSERT_EQ(bytes(simd::lane(size, i)), bytes(std::fabs(x))) << x;
      ASSERT_EQ(bytes(simd::lane(joined, i)), bytes(std::copysign(x, y))) << x << ' ' << y;
    }
  }
}

TYPED_TEST(Packets, lane_numbers_count_from_zero) {
  const auto numbers = simd::lane_numbers<TypeParam>();
  for (int i = 0; i < simd::width<TypeParam>; ++i) {
    EXPECT_EQ(bytes(simd::lane(numbers, i)), bytes(static_cast<simd::lane_t<TypeParam>>(i)));
  }
}

TYPED_TEST(Packets, prefetch_takes_any_address) {
  simd::prefetch(nullptr);
  const TypeParam here = simd::broadcast<TypeParam>(1);
  simd::prefetch(&here);
  simd::prefetch(&here + 1);
  EXPECT_EQ(simd::lane(here, 0), 1);
}

template <class P, class T>
void gather_and_scatter() {
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  for (const Index stride : {Index{1}, Index{3}, Index{-2}}) {
    for (int count = 0; count <= width; ++count) {
      const Index size = count == 0 ? 0 : (count - 1) * std::abs(stride) + 1;
      std::vector<T> from(static_cast<std::size_t>(size)), to(static_cast<std::size_t>(size), T(-7.0F));
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = T(static_cast<float>(i) / 4);
      const Index first = stride < 0 && size > 0 ? size - 1 : 0;
      const P packet = simd::gather<P>(from.data() + first, stride, count, Acc(9));
      simd::scatter(to.data() + first, stride, packet, count);
      for (int i = 0; i < width; ++i) {
        const Index at = first + i * stride;
        ASSERT_EQ(simd::lane(packet, i), i < count ? static_cast<Acc>(at) / 4 : Acc(9));
      }
      for (std::size_t i = 0; i < to.size(); ++i) {
        const bool hit = i % static_cast<std::size_t>(std::abs(stride)) == 0;
        ASSERT_EQ(rove::load_widened<Acc>(&to[i]), hit ? rove::load_widened<Acc>(&from[i]) : Acc(-7));
      }
    }
  }
}

TYPED_TEST(Packets, gather_and_scatter_touch_only_what_they_are_asked_for) {
  gather_and_scatter<TypeParam, float>();
  gather_and_scatter<TypeParam, half>();
  gather_and_scatter<TypeParam, bfloat16>();
}

}  // namespace

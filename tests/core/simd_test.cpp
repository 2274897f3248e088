#include "rove/core/simd.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "rove/core/simd_convert.hpp"
#include "rove/core/simd_lanes.hpp"

namespace {

namespace simd = rove::simd;
using Eigen::bfloat16;
using Eigen::half;
using rove::Index;

template <class T>
std::vector<unsigned char> bytes(const T& value) {
  std::vector<unsigned char> result(sizeof value);
  std::memcpy(result.data(), &value, sizeof value);
  return result;
}

/// The same bits; any two NaN count as the same.
template <class Acc>
bool same(Acc a, Acc b) {
  return (std::isnan(a) && std::isnan(b)) || bytes(a) == bytes(b);
}

/// Numbers that are awkward in one way or another, in random order.
template <class Acc>
std::vector<Acc> awkward(std::size_t count, unsigned seed) {
  constexpr Acc infinity = std::numeric_limits<Acc>::infinity(),
                tiny = std::numeric_limits<Acc>::denorm_min();
  const Acc special[] = {0,
                         Acc(-0.0),
                         infinity,
                         -infinity,
                         std::numeric_limits<Acc>::quiet_NaN(),
                         tiny,
                         -tiny,
                         (std::numeric_limits<Acc>::max)(),
                         1,
                         -1};
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 3);
  std::vector<Acc> numbers(count);
  for (auto& number : numbers) {
    const std::size_t pick = random() % 40;
    number = pick < std::size(special) ? special[pick] : static_cast<Acc>(normal(random));
  }
  return numbers;
}

/// Runs each test on the plain type, a packet of width 1, and on the target's own packet.
template <class P>
class Packets : public testing::Test {};
using PacketTypes = testing::Types<float, double, simd::packet_t<float>, simd::packet_t<double>>;
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

TYPED_TEST(Packets, sums_fold_sixteen_lanes_by_one_tree) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, 1);
  for (int trial = 0; trial < 200; ++trial) {
    Acc lanes[16];
    for (Acc& lane : lanes) lane = static_cast<Acc>(std::exp(6 * normal(random)));
    P packets[simd::parts<P>];
    for (int i = 0; i < simd::parts<P>; ++i) packets[i] = simd::load<P>(lanes + i * simd::width<P>);
    const Acc largest = simd::reduce_max<P>(packets), sum = simd::reduce_add<P>(packets);
    EXPECT_EQ(largest, *std::max_element(lanes, lanes + 16));
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    EXPECT_EQ(sum, lanes[0]);
  }
}

TYPED_TEST(Packets, the_largest_of_lanes_is_nan_if_any_is) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  for (int poisoned = 0; poisoned < 16; ++poisoned) {
    Acc lanes[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2};
    lanes[poisoned] = std::numeric_limits<Acc>::quiet_NaN();
    P packets[simd::parts<P>];
    for (int i = 0; i < simd::parts<P>; ++i) packets[i] = simd::load<P>(lanes + i * simd::width<P>);
    EXPECT_TRUE(std::isnan(simd::reduce_max<P>(packets))) << poisoned;
  }
}

TYPED_TEST(Packets, pairs_swap_double_and_change_sign) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  if constexpr (!simd::is_scalar<P>) {
    constexpr int width = simd::width<P>;
    std::vector<Acc> numbers(width), halves(width / 2);  // exactly as long as what may be read
    for (int i = 0; i < width; ++i) numbers[static_cast<std::size_t>(i)] = static_cast<Acc>(i + 1);
    for (int i = 0; i < width / 2; ++i) halves[static_cast<std::size_t>(i)] = static_cast<Acc>(10 * i);
    const P packet = simd::load<P>(numbers.data());
    const P swapped = simd::swap_pairs(packet), turned = simd::negate_even(packet);
    const P doubled = simd::load_dup<P>(halves.data());
    for (int i = 0; i < width; ++i) {
      EXPECT_EQ(simd::lane(swapped, i), static_cast<Acc>((i ^ 1) + 1));
      EXPECT_EQ(simd::lane(turned, i), static_cast<Acc>(i % 2 == 0 ? -(i + 1) : i + 1));
      EXPECT_EQ(simd::lane(doubled, i), static_cast<Acc>(10 * (i / 2)));
    }
    EXPECT_TRUE(std::signbit(simd::lane(simd::negate_even(simd::broadcast<P>(0)), 0)));
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

TYPED_TEST(Packets, a_transposed_square_has_its_rows_as_columns) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  const auto numbers = awkward<Acc>(std::size_t{width} * width, 8);
  P rows[std::size_t{width}];
  for (int i = 0; i < width; ++i) rows[i] = simd::load<P>(&numbers[static_cast<std::size_t>(i * width)]);
  simd::transpose<P>(rows);
  for (int i = 0; i < width; ++i) {
    for (int j = 0; j < width; ++j) {
      ASSERT_EQ(bytes(simd::lane(rows[i], j)), bytes(numbers[static_cast<std::size_t>(j * width + i)]))
          << i << ' ' << j;
    }
  }
}

/// The tree of `reduce`, written out.
template <class Acc, class Fold>
Acc tree(const Acc (&lanes)[16], Fold fold) {
  Acc left[16];
  std::copy(lanes, lanes + 16, left);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) left[i] = fold(left[i], left[i + half]);
  }
  return left[0];
}

TYPED_TEST(Packets, many_sums_at_once_are_those_of_one_at_a_time) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  std::mt19937 random(9);
  std::normal_distribution<double> normal(0, 1);
  const auto add = [](auto a, auto b) { return a + b; };
  // Neither associative nor commutative: it tells left from right and every order from every other.
  const auto lean = [](auto a, auto b) {
    return simd::mul_add(a, simd::broadcast<decltype(a)>(Acc(0.625)), b);
  };
  for (int trial = 0; trial < 100; ++trial) {
    Acc lanes[std::size_t{width}][16];
    P sums[std::size_t{width}], leant[std::size_t{width}];
    for (int r = 0; r < width; ++r) {
      for (Acc& lane : lanes[r]) lane = static_cast<Acc>(std::exp(trial < 50 ? 6 * normal(random) : 0.1));
      if (trial >= 50) lanes[r][trial % 16] = static_cast<Acc>(normal(random));
      P parts[simd::parts<P>];
      for (int i = 0; i < simd::parts<P>; ++i) parts[i] = simd::load<P>(lanes[r] + i * width);
      sums[r] = simd::fold_parts<P>(parts, add);
      leant[r] = simd::fold_parts<P>(parts, lean);
      ASSERT_EQ(bytes(simd::reduce<P>(parts, lean)), bytes(tree(lanes[r], lean)));
    }
    const P sum = simd::reduce_each<P>(sums, add), other = simd::reduce_each<P>(leant, lean);
    for (int r = 0; r < width; ++r) {
      ASSERT_EQ(bytes(simd::lane(sum, r)), bytes(tree(lanes[r], add))) << r;
      ASSERT_EQ(bytes(simd::lane(other, r)), bytes(tree(lanes[r], lean))) << r;
    }
  }
}

TYPED_TEST(Packets, many_maxima_at_once_pass_over_nan) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  const Acc nan = std::numeric_limits<Acc>::quiet_NaN(), infinity = std::numeric_limits<Acc>::infinity();
  for (int at = 0; at < width; ++at) {
    for (int poisoned = 0; poisoned < width; ++poisoned) {
      Acc lanes[std::size_t{width}][std::size_t{width}];
      P rows[std::size_t{width}];
      for (int r = 0; r < width; ++r) {
        for (Acc& lane : lanes[r]) lane = -infinity;
        lanes[r][at] = static_cast<Acc>(r) - 2;
        if (poisoned != at) lanes[r][poisoned] = nan;
        rows[r] = simd::load<P>(lanes[r]);
        // As a running maximum has it, which starts from a number: NaN never gets in.
        rows[r] = simd::maximum(simd::broadcast<P>(-infinity), rows[r]);
      }
      const P top = simd::reduce_each<P>(rows, [](P a, P b) { return simd::maximum(a, b); });
      for (int r = 0; r < width; ++r) ASSERT_EQ(simd::lane(top, r), static_cast<Acc>(r) - 2);
    }
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

#include "rove/core/simd_math.hpp"

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

#include "rove/core/simd_lanes.hpp"

namespace {

namespace simd = rove::simd;

template <class Acc>
constexpr Acc infinity = std::numeric_limits<Acc>::infinity();

/// |value − right| in units in the last place of `right`; long double has 11 bits more than double.
template <class Acc>
long double ulps(Acc value, long double right) {
  int exponent = 0;
  std::frexp(right, &exponent);
  const long double ulp = std::ldexp(1.0L, exponent - std::numeric_limits<Acc>::digits);
  return std::fabs(static_cast<long double>(value) - right) / ulp;
}

/// Every 97th float pattern between 2^-30 and 200 in size and a few smaller ones; or a million doubles.
template <class Acc>
std::vector<Acc> arguments() {
  std::vector<Acc> result;
  if constexpr (std::is_same_v<Acc, float>) {
    for (std::uint32_t bits = 0; bits < 0x43480000U; bits += bits < 0x30800000U ? 9973 : 97) {
      float x;
      std::memcpy(&x, &bits, sizeof x);
      result.push_back(x);
      result.push_back(-x);
    }
  } else {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> uniform(-760, 720), exponent(-60, 10);
    for (int i = 0; i < 350000; ++i) {
      result.push_back(uniform(random));
      result.push_back(std::exp2(exponent(random)) * (i % 2 == 0 ? 1 : -1));
      result.push_back(-std::fabs(uniform(random)) / 8);
    }
  }
  return result;
}

/// The reference: two more digits than needed, by a library that has nothing to do with ours.
template <class Acc>
long double exact_exp2(Acc x) {
  if constexpr (std::is_same_v<Acc, float>) {
    return std::exp2(static_cast<double>(x));
  } else {
    return std::exp2(static_cast<long double>(x));
  }
}
template <class Acc>
long double exact_exp(Acc x) {
  if constexpr (std::is_same_v<Acc, float>) {
    return std::exp(static_cast<double>(x));
  } else {
    return std::exp(static_cast<long double>(x));
  }
}
template <class Acc>
long double exact_tanh(Acc x) {
  if constexpr (std::is_same_v<Acc, float>) {
    return std::tanh(static_cast<double>(x));
  } else {
    return std::tanh(static_cast<long double>(x));
  }
}

template <class P>
class SimdMath : public testing::Test {};
using PacketTypes = testing::Types<float, double, simd::packet_t<float>, simd::packet_t<double>>;
TYPED_TEST_SUITE(SimdMath, PacketTypes);

TYPED_TEST(SimdMath, exp2_kernel_is_within_three_ulp) {
  using Acc = simd::lane_t<TypeParam>;
  if constexpr (simd::is_scalar<TypeParam>) {
    long double worst = 0;
    for (const Acc x : arguments<Acc>()) {
      const Acc value = simd::exp2_kernel(x);
      if (x < simd::exp2_cut<Acc>) {
        ASSERT_EQ(value, 0) << x;
        ASSERT_FALSE(std::signbit(value));
      } else if (x <= 0) {
        worst = (std::max)(worst, ulps(value, exact_exp2(x)));
        ASSERT_LE(value, 1) << x;
      }
    }
    EXPECT_LE(worst, (std::is_same_v<Acc, float> ? 2.5L : 1.5L));
    EXPECT_GE(worst, 0.6L);  // a comparison with itself would show here
  }
}

TYPED_TEST(SimdMath, below_the_cut_powers_are_plus_zero) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  const Acc cut = simd::exp2_cut<Acc>;
  std::vector<Acc> below{-infinity<Acc>, -(std::numeric_limits<Acc>::max)(), std::nextafter(cut, Acc(-1e9))};
  if constexpr (std::is_same_v<Acc, float>) {
    // Every 997th float from the cut down.
    std::uint32_t bits;
    std::memcpy(&bits, &below.back(), sizeof bits);
    for (; bits < 0xff800000U; bits += 997) {
      float x;
      std::memcpy(&x, &bits, sizeof x);
      below.push_back(x);
    }
  } else {
    std::mt19937_64 random(3);
    std::uniform_real_distribution<double> exponent(0, 1000);
    for (int i = 0; i < 200000; ++i)
      below.push_back(static_cast<Acc>(cut - std::exp2(exponent(random) - 43)));
    for (double x = -1100; x < cut; x += 0.01) below.push_back(static_cast<Acc>(x));
  }
  while (below.size() % static_cast<std::size_t>(width) != 0) below.push_back(Acc(-1000));
  std::size_t different = 0;
  for (std::size_t start = 0; start < below.size(); start += static_cast<std::size_t>(width)) {
    const P power = simd::exp2_kernel(simd::load<P>(&below[start]));
    const P zero = simd::broadcast<P>(0);
    different += std::memcmp(&power, &zero, sizeof power) != 0;
  }
  EXPECT_EQ(different, 0U);
  // Lanes beside them are as they were.
  for (int at = 0; at < width; ++at) {
    for (const Acc low : {below[0], below[1], below[2], Acc(-150)}) {
      Acc lanes[std::size_t{width}];
      for (int i = 0; i < width; ++i) lanes[i] = i == at ? low : cut / static_cast<Acc>(i + 1);
      const P power = simd::exp2_kernel(simd::load<P>(lanes));
      for (int i = 0; i < width; ++i) {
        ASSERT_EQ(simd::lane(power, i), i == at ? Acc(0) : simd::exp2_kernel(lanes[i]));
      }
    }
  }
}

TYPED_TEST(SimdMath, powers_are_those_of_the_plain_formula) {
  // What the kernel is said to compute, selected at the end: above the cut the same bits.
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  const auto plain = [](Acc x) {
    const Acc n = std::nearbyint(x), f = x - n;
    Acc sum = rove::detail::ExpConstants<Acc>::exp2[0];
    for (std::size_t i = 1; i < std::size(rove::detail::ExpConstants<Acc>::exp2); ++i) {
      sum = rove::mul_add(sum, f, rove::detail::ExpConstants<Acc>::exp2[i]);
    }
    return std::ldexp(sum, static_cast<int>(n) - 1);
  };
  std::size_t different = 0, seen = 0;
  for (const Acc x : arguments<Acc>()) {
    if (!(x >= simd::exp2_cut<Acc> && x <= 0)) continue;
    const P power = simd::exp2_kernel(simd::broadcast<P>(x));
    const Acc first = simd::lane(power, 0), last = simd::lane(power, width - 1), right = plain(x);
    different +=
        std::memcmp(&first, &right, sizeof right) != 0 || std::memcmp(&last, &right, sizeof right) != 0;
    ++seen;
  }
  EXPECT_EQ(different, 0U);
  EXPECT_GT(seen, 100000U);
}

TYPED_TEST(SimdMath, tanh_is_within_three_ulp) {
  using Acc = simd::lane_t<TypeParam>;
  if constexpr (simd::is_scalar<TypeParam>) {
    long double worst = 0;
    for (const Acc x : arguments<Acc>()) {
      const Acc value = simd::tanh(x);
      worst = (std::max)(worst, ulps(value, exact_tanh(x)));
      ASSERT_LE(std::fabs(value), 1) << x;
      ASSERT_EQ(simd::tanh(-x), -value) << x;
    }
    EXPECT_LE(worst, 2.8L);
    EXPECT_GE(worst, 0.6L);
    EXPECT_EQ(simd::tanh(infinity<Acc>), 1);
    EXPECT_EQ(simd::tanh(-infinity<Acc>), -1);
    EXPECT_TRUE(std::isnan(simd::tanh(std::numeric_limits<Acc>::quiet_NaN())));
    EXPECT_TRUE(std::signbit(simd::tanh(Acc(-0.0))));
    EXPECT_EQ(simd::tanh(std::numeric_limits<Acc>::denorm_min()), std::numeric_limits<Acc>::denorm_min());
  }
}

TYPED_TEST(SimdMath, exp_is_within_two_ulp) {
  using Acc = simd::lane_t<TypeParam>;
  if constexpr (simd::is_scalar<TypeParam>) {
    long double worst = 0;
    for (const Acc x : arguments<Acc>()) {
      const long double right = exact_exp(x);
      const Acc value = simd::exp(x);
      if (right > static_cast<long double>((std::numeric_limits<Acc>::max)())) {
        ASSERT_TRUE(value == infinity<Acc> || value == (std::numeric_limits<Acc>::max)()) << x;
      } else if (right >= static_cast<long double>((std::numeric_limits<Acc>::min)())) {
        worst = (std::max)(worst, ulps(value, right));
      } else {
        // Subnormal: within one step and the error carried down.
        ASSERT_LE(std::fabs(static_cast<long double>(value) - right),
                  static_cast<long double>(std::numeric_limits<Acc>::denorm_min()) * 2)
            << x;
      }
    }
    EXPECT_LE(worst, 1.5L);
    EXPECT_GE(worst, 0.6L);
  }
}

TYPED_TEST(SimdMath, every_lane_has_the_scalar_bits) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  auto numbers = arguments<Acc>();
  for (const Acc special :
       {Acc(0), Acc(-0.0), infinity<Acc>, -infinity<Acc>, simd::exp2_cut<Acc>, Acc(1e30)}) {
    numbers.insert(numbers.begin() + 3, special);
  }
  std::size_t different = 0;
  for (std::size_t start = 0; start + width <= numbers.size(); start += static_cast<std::size_t>(width) * 7) {
    Acc power[simd::width<P>], exponential[simd::width<P>], tangent[simd::width<P>], rounded[simd::width<P>];
    const P x = simd::load<P>(&numbers[start]);
    simd::store(power, simd::exp2_kernel(simd::minimum(x, simd::broadcast<P>(0))));
    simd::store(exponential, simd::exp(x));
    simd::store(tangent, simd::tanh(x));
    simd::store(rounded, simd::nearest_integer(x));
    for (int i = 0; i < width; ++i) {
      const Acc number = numbers[start + static_cast<std::size_t>(i)];
      const Acc expected[] = {simd::exp2_kernel((std::min)(number, Acc(0))), simd::exp(number),
                              simd::tanh(number)};
      different += std::memcmp(&power[i], &expected[0], sizeof(Acc)) != 0;
      different += std::memcmp(&exponential[i], &expected[1], sizeof(Acc)) != 0;
      different += std::memcmp(&tangent[i], &expected[2], sizeof(Acc)) != 0;
      if (std::fabs(number) < 4e6F) different += rounded[i] != std::nearbyint(number);
    }
  }
  EXPECT_EQ(different, 0U);
}

TYPED_TEST(SimdMath, exact_points_and_the_cut) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  const auto exp2_of = [](Acc x) { return simd::lane(simd::exp2_kernel(simd::broadcast<P>(x)), 0); };
  const auto exp_of = [](Acc x) { return simd::lane(simd::exp(simd::broadcast<P>(x)), 0); };
  for (int n = -86; n <= 127; ++n) EXPECT_EQ(exp2_of(static_cast<Acc>(n)), std::ldexp(Acc(1), n));
  EXPECT_EQ(exp2_of(Acc(-0.0)), 1);
  EXPECT_EQ(exp_of(0), 1);
  EXPECT_EQ(exp_of(Acc(-0.0)), 1);

  const Acc cut = simd::exp2_cut<Acc>;
  EXPECT_NEAR(static_cast<double>(cut), -60 / std::log(2.0), 5e-6);
  EXPECT_GT(exp2_of(cut), 0);
  for (const Acc below : {std::nextafter(cut, Acc(-1e9)), Acc(-90), Acc(-127), Acc(-150), Acc(-1100),
                          Acc(-1e6), -(std::numeric_limits<Acc>::max)(), -infinity<Acc>}) {
    EXPECT_EQ(exp2_of(below), 0) << below;
    EXPECT_FALSE(std::signbit(exp2_of(below)));
  }

  EXPECT_EQ(exp_of(-infinity<Acc>), 0);
  EXPECT_EQ(exp_of(-(std::numeric_limits<Acc>::max)()), 0);
  EXPECT_EQ(exp_of(infinity<Acc>), infinity<Acc>);
  EXPECT_EQ(exp_of((std::numeric_limits<Acc>::max)()), infinity<Acc>);
}

TYPED_TEST(SimdMath, nan_stays_nan_whatever_its_payload) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  using Bits = std::conditional_t<std::is_same_v<Acc, float>, std::uint32_t, std::uint64_t>;
  Bits quiet;
  const Acc nan = std::numeric_limits<Acc>::quiet_NaN();
  std::memcpy(&quiet, &nan, sizeof quiet);
  for (Bits payload = 0; payload < 4096; ++payload) {
    for (const Bits sign : {Bits{0}, Bits{1} << (sizeof(Bits) * 8 - 1)}) {
      const Bits bits = quiet | payload | sign;
      Acc x;
      std::memcpy(&x, &bits, sizeof x);
      // One poisoned lane among good ones: the others must not notice.
      Acc lanes[simd::width<P>] = {};
      lanes[simd::width<P> - 1] = x;
      const P packet = simd::load<P>(lanes);
      ASSERT_TRUE(std::isnan(simd::lane(simd::exp2_kernel(packet), simd::width<P> - 1))) << payload;
      ASSERT_TRUE(std::isnan(simd::lane(simd::exp(packet), simd::width<P> - 1))) << payload;
      ASSERT_TRUE(std::isnan(simd::lane(simd::tanh(packet), simd::width<P> - 1))) << payload;
      if (simd::width < P >> 1) {
        ASSERT_EQ(simd::lane(simd::exp2_kernel(packet), 0), 1);
      }
    }
  }
}

TYPED_TEST(SimdMath, ties_round_to_even) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  for (int n = -9; n <= 9; ++n) {
    const Acc tie = static_cast<Acc>(n) + Acc(0.5);
    EXPECT_EQ(simd::lane(simd::nearest_integer(simd::broadcast<P>(tie)), 0), std::nearbyint(tie));
  }
}

/// FNV-1a over the bits of both exponentials and the tangent of 2^17 numbers made of integers alone.
template <class P>
std::uint64_t fingerprint() {
  using Acc = simd::lane_t<P>;
  std::uint64_t hash = 0xcbf29ce484222325U, state = 1;
  const auto mix = [&hash](P packet) {
    Acc lanes[simd::width<P>];
    simd::store(lanes, packet);
    for (const Acc lane : lanes) {
      unsigned char bytes[sizeof(Acc)];
      std::memcpy(bytes, &lane, sizeof lane);
      for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3U;
    }
  };
  std::vector<Acc> numbers(std::size_t{1} << 17);
  for (Acc& x : numbers) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    x = static_cast<Acc>(static_cast<std::int64_t>(state >> 40) - (1 << 24)) / (1 << 18);  // in [-64, 0)
  }
  for (std::size_t i = 0; i < numbers.size(); i += 16) {
    for (int part = 0; part < simd::parts<P>; ++part)
      mix(simd::exp2_kernel(simd::load<P>(&numbers[i] + part * simd::width<P>)));
    for (int part = 0; part < simd::parts<P>; ++part)
      mix(simd::exp(simd::load<P>(&numbers[i] + part * simd::width<P>)));
    for (int part = 0; part < simd::parts<P>; ++part)
      mix(simd::tanh(simd::broadcast<P>(Acc(0.125)) * simd::load<P>(&numbers[i] + part * simd::width<P>)));
  }
  return hash;
}

TYPED_TEST(SimdMath, bits_are_the_same_on_every_target_with_fma) {
  const std::uint64_t hash = fingerprint<TypeParam>();
#if ROVE_HAS_FMA
  EXPECT_EQ(hash,
            (std::is_same_v<simd::lane_t<TypeParam>, float> ? 10028227630574617371U : 17017297126888140053U));
#else
  EXPECT_EQ(hash, fingerprint<simd::lane_t<TypeParam>>());
#endif
}

}  // namespace

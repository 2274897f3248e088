#include "rove/core/scalar.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using Eigen::bfloat16;
using Eigen::half;
using rove::round_to;
using rove::widen;

template <class To, class From>
To cast_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(static_cast<void*>(&to), &from, sizeof to);
  return to;
}

template <class T>
std::uint16_t bits16(T value) {
  return cast_bits<std::uint16_t>(value);
}

template <class T>
T from16(unsigned bits) {
  return cast_bits<T>(static_cast<std::uint16_t>(bits));
}

/// A small binary format, described independently of the library.
struct SmallFormat {
  int fraction_bits, bias;
};
template <class T>
constexpr SmallFormat small_format = std::is_same_v<T, half> ? SmallFormat{10, 15} : SmallFormat{7, 127};

/// The value of a small float's magnitude bits, by ldexp.
double value_of(SmallFormat f, unsigned magnitude) {
  const int exponent = static_cast<int>(magnitude >> f.fraction_bits);
  const int fraction = static_cast<int>(magnitude & ((1U << f.fraction_bits) - 1));
  if (exponent == 2 * f.bias + 1) {
    return fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return std::ldexp(fraction, 1 - f.bias - f.fraction_bits);
  return std::ldexp(fraction + (1 << f.fraction_bits), exponent - f.bias - f.fraction_bits);
}

/// Rounds a double to a small format with integers only: quotient, remainder, ties to even.
unsigned round_by_integers(SmallFormat f, double value) {
  const auto bits = cast_bits<std::uint64_t>(value);
  const unsigned sign = bits >> 63 != 0 ? 0x8000U : 0U;
  const int exponent_field = static_cast<int>(bits >> 52 & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const unsigned infinity = static_cast<unsigned>(2 * f.bias + 1) << f.fraction_bits;
  if (exponent_field == 0x7ff) {
    return sign | infinity | (fraction != 0 ? 1U << (f.fraction_bits - 1) : 0U);
  }
  // |value| = significand · 2^scale
  const std::uint64_t significand = exponent_field == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  const int scale = (exponent_field == 0 ? 1 : exponent_field) - 1075;
  if (significand == 0) return sign;
  int top = 63;
  while (significand >> top == 0) --top;
  const int exponent = top + scale;  // of the leading bit
  const int step = (std::max)(exponent, 1 - f.bias) - f.fraction_bits;
  const int shift = step - scale;
  std::uint64_t count = 0;  // of steps
  if (shift <= 0) {
    count = significand << -shift;
  } else if (shift < 64) {
    count = significand >> shift;
    const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1);
    const std::uint64_t tie = std::uint64_t{1} << (shift - 1);
    if (rest > tie || (rest == tie && count % 2 == 1)) ++count;
  }
  // count steps of 2^step: with the implicit bit's weight taken off the exponent field this is the encoding.
  const int field = step + f.fraction_bits + f.bias;  // 1 for subnormals and the first binade
  const std::uint64_t encoded = (static_cast<std::uint64_t>(field - 1) << f.fraction_bits) + count;
  return sign | (encoded >= infinity ? infinity : static_cast<unsigned>(encoded));
}

bool is_quiet_nan(SmallFormat f, unsigned bits) {
  const unsigned infinity = static_cast<unsigned>(2 * f.bias + 1) << f.fraction_bits;
  return (bits & 0x7fffU) > infinity && (bits >> (f.fraction_bits - 1) & 1U) == 1;
}

template <class T>
class SmallFloat : public testing::Test {};
using SmallFloats = testing::Types<bfloat16, half>;
TYPED_TEST_SUITE(SmallFloat, SmallFloats);

TYPED_TEST(SmallFloat, widens_every_pattern_exactly) {
  constexpr SmallFormat format = small_format<TypeParam>;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const double right = value_of(format, bits & 0x7fffU) * (bits >= 0x8000U ? -1 : 1);
    const float single = widen<float>(from16<TypeParam>(bits));
    const double wide = widen<double>(from16<TypeParam>(bits));
    if (std::isnan(right)) {
      ASSERT_TRUE(std::isnan(single) && std::isnan(wide)) << bits;
      ASSERT_EQ(std::signbit(single), bits >= 0x8000U) << bits;
    } else {
      ASSERT_EQ(cast_bits<std::uint64_t>(static_cast<double>(single)), cast_bits<std::uint64_t>(right))
          << bits;
      ASSERT_EQ(cast_bits<std::uint64_t>(wide), cast_bits<std::uint64_t>(right)) << bits;
    }
  }
}

TYPED_TEST(SmallFloat, every_pattern_returns_from_both_accumulators) {
  constexpr SmallFormat format = small_format<TypeParam>;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto value = from16<TypeParam>(bits);
    const unsigned by_float = bits16(round_to<TypeParam>(widen<float>(value)));
    const unsigned by_double = bits16(round_to<TypeParam>(widen<double>(value)));
    if (std::isnan(widen<float>(value))) {
      ASSERT_TRUE(is_quiet_nan(format, by_float) && is_quiet_nan(format, by_double)) << bits;
      ASSERT_EQ(by_float >> 15, bits >> 15);
    } else {
      ASSERT_EQ(by_float, bits);
      ASSERT_EQ(by_double, bits);
    }
  }
}

TYPED_TEST(SmallFloat, ties_and_their_neighbours) {
  constexpr SmallFormat format = small_format<TypeParam>;
  const unsigned infinity = static_cast<unsigned>(2 * format.bias + 1) << format.fraction_bits;
  for (unsigned bits = 0; bits < infinity; ++bits) {
    const double below = value_of(format, bits);
    const double step =
        bits + 1 < infinity ? value_of(format, bits + 1) - below : below - value_of(format, bits - 1);
    const double tie = below + step / 2;
    const unsigned even = bits + (bits & 1U);
    ASSERT_EQ(bits16(round_to<TypeParam>(tie)), even) << bits;
    ASSERT_EQ(bits16(round_to<TypeParam>(std::nextafter(tie, 0.0))), bits);
    ASSERT_EQ(bits16(round_to<TypeParam>(std::nextafter(tie, 1e300))), bits + 1);
    ASSERT_EQ(bits16(round_to<TypeParam>(-tie)), even | 0x8000U);
    const float single = static_cast<float>(tie);  // exact
    ASSERT_EQ(bits16(round_to<TypeParam>(single)), even);
    ASSERT_EQ(bits16(round_to<TypeParam>(std::nextafter(single, 0.0F))), bits);
    ASSERT_EQ(bits16(round_to<TypeParam>(std::nextafter(single, std::numeric_limits<float>::infinity()))),
              bits + 1);
  }
}

TYPED_TEST(SmallFloat, random_patterns_against_integers) {
  constexpr SmallFormat format = small_format<TypeParam>;
  std::mt19937_64 random(20240607);
  for (int i = 0; i < 2000000; ++i) {
    const std::uint64_t pattern = random();
    const float single = cast_bits<float>(static_cast<std::uint32_t>(pattern));
    const unsigned by_float = bits16(round_to<TypeParam>(single));
    if (!std::isnan(single)) {
      ASSERT_EQ(by_float, round_by_integers(format, static_cast<double>(single))) << single;
    } else {
      ASSERT_TRUE(is_quiet_nan(format, by_float));
    }
    // A double whose exponent is near the format's range, and any double at all.
    const std::uint64_t field = 1023 - 180 + (pattern >> 52) % 360;
    const double near = cast_bits<double>((pattern & ~(std::uint64_t{0x7ff} << 52)) | field << 52);
    ASSERT_EQ(bits16(round_to<TypeParam>(near)), round_by_integers(format, near)) << near;
    const double any = cast_bits<double>(pattern);
    ASSERT_EQ(bits16(round_to<TypeParam>(any)), round_by_integers(format, any)) << any;
  }
}

TYPED_TEST(SmallFloat, loads_and_stores_as_it_widens_and_rounds) {
  TypeParam stored[3];
  rove::store_rounded(stored + 1, 0.1);
  EXPECT_EQ(bits16(stored[1]), bits16(round_to<TypeParam>(0.1)));
  EXPECT_EQ(rove::load_widened<double>(stored + 1), widen<double>(stored[1]));
  EXPECT_EQ(rove::load_widened<float>(stored + 1), widen<float>(stored[1]));
}

TEST(Scalar, golden_roundings) {
  std::ifstream file(ROVE_TEST_DATA "/rope/scalars.json");
  const auto records = nlohmann::json::parse(file);
  ASSERT_EQ(records.size(), 75U);
  const auto hex = [](const nlohmann::json& text) {
    return static_cast<std::uint32_t>(std::stoul(text.get<std::string>(), nullptr, 16));
  };
  for (const auto& record : records) {
    SCOPED_TRACE(record.dump());
    const float value = cast_bits<float>(hex(record["f32_bits"]));
    const unsigned as_bfloat16 = bits16(round_to<bfloat16>(value)), as_half = bits16(round_to<half>(value));
    if (record["nan"].get<bool>()) {
      EXPECT_TRUE(is_quiet_nan(small_format<bfloat16>, as_bfloat16));
      EXPECT_TRUE(is_quiet_nan(small_format<half>, as_half));
      continue;
    }
    EXPECT_EQ(as_bfloat16, hex(record["bf16_bits"]));
    EXPECT_EQ(as_half, hex(record["f16_bits"]));
    // A float is a double: the direct path from double must agree.
    EXPECT_EQ(bits16(round_to<bfloat16>(static_cast<double>(value))), hex(record["bf16_bits"]));
    EXPECT_EQ(bits16(round_to<half>(static_cast<double>(value))), hex(record["f16_bits"]));
  }
}

TEST(Scalar, B68_bfloat16_rounds_up_and_keeps_signalling_nan_a_nan) {
  EXPECT_EQ(widen<double>(round_to<bfloat16>(.2691408770292272F)), .26953125);
  EXPECT_EQ(widen<double>(round_to<bfloat16>(.2691408770292272)), .26953125);
  const unsigned bits = bits16(round_to<bfloat16>(cast_bits<float>(std::uint32_t{0x7F800001})));
  EXPECT_TRUE(is_quiet_nan(small_format<bfloat16>, bits));
  EXPECT_TRUE(
      is_quiet_nan(small_format<half>, bits16(round_to<half>(cast_bits<float>(std::uint32_t{0x7F800001})))));
}

TEST(Scalar, B69_half_keeps_subnormals) {
  EXPECT_EQ(bits16(round_to<half>(0x1p-15F)), 0x0200U);
  EXPECT_EQ(bits16(round_to<half>(0x1p-15)), 0x0200U);
  EXPECT_EQ(widen<float>(from16<half>(0x0200)), 0x1p-15F);
  EXPECT_EQ(widen<float>(from16<half>(0x0001)), 0x1p-24F);
}

TEST(Scalar, doubles_are_rounded_once) {
  EXPECT_EQ(widen<double>(round_to<bfloat16>(1 + 0x1p-8 + 0x1p-40)), 1.0078125);  // through float: 1
  EXPECT_EQ(widen<double>(round_to<bfloat16>(1 + 3 * 0x1p-8 - 0x1p-40)), 1.0078125);
  EXPECT_EQ(widen<double>(round_to<half>(1 + 0x1p-11 + 0x1p-50)), 1 + 0x1p-10);
  EXPECT_EQ(widen<double>(round_to<half>(0x1p-25 + 0x1p-77)), 0x1p-24);         // subnormal
  EXPECT_EQ(widen<double>(round_to<bfloat16>(0x1p-134 + 0x1p-186)), 0x1p-133);  // subnormal
  EXPECT_EQ(widen<double>(round_to<half>(65520 - 0x1p-37)), 65504);             // not infinity
  EXPECT_EQ(bits16(round_to<bfloat16>(-1e300)), 0xff80U);
  EXPECT_EQ(bits16(round_to<half>(-5e-324)), 0x8000U);
}

TEST(Scalar, float_and_double_pass) {
  EXPECT_EQ(round_to<float>(1 + 0x1p-24), 1.0F);
  EXPECT_EQ(round_to<float>(1 + 0x1p-24 + 0x1p-50), 1 + 0x1p-23F);
  EXPECT_EQ(round_to<double>(0.1F), static_cast<double>(0.1F));
  EXPECT_EQ(widen<double>(0.1), 0.1);
  EXPECT_EQ(widen<float>(0.1F), 0.1F);
  float slot = 0;
  rove::store_rounded(&slot, 0.1);
  EXPECT_EQ(rove::load_widened<double>(&slot), static_cast<double>(0.1F));
}

TEST(Scalar, accumulators) {
  static_assert(std::is_same_v<rove::accumulator_t<half, const bfloat16, float>, float>);
  static_assert(std::is_same_v<rove::accumulator_t<half, const double, float>, double>);
  static_assert(rove::Scalar<half> && rove::Scalar<bfloat16> && !rove::Scalar<int> &&
                !rove::Scalar<const float>);
  static_assert(rove::Accumulator<float> && rove::Accumulator<double> && !rove::Accumulator<half>);
}

TEST(Scalar, multiply_add_rounds_as_promised) {
  volatile double a = 1 + 0x1p-30, b = 1 - 0x1p-30, c = -1;
  volatile float x = 1 + 0x1p-13F, y = 1 - 0x1p-13F, z = -1;
#if ROVE_HAS_FMA
  EXPECT_EQ(rove::mul_add<double>(a, b, c), -0x1p-60);
  EXPECT_EQ(rove::mul_add<float>(x, y, z), -0x1p-26F);
#else
  EXPECT_EQ(rove::mul_add<double>(a, b, c), 0);
  EXPECT_EQ(rove::mul_add<float>(x, y, z), 0);
#endif
}

struct ForeignHalf {
  std::uint16_t storage;
};

TEST(Scalar, other_storage_is_seen_in_place) {
  std::uint16_t words[2] = {0x3c00, 0x3f80};
  const std::uint16_t* const read_only = words;
  static_assert(std::is_same_v<decltype(rove::as_half(words)), half*>);
  static_assert(std::is_same_v<decltype(rove::as_half(read_only)), const half*>);
  static_assert(std::is_same_v<decltype(rove::as_bfloat16(read_only)), const bfloat16*>);
  EXPECT_EQ(rove::load_widened<float>(rove::as_half(read_only)), 1.0F);
  EXPECT_EQ(rove::load_widened<float>(rove::as_bfloat16(words) + 1), 1.0F);

  ForeignHalf foreign[2] = {{0}, {0}};
  rove::store_rounded(rove::as_half(foreign) + 1, -2.0F);
  EXPECT_EQ(foreign[1].storage, 0xc000);
  foreign[1].storage = 0x4200;
  EXPECT_EQ(rove::load_widened<float>(rove::as_half(foreign) + 1), 3.0F);

  half own[1] = {from16<half>(0x3c00)};
  EXPECT_EQ(static_cast<void*>(rove::as_half(own)), static_cast<void*>(own));
}

}  // namespace

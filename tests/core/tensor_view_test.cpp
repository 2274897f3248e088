#include "rove/core/tensor_view.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

using rove::Index;

std::vector<float> counting(std::size_t n) {
  std::vector<float> numbers(n);
  for (std::size_t i = 0; i < n; ++i) numbers[i] = static_cast<float>(i);
  return numbers;
}

TEST(TensorView, bhtd_is_batch_heads_tokens_channels) {
  auto numbers = counting(2 * 3 * 4 * 5);
  const auto view = rove::bhtd(numbers.data(), 2, 3, 4, 5);
  float expected = 0;
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 3; ++h)
      for (Index t = 0; t < 4; ++t)
        for (Index c = 0; c < 5; ++c) EXPECT_EQ(view(b, h, t, c), expected++);
  EXPECT_EQ(view.size(), 120);
  EXPECT_EQ(view.row(1, 2, 3), numbers.data() + 115);
}

TEST(TensorView, bthd_is_batch_tokens_heads_channels) {
  auto numbers = counting(2 * 4 * 3 * 5);
  const auto view = rove::bthd(numbers.data(), 2, 4, 3, 5);
  EXPECT_EQ(view.heads(), 3);
  EXPECT_EQ(view.tokens(), 4);
  float expected = 0;
  for (Index b = 0; b < 2; ++b)
    for (Index t = 0; t < 4; ++t)
      for (Index h = 0; h < 3; ++h)
        for (Index c = 0; c < 5; ++c) EXPECT_EQ(view(b, h, t, c), expected++);
}

TEST(TensorView, packed_qkv_finds_its_parts) {
  // 2 batch rows of 3 tokens; 4 query heads, 2 kv heads, d = 3, d_v = 5.
  const Index row = 4 * 3 + 2 * (3 + 5);
  auto numbers = counting(static_cast<std::size_t>(2 * 3 * row));
  const auto [q, k, v] = rove::packed_qkv(numbers.data(), 2, 3, 4, 2, 3, 5);
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 3; ++t) {
      float expected = static_cast<float>((b * 3 + t) * row);
      for (Index h = 0; h < 4; ++h)
        for (Index c = 0; c < 3; ++c) EXPECT_EQ(q(b, h, t, c), expected++);
      for (Index h = 0; h < 2; ++h)
        for (Index c = 0; c < 3; ++c) EXPECT_EQ(k(b, h, t, c), expected++);
      for (Index h = 0; h < 2; ++h)
        for (Index c = 0; c < 5; ++c) EXPECT_EQ(v(b, h, t, c), expected++);
    }
  }
  EXPECT_EQ(rove::packed_qkv(numbers.data(), 2, 3, 2, 2, 4).v.channels(), 4);
}

TEST(TensorView, bht_is_batch_heads_tokens) {
  auto numbers = counting(24);
  const auto rows = rove::bht(numbers.data(), 2, 3, 4);
  EXPECT_EQ(rows(1, 2, 3), 23);
  EXPECT_EQ(rows(1, 0, 2), 14);
  EXPECT_TRUE(rows);
  EXPECT_FALSE(rove::RowView<float>{});
  const rove::RowView<const float> read_only = rows;
  EXPECT_EQ(&read_only(1, 1, 1), &rows(1, 1, 1));
}

TEST(TensorView, writes_through_and_converts_to_const) {
  auto numbers = counting(12);
  const auto view = rove::bhtd(numbers.data(), 1, 1, 3, 4);
  view(0, 0, 2, 1) = -1;
  EXPECT_EQ(numbers[9], -1);
  const rove::TensorView<const float> read_only = view;
  EXPECT_EQ(read_only(0, 0, 2, 1), -1);
  static_assert(std::is_convertible_v<rove::TensorView<float>, rove::TensorView<const float>>);
  static_assert(!std::is_convertible_v<rove::TensorView<const float>, rove::TensorView<float>>);
  static_assert(std::is_same_v<rove::TensorView<const float>::value_type, float>);
}

TEST(TensorView, is_a_plain_value_that_may_cross_translation_units) {
  static_assert(std::is_aggregate_v<rove::TensorView<float>> && std::is_aggregate_v<rove::RowView<float>>);
  static_assert(std::is_trivially_copyable_v<rove::TensorView<float>> &&
                std::is_trivially_copyable_v<rove::RowView<float>> &&
                std::is_trivially_copyable_v<rove::IntegerSpan>);
  // No fixed-size vectors inside, whose alignment would change with the instruction set.
  static_assert(alignof(rove::TensorView<float>) == alignof(void*) || alignof(rove::TensorView<float>) == 8);
}

TEST(TensorView, B27_B28_channel_stride_other_than_one_reads_the_same_numbers) {
  const auto numbers = counting(4 * 6);
  const auto rows = rove::bhtd(numbers.data(), 1, 1, 4, 6);
  // The transpose, stored; seen through swapped strides it is `rows` again.
  std::vector<float> transposed(24);
  for (Index t = 0; t < 4; ++t)
    for (Index c = 0; c < 6; ++c) transposed[static_cast<std::size_t>(c * 4 + t)] = rows(0, 0, t, c);
  const rove::TensorView<const float> view{transposed.data(), {1, 1, 4, 6}, {24, 24, 1, 4}};
  EXPECT_EQ(view.channel_stride(), 4);
  for (Index t = 0; t < 4; ++t)
    for (Index c = 0; c < 6; ++c) EXPECT_EQ(view(0, 0, t, c), rows(0, 0, t, c));
}

TEST(TensorView, zero_and_negative_strides) {
  const auto numbers = counting(6);
  const rove::TensorView<const float> shared{numbers.data(), {5, 7, 2, 3}, {0, 0, 3, 1}};
  EXPECT_EQ(shared(4, 6, 1, 2), 5);
  const rove::TensorView<const float> backwards{numbers.data() + 5, {1, 1, 2, 3}, {0, 0, -3, -1}};
  for (Index t = 0; t < 2; ++t)
    for (Index c = 0; c < 3; ++c) EXPECT_EQ(backwards(0, 0, t, c), static_cast<float>(5 - 3 * t - c));
}

TEST(TensorView, B75_offsets_are_computed_in_64_bits) {
  // Addresses only, as distances from a base that is never read: a product of 32-bit numbers would wrap.
  const std::uintptr_t base = std::uintptr_t{1} << 40;
  const auto* data = reinterpret_cast<const float*>(base);
  const auto distance = [&](const float* element) {
    return static_cast<Index>((reinterpret_cast<std::uintptr_t>(element) - base) / sizeof(float));
  };
  const Index tokens = 131072, channels = 256, heads = 128;
  const auto view = rove::bhtd(data, 2, heads, tokens, channels);
  EXPECT_EQ(view.stride[0], Index{4294967296});
  EXPECT_EQ(distance(view.row(1, 127, 131071)), Index{2} * heads * tokens * channels - channels);
  EXPECT_EQ(distance(&view(0, 64, 5, 7)), Index{64} * tokens * channels + 5 * channels + 7);
  EXPECT_EQ(view.size(), Index{8589934592});
  EXPECT_EQ(distance(view.slice(1, 100, 2).row(0, 1, 0)), Index{101} * tokens * channels);

  const rove::TensorView<const float> wide{data, {3, 1, 3, 3}, {1, 1, Index{1} << 31, (Index{1} << 31) + 1}};
  EXPECT_EQ(distance(&wide(0, 0, 2, 2)), (Index{1} << 33) + 2);
}

TEST(TensorView, slice_shares_storage) {
  auto numbers = counting(24);
  const auto view = rove::bhtd(numbers.data(), 1, 2, 3, 4);
  const auto part = view.slice(2, 1, 2).slice(3, 2, 2);
  EXPECT_EQ(part.tokens(), 2);
  EXPECT_EQ(part.channels(), 2);
  EXPECT_EQ(&part(0, 1, 1, 1), &view(0, 1, 2, 3));
}

TEST(TensorView, empty_whichever_extent_is_zero) {
  float x = 0;
  EXPECT_FALSE(rove::bhtd(&x, 1, 1, 1, 1).empty());
  EXPECT_TRUE(rove::bhtd(&x, 0, 1, 1, 1).empty());
  EXPECT_TRUE(rove::bhtd(&x, 1, 0, 1, 1).empty());
  EXPECT_TRUE(rove::bhtd(&x, 1, 1, 0, 1).empty());
  EXPECT_TRUE(rove::bhtd(&x, 1, 1, 1, 0).empty());
}

TEST(TensorView, sixteen_bit_storage_of_other_libraries) {
  std::vector<std::uint16_t> bits{0x3c00, 0x4000, 0xc000, 0x0001};  // as half 1, 2, -2, 2^-24
  const auto halves = rove::as_half(rove::bhtd(bits.data(), 1, 1, 2, 2));
  static_assert(std::is_same_v<decltype(halves), const rove::TensorView<Eigen::half>>);
  EXPECT_EQ(halves.tokens(), 2);
  EXPECT_EQ(halves.stride[2], 2);
  EXPECT_EQ(rove::load_widened<float>(&halves(0, 0, 1, 0)), -2.0F);
  EXPECT_EQ(rove::load_widened<float>(&halves(0, 0, 1, 1)), 0x1p-24F);

  const std::vector<std::uint16_t> brain{0x3f80, 0xc040, 0x0001, 0x7f80};
  const auto brains = rove::as_bfloat16(rove::bthd(brain.data(), 1, 1, 2, 2));
  static_assert(std::is_same_v<decltype(brains), const rove::TensorView<const Eigen::bfloat16>>);
  EXPECT_EQ(brains.heads(), 2);
  EXPECT_EQ(rove::load_widened<float>(&brains(0, 0, 0, 1)), -3.0F);
  EXPECT_EQ(rove::load_widened<float>(&brains(0, 1, 0, 1)), std::numeric_limits<float>::infinity());
}

TEST(IntegerSpan, holds_32_and_64_bit_integers) {
  const std::vector<std::int32_t> narrow{-3, 2147483647};
  const std::array<std::int64_t, 2> wide{-3, Index{1} << 40};
  const rove::IntegerSpan a(narrow), b(wide), c(narrow.data(), 1), d(wide.data() + 1, 1);
  EXPECT_EQ(a.size(), 2);
  EXPECT_EQ(a[0], -3);
  EXPECT_EQ(a[1], 2147483647);
  EXPECT_EQ(b[1], Index{1} << 40);
  EXPECT_EQ(c.size(), 1);
  EXPECT_EQ(d[0], Index{1} << 40);
  EXPECT_FALSE(rove::IntegerSpan{});
  EXPECT_TRUE(a);
  static_assert(!std::is_constructible_v<rove::IntegerSpan, std::vector<unsigned>>);
  static_assert(!std::is_constructible_v<rove::IntegerSpan, std::vector<short>>);
  static_assert(!std::is_constructible_v<rove::IntegerSpan, std::vector<float>>);
}

}  // namespace

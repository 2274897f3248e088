#include "rove/attention/masks_boolean.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "rove/attention/mask.hpp"
#include "rove/core/tensor_view.hpp"
#include "support/error_of.hpp"

namespace {

using rove::Index;
using rove::Site;
using test::error_of;

constexpr rove::AttentionShape shape{.batch = 2, .heads = 3, .kv_heads = 1, .q_len = 13, .kv_len = 70};

TEST(BooleanMask, N06_a_boolean_mask_goes_by_local_row_and_slot) {
  // One query, far along: its mask has one row.
  const bool row[4] = {true, false, true, true};
  const auto mask = rove::boolean_mask(rove::bhtd(row, 1, 1, 1, 4));
  for (Index slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(mask.visible({.row = 0, .slot = slot, .query = 1000, .key = 5000 + slot}), row[slot]) << slot;
  }
  const unsigned char rows[8] = {1, 0, 0, 1, 0, 0, 7, 0};
  const auto two = rove::boolean_mask(rove::bhtd(rows, 1, 1, 2, 4));
  EXPECT_TRUE(two.visible({.row = 1, .slot = 2, .query = 0, .key = 0}));
  EXPECT_EQ(rove::mask_bits(two, {.row = 0, .slot = 0, .query = 1, .key = 40}, 4), 0b1001U);
}

TEST(BooleanMask, any_strides) {
  // [1, 2, 3, 4] stored backwards in slots, heads innermost.
  unsigned char storage[24];
  for (int i = 0; i < 24; ++i) storage[i] = static_cast<unsigned char>(i % 5 < 2);
  const rove::TensorView<const unsigned char> view{storage + 6, {1, 2, 3, 4}, {24, 1, 8, -2}};
  const auto mask = rove::boolean_mask(view);
  for (Site s; s.head < 2; ++s.head) {
    for (s.row = 0; s.row < 3; ++s.row) {
      for (s.slot = 0; s.slot < 4; ++s.slot) {
        const Index at = 6 + s.head + 8 * s.row - 2 * s.slot;
        ASSERT_EQ(mask.visible(s), at % 5 < 2);
      }
    }
  }
}

TEST(BooleanMask, bits_by_any_stride_start_and_count) {
  std::mt19937 random(19);
  for (const Index stride : {1, 2, -1, -3}) {
    // Values from 0 to 255, most of them not 0; no element more than there are slots.
    std::vector<unsigned char> of(static_cast<std::size_t>(69 * std::abs(stride) + 1));
    for (unsigned char& value : of) {
      value = static_cast<unsigned char>(random() % 3 == 0 ? 0 : random() % 254 + 2);
    }
    const auto mask = rove::boolean_mask(rove::TensorView<const unsigned char>{
        of.data() + (stride < 0 ? of.size() - 1 : 0), {1, 1, 1, 70}, {0, 0, 0, stride}});
    for (Index first = 0; first < 70; ++first) {
      for (int count = 0; count <= 64 && first + count <= 70; ++count) {
        std::uint64_t expected = 0;
        for (int i = 0; i < count; ++i) {
          expected |= std::uint64_t{mask.visible(Site{.slot = first + i})} << i;
        }
        ASSERT_EQ(rove::mask_bits(mask, Site{.slot = first}, count), expected)
            << "stride " << stride << ", " << count << " from " << first;
      }
      if (first < 69) mask.prefetch(Site{.slot = first}, 70 - first);
    }
  }
}

TEST(BooleanMask, mistakes_are_named_with_their_numbers) {
  const std::vector<unsigned char> elements(2 * 3 * 13 * 70);
  const auto error = [&](Index b, Index h, Index q, Index k) {
    return error_of(
        [&] { rove::mask_check(rove::boolean_mask(rove::bhtd(elements.data(), b, h, q, k)), shape); });
  };
  EXPECT_EQ(error(1, 1, 1, 1), "(no error)");
  EXPECT_EQ(error(2, 3, 13, 70), "(no error)");
  EXPECT_EQ(error(3, 3, 13, 70), "boolean_mask: extent 0 (batch) is 3, must be 2 or 1");
  EXPECT_EQ(error(2, 2, 13, 70), "boolean_mask: extent 1 (heads) is 2, must be 3 or 1");
  EXPECT_EQ(error(2, 3, 70, 70), "boolean_mask: extent 2 (q_len) is 70, must be 13 or 1");
  EXPECT_EQ(error(2, 3, 13, 13), "boolean_mask: extent 3 (kv_len) is 13, must be 70 or 1");
  const rove::TensorView<const bool> null = rove::bhtd<const bool>(nullptr, 1, 1, 1, 70);
  EXPECT_EQ(error_of([&] { rove::mask_check(rove::boolean_mask(null), shape); }),
            "boolean_mask: data is null");
}

}  // namespace

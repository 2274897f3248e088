// A ring: slots that are kept, wherever the oldest lies.
#include "rove/attention/key_values/ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/error_of.hpp"
#include "support/key_values.hpp"

namespace rove_test {
namespace {

using test::error_of;

TEST(RingKeyValues, wraps_at_every_offset) {
  for (Index capacity = 1; capacity <= 7; ++capacity) {
    for (Index n = 0; n <= 4 * capacity + 1; ++n) {
      SCOPED_TRACE("capacity " + std::to_string(capacity) + " appended " + std::to_string(n));
      const Layout layout = layouts[static_cast<std::size_t>(n) % 5];
      auto k = storage<float>(2, 2, capacity, 3, layout);
      auto v = storage<Eigen::half>(2, 2, capacity, 2, Layout::bthd);
      for (Index b = 0; b < 2; ++b) append(k.view, v.view, b, n);
      const Index first = (std::max)(Index{0}, n - capacity);
      expect_model(rove::ring_key_values(read_only(k), v.view, n), {{{first, n}, {first, n}}, 2, 3, 2, n});
    }
  }
}

TEST(RingKeyValues, runs_end_at_the_wrap) {
  auto k = storage<float>(1, 1, 8, 1, Layout::bhtd);
  append(k.view, k.view, 0, 19);
  const auto kv = rove::ring_key_values(k.view, k.view, 19);
  // Slots 11 … 18 in places 3 … 7, 0 … 2.
  EXPECT_EQ(kv.keys(0, 0, 11).count, 5);
  EXPECT_EQ(kv.keys(0, 0, 11).data, k.memory.data() + 3);
  EXPECT_EQ(kv.values(0, 0, 16).count, 3);
  EXPECT_EQ(kv.values(0, 0, 16).data, k.memory.data());
  EXPECT_EQ(kv.indices(0, 11).count, 8);
}

TEST(RingKeyValues, batch_rows_of_different_lengths) {
  const std::vector<std::int32_t> lengths{0, 3, 5, 6, 13};
  auto k = storage<double>(5, 1, 5, 3, Layout::bhtd);
  auto v = storage<double>(5, 1, 5, 3, Layout::backwards);
  for (Index b = 0; b < 5; ++b) append(k.view, v.view, b, lengths[static_cast<std::size_t>(b)]);
  expect_model(rove::ring_key_values(k.view, v.view, lengths),
               {{{0, 0}, {0, 3}, {0, 5}, {1, 6}, {8, 13}}, 1, 3, 3, 13});
}

TEST(RingKeyValues, lengths_are_read_anew) {
  std::vector<std::int64_t> lengths{2};
  auto k = storage<float>(1, 1, 4, 1, Layout::bhtd);
  const auto kv = rove::ring_key_values(k.view, k.view, lengths);
  EXPECT_EQ(kv.length(), 2);
  lengths[0] = 9;
  EXPECT_EQ(kv.length(), 9);
  EXPECT_EQ(kv.slots(0).first, 5);
}

TEST(RingKeyValues, messages) {
  float x[64] = {};
  const auto tensor = [&](Index b, Index h, Index n) { return rove::bhtd(x, b, h, n, 2); };
  const std::vector<std::int64_t> one{3}, negative{3, -1};
  EXPECT_EQ(error_of([&] { rove::ring_key_values(tensor(1, 2, 3), tensor(1, 2, 5), 1); }),
            "k has 3 tokens, v has 5");
  EXPECT_EQ(error_of([&] { rove::ring_key_values(tensor(1, 2, 3), tensor(1, 2, 3), -4); }),
            "appended must not be negative, got -4");
  EXPECT_EQ(error_of([&] { rove::ring_key_values(tensor(2, 2, 3), tensor(2, 2, 3), one); }),
            "appended has 1 entries for 2 batch rows");
  EXPECT_EQ(error_of([&] { rove::ring_key_values(tensor(2, 2, 3), tensor(2, 2, 3), negative); }),
            "appended[1] must not be negative, got -1");
  EXPECT_EQ(error_of([&] { rove::ring_key_values(tensor(1, 2, 0), tensor(1, 2, 0), 3); }),
            "the ring has no room, but 3 keys were appended");
  expect_model(rove::ring_key_values(tensor(1, 2, 0), tensor(1, 2, 0), 0), {{{0, 0}}, 2, 2, 2, 0});
}

}  // namespace
}  // namespace rove_test

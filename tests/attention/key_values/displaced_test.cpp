// Indices that moved, and nothing else.
#include "rove/attention/key_values/displaced.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/key_values/tensor.hpp"
#include "support/error_of.hpp"
#include "support/key_values.hpp"

namespace rove_test {
namespace {

using test::error_of;

TEST(DisplacedKeyValues, moves_indices_and_nothing_else) {
  auto k = storage<float>(2, 1, 5, 2, Layout::bhtd);
  for (Index b = 0; b < 2; ++b) append(k.view, k.view, b, 13);
  Expected expected{{{8, 13}, {8, 13}}, 1, 2, 2, 13};
  expected.value = appended_value;
  expected.key = appended_value;  // k and v share memory: the values were written last
  const auto ring = rove::ring_key_values(k.view, k.view, 13);
  expect_model(ring, expected);
  expected.index = [](Index, Index slot) { return slot - 1000; };
  expect_model(rove::displaced(ring, -1000), expected);
  const std::vector<std::int64_t> by{7, Index{1} << 40};
  expected.index = [&](Index b, Index slot) { return slot + by[static_cast<std::size_t>(b)]; };
  expect_model(rove::displaced(ring, by), expected);
  expected.index = [&](Index b, Index slot) { return slot + 5 + by[static_cast<std::size_t>(b)]; };
  expect_model(rove::displaced(rove::displaced(ring, by), 5), expected);
}

TEST(DisplacedKeyValues, spans_that_moved) {
  auto k = storage<float>(1, 1, 10, 1, Layout::bhtd);
  for (Index s = 0; s < 10; ++s) k.view(0, 0, s, 0) = static_cast<float>(s);
  const auto kv = rove::key_values(k.view, k.view);
  const std::vector<rove::IndexShift> shifts{{3, 100}, {4, 100}, {7, 250}};
  const auto moved = rove::displaced(kv, std::span<const rove::IndexShift>(shifts));
  Expected expected{{{0, 10}}, 1, 1, 1, 10};
  expected.key = expected.value = [](Index, Index, Index slot, Index) { return static_cast<double>(slot); };
  expected.index = [](Index, Index slot) { return slot < 3 ? slot : slot < 7 ? slot + 100 : slot + 250; };
  expect_model(moved, expected);
  EXPECT_EQ(moved.indices(0, 0).count, 3);
  EXPECT_EQ(moved.indices(0, 5).count, 2);
  EXPECT_EQ(moved.indices(0, 7).count, 3);
  const std::vector<rove::IndexShift> all{{0, -50}};
  EXPECT_EQ(rove::displaced(kv, std::span<const rove::IndexShift>(all)).indices(0, 4).first, -46);
}

TEST(DisplacedKeyValues, messages) {
  float x[8] = {};
  const auto kv = rove::key_values(rove::bhtd(x, 1, 1, 4, 2), rove::bhtd(x, 1, 1, 4, 2));
  const std::vector<std::int32_t> two{1, 2};
  EXPECT_EQ(error_of([&] { rove::displaced(kv, two); }), "displacements: 2 entries for 1 batch rows");
  const auto with = [&](std::vector<rove::IndexShift> shifts) {
    return error_of([&] { rove::displaced(kv, std::span<const rove::IndexShift>(shifts)); });
  };
  EXPECT_EQ(with({{-1, 5}}), "shifts[0] begins at slot -1");
  EXPECT_EQ(with({{2, 5}, {2, 6}}), "shifts[1] begins at slot 2, which is not after the one before it, at 2");
  EXPECT_EQ(with({{0, 5}, {2, 4}}), "shifts[1] moves indices by 4 after 5: indices must rise with the slot");
  EXPECT_EQ(with({{2, -1}}), "shifts[0] moves indices by -1 after 0: indices must rise with the slot");
  EXPECT_EQ(with({}), "(no error)");
}

}  // namespace
}  // namespace rove_test

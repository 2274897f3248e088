// Rows of 8-bit integers, a scale to each.
#include "rove/attention/key_values/int8.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/error_of.hpp"
#include "support/key_values.hpp"

namespace rove_test {
namespace {

using test::error_of;

TEST(Int8KeyValues, each_row_has_its_own_scale) {
  for (const Layout layout : layouts) {
    SCOPED_TRACE("layout " + std::to_string(static_cast<int>(layout)));
    auto k = storage<std::int8_t>(2, 3, 4, 5, layout);
    auto v = storage<std::int8_t>(2, 3, 4, 6, Layout::bthd);
    std::vector<float> k_scales(24), v_scales(24);
    const auto k_scale = rove::bht(k_scales.data(), 2, 3, 4);
    const rove::RowView<float> v_scale{v_scales.data() + 23, {2, 3, 4}, {-12, -1, -3}};  // any order
    const auto scale_of = [](Index b, Index h, Index s, float unit) {
      return unit * static_cast<float>(1 + s + 4 * h + 12 * b);
    };
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 3; ++h)
        for (Index s = 0; s < 4; ++s) {
          k_scale(b, h, s) = scale_of(b, h, s, 0.125F);
          v_scale(b, h, s) = scale_of(b, h, s, 0.1F);
          for (Index c = 0; c < 5; ++c) k.view(b, h, s, c) = as<std::int8_t>(appended_key(b, h, s, c));
          for (Index c = 0; c < 6; ++c) v.view(b, h, s, c) = as<std::int8_t>(appended_value(b, h, s, c));
        }
    Expected expected{{{0, 4}, {0, 4}}, 3, 5, 6, 4};
    expected.key = [&](Index b, Index h, Index s, Index c) {
      return static_cast<double>(scale_of(b, h, s, 0.125F)) * appended_key(b, h, s, c);
    };
    expected.value = [&](Index b, Index h, Index s, Index c) {
      return static_cast<double>(scale_of(b, h, s, 0.1F)) * appended_value(b, h, s, c);
    };
    expect_model(rove::int8_key_values(read_only(k), k_scale, v.view, v_scale), expected);
  }
}

TEST(Int8KeyValues, one_scale_for_all_rows) {
  const float half = 0.5F;
  auto k = storage<std::int8_t>(1, 2, 3, 2, Layout::bhtd);
  for (Index h = 0; h < 2; ++h)
    for (Index s = 0; s < 3; ++s)
      for (Index c = 0; c < 2; ++c) k.view(0, h, s, c) = as<std::int8_t>(appended_key(0, h, s, c));
  const rove::RowView<const float> scale{&half, {1, 2, 3}, {0, 0, 0}};
  Expected expected{{{0, 3}}, 2, 2, 2, 3};
  expected.key =
      expected.value = [](Index b, Index h, Index s, Index c) { return 0.5 * appended_key(b, h, s, c); };
  expect_model(rove::int8_key_values(read_only(k), scale, read_only(k), scale), expected);
}

TEST(Int8KeyValues, messages) {
  std::int8_t q[64] = {};
  float x[64] = {};
  const auto rows = [&](Index n) { return rove::TensorView<const std::int8_t>(rove::bhtd(q, 1, 2, n, 2)); };
  const auto scales = [&](Index b, Index h, Index n) {
    return rove::RowView<const float>(rove::bht(x, b, h, n));
  };
  EXPECT_EQ(error_of([&] { rove::int8_key_values(rows(3), scales(1, 2, 3), rows(4), scales(1, 2, 4)); }),
            "k has 3 tokens, v has 4");
  EXPECT_EQ(error_of([&] { rove::int8_key_values(rows(3), scales(1, 2, 4), rows(3), scales(1, 2, 3)); }),
            "k_scale has 4 tokens, the rows it scales have 3");
  EXPECT_EQ(error_of([&] { rove::int8_key_values(rows(3), scales(1, 2, 3), rows(3), scales(1, 1, 3)); }),
            "v_scale has 1 heads, the rows it scales have 2");
  EXPECT_EQ(error_of([&] { rove::int8_key_values(rows(3), scales(2, 2, 3), rows(3), scales(1, 2, 3)); }),
            "k_scale has 2 batch rows, the rows it scales have 1");
  const rove::RowView<const float> null{nullptr, {1, 2, 3}, {6, 3, 1}};
  EXPECT_EQ(error_of([&] { rove::int8_key_values(rows(3), null, rows(3), scales(1, 2, 3)); }),
            "k_scale is null");
  const rove::RowView<const float> nothing{nullptr, {1, 2, 0}, {}};
  EXPECT_EQ(error_of([&] { rove::int8_key_values(rows(0), nothing, rows(0), nothing); }), "(no error)");
}

}  // namespace
}  // namespace rove_test

// Two tensors as keys and values, in every storage and layout.
#include "rove/attention/key_values/tensor.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "support/error_of.hpp"
#include "support/key_values.hpp"

namespace rove_test {
namespace {

using test::error_of;

template <class K, class V>
void two_tensors() {
  for (const Layout layout : layouts) {
    SCOPED_TRACE("layout " + std::to_string(static_cast<int>(layout)));
    auto k = storage<K>(2, 3, 5, 4, layout);
    auto v = storage<V>(2, 3, 5, 7, layouts[(static_cast<std::size_t>(layout) + 2) % 5]);
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 3; ++h)
        for (Index s = 0; s < 5; ++s) {
          for (Index c = 0; c < 4; ++c) k.view(b, h, s, c) = as<K>(appended_key(b, h, s, c));
          for (Index c = 0; c < 7; ++c) v.view(b, h, s, c) = as<V>(appended_value(b, h, s, c));
        }
    expect_model(rove::key_values(read_only(k), v.view), {{{0, 5}, {0, 5}}, 3, 4, 7, 5});
  }
}

TEST(TensorKeyValues, holds_every_token_of_every_storage_and_layout) {
  two_tensors<float, float>();
  two_tensors<double, float>();
  two_tensors<Eigen::half, Eigen::bfloat16>();
  two_tensors<Eigen::bfloat16, double>();
}

TEST(TensorKeyValues, B27_B28_only_v_a_transposed_view) {
  auto k = storage<float>(1, 2, 6, 4, Layout::bhtd);
  auto v = storage<float>(1, 2, 6, 4, Layout::transposed);
  for (Index h = 0; h < 2; ++h)
    for (Index s = 0; s < 6; ++s)
      for (Index c = 0; c < 4; ++c) {
        k.view(0, h, s, c) = static_cast<float>(appended_key(0, h, s, c));
        v.view(0, h, s, c) = static_cast<float>(appended_value(0, h, s, c));
      }
  const auto kv = rove::key_values(k.view, v.view);
  EXPECT_EQ(kv.keys(0, 1, 0).channel_stride, 1);
  EXPECT_EQ(kv.values(0, 1, 0).channel_stride, 6);
  EXPECT_EQ(kv.values(0, 1, 0).row_stride, 1);
  expect_model(kv, {{{0, 6}}, 2, 4, 4, 6});
}

TEST(TensorKeyValues, one_sequence_shared_by_all_batch_rows) {
  auto k = storage<float>(1, 1, 3, 2, Layout::bhtd);
  for (Index s = 0; s < 3; ++s)
    for (Index c = 0; c < 2; ++c) k.view(0, 0, s, c) = static_cast<float>(appended_key(0, 0, s, c));
  auto shared = k.view;
  shared.extent[0] = 4;
  shared.stride[0] = 0;
  Expected expected{{{0, 3}, {0, 3}, {0, 3}, {0, 3}}, 1, 2, 2, 3};
  expected.key = expected.value = [](Index, Index h, Index s, Index c) { return appended_key(0, h, s, c); };
  expect_model(rove::key_values(shared, shared), expected);
}

TEST(TensorKeyValues, B23_shapes_of_nothing) {
  rove::TensorView<const float> none{nullptr, {2, 3, 0, 4}, {0, 0, 4, 1}};
  expect_model(rove::key_values(none, none), {{{0, 0}, {0, 0}}, 3, 4, 4, 0});
  none.extent[0] = 0, none.extent[2] = 5;
  expect_model(rove::key_values(none, none), {{}, 3, 4, 4, 5});
  none.extent[0] = 1, none.extent[1] = 0;
  expect_model(rove::key_values(none, none), {{{0, 5}}, 0, 4, 4, 5});
}

TEST(TensorKeyValues, B75_rows_beyond_32_bits) {
  const std::uintptr_t base = std::uintptr_t{1} << 42;
  const auto* data = reinterpret_cast<const std::int8_t*>(base);
  const rove::TensorView<const std::int8_t> view{data, {2, 3, 70000, 1}, {1, 1, 70000, 1}};
  const auto run = rove::key_values(view, view).keys(0, 0, 60000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(run.data) - base, std::uintptr_t{60000} * 70000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(run.row(9999)) - base, std::uintptr_t{69999} * 70000);
}

TEST(TensorKeyValues, messages) {
  float x[64] = {};
  const auto tensor = [&](Index b, Index h, Index n) { return rove::bhtd(x, b, h, n, 2); };
  EXPECT_EQ(error_of([&] { rove::key_values(tensor(2, 1, 3), tensor(1, 1, 3)); }),
            "k has 2 batch rows, v has 1");
  EXPECT_EQ(error_of([&] { rove::key_values(tensor(1, 2, 3), tensor(1, 4, 3)); }), "k has 2 heads, v has 4");
  EXPECT_EQ(error_of([&] { rove::key_values(tensor(1, 2, 3), tensor(1, 2, 5)); }), "k has 3 tokens, v has 5");
  EXPECT_EQ(error_of([&] { rove::key_values(tensor(1, 2, -3), tensor(1, 2, -3)); }),
            "k: tokens must not be negative, got -3");
}

}  // namespace
}  // namespace rove_test

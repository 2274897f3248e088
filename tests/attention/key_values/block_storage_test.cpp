// A storage of one's own: blocks of channels with their scale inside, in every cache.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rove/attention/key_values.hpp"
#include "rove/attention/key_values/paged.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/key_values/tensor.hpp"
#include "rove/core/scalar.hpp"
#include "support/key_values.hpp"

namespace rove_test {

/// ggml's q8_0: 32 channels, their factor inside.
struct Q8Block {
  std::uint16_t scale;  ///< binary16
  std::int8_t q[32];
};

}  // namespace rove_test

template <>
inline constexpr rove::Index rove::channels_per_element<rove_test::Q8Block> = 32;

template <>
struct rove::RowCodec<rove_test::Q8Block> {
  template <rove::Accumulator Acc>
  static void read(const rove::RowRun<rove_test::Q8Block>& run, rove::Index row, std::span<Acc> out) {
    for (std::size_t c = 0; c < out.size(); ++c) {
      const rove_test::Q8Block& block = run.row(row)[static_cast<rove::Index>(c / 32) * run.channel_stride];
      const Acc scale = rove::load_widened<Acc>(rove::as_half(&block.scale));
      out[c] = scale * static_cast<Acc>(block.q[c % 32]);
    }
  }
};

namespace rove_test {
namespace {

static_assert(rove::KeyValues<rove::TensorKeyValues<Q8Block, Q8Block>>);

/// Key b, h, slot as two q8_0 blocks, with a factor that differs from block to block.
void store_blocks(Q8Block* blocks, Index stride, Index b, Index h, Index slot) {
  for (Index i = 0; i < 2; ++i) {
    Q8Block& block = blocks[i * stride];
    block.scale = i == 0 ? 0x3800 : 0x4400;  // 1/2 and 4
    for (Index c = 0; c < 32; ++c) block.q[c] = as<std::int8_t>(appended_key(b, h, slot, 32 * i + c));
  }
}
double block_number(Index b, Index h, Index slot, Index c) {
  return (c < 32 ? 0.5 : 4.0) * appended_key(b, h, slot, c);
}

TEST(BlockStorage, q8_0_rows_in_tensors_rings_and_pages) {
  for (const Layout layout : {Layout::bhtd, Layout::transposed}) {
    auto k = storage<Q8Block>(1, 2, 5, 2, layout);
    for (Index h = 0; h < 2; ++h)
      for (Index s = 0; s < 5; ++s) store_blocks(k.view.row(0, h, s), k.view.stride[3], 0, h, s);
    Expected expected{{{0, 5}}, 2, 64, 64, 5};
    expected.key = expected.value = block_number;
    expect_model(rove::key_values(k.view, k.view), expected);

    for (Index h = 0; h < 2; ++h)
      for (Index s = 5; s < 7; ++s) store_blocks(k.view.row(0, h, s - 5), k.view.stride[3], 0, h, s);
    expected.held = {{2, 7}};
    expected.length = 7;
    expect_model(rove::ring_key_values(k.view, k.view, 7), expected);
  }
  auto pool = storage<Q8Block>(2, 1, 4, 2, Layout::bthd);
  const std::vector<std::int32_t> entries{1, 0}, lengths{6};
  for (Index s = 0; s < 6; ++s) store_blocks(pool.view.row(s < 4 ? 1 : 0, 0, s % 4), 1, 0, 0, s);
  Expected expected{{{0, 6}}, 1, 64, 64, 6};
  expected.key = expected.value = block_number;
  expect_model(rove::paged_key_values(pool.view, pool.view, rove::page_table(entries, 1), lengths), expected);
}

}  // namespace
}  // namespace rove_test

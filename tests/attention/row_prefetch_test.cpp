// Which lines of memory are asked for, and in which order.
#include "rove/attention/row_prefetch.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "rove/core/scalar.hpp"

/// 32 channels in 34 bytes, as ggml's q8_0.
struct q8_0_like {
  std::uint16_t scale;
  std::int8_t quants[32];
};
template <>
inline constexpr rove::Index rove::channels_per_element<q8_0_like> = 32;

namespace {

using rove::Index;
using rove::RowRun;
using rove::detail::RowsAhead;

template <class Storage>
std::vector<Index> lines(const std::vector<Storage>& memory, RowRun<Storage> run, Index count,
                         Index channels) {
  RowsAhead rows(run, count, channels);
  std::vector<Index> offsets;
  while (const char* const line = rows.next()) {
    offsets.push_back(line - reinterpret_cast<const char*>(memory.data()));
    if (offsets.size() > 1000) break;
  }
  EXPECT_EQ(rows.next(), nullptr);
  return offsets;
}

TEST(RowsAhead, asks_for_every_line_of_a_row_before_the_next_row) {
  const std::vector<float> memory(4096);
  const auto of = [&](Index channels, Index stride, Index rows, Index count) {
    return lines(memory, RowRun<float>{memory.data(), rows, stride, 1}, count, channels);
  };
  EXPECT_EQ(of(32, 32, 9, 3), (std::vector<Index>{0, 64, 128, 192, 256, 320}));
  EXPECT_EQ(of(32, 100, 9, 2), (std::vector<Index>{0, 64, 400, 464}));
  // A row that ends within a line, one that is shorter than a line, and rows of one number.
  EXPECT_EQ(of(20, 20, 9, 3), (std::vector<Index>{0, 64, 80, 144, 160, 224}));
  EXPECT_EQ(of(3, 64, 9, 2), (std::vector<Index>{0, 256}));
  EXPECT_EQ(of(1, 1, 9, 2), (std::vector<Index>{0, 4}));
}

TEST(RowsAhead, goes_as_far_as_the_run_and_where_its_stride_goes) {
  const std::vector<float> memory(4096);
  EXPECT_EQ(lines(memory, RowRun<float>{memory.data(), 1, 32, 1}, 16, 32), (std::vector<Index>{0, 64}));
  EXPECT_EQ(lines(memory, RowRun<float>{}, 16, 32), std::vector<Index>{});
  EXPECT_EQ(lines(memory, RowRun<float>{memory.data() + 256, 9, -128, 1}, 2, 32),
            (std::vector<Index>{1024, 1088, 512, 576}));
  EXPECT_EQ(lines(memory, RowRun<float>{memory.data(), 9, 0, 1}, 2, 16), (std::vector<Index>{0, 0}));
}

TEST(RowsAhead, one_row_has_any_stride) {
  const std::vector<float> memory(64);
  constexpr Index far = std::numeric_limits<Index>::min() / 2;
  EXPECT_EQ(lines(memory, RowRun<float>{memory.data(), 1, far, 1}, 16, 32), (std::vector<Index>{0, 64}));
}

TEST(RowsAhead, leaves_alone_what_does_not_lie_side_by_side) {
  const std::vector<float> memory(4096);
  EXPECT_EQ(lines(memory, RowRun<float>{memory.data(), 9, 1, 16}, 3, 32), std::vector<Index>{});
}

TEST(RowsAhead, counts_in_the_bytes_of_the_storage) {
  const std::vector<Eigen::half> halves(1024);
  EXPECT_EQ(lines(halves, RowRun<Eigen::half>{halves.data(), 9, 64, 1}, 2, 64),
            (std::vector<Index>{0, 64, 128, 192}));
  const std::vector<double> doubles(1024);
  EXPECT_EQ(lines(doubles, RowRun<double>{doubles.data(), 9, 16, 1}, 2, 16),
            (std::vector<Index>{0, 64, 128, 192}));
  const std::vector<q8_0_like> blocks(64);
  EXPECT_EQ(lines(blocks, RowRun<q8_0_like>{blocks.data(), 9, 4, 1}, 2, 128),
            (std::vector<Index>{0, 64, 128, 136, 200, 264}));
}

}  // namespace

// Which memory the products ask for, and how it is shared out to them.
#include "rove/attention/tiled/ahead.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace {

using rove::Index;
using rove::RowRun;
using rove::detail::Ahead;
using rove::detail::MemoryAhead;
using Layout = rove::detail::PackedLayout<float>;

constexpr Index tiles = 5;
const float here[16] = {};
const char* const at_hand = reinterpret_cast<const char*>(here);
const Layout& layout() {
  static const Layout shape(64, 64);
  return shape;
}
/// Requests of one tile: one with every two steps of each of a block's score tiles.
Index requests() {
  return layout().block / Layout::panel * (layout().channels / 2);
}

/// How often each byte of `memory` lies in a line that is asked for, by all tiles.
std::vector<int> asked(const std::vector<char>& memory, const MemoryAhead& ahead) {
  std::vector<int> times(memory.size() + 64);
  for (Index t = 0; t < tiles; ++t) {
    const Ahead part = ahead.part(t);
    for (Index i = 0; i < requests(); ++i) {
      const Index at = part.from + i * part.step - memory.data();
      if (part.step != 0 && at >= 0 && at < static_cast<Index>(memory.size())) {
        for (Index e = 0; e < part.step; ++e) ++times[static_cast<std::size_t>(at + e)];
      }
    }
  }
  times.resize(memory.size());
  return times;
}

TEST(MemoryAhead, all_of_a_block_is_shared_out_to_the_tiles) {
  // A line a request at most, less where there is less to ask for than requests.
  for (const Index bytes : {tiles * requests() * 64, tiles * requests() * 32, tiles * requests()}) {
    const std::vector<char> memory(static_cast<std::size_t>(bytes));
    MemoryAhead ahead(layout(), tiles, here);
    ahead.add(memory.data(), bytes);
    EXPECT_EQ(asked(memory, ahead), std::vector<int>(memory.size(), 1)) << bytes;
  }
}

TEST(MemoryAhead, what_is_too_much_is_asked_for_from_its_start) {
  const Index reached = tiles * requests() * 64;
  const std::vector<char> memory(static_cast<std::size_t>(2 * reached));
  MemoryAhead ahead(layout(), tiles, here);
  ahead.add(memory.data(), 2 * reached);
  const auto times = asked(memory, ahead);
  for (Index i = 0; i < 2 * reached; ++i)
    ASSERT_EQ(times[static_cast<std::size_t>(i)], i < reached ? 1 : 0) << i;
}

TEST(MemoryAhead, stretches_follow_each_other) {
  const Index share = requests() * 64;
  const std::vector<char> first(static_cast<std::size_t>(2 * share)), second(static_cast<std::size_t>(share));
  MemoryAhead ahead(layout(), tiles, here);
  ahead.add(first.data(), 2 * share);
  ahead.add(nullptr, 0);
  ahead.add(second.data(), share);
  EXPECT_EQ(ahead.part(0).from, first.data());
  const Index step = ahead.part(0).step, part = requests() * step;
  EXPECT_EQ(step, 3 * share / (tiles * requests()));
  for (Index t = 0; t < tiles; ++t) {
    const char* const from =
        t * part < 2 * share ? first.data() + t * part : second.data() + t * part - 2 * share;
    EXPECT_EQ(ahead.part(t).from, from) << t;
  }
}

TEST(MemoryAhead, nothing_to_ask_for_is_what_is_at_hand) {
  const MemoryAhead none(layout(), tiles, here);
  EXPECT_EQ(none.part(0).step, 0);
  EXPECT_EQ(none.part(0).from, at_hand);
  const std::vector<char> memory(64);
  MemoryAhead little(layout(), tiles, here);
  little.add(memory.data(), 64);
  EXPECT_EQ(little.part(tiles - 1).step, 0);
  EXPECT_EQ(little.part(tiles - 1).from, at_hand);
}

TEST(MemoryAhead, rows_count_where_they_lie_one_after_the_other) {
  const std::vector<float> rows(64 * 100);
  const auto first = [&](RowRun<float> run) {
    MemoryAhead ahead(layout(), tiles, here);
    ahead.add(run, 100, 64);
    return ahead.part(0).from;
  };
  EXPECT_EQ(first({rows.data(), 100, 64, 1}), reinterpret_cast<const char*>(rows.data()));
  EXPECT_EQ(first({rows.data(), 50, 128, 1}), at_hand);
  EXPECT_EQ(first({rows.data(), 100, 1, 100}), at_hand);
  // No further than the run goes.
  MemoryAhead ahead(layout(), 1, here);
  ahead.add(RowRun<float>{rows.data(), 2, 64, 1}, 100, 64);
  EXPECT_EQ(ahead.part(0).step, (std::max)(Index{1}, 2 * 64 * 4 / requests()));
}

}  // namespace

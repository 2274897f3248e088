// How rows are cut into tiles.
#include "rove/attention/tiled/tile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace {

using rove::Index;

template <class Acc>
class RowTilesOf : public testing::Test {
 public:
  static constexpr Index whole = rove::detail::TileShape<Acc>::rows;
  /// Rows of each tile, after checking that each begins where the one before ends.
  static std::vector<Index> heights(Index rows) {
    const rove::detail::RowTiles<Acc> tiles(rows);
    std::vector<Index> all;
    Index next = 0;
    for (Index t = 0; t < tiles.count(); ++t) {
      EXPECT_EQ(tiles.first(t), next);
      all.push_back(tiles.rows(t));
      next += all.back();
    }
    EXPECT_EQ(next, rows);
    return all;
  }
};
using Accumulators = testing::Types<float, double>;
TYPED_TEST_SUITE(RowTilesOf, Accumulators);

TYPED_TEST(RowTilesOf, have_every_row_once_and_no_more_than_fit_a_register_tile) {
  for (Index rows = 0; rows <= 10 * TestFixture::whole + 1; ++rows) {
    const auto heights = TestFixture::heights(rows);
    EXPECT_EQ(static_cast<Index>(heights.size()), (rows + TestFixture::whole - 1) / TestFixture::whole);
    for (const Index height : heights) {
      EXPECT_GE(height, 1);
      EXPECT_LE(height, TestFixture::whole);
    }
  }
}

TYPED_TEST(RowTilesOf, are_whole_but_for_the_last_and_share_where_that_would_be_two_rows) {
  const Index all = TestFixture::whole;
  EXPECT_EQ(TestFixture::heights(3 * all), (std::vector<Index>{all, all, all}));
  EXPECT_EQ(TestFixture::heights(all + 1), (std::vector<Index>{all, 1}));
  EXPECT_EQ(TestFixture::heights(all + 3), (std::vector<Index>{all, 3}));
  EXPECT_EQ(TestFixture::heights(2), (std::vector<Index>{2}));
  const Index half = (all + 2) / 2;
  EXPECT_EQ(TestFixture::heights(all + 2), (std::vector<Index>{half, half}));
  EXPECT_EQ(TestFixture::heights(2 * all + 2), (std::vector<Index>{all, half, half}));
}

TYPED_TEST(RowTilesOf, parts_of_a_tile_are_all_of_it) {
  for (int rows = 1; rows <= TestFixture::whole; ++rows) {
    int next = 0;
    rove::detail::in_parts<TypeParam>(rows, [&](auto count, int first) {
      EXPECT_EQ(first, next);
      next += count;
    });
    EXPECT_EQ(next, rows);
  }
}

}  // namespace

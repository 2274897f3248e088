// A mask that is chosen at run time: copies share it, and assigning to one leaves the others.
#include "rove/attention/any_mask.hpp"

#include <gtest/gtest.h>

#include "rove/attention/mask.hpp"
#include "rove/attention/masks_order.hpp"
#include "support/masks.hpp"

namespace {

using rove::AnyMask;
using rove::Site;
using rove::TileRange;
using rove::TileVisibility;

TEST(Mask, any_mask_is_chosen_at_run_time_and_shared) {
  AnyMask mask;
  EXPECT_TRUE(mask.visible(Site{.query = 0, .key = 1}));
  mask = rove::causal();
  EXPECT_FALSE(mask.visible(Site{.query = 0, .key = 1}));
  const AnyMask copy = mask;
  mask = mask & rove::window(2);
  EXPECT_TRUE(copy.visible(Site{.query = 5, .key = 1}));
  EXPECT_FALSE(mask.visible(Site{.query = 5, .key = 1}));
  mask = outside::EvenKeys{};
  EXPECT_TRUE(mask.visible(Site{.query = 0, .key = 2}));
  EXPECT_EQ(mask.tile(TileRange{}), TileVisibility::some);
}

}  // namespace

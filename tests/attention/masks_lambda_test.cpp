// What a lambda is asked when it is a mask.
#include "rove/attention/masks_lambda.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "rove/attention/mask.hpp"

namespace {

using rove::Index;
using rove::Site;

TEST(Mask, lambdas_get_indices_or_the_site) {
  Site got;
  const auto by_index = rove::mask([&](Index b, Index h, Index query, Index key) {
    got = Site{.batch = b, .head = h, .query = query, .key = key};
    return true;
  });
  EXPECT_TRUE(by_index.visible({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ((std::vector<Index>{got.batch, got.head, got.query, got.key}), (std::vector<Index>{1, 2, 5, 6}));
  const auto by_site = rove::mask([&](auto site) {
    got = site;
    return 0;
  });
  EXPECT_FALSE(by_site.visible({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ((std::vector<Index>{got.row, got.slot}), (std::vector<Index>{3, 4}));
}

}  // namespace

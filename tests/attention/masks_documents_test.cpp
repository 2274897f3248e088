#include "rove/attention/masks_documents.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rove/attention/mask.hpp"
#include "support/error_of.hpp"

namespace {

using rove::Index;
using rove::Site;
using rove::TileVisibility;
using test::error_of;

constexpr rove::AttentionShape shape{.batch = 2, .heads = 3, .kv_heads = 1, .q_len = 13, .kv_len = 70};

TEST(Documents, B77_those_without_queries_keep_their_keys_to_themselves) {
  const std::vector<std::int32_t> cu_q{0, 0, 1208, 2048, 2048};
  const std::vector<std::int32_t> cu_k{0, 2538, 4280, 5120, 8192};
  const auto mask = rove::documents(cu_q, cu_k);
  EXPECT_EQ(error_of([&] { mask.check({1, 1, 1, 2048, 8192}); }), "(no error)");
  for (Index query = 0; query < 2048; ++query) {
    const Index first = query < 1208 ? 2538 : 4280;
    const Index last = query < 1208 ? 4280 : 5120;
    ASSERT_FALSE(mask.visible(Site{.query = query, .key = first - 1}));
    ASSERT_TRUE(mask.visible(Site{.query = query, .key = first}));
    ASSERT_TRUE(mask.visible(Site{.query = query, .key = last - 1}));
    ASSERT_FALSE(mask.visible(Site{.query = query, .key = last}));
  }
  const auto tile = [&](Index query_first, Index query_last, Index key_first, Index key_last) {
    return mask.tile(
        {0, 0, query_first, query_last, key_first, key_last, query_first, query_last, key_first, key_last});
  };
  EXPECT_EQ(tile(0, 2048, 0, 2538), TileVisibility::none);
  EXPECT_EQ(tile(0, 2048, 5120, 8192), TileVisibility::none);
  EXPECT_EQ(tile(1207, 1209, 4279, 4281), TileVisibility::some);
  EXPECT_EQ(tile(1144, 1208, 2538, 4280), TileVisibility::all);
}

TEST(Documents, mistakes_are_named_with_their_numbers) {
  using List = std::vector<std::int64_t>;
  const auto error = [](const List& queries, const List& keys) {
    return error_of([&] { rove::mask_check(rove::documents(queries, keys), shape); });
  };
  EXPECT_EQ(error({0, 4}, {0, 4}), "(no error)");
  EXPECT_EQ(error({}, {0, 4}), "documents: cumulative query lengths must start with 0, the list is empty");
  EXPECT_EQ(error({0, 4}, {}), "documents: cumulative key lengths must start with 0, the list is empty");
  EXPECT_EQ(error({4, 4}, {0, 4}), "documents: cumulative query lengths must start with 0, got 4");
  EXPECT_EQ(error({0, 4, 9}, {0, 8, 7}),
            "documents: cumulative key lengths must not fall, got 8 then 7 at 2");
  EXPECT_EQ(error({0, 4, 9}, {0, 8}),
            "documents: there are 3 cumulative query lengths and 2 cumulative key lengths");
  const List six(6);
  EXPECT_EQ(error_of([&] { rove::document_ids(six, 0); }), "document_ids: batch must be at least 1, got 0");
  EXPECT_EQ(error_of([&] { rove::document_ids(six, 4); }),
            "document_ids: 6 ids do not divide into 4 batch rows");
  EXPECT_EQ(error_of([&] { rove::mask_check(rove::document_ids(six, 3), shape); }),
            "document_ids: the ids are of 3 batch rows, the call has 2");
}

}  // namespace

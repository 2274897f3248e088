// Pages: tables of both integer widths, shared pages, tables that change.
#include "rove/attention/key_values/paged.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "support/error_of.hpp"
#include "support/key_values.hpp"

namespace rove_test {
namespace {

using test::error_of;

template <class PageNumber>
void permuted_pages(Index page_size, unsigned seed) {
  constexpr Index batch = 3, heads = 2, pool = 40;
  const std::vector<std::int32_t> lengths{17, 0, 4 * static_cast<std::int32_t>(page_size)};
  const Index max_pages = 18;
  std::vector<PageNumber> order(static_cast<std::size_t>(pool));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<PageNumber>(i);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));

  auto k = storage<Eigen::bfloat16>(pool, heads, page_size, 3, Layout::bthd);
  auto v = storage<float>(pool, heads, page_size, 5, layouts[seed % 5]);
  std::vector<PageNumber> table(static_cast<std::size_t>(batch * max_pages),
                                PageNumber{-1});  // unused: nonsense
  std::size_t taken = 0;
  for (Index b = 0; b < batch; ++b) {
    for (Index slot = 0; slot < lengths[static_cast<std::size_t>(b)]; ++slot) {
      PageNumber& entry = table[static_cast<std::size_t>(b * max_pages + slot / page_size)];
      if (slot % page_size == 0) entry = order[taken++];
      for (Index h = 0; h < heads; ++h) {
        for (Index c = 0; c < 3; ++c)
          k.view(entry, h, slot % page_size, c) = as<Eigen::bfloat16>(appended_key(b, h, slot, c));
        for (Index c = 0; c < 5; ++c)
          v.view(entry, h, slot % page_size, c) = as<float>(appended_value(b, h, slot, c));
      }
    }
  }
  const Index longest = (std::max)(Index{17}, 4 * page_size);
  expect_model(rove::paged_key_values(k.view, read_only(v), rove::page_table(table, batch), lengths),
               {{{0, 17}, {0, 0}, {0, 4 * page_size}}, heads, 3, 5, longest});
}

TEST(PagedKeyValues, permuted_tables_of_both_integer_widths) {
  for (const Index page_size : {1, 2, 3, 4, 7}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      permuted_pages<std::int32_t>(page_size, seed);
      permuted_pages<std::int64_t>(page_size, seed);
    }
  }
}

TEST(PagedKeyValues, a_page_shared_by_batch_rows_and_a_padded_table) {
  auto pool = storage<float>(3, 1, 2, 1, Layout::bhtd);
  for (Index i = 0; i < 6; ++i) pool.memory[static_cast<std::size_t>(i)] = static_cast<float>(10 + i);
  const std::vector<std::int32_t> entries{2, 0, 99, 2, 1};  // two rows of two, three apart
  const std::vector<std::int64_t> lengths{3, 4};
  const auto kv = rove::paged_key_values(pool.view, pool.view, rove::PageTable{entries, 2, 2, 3}, lengths);
  Expected expected{{{0, 3}, {0, 4}}, 1, 1, 1, 4};
  const double rows[2][4] = {{14, 15, 10, 0}, {14, 15, 12, 13}};
  expected.key = expected.value = [&](Index b, Index, Index s, Index) { return rows[b][s]; };
  expect_model(kv, expected);
  EXPECT_EQ(kv.keys(0, 0, 2).count, 1);  // the page has two rows, the sequence only one of them
}

TEST(PagedKeyValues, messages) {
  float x[64] = {};
  const auto pool = [&](Index pages, Index h, Index size) { return rove::bhtd(x, pages, h, size, 2); };
  std::vector<std::int32_t> entries{0, 1, 2, 3}, lengths{4, 3};
  const auto make = [&](Index batch = 2) {
    return error_of([&] {
      rove::paged_key_values(pool(4, 1, 2), pool(4, 1, 2), rove::page_table(entries, batch), lengths);
    });
  };
  EXPECT_EQ(make(), "(no error)");
  EXPECT_EQ(make(3), "page table: 4 entries cannot be shared out evenly among 3 batch rows");
  EXPECT_EQ(make(-1), "page table: 4 entries cannot be shared out evenly among -1 batch rows");
  EXPECT_EQ(make(0), "page table: 4 entries cannot be shared out evenly among 0 batch rows");
  EXPECT_EQ(make(1), "lengths has 2 entries for 1 batch rows");
  lengths = {5, 3};
  EXPECT_EQ(make(), "lengths[0] is 5: needs 3 pages of 2 tokens, the table has 2 a row");
  lengths = {4, -3};
  EXPECT_EQ(make(), "lengths[1] must not be negative, got -3");
  lengths = {4, 3};
  entries[3] = 4;
  EXPECT_EQ(make(), "page table: entry (1, 1) is 4, the pool has 4 pages");
  entries[3] = -1;
  EXPECT_EQ(make(), "page table: entry (1, 1) is -1, the pool has 4 pages");
  lengths = {4, 2};  // the bad entry is not in use
  EXPECT_EQ(make(), "(no error)");

  const auto with = [&](rove::TensorView<float> k, rove::TensorView<float> v, rove::PageTable table,
                        rove::IntegerSpan held) {
    return error_of([&] { rove::paged_key_values(k, v, table, held); });
  };
  const rove::PageTable table = rove::page_table(entries, 2);
  EXPECT_EQ(with(pool(4, 1, 2), pool(3, 1, 2), table, lengths), "k has 4 pages, v has 3");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 2, 2), table, lengths), "k has 1 heads, v has 2");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 3), table, lengths), "k has 2 tokens a page, v has 3");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), table, {}), "lengths are missing for 2 batch rows");
  EXPECT_EQ(with(pool(4, 1, 0), pool(4, 1, 0), table, lengths),
            "lengths[0] is 4, but the pages hold 0 tokens");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), {entries, 2, 2, 3}, lengths),
            "page table: 4 entries are too few for 2 batch rows of 2, 3 apart");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), {entries, 1, 5, 5}, lengths),
            "page table: 4 entries are too few for 1 batch rows of 5, 5 apart");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), {entries, 2, -1, 3}, lengths),
            "page table: negative batch, max_pages or row_stride (2, -1, 3)");
  EXPECT_EQ(with(pool(4, 1, 2), pool(4, 1, 2), {}, {}), "(no error)");  // no batch rows
}

TEST(PagedKeyValues, table_is_checked_again_by_each_call) {
  float x[16] = {};
  std::vector<std::int32_t> entries{0}, lengths{2};
  const auto pool = rove::bhtd(x, 1, 1, 2, 2);
  const auto kv = rove::paged_key_values(pool, pool, rove::page_table(entries, 1), lengths);
  entries[0] = 7;
  EXPECT_EQ(error_of([&] { rove::check_key_values(kv); }),
            "page table: entry (0, 0) is 7, the pool has 1 pages");
}

}  // namespace
}  // namespace rove_test

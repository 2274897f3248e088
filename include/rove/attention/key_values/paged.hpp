/// \file
/// Keys and values in pages of a common pool, found through a table: the cache of a server.
#pragma once

#include <type_traits>

#include "rove/attention/key_values.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/core/view_checks.hpp"

namespace rove {

/// A borrowed table `[batch, max_pages]` of page numbers, 32- or 64-bit.
struct PageTable {
  IntegerSpan entries;
  Index batch = 0;
  Index max_pages = 0;   ///< per batch row
  Index row_stride = 0;  ///< entries from one batch row to the next, ≥ max_pages

  ROVE_ALWAYS_INLINE Index operator()(Index b, Index page) const { return entries[b * row_stride + page]; }
};

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

/// Pools agree, the table has the entries it promises, and each entry in use names a page of the pool.
/// O(batch + pages in use).
template <class Paged>
void check_pages(const Paged& kv) {
  check_extents_agree(kv.k_pages, kv.v_pages, "pages", "tokens a page");
  const PageTable& table = kv.table;
  ROVE_EXPECT(table.batch >= 0 && table.max_pages >= 0 && table.row_stride >= 0,
              "page table: negative batch, max_pages or row_stride (", table.batch, ", ", table.max_pages,
              ", ", table.row_stride, ")");
  const Index room = table.entries.size() - table.max_pages;
  ROVE_EXPECT(
      table.batch == 0 || (room >= 0 && (table.batch == 1 || table.row_stride <= room / (table.batch - 1))),
      "page table: ", table.entries.size(), " entries are too few for ", table.batch, " batch rows of ",
      table.max_pages, ", ", table.row_stride, " apart");
  ROVE_EXPECT(kv.lengths || table.batch == 0, "lengths are missing for ", table.batch, " batch rows");
  check_row_counts(0, kv.lengths, table.batch, "lengths");
  const Index size = kv.page_size();
  for (Index b = 0; b < table.batch; ++b) {
    const Index length = kv.lengths[b];
    if (length == 0) continue;
    ROVE_EXPECT(size > 0, "lengths[", b, "] is ", length, ", but the pages hold 0 tokens");
    const Index pages = (length - 1) / size + 1;
    ROVE_EXPECT(pages <= table.max_pages, "lengths[", b, "] is ", length, ": needs ", pages, " pages of ",
                size, " tokens, the table has ", table.max_pages, " a row");
    for (Index page = 0; page < pages; ++page) {
      ROVE_EXPECT(table(b, page) >= 0 && table(b, page) < kv.k_pages.batch(), "page table: entry (", b, ", ",
                  page, ") is ", table(b, page), ", the pool has ", kv.k_pages.batch(), " pages");
    }
  }
}

}  // namespace detail

ROVE_END_TAGGED

namespace rove {

/// Keys in pages `[pages, kv_heads, page_size, d]` and values in pages `[pages, kv_heads, page_size, d_v]`:
/// slot s of batch row b is row s mod page_size of page `table(b, s / page_size)`.
///
/// A pool stored as `[pages, page_size, kv_heads, d]` is viewed by `bthd(data, pages, page_size, kv_heads,
/// d)`. Pages may be shared between batch rows (a common prompt); table entries past a row's last slot are
/// not read.
template <class Key, class Value>
struct PagedKeyValues {
  TensorView<const Key> k_pages;
  TensorView<const Value> v_pages;
  PageTable table;
  IntegerSpan lengths;  ///< slots that batch row b holds, [0, lengths[b]); borrowed

  using key_storage = Key;
  using value_storage = Value;

  ROVE_ALWAYS_INLINE constexpr Index batch() const { return table.batch; }
  ROVE_ALWAYS_INLINE constexpr Index heads() const { return k_pages.heads(); }
  ROVE_ALWAYS_INLINE constexpr Index key_channels() const {
    return k_pages.channels() * channels_per_element<Key>;
  }
  ROVE_ALWAYS_INLINE constexpr Index value_channels() const {
    return v_pages.channels() * channels_per_element<Value>;
  }
  ROVE_ALWAYS_INLINE constexpr Index page_size() const { return k_pages.tokens(); }
  ROVE_ALWAYS_INLINE Index length() const { return untagged::longest(0, lengths); }
  ROVE_ALWAYS_INLINE SlotRange slots(Index b) const { return {0, lengths[b]}; }

  ROVE_ALWAYS_INLINE RowRun<Key> keys(Index b, Index h, Index slot) const {
    return {k_pages.row(table(b, slot / page_size()), h, slot % page_size()), run(b, slot), k_pages.stride[2],
            k_pages.stride[3]};
  }
  ROVE_ALWAYS_INLINE RowRun<Value> values(Index b, Index h, Index slot) const {
    return {v_pages.row(table(b, slot / page_size()), h, slot % page_size()), run(b, slot), v_pages.stride[2],
            v_pages.stride[3]};
  }
  ROVE_ALWAYS_INLINE IndexRun indices(Index b, Index slot) const { return {slot, lengths[b] - slot}; }

  template <class Out>
  ROVE_ALWAYS_INLINE bool overlaps(const TensorView<Out>& out) const {
    return rove::overlaps(k_pages, out) || rove::overlaps(v_pages, out);
  }
  /// Reads every table entry that is in use.
  ROVE_ALWAYS_INLINE void check() const { detail::check_pages(*this); }

 private:
  ROVE_ALWAYS_INLINE Index run(Index b, Index slot) const {
    const Index to_end = lengths[b] - slot, to_page_end = page_size() - slot % page_size();
    return to_end < to_page_end ? to_end : to_page_end;
  }
};

}  // namespace rove

ROVE_BEGIN_TAGGED

/// A dense table `[batch, entries.size() / batch]` of page numbers, borrowed.
inline PageTable page_table(IntegerSpan entries, Index batch) {
  ROVE_EXPECT(batch >= 0 && (batch == 0 ? entries.size() == 0 : entries.size() % batch == 0),
              "page table: ", entries.size(), " entries cannot be shared out evenly among ", batch,
              " batch rows");
  const Index max_pages = batch == 0 ? 0 : entries.size() / batch;
  return {entries, batch, max_pages, max_pages};
}

/// Keys and values in pages, of which batch row b holds `lengths[b]` slots; everything is borrowed.
///
/// Throws `Error` unless the pools have the same pages, heads and page size, there is one length per batch
/// row, and every table entry in use names a page of the pool. The table and the lengths may change between
/// calls of an operator, which checks them again.
template <class Key, class Value>
auto paged_key_values(TensorView<Key> k_pages, TensorView<Value> v_pages, PageTable table,
                      IntegerSpan lengths) {
  const PagedKeyValues<std::remove_const_t<Key>, std::remove_const_t<Value>> kv{k_pages, v_pages, table,
                                                                                lengths};
  kv.check();
  return kv;
}

ROVE_END_TAGGED

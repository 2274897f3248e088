/// \file
/// Masks of packed sequences: several documents side by side in one row of tokens, none seeing another.
#pragma once

#include <cstdint>

#include "rove/attention/mask.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/tensor_view.hpp"

ROVE_BEGIN_TAGGED

/// A query sees the keys of its own document, by cumulative lengths; see `documents()`.
class Documents {
 public:
  Documents(IntegerSpan queries, IntegerSpan keys) : queries_(queries), keys_(keys) {}

  ROVE_ALWAYS_INLINE bool visible(const Site& site) const {
    const Keys keys = keys_of(document(site.query));
    return keys.first <= site.key && site.key < keys.last;
  }
  void check(const AttentionShape&) const {
    check_list(queries_, "query");
    check_list(keys_, "key");
    ROVE_EXPECT(queries_.size() == keys_.size(), "documents: there are ", queries_.size(),
                " cumulative query lengths and ", keys_.size(), " cumulative key lengths");
  }
  static constexpr bool order_aware() { return true; }
  TileVisibility tile(const TileRange& range) const {
    const Index first = document(range.query_first);
    const Index last = document(range.query_last - 1);
    // Documents from first to last hold consecutive keys; those outside of all hold none.
    const Index count = queries_.size() - 1;
    if (first == count || last < 0) return TileVisibility::none;
    const Keys seen{keys_[first < 0 ? 0 : first], keys_[last == count ? count : last + 1]};
    if (seen.last <= range.key_first || range.key_last <= seen.first || seen.first == seen.last) {
      return TileVisibility::none;
    }
    // Here one document is neither -1 nor count.
    return first == last && seen.first <= range.key_first && range.key_last <= seen.last
               ? TileVisibility::all
               : TileVisibility::some;
  }
  std::uint64_t bits(const Site& first, int count) const {
    const Keys keys = keys_of(document(first.query));
    return detail::bit_range(keys.first - first.key, keys.last - first.key, count);
  }

 private:
  struct Keys {
    Index first, last;
  };

  static void check_list(IntegerSpan list, const char* what) {
    ROVE_EXPECT(list.data != nullptr && list.size() >= 1, "documents: cumulative ", what,
                " lengths must start with 0, the list is empty");
    ROVE_EXPECT(list[0] == 0, "documents: cumulative ", what, " lengths must start with 0, got ", list[0]);
    for (Index i = 1; i < list.size(); ++i) {
      ROVE_EXPECT(list[i - 1] <= list[i], "documents: cumulative ", what, " lengths must not fall, got ",
                  list[i - 1], " then ", list[i], " at ", i);
    }
  }

  /// The document that holds a query: −1 before all, the number of documents after all. Empty ones hold none.
  ROVE_ALWAYS_INLINE Index document(Index query) const {
    Index first = 0;
    Index last = queries_.size();
    while (first < last) {
      const Index middle = first + (last - first) / 2;
      if (queries_[middle] <= query) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first - 1;
  }

  ROVE_ALWAYS_INLINE Keys keys_of(Index document) const {
    if (document < 0 || document >= queries_.size() - 1) return {0, 0};
    return {keys_[document], keys_[document + 1]};
  }

  IntegerSpan queries_;
  IntegerSpan keys_;
};

/// A query sees the keys with the same id as its own; see `document_ids()`.
class DocumentIds {
 public:
  DocumentIds(IntegerSpan ids, Index batch)
      : ids_(ids), batch_(batch), tokens_(batch > 0 ? ids.size() / batch : 0) {
    ROVE_EXPECT(batch >= 1, "document_ids: batch must be at least 1, got ", batch);
    ROVE_EXPECT(ids.size() % batch == 0, "document_ids: ", ids.size(), " ids do not divide into ", batch,
                " batch rows");
  }

  ROVE_ALWAYS_INLINE bool visible(const Site& site) const {
    return inside(site.query) && inside(site.key) && id(site.batch, site.query) == id(site.batch, site.key);
  }
  void check(const AttentionShape& shape) const {
    ROVE_EXPECT(batch_ == 1 || batch_ == shape.batch, "document_ids: the ids are of ", batch_,
                " batch rows, the call has ", shape.batch);
  }
  static constexpr bool order_aware() { return true; }
  TileVisibility tile(const TileRange& range) const {
    // A displaced tile may span many more indices than it has keys: not worth reading.
    if (range.key_last - range.key_first != range.slot_last - range.slot_first) return TileVisibility::some;
    const Ids queries = ids(range.batch, range.query_first, range.query_last);
    const Ids keys = ids(range.batch, range.key_first, range.key_last);
    if (queries.none || keys.none || queries.greatest < keys.least || keys.greatest < queries.least) {
      return TileVisibility::none;
    }
    const bool one = queries.least == queries.greatest && keys.least == keys.greatest;
    return one && queries.complete && keys.complete ? TileVisibility::all : TileVisibility::some;
  }

 private:
  struct Ids {
    Index least, greatest;
    bool none, complete;
  };

  ROVE_ALWAYS_INLINE bool inside(Index token) const { return token >= 0 && token < tokens_; }
  ROVE_ALWAYS_INLINE Index id(Index b, Index token) const {
    return ids_[(batch_ == 1 ? 0 : b) * tokens_ + token];
  }

  /// The range of ids of the tokens [first, last).
  Ids ids(Index b, Index first, Index last) const {
    const Index begin = first < 0 ? 0 : first;
    const Index end = last < tokens_ ? last : tokens_;
    if (begin >= end) return {0, 0, true, false};
    Ids found{id(b, begin), id(b, begin), false, begin == first && end == last};
    for (Index token = begin + 1; token < end; ++token) {
      const Index here = id(b, token);
      if (here < found.least) found.least = here;
      if (here > found.greatest) found.greatest = here;
    }
    return found;
  }

  IntegerSpan ids_;
  Index batch_;
  Index tokens_;
};

/// Packed sequences by cumulative lengths (`cu_seqlens`): document s holds the queries and the keys with
/// absolute index in [cumulative[s], cumulative[s + 1]), and sees itself alone. The list starts with 0 and
/// never falls (errors of the call); documents may be empty. An index past the last entry belongs to no
/// document: such a query sees nothing, such a key is seen by nobody. The span is borrowed. Combine with
/// `causal()` for causal documents of equal query and key lists.
inline Documents documents(IntegerSpan cumulative) {
  return Documents(cumulative, cumulative);
}

/// The same where queries and keys are packed differently: document s holds the queries
/// [queries[s], queries[s + 1]) and the keys [keys[s], keys[s + 1]). Both lists name the same number of
/// documents. `causal()` compares indices across the lists and is of no use here.
inline Documents documents(IntegerSpan queries, IntegerSpan keys) {
  return Documents(queries, keys);
}

/// Packed sequences by an id for each absolute index: a query sees the keys whose id equals its own, whatever
/// the order of ids. With batch > 1 the list is [batch, tokens], a row for each batch row, otherwise one row
/// serves all. Indices past the end of a row belong to no document. The span is borrowed.
inline DocumentIds document_ids(IntegerSpan ids, Index batch = 1) {
  return DocumentIds(ids, batch);
}

ROVE_END_TAGGED

/// \file
/// Masks by where query and key stand: causal, sliding windows, a prefix that everyone sees.
#pragma once

#include <cstdint>

#include "rove/attention/mask.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/tensor_view.hpp"

ROVE_BEGIN_TAGGED

/// A side of a window that has no end. Indices and window sides beyond ±2⁶¹ are not distinguished from it.
inline constexpr Index unbounded = Index{1} << 61;

namespace detail {

/// What is seen of a tile in which key − query runs from `least` to `greatest` by a mask that shows the
/// differences [−left, right]. Exact where the keys of the tile are consecutive.
ROVE_ALWAYS_INLINE constexpr TileVisibility band_tile(const TileRange& range, Index left, Index right) {
  const Index least = range.key_first - (range.query_last - 1);
  const Index greatest = range.key_last - 1 - range.query_first;
  if (least > right || greatest < -left) return TileVisibility::none;
  return least >= -left && greatest <= right ? TileVisibility::all : TileVisibility::some;
}

}  // namespace detail

/// key <= query, by absolute index; see `causal()`.
class Causal {
 public:
  constexpr bool visible(const Site& site) const { return site.key <= site.query; }
  static constexpr bool order_aware() { return true; }
  static constexpr TileVisibility tile(const TileRange& range) {
    return detail::band_tile(range, unbounded, 0);
  }
  static constexpr std::uint64_t bits(const Site& first, int count) {
    return detail::bit_range(0, first.query - first.key + 1, count);
  }
};

/// query − left <= key <= query + right, by absolute index; see `window()`.
class Window {
 public:
  constexpr Window(Index left, Index right)
      : left_(left < unbounded ? left : unbounded), right_(right < unbounded ? right : unbounded) {
    ROVE_EXPECT(left >= 0, "window: left must not be negative, got ", left);
    ROVE_EXPECT(right >= 0, "window: right must not be negative, got ", right);
  }

  constexpr Index left() const { return left_; }
  constexpr Index right() const { return right_; }

  constexpr bool visible(const Site& site) const {
    const Index ahead = site.key - site.query;
    return -left_ <= ahead && ahead <= right_;
  }
  static constexpr bool order_aware() { return true; }
  constexpr TileVisibility tile(const TileRange& range) const {
    return detail::band_tile(range, left_, right_);
  }
  constexpr std::uint64_t bits(const Site& first, int count) const {
    const Index ahead = first.key - first.query;
    return detail::bit_range(-left_ - ahead, right_ - ahead + 1, count);
  }

 private:
  Index left_;
  Index right_;
};

/// key < length, by absolute index and whatever the query; see `prefix()`.
class Prefix {
 public:
  explicit Prefix(Index length) : length_(length) {
    ROVE_EXPECT(length >= 0, "prefix: length must not be negative, got ", length);
  }
  explicit Prefix(IntegerSpan lengths) : lengths_(lengths), per_batch_(true) {}

  ROVE_ALWAYS_INLINE Index length(Index batch) const { return per_batch_ ? lengths_[batch] : length_; }

  bool visible(const Site& site) const { return site.key < length(site.batch); }
  void check(const AttentionShape& shape) const {
    if (!per_batch_) return;
    ROVE_EXPECT(lengths_.size() == shape.batch, "prefix: there are ", lengths_.size(), " lengths for batch ",
                shape.batch);
    for (Index b = 0; b < shape.batch; ++b) {
      ROVE_EXPECT(lengths_[b] >= 0, "prefix: length ", lengths_[b], " of batch row ", b, " is negative");
    }
  }
  /// No query's place is asked for.
  static constexpr bool order_aware() { return false; }
  TileVisibility tile(const TileRange& range) const {
    const Index end = length(range.batch);
    if (range.key_first >= end) return TileVisibility::none;
    return range.key_last <= end ? TileVisibility::all : TileVisibility::some;
  }
  std::uint64_t bits(const Site& first, int count) const {
    return detail::bit_range(0, length(first.batch) - first.key, count);
  }

 private:
  Index length_ = 0;
  IntegerSpan lengths_ = {};
  bool per_batch_ = false;  // an empty list is a list all the same
};

/// A query sees the keys up to its own: key <= query, by absolute index. Where q_len != kv_len the problem
/// says where its queries stand (`align_first`, `align_last`).
constexpr Causal causal() {
  return {};
}

/// A query sees its own key and the size − 1 before it: query − size < key <= query, size >= 1.
/// `window(W)` is `window(W - 1, 0)`; it is causal by itself.
constexpr Window window(Index size) {
  ROVE_EXPECT(size >= 1, "window: size must be at least 1 (a query's own key), got ", size);
  return Window(size - 1, 0);
}

/// A query sees `left` keys before its own and `right` after it: query − left <= key <= query + right. Either
/// may be `unbounded`; neither may be negative.
constexpr Window window(Index left, Index right) {
  return Window(left, right);
}

/// Every query sees the keys with index < length. A prefix language model's mask is `causal() |
/// prefix(length)`.
inline Prefix prefix(Index length) {
  return Prefix(length);
}

/// The same with a length for each batch row; the span is borrowed. A count other than the batch and negative
/// lengths are errors of the call.
inline Prefix prefix(IntegerSpan lengths) {
  return Prefix(lengths);
}

ROVE_END_TAGGED

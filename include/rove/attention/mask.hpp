/// \file
/// What a mask is: a predicate on sites, with optional members that let a kernel ask about many at once; and
/// how masks join. The masks themselves are in masks_*.hpp, the run-time choice in any_mask.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "rove/attention/optional_members.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

/// Which (query, key) pairs take part: `mask.visible(site)` is true where the query sees the key.
///
/// A mask is a cheap copyable value. It may have these members besides; `mask_check`, `mask_order_aware`,
/// `mask_tile` and `mask_bits` stand in where it has not.
///
/// - `void check(const AttentionShape&) const` throws `Error` where the mask does not fit the call. It runs
///   once a call, before anything is written, and allocates nothing.
/// - `bool order_aware() const`: whether the answer depends on `site.query`, so that a call whose q_len and
///   kv_len differ must say where its queries stand. Missing: true.
/// - `TileVisibility tile(const TileRange&) const`: none, some or all of a rectangle. Missing: some.
/// - `std::uint64_t bits(const Site& first, int count) const`: bit i is the visibility of slot + i, key + i
///   and the rest of `first`; 0 <= count <= 64, the higher bits are 0. Missing: asked one by one.
/// - `void prefetch(const Site& first, Index count) const`: a hint that the slots first.slot + i, i < count,
///   count >= 1, of the row will be asked about soon; `query` and `key` are not set.
template <class M>
concept Mask = std::copy_constructible<M> && requires(const M& mask, const Site& site) {
  { mask.visible(site) } -> std::convertible_to<bool>;
};

namespace detail {

template <class M>
concept HasTile = requires(const M& mask, const TileRange& range) {
  { mask.tile(range) } -> std::same_as<TileVisibility>;
};
template <class M>
concept HasBits = requires(const M& mask, const Site& first, int count) {
  { mask.bits(first, count) } -> std::same_as<std::uint64_t>;
};
template <class M>
concept NamesTile = requires {
  &M::tile;
};
template <class M>
concept NamesBits = requires {
  &M::bits;
};

/// The count lowest bits, 0 <= count <= 64.
ROVE_ALWAYS_INLINE constexpr std::uint64_t low_bits(int count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

/// The bits [first, last), cut to [0, count).
ROVE_ALWAYS_INLINE constexpr std::uint64_t bit_range(Index first, Index last, int count) {
  const auto cut = [count](Index bit) { return bit < 0 ? 0 : bit > count ? count : static_cast<int>(bit); };
  return low_bits(cut(last)) & ~low_bits(cut(first));
}

}  // namespace detail

// What kernels call: a mask's own member, or what stands in for it.

/// Throws what `mask.check` throws.
template <Mask M>
ROVE_ALWAYS_INLINE constexpr void mask_check(const M& mask, const AttentionShape& shape) {
  static_assert(detail::HasCheck<M> || !detail::NamesCheck<M>,
                "the mask's check cannot be called as void check(const AttentionShape&) const");
  if constexpr (detail::HasCheck<M>) mask.check(shape);
}

/// Whether a call with q_len != kv_len must say where its queries stand.
template <Mask M>
ROVE_ALWAYS_INLINE constexpr bool mask_order_aware(const M& mask) {
  static_assert(detail::HasOrderAware<M> || !detail::NamesOrderAware<M>,
                "the mask's order_aware cannot be called as bool order_aware() const");
  if constexpr (detail::HasOrderAware<M>) {
    return mask.order_aware();
  } else {
    return true;
  }
}

/// Whether `prefetch` is there to be called.
template <Mask M>
constexpr bool mask_prefetches() {
  static_assert(detail::HasPrefetch<M> || !detail::NamesPrefetch<M>,
                "the mask's prefetch cannot be called as void prefetch(const Site&, Index) const");
  return detail::HasPrefetch<M>;
}

/// none, some or all of the tile; `some` may be said of any.
template <Mask M>
ROVE_ALWAYS_INLINE constexpr TileVisibility mask_tile(const M& mask, const TileRange& range) {
  static_assert(detail::HasTile<M> || !detail::NamesTile<M>,
                "the mask's tile cannot be called as TileVisibility tile(const TileRange&) const");
  if constexpr (detail::HasTile<M>) {
    return mask.tile(range);
  } else {
    return TileVisibility::some;
  }
}

/// Visibility of `count` slots in a row (0 <= count <= 64) whose keys are consecutive indices too, from
/// `first` on: bit i is slot first.slot + i.
template <Mask M>
ROVE_ALWAYS_INLINE constexpr std::uint64_t mask_bits(const M& mask, const Site& first, int count) {
  static_assert(detail::HasBits<M> || !detail::NamesBits<M>,
                "the mask's bits cannot be called as std::uint64_t bits(const Site&, int) const");
  if constexpr (detail::HasBits<M>) {
    return mask.bits(first, count);
  } else {
    std::uint64_t bits = 0;
    Site site = first;
    for (int i = 0; i < count; ++i, ++site.slot, ++site.key) {
      bits |= static_cast<std::uint64_t>(static_cast<bool>(mask.visible(site))) << i;
    }
    return bits;
  }
}

/// Every key is visible to every query: the mask of a problem that was given none.
struct AllVisible {
  constexpr bool visible(const Site&) const { return true; }
  static constexpr bool order_aware() { return false; }
  static constexpr TileVisibility tile(const TileRange&) { return TileVisibility::all; }
  static constexpr std::uint64_t bits(const Site&, int count) { return detail::low_bits(count); }
};

namespace detail {

/// True for the mask that a kernel need not ask.
template <class M>
inline constexpr bool is_all_visible = std::is_same_v<std::remove_cvref_t<M>, AllVisible>;

}  // namespace detail

/// Visible where both masks say so; written `left & right`.
template <Mask Left, Mask Right>
class And {
 public:
  constexpr And(Left left, Right right) : left_(std::move(left)), right_(std::move(right)) {}

  constexpr bool visible(const Site& site) const { return left_.visible(site) && right_.visible(site); }
  constexpr void check(const AttentionShape& shape) const {
    mask_check(left_, shape);
    mask_check(right_, shape);
  }
  constexpr bool order_aware() const { return mask_order_aware(left_) || mask_order_aware(right_); }
  constexpr TileVisibility tile(const TileRange& range) const {
    const TileVisibility left = mask_tile(left_, range);
    if (left == TileVisibility::none) return left;
    const TileVisibility right = mask_tile(right_, range);
    return left == TileVisibility::all || right == TileVisibility::none ? right : TileVisibility::some;
  }
  constexpr std::uint64_t bits(const Site& first, int count) const {
    return mask_bits(left_, first, count) & mask_bits(right_, first, count);
  }
  void prefetch(const Site& first, Index count) const
      requires(mask_prefetches<Left>() || mask_prefetches<Right>()) {
    if constexpr (mask_prefetches<Left>()) left_.prefetch(first, count);
    if constexpr (mask_prefetches<Right>()) right_.prefetch(first, count);
  }

 private:
  [[no_unique_address]] Left left_;
  [[no_unique_address]] Right right_;
};

/// Visible where either mask says so; written `left | right`.
template <Mask Left, Mask Right>
class Or {
 public:
  constexpr Or(Left left, Right right) : left_(std::move(left)), right_(std::move(right)) {}

  constexpr bool visible(const Site& site) const { return left_.visible(site) || right_.visible(site); }
  constexpr void check(const AttentionShape& shape) const {
    mask_check(left_, shape);
    mask_check(right_, shape);
  }
  constexpr bool order_aware() const { return mask_order_aware(left_) || mask_order_aware(right_); }
  constexpr TileVisibility tile(const TileRange& range) const {
    const TileVisibility left = mask_tile(left_, range);
    if (left == TileVisibility::all) return left;
    const TileVisibility right = mask_tile(right_, range);
    return left == TileVisibility::none || right == TileVisibility::all ? right : TileVisibility::some;
  }
  constexpr std::uint64_t bits(const Site& first, int count) const {
    return mask_bits(left_, first, count) | mask_bits(right_, first, count);
  }
  void prefetch(const Site& first, Index count) const
      requires(mask_prefetches<Left>() || mask_prefetches<Right>()) {
    if constexpr (mask_prefetches<Left>()) left_.prefetch(first, count);
    if constexpr (mask_prefetches<Right>()) right_.prefetch(first, count);
  }

 private:
  [[no_unique_address]] Left left_;
  [[no_unique_address]] Right right_;
};

/// Visible where the mask says it is not; written `!mask`, or `Not(mask)` of a mask from outside namespace
/// rove.
template <Mask M>
class Not {
 public:
  constexpr explicit Not(M mask) : mask_(std::move(mask)) {}

  constexpr bool visible(const Site& site) const { return !mask_.visible(site); }
  constexpr void check(const AttentionShape& shape) const { mask_check(mask_, shape); }
  constexpr bool order_aware() const { return mask_order_aware(mask_); }
  constexpr TileVisibility tile(const TileRange& range) const {
    switch (mask_tile(mask_, range)) {
      case TileVisibility::none:
        return TileVisibility::all;
      case TileVisibility::all:
        return TileVisibility::none;
      case TileVisibility::some:
        break;
    }
    return TileVisibility::some;
  }
  constexpr std::uint64_t bits(const Site& first, int count) const {
    return ~mask_bits(mask_, first, count) & detail::low_bits(count);
  }

 private:
  [[no_unique_address]] M mask_;
};

/// A pair is visible where both masks say so. Found through one operand of rove's own; the other may be
/// anybody's.
template <Mask Left, Mask Right>
constexpr auto operator&(Left left, Right right) {
  if constexpr (detail::is_all_visible<Left>) {
    return right;
  } else if constexpr (detail::is_all_visible<Right>) {
    return left;
  } else {
    return And<Left, Right>(std::move(left), std::move(right));
  }
}

/// A pair is visible where either mask says so.
template <Mask Left, Mask Right>
constexpr Or<Left, Right> operator|(Left left, Right right) {
  return Or<Left, Right>(std::move(left), std::move(right));
}

/// A pair is visible where the mask says it is not.
template <Mask M>
constexpr Not<M> operator!(M mask) {
  return Not<M>(std::move(mask));
}

ROVE_END_TAGGED

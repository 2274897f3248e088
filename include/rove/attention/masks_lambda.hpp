/// \file
/// A mask from any callable.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "rove/attention/mask.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

/// A predicate of (batch, head, query, key), the last two absolute indices.
template <class F>
concept IndexPredicate = std::copy_constructible<F> && requires(const F& f, Index i) {
  { f(i, i, i, i) } -> std::convertible_to<bool>;
};

/// A predicate of a `Site`.
template <class F>
concept SitePredicate = std::copy_constructible<F> && requires(const F& f, const Site& site) {
  { f(site) } -> std::convertible_to<bool>;
};

/// What `mask()` takes.
template <class F>
concept MaskPredicate = IndexPredicate<F> || SitePredicate<F>;

/// Visible where the predicate says so; see `mask()`.
template <MaskPredicate F>
class PredicateMask {
 public:
  constexpr explicit PredicateMask(F predicate) : predicate_(std::move(predicate)) {}

  constexpr bool visible(const Site& site) const {
    if constexpr (IndexPredicate<F>) {
      return static_cast<bool>(predicate_(site.batch, site.head, site.query, site.key));
    } else {
      return static_cast<bool>(predicate_(site));
    }
  }

 private:
  [[no_unique_address]] F predicate_;
};

/// A pair is visible where `predicate(batch, head, query, key)`, by absolute index, or `predicate(site)` is
/// true. It is called for each logit, on several threads at once: for more speed write a struct with `tile`.
/// Counts as order-aware.
template <MaskPredicate F>
constexpr PredicateMask<F> mask(F predicate) {
  return PredicateMask<F>(std::move(predicate));
}

ROVE_END_TAGGED

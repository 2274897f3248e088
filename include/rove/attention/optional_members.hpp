/// \file
/// The optional members that masks and scores share.
#pragma once

#include <concepts>

#include "rove/attention/site.hpp"
#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

// Which optional members a type has, and which it merely names: a member that is named but cannot be called
// as it should be (not const, say) must not be passed over in silence.
template <class T>
concept HasCheck = requires(const T& t, const AttentionShape& shape) {
  t.check(shape);
};
template <class T>
concept HasOrderAware = requires(const T& t) {
  { t.order_aware() } -> std::convertible_to<bool>;
};
template <class T>
concept NamesCheck = requires {
  &T::check;
};
template <class T>
concept NamesOrderAware = requires {
  &T::order_aware;
};
template <class T>
concept HasPrefetch = requires(const T& t, const Site& first, Index count) {
  t.prefetch(first, count);
};
template <class T>
concept NamesPrefetch = requires {
  &T::prefetch;
};

}  // namespace detail

ROVE_END_TAGGED

/// \file
/// A score from any callable.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "rove/attention/score.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Callable with a number (or two) alone, with the site, or with (batch, head, query, key) behind it.
template <class F, class... Number>
concept PlainFunction = requires(const F& f, Number... s) {
  { f(s...) } -> std::convertible_to<double>;
};
template <class F, class... Number>
concept SiteFunction = requires(const F& f, const Site& site, Number... s) {
  { f(s..., site) } -> std::convertible_to<double>;
};
template <class F, class... Number>
concept IndexFunction = requires(const F& f, Index i, Number... s) {
  { f(s..., i, i, i, i) } -> std::convertible_to<double>;
};

template <class F, class Acc>
concept ScoreFunctionOf = PlainFunction<F, Acc> || SiteFunction<F, Acc> || IndexFunction<F, Acc>;
template <class F>
concept ScoreFunction = std::copy_constructible<F> && ScoreFunctionOf<F, float> && ScoreFunctionOf<F, double>;

/// Numbers are tried before the site: an `auto` in its place would take either.
template <class F, class Acc>
concept ScoreDerivativeOf = PlainFunction<F, Acc> || PlainFunction<F, Acc, Acc> || SiteFunction<F, Acc> ||
    SiteFunction<F, Acc, Acc> || IndexFunction<F, Acc> || IndexFunction<F, Acc, Acc>;
template <class F>
concept ScoreDerivative =
    std::copy_constructible<F> && ScoreDerivativeOf<F, float> && ScoreDerivativeOf<F, double>;

/// f of the numbers, and of the site as f wants to have it.
template <Accumulator Acc, class F, class... Number>
ROVE_ALWAYS_INLINE constexpr Acc call_at(const F& f, const Site& site, Number... s) {
  if constexpr (SiteFunction<F, Number...>) {
    return static_cast<Acc>(f(s..., site));
  } else {
    return static_cast<Acc>(f(s..., site.batch, site.head, site.query, site.key));
  }
}

}  // namespace detail

/// No derivative was given.
struct NoDerivative {};

/// s' = f(s, …); see `score()`.
template <class F, class Derivative = NoDerivative>
class FunctionScore {
 public:
  constexpr explicit FunctionScore(F function, Derivative derivative = {})
      : function_(std::move(function)), derivative_(std::move(derivative)) {}

  template <Accumulator Acc>
  constexpr Acc operator()(Acc s, const Site& site) const {
    if constexpr (detail::PlainFunction<F, Acc>) {
      return static_cast<Acc>(function_(s));
    } else {
      return detail::call_at<Acc>(function_, site, s);
    }
  }
  template <Accumulator Acc>
  constexpr Acc dscore(Acc s_in, Acc s_out, const Site& site) const
      requires(!std::is_same_v<Derivative, NoDerivative>) {
    if constexpr (detail::PlainFunction<Derivative, Acc>) {
      return static_cast<Acc>(derivative_(s_in));
    } else if constexpr (detail::PlainFunction<Derivative, Acc, Acc>) {
      return static_cast<Acc>(derivative_(s_in, s_out));
    } else if constexpr (detail::SiteFunction<Derivative, Acc> || detail::IndexFunction<Derivative, Acc>) {
      return detail::call_at<Acc>(derivative_, site, s_in);
    } else {
      return detail::call_at<Acc>(derivative_, site, s_in, s_out);
    }
  }
  /// A function of the number alone is not.
  static constexpr bool order_aware() { return !detail::PlainFunction<F, double>; }

 private:
  [[no_unique_address]] F function_;
  [[no_unique_address]] Derivative derivative_;
};

/// A score from a callable: `f(s)`, `f(s, site)` or `f(s, batch, head, query, key)`, the last two absolute
/// indices. Only the first is not order-aware. It is called for each logit, on several threads at once.
///
/// Write it for any number (`[](auto s) { … }`). One that takes double works too: float logits are widened
/// for it and its result is rounded; one that takes float would cost double logits their precision. Its
/// result is converted back to the type of s.
template <detail::ScoreFunction F>
constexpr FunctionScore<F> score(F f) {
  return FunctionScore<F>(std::move(f));
}

/// The same with its derivative, for gradients: `df` is called as `df(s_in)` or `df(s_in, s_out)`, either of
/// them also with a site (named as `Site`, not `auto`) or with (batch, head, query, key) behind, and returns
/// ∂s_out/∂s_in.
template <detail::ScoreFunction F, detail::ScoreDerivative Derivative>
constexpr FunctionScore<F, Derivative> score(F f, Derivative df) {
  return FunctionScore<F, Derivative>(std::move(f), std::move(df));
}

ROVE_END_TAGGED

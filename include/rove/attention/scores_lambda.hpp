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

template <class F, class... Number>
concept ScoreFunction =
    PlainFunction<F, Number...> || SiteFunction<F, Number...> || IndexFunction<F, Number...>;

template <Accumulator Acc, class F, class... Number>
ROVE_ALWAYS_INLINE constexpr Acc call_score_function(const F& f, const Site& site, Number... s) {
  if constexpr (PlainFunction<F, Number...>) {
    return static_cast<Acc>(f(s...));
  } else if constexpr (SiteFunction<F, Number...>) {
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
    return detail::call_score_function<Acc>(function_, site, s);
  }
  template <Accumulator Acc>
  requires(!std::is_same_v<Derivative, NoDerivative>) constexpr Acc
      dscore(Acc s_in, Acc s_out, const Site& site) const {
    if constexpr (detail::ScoreFunction<Derivative, Acc>) {
      return detail::call_score_function<Acc>(derivative_, site, s_in);
    } else {
      return detail::call_score_function<Acc>(derivative_, site, s_in, s_out);
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
template <class F>
requires(std::copy_constructible<F>&& detail::ScoreFunction<F, float>&&
             detail::ScoreFunction<F, double>) constexpr FunctionScore<F> score(F f) {
  return FunctionScore<F>(std::move(f));
}

/// The same with its derivative, for gradients: `df` is called as `df(s_in)` or `df(s_in, s_out)`, either of
/// them also with a site or with (batch, head, query, key) behind, and returns ∂s_out/∂s_in.
template <class F, class Derivative>
requires(std::copy_constructible<F>&& detail::ScoreFunction<F, float>&& detail::ScoreFunction<F, double>&&
             std::copy_constructible<Derivative> &&
         (detail::ScoreFunction<Derivative, double> ||
          detail::ScoreFunction<Derivative, double,
                                double>)) constexpr FunctionScore<F, Derivative> score(F f, Derivative df) {
  return FunctionScore<F, Derivative>(std::move(f), std::move(df));
}

ROVE_END_TAGGED

/// \file
/// What a score modifier is: a function of a scaled logit and its site, applied before the mask; and how they
/// join. The modifiers themselves are in scores_*.hpp, the run-time choice in any_score.hpp.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "rove/attention/optional_members.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/ambiguous.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

/// `s' = score(s, site)` for s of float and of double, in the same type, where s is the logit after scaling.
/// The mask comes after it, so nothing that a score returns can make a hidden key visible; NaN and infinities
/// pass on to the softmax. Sums, products and their like should be written with `mul_add` where a fused and a
/// separate rounding would differ, so that every compiler gives the same bits.
///
/// A score is a cheap copyable value. It may have these members besides.
///
/// - `Acc dscore(Acc s_in, Acc s_out, const Site&) const` for float and double: ∂s_out/∂s_in, which gradients
///   need; s_out is what the score made of s_in.
/// - `void check(const AttentionShape&) const` throws `Error` where the score does not fit the call. It runs
///   once a call, before anything is written, and allocates nothing.
/// - `bool order_aware() const`: whether the result depends on `site.query`, so that a call whose q_len and
///   kv_len differ must say where its queries stand. Missing: true.
/// - `bool differentiable() const`: whether `dscore` may be called, where only run time can tell. Missing:
///   whether there is one.
/// - `P packet(P s, const Site& first) const`, a template over `simd::PacketLike P`: the score of slots
///   first.slot + i with keys first.key + i in lane i, lane by lane the bits of the scalar form. It is asked
///   about keys that the mask hides, too, but about no slots that are not in use. Missing: asked one by one,
///   for visible keys only.
/// - `bool takes_packets() const`: whether `packet` may be called, where only run time can tell. Missing:
///   whether there is one.
/// - `void prefetch(const Site& first, Index count) const`: a hint that the slots first.slot + i, i < count,
///   count >= 1, of the row will be asked about soon; `query` and `key` are not set.
template <class S>
concept Score = std::copy_constructible<S> && requires(const S& score, const Site& site, float f, double d) {
  { score(f, site) } -> std::same_as<float>;
  { score(d, site) } -> std::same_as<double>;
};

/// A score with a derivative, as gradients need it.
template <class S>
concept DifferentiableScore = Score<S> && requires(const S& score, const Site& site, float f, double d) {
  { score.dscore(f, f, site) } -> std::same_as<float>;
  { score.dscore(d, d, site) } -> std::same_as<double>;
};

/// A score with a packet form for P.
template <class S, class P>
concept PacketScore = simd::PacketLike<P> && requires(const S& score, P s, const Site& first) {
  { score.packet(s, first) } -> std::same_as<P>;
};

namespace detail {

template <class S>
concept HasDifferentiable = requires(const S& score) {
  { score.differentiable() } -> std::convertible_to<bool>;
};
template <class S>
concept HasTakesPackets = requires(const S& score) {
  { score.takes_packets() } -> std::convertible_to<bool>;
};
struct NamesPacket {
  int packet;
};
template <class S>
concept NamesPacketForm = std::is_class_v<S> && !std::is_final_v<S> && !requires {
  &Ambiguous<S, NamesPacket>::packet;
};

}  // namespace detail

// What kernels call: a score's own member, or what stands in for it.

/// Throws what `score.check` throws.
template <Score S>
ROVE_ALWAYS_INLINE constexpr void score_check(const S& score, const AttentionShape& shape) {
  static_assert(detail::HasCheck<S> || !detail::NamesCheck<S>,
                "the score's check cannot be called as void check(const AttentionShape&) const");
  if constexpr (detail::HasCheck<S>) score.check(shape);
}

/// Whether a call with q_len != kv_len must say where its queries stand.
template <Score S>
ROVE_ALWAYS_INLINE constexpr bool score_order_aware(const S& score) {
  static_assert(detail::HasOrderAware<S> || !detail::NamesOrderAware<S>,
                "the score's order_aware cannot be called as bool order_aware() const");
  if constexpr (detail::HasOrderAware<S>) {
    return score.order_aware();
  } else {
    return true;
  }
}

/// Whether `dscore` is there to be called.
template <Score S>
ROVE_ALWAYS_INLINE constexpr bool score_differentiable(const S& score) {
  if constexpr (detail::HasDifferentiable<S>) {
    return score.differentiable();
  } else {
    return DifferentiableScore<S>;
  }
}

/// Whether `packet` is there to be called for P.
template <Score S, simd::PacketLike P>
inline constexpr bool score_takes_packets = [] {
  static_assert(PacketScore<S, P> || !detail::NamesPacketForm<S>,
                "the score's packet cannot be called as P packet(P, const Site&) const");
  return PacketScore<S, P>;
}();

/// Whether the score's `packet`, if it has one, may be called: of an AnyScore only run time can tell.
template <Score S>
ROVE_ALWAYS_INLINE constexpr bool score_packets_ready(const S& score) {
  if constexpr (detail::HasTakesPackets<S>) {
    return score.takes_packets();
  } else {
    return true;
  }
}

/// Whether `prefetch` is there to be called.
template <Score S>
constexpr bool score_prefetches() {
  static_assert(detail::HasPrefetch<S> || !detail::NamesPrefetch<S>,
                "the score's prefetch cannot be called as void prefetch(const Site&, Index) const");
  return detail::HasPrefetch<S>;
}

/// The logit as it is: the score of a problem that was given none.
struct NoScore {
  template <Accumulator Acc>
  constexpr Acc operator()(Acc s, const Site&) const {
    return s;
  }
  template <simd::PacketLike P>
  constexpr P packet(P s, const Site&) const {
    return s;
  }
  template <Accumulator Acc>
  constexpr Acc dscore(Acc, Acc, const Site&) const {
    return Acc{1};
  }
  static constexpr bool order_aware() { return false; }
};

namespace detail {

/// True for the score that a kernel need not call.
template <class S>
inline constexpr bool is_no_score = std::is_same_v<std::remove_cvref_t<S>, NoScore>;

}  // namespace detail

/// second(first(s)); written `first | second`.
template <Score First, Score Second>
class ScoreChain {
 public:
  constexpr ScoreChain(First first, Second second) : first_(std::move(first)), second_(std::move(second)) {}

  template <Accumulator Acc>
  constexpr Acc operator()(Acc s, const Site& site) const {
    return second_(first_(s, site), site);
  }
  /// The chain rule; the value between the two is computed again.
  template <Accumulator Acc>
  constexpr Acc dscore(Acc s_in, Acc s_out, const Site& site) const
      requires(DifferentiableScore<First>&& DifferentiableScore<Second>) {
    const Acc between = first_(s_in, site);
    return second_.dscore(between, s_out, site) * first_.dscore(s_in, between, site);
  }
  template <simd::PacketLike P>
  P packet(P s, const Site& site) const
      requires(score_takes_packets<First, P>&& score_takes_packets<Second, P>) {
    return second_.packet(first_.packet(s, site), site);
  }
  constexpr bool takes_packets() const { return score_packets_ready(first_) && score_packets_ready(second_); }
  constexpr void check(const AttentionShape& shape) const {
    score_check(first_, shape);
    score_check(second_, shape);
  }
  void prefetch(const Site& site, Index count) const
      requires(score_prefetches<First>() || score_prefetches<Second>()) {
    if constexpr (score_prefetches<First>()) first_.prefetch(site, count);
    if constexpr (score_prefetches<Second>()) second_.prefetch(site, count);
  }
  constexpr bool order_aware() const { return score_order_aware(first_) || score_order_aware(second_); }
  constexpr bool differentiable() const {
    return score_differentiable(first_) && score_differentiable(second_);
  }

 private:
  [[no_unique_address]] First first_;
  [[no_unique_address]] Second second_;
};

/// A chain takes packets where both of its scores do.
template <class First, class Second, simd::PacketLike P>
inline constexpr bool score_takes_packets<ScoreChain<First, Second>, P> =
    score_takes_packets<First, P>&& score_takes_packets<Second, P>;

/// The scores from left to right: `soft_cap(50) | alibi(8)` caps and then adds. Found through one operand of
/// rove's own; the other may be anybody's.
template <Score First, Score Second>
constexpr auto operator|(First first, Second second) {
  if constexpr (detail::is_no_score<First>) {
    return second;
  } else if constexpr (detail::is_no_score<Second>) {
    return first;
  } else {
    return ScoreChain<First, Second>(std::move(first), std::move(second));
  }
}

ROVE_END_TAGGED

/// \file
/// Soft-capping of logits.
#pragma once

#include "rove/attention/score.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_math.hpp"

ROVE_BEGIN_TAGGED

/// cap · tanh(s / cap); see `soft_cap()`.
class SoftCap {
 public:
  explicit SoftCap(double cap) : cap_(cap), inverse_(1 / cap) {
    // In these bounds both are normal numbers in float as well.
    ROVE_EXPECT(cap >= 0x1p-126 && cap <= 0x1p126, "soft_cap: cap must lie between 2^-126 and 2^126, got ",
                cap);
  }

  double cap() const { return cap_; }

  template <Accumulator Acc>
  ROVE_ALWAYS_INLINE Acc operator()(Acc s, const Site&) const {
    return capped(s);
  }
  template <simd::PacketLike P>
  ROVE_ALWAYS_INLINE P packet(P s, const Site&) const {
    return capped(s);
  }
  template <Accumulator Acc>
  Acc dscore(Acc, Acc s_out, const Site&) const {
    const Acc capped = s_out / static_cast<Acc>(cap_);
    return (Acc{1} - capped) * (Acc{1} + capped);
  }
  static constexpr bool order_aware() { return false; }

 private:
  template <simd::PacketLike P>
  ROVE_ALWAYS_INLINE P capped(P s) const {
    using Acc = simd::lane_t<P>;
    return simd::broadcast<P>(static_cast<Acc>(cap_)) *
           simd::tanh(s * simd::broadcast<P>(static_cast<Acc>(inverse_)));
  }

  double cap_;
  double inverse_;
};

/// s' = cap · tanh(s / cap), within 5 ulp, which keeps logits in (−cap, cap) as Gemma 2 and Grok do; ∂s'/∂s =
/// 1 − (s'/cap)². cap > 0. A logit of −∞ becomes −cap and takes weight: hide keys with a mask, which is
/// applied after it.
inline SoftCap soft_cap(double cap) {
  return SoftCap(cap);
}

ROVE_END_TAGGED

/// \file
/// Soft-capping of logits.
#pragma once

#include <cmath>
#include <limits>

#include "rove/attention/score.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"

ROVE_BEGIN_TAGGED

/// cap · tanh(s / cap); see `soft_cap()`.
class SoftCap {
 public:
  explicit SoftCap(double cap) : cap_(cap) {
    // In these bounds cap is a normal number in float as well.
    ROVE_EXPECT(cap >= static_cast<double>((std::numeric_limits<float>::min)()) &&
                    cap <= static_cast<double>((std::numeric_limits<float>::max)()),
                "soft_cap: cap must be positive and finite in float, got ", cap);
  }

  double cap() const { return cap_; }

  template <Accumulator Acc>
  Acc operator()(Acc s, const Site&) const {
    const Acc cap = static_cast<Acc>(cap_);
    return cap * std::tanh(s / cap);
  }
  template <Accumulator Acc>
  Acc dscore(Acc, Acc s_out, const Site&) const {
    const Acc capped = s_out / static_cast<Acc>(cap_);
    return (Acc{1} - capped) * (Acc{1} + capped);
  }
  static constexpr bool order_aware() { return false; }

 private:
  double cap_;
};

/// s' = cap · tanh(s / cap), which keeps logits in (−cap, cap) as Gemma 2 and Grok do; ∂s'/∂s = 1 −
/// (s'/cap)². cap > 0. A logit of −∞ becomes −cap and takes weight: hide keys with a mask, which is applied
/// after it.
inline SoftCap soft_cap(double cap) {
  return SoftCap(cap);
}

ROVE_END_TAGGED

/// \file
/// Attention with linear biases (Press, Smith, Lewis; arXiv 2108.12409).
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/attention/score.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

/// s − slope[head] · |query − key|; see `alibi()`.
class Alibi {
 public:
  explicit Alibi(std::vector<double> slopes)
      : slopes_(std::make_shared<const std::vector<double>>(std::move(slopes))), slope_(slopes_->data()) {
    for (std::size_t h = 0; h < slopes_->size(); ++h) {
      ROVE_EXPECT(std::isfinite(static_cast<float>(slope_[h])), "alibi: the slope of head ", h,
                  " must be finite in float, got ", slope_[h]);
    }
  }

  /// By query head.
  std::span<const double> slopes() const { return *slopes_; }

  template <Accumulator Acc>
  ROVE_ALWAYS_INLINE Acc operator()(Acc s, const Site& site) const {
    const Index ahead = site.key - site.query;
    const Acc distance = static_cast<Acc>(ahead < 0 ? -ahead : ahead);
    return mul_add(-static_cast<Acc>(slope_[site.head]), distance, s);
  }
  template <simd::PacketLike P>
  ROVE_ALWAYS_INLINE P packet(P s, const Site& first) const {
    using Acc = simd::lane_t<P>;
    // Distances are whole numbers, and exact while they are small; beyond, each is rounded once.
    constexpr Index exact = Index{1} << (std::is_same_v<Acc, float> ? 23 : 52);
    const Index ahead = first.key - first.query;
    P distance;
    if (-exact <= ahead && ahead <= exact) {
      distance = simd::abs(simd::broadcast<P>(static_cast<Acc>(ahead)) + simd::lane_numbers<P>());
    } else {
      Acc lanes[std::size_t{simd::width<P>}];
      for (int i = 0; i < simd::width<P>; ++i)
        lanes[i] = static_cast<Acc>(ahead + i < 0 ? -(ahead + i) : ahead + i);
      distance = simd::load<P>(lanes);
    }
    return simd::mul_add(simd::broadcast<P>(-static_cast<Acc>(slope_[first.head])), distance, s);
  }
  template <Accumulator Acc>
  Acc dscore(Acc, Acc, const Site&) const {
    return Acc{1};
  }
  void check(const AttentionShape& shape) const {
    ROVE_EXPECT(static_cast<Index>(slopes_->size()) == shape.heads, "alibi: there are ", slopes_->size(),
                " slopes for ", shape.heads, " query heads");
  }
  static constexpr bool order_aware() { return true; }

 private:
  std::shared_ptr<const std::vector<double>> slopes_;
  const double* slope_;
};

/// The slopes of the paper for a number of heads, by head. With m the largest power of two <= heads they are
/// 2^(−8(h + 1)/m) for h < m, followed by the first, third, fifth … slope for 2m heads.
inline std::vector<double> alibi_slopes(Index heads) {
  ROVE_EXPECT(heads >= 0, "alibi: heads must not be negative, got ", heads);
  std::vector<double> slopes;
  slopes.reserve(static_cast<std::size_t>(heads));
  Index power = 1;
  while (power <= heads / 2) power *= 2;
  for (Index h = 0; h < heads; ++h) {
    const Index eighths = h < power ? 2 * (h + 1) : 2 * (h - power) + 1;  // of 2^(−8/(2m))
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(eighths) / static_cast<double>(power)));
  }
  return slopes;
}

/// s' = s − slope[head] · |query − key|, with absolute indices and the paper's slopes for this many query
/// heads. A key after its query (there is one only without a causal mask) is as far as one before it.
inline Alibi alibi(Index heads) {
  return Alibi(alibi_slopes(heads));
}

/// The same with slopes of one's own, one for each query head, which are copied.
inline Alibi alibi(std::span<const double> slopes) {
  return Alibi({slopes.begin(), slopes.end()});
}
inline Alibi alibi(std::span<const float> slopes) {
  return Alibi({slopes.begin(), slopes.end()});
}

ROVE_END_TAGGED

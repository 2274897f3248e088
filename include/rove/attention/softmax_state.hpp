/// \file
/// The online softmax of one row, and how partial results join.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <type_traits>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd_math.hpp"
#include "rove/core/tensor_view.hpp"

ROVE_BEGIN_TAGGED

/// What one row's softmax has seen: the largest logit and Σ 2^(t − max), logits t in units of log 2 (natural
/// logits times log₂e). Weights below e^−60 of the maximum count as exactly 0.
///
/// Milakov and Gimelshein, "Online normalizer calculation for softmax" (arXiv 1805.02867), in base 2.
template <Accumulator Acc>
struct SoftmaxState {
  Acc max = -std::numeric_limits<Acc>::infinity();
  Acc sum = 0;

  /// What a single logit leaves, a sink's say: +∞ and NaN make the sum NaN here too, −∞ leaves it empty.
  static SoftmaxState of(Acc logit) {
    SoftmaxState state;
    state.raise(logit);
    state.sum = simd::exp2_kernel(logit - state.reference());
    return state;
  }

  /// No visible key yet, or none whose logit is above −∞. A NaN or +∞ logit makes the sum NaN: not empty.
  bool empty() const { return sum == Acc(0); }

  /// What to subtract from logits before exponentiating: the maximum, 0 while that is −∞ (−∞ − −∞ is NaN).
  Acc reference() const { return max == -std::numeric_limits<Acc>::infinity() ? Acc(0) : max; }

  /// Raises the maximum to `candidate` where that is larger (a NaN never is) and returns 2^(old − new), the
  /// factor that everything summed so far now takes; exactly 1 where nothing changes. Follow it by `add`.
  Acc raise(Acc candidate) {
    if (!(candidate > max)) return Acc(1);
    const Acc old = max;
    max = candidate;
    return simd::exp2_kernel(old - candidate);
  }

  /// Σ ← Σ · factor + weights, one multiply-add.
  void add(Acc factor, Acc weights) { sum = mul_add(sum, factor, weights); }

  /// ln Σ exp: −∞ for an empty row. Evaluated in double and rounded once.
  Acc lse() const {
    if (empty()) return -std::numeric_limits<Acc>::infinity();
    return static_cast<Acc>((static_cast<double>(max) + std::log2(static_cast<double>(sum))) *
                            std::numbers::ln2);
  }
};

/// Two states as one, and the factors that their unnormalised outputs take: o = weight_a · o_a + weight_b ·
/// o_b.
template <Accumulator Acc>
struct MergedSoftmax {
  SoftmaxState<Acc> state;
  Acc weight_a;
  Acc weight_b;
};

/// Joins what two disjoint sets of keys have summed. Two empty states make an empty one, with weights of 1.
template <Accumulator Acc>
MergedSoftmax<Acc> merge(SoftmaxState<Acc> a, SoftmaxState<Acc> b) {
  MergedSoftmax<Acc> merged{a, Acc(1), Acc(1)};
  merged.weight_a = merged.state.raise(b.max);
  merged.weight_b = b.raise(a.max);
  merged.state.sum = mul_add(b.sum, merged.weight_b, a.sum * merged.weight_a);
  return merged;
}

namespace detail {

/// How two finished rows join, from their log-sum-exps.
template <Accumulator Acc>
struct RowMerge {
  Acc weight_a = 0;
  Acc weight_b = 0;
  Acc lse = -std::numeric_limits<Acc>::infinity();
  bool has_a = false;
  bool has_b = false;

  RowMerge(Acc lse_a, Acc lse_b) {
    has_a = lse_a != lse;
    has_b = lse_b != lse;
    if (!has_a || !has_b) {
      lse = has_a ? lse_a : lse_b;
      return;
    }
    const double top = static_cast<double>(lse_a > lse_b ? lse_a : lse_b);
    const double a = std::exp(static_cast<double>(lse_a) - top);
    const double b = std::exp(static_cast<double>(lse_b) - top);
    weight_a = static_cast<Acc>(a / (a + b));
    weight_b = static_cast<Acc>(b / (a + b));
    lse = static_cast<Acc>(top + std::log(a + b));
  }

  // A part without keys is left out by selection: whatever its row holds, NaN even, does not reach the
  // result.
  Acc operator()(Acc a, Acc b) const {
    if (has_a && has_b) return mul_add(weight_b, b, weight_a * a);
    return has_a ? a : has_b ? b : Acc(0);
  }
};

}  // namespace detail

/// Joins the finished rows of two disjoint sets of keys, `out_a` with log-sum-exp `lse_a` and `out_b` with
/// `lse_b` (natural logarithms, no sinks in either), in place into `out_a`; returns the joint log-sum-exp.
///
///     lse = ln(exp lse_a + exp lse_b) ;  out = exp(lse_a − lse) · out_a + exp(lse_b − lse) · out_b
///
/// A part without keys (lse −∞) takes no part, by selection; two such give 0 and −∞. Weights are evaluated in
/// double.
template <Accumulator Acc>
Acc merge_rows(std::span<Acc> out_a, Acc lse_a, std::span<const Acc> out_b, Acc lse_b) {
  ROVE_EXPECT(out_a.size() == out_b.size(), "the rows to merge have ", out_a.size(), " and ", out_b.size(),
              " channels");
  const detail::RowMerge<Acc> joined(lse_a, lse_b);
  for (std::size_t c = 0; c < out_a.size(); ++c) out_a[c] = joined(out_a[c], out_b[c]);
  return joined.lse;
}

/// `merge_rows` over whole results, [batch, heads, tokens(, channels)]: out_a and lse_a take the joint
/// result. The element type is the accumulator: partial results are not rounded to storage before they are
/// merged. The two may not share memory. Partial rows must be in one frame: merge before the output's frame
/// is undone, unless the parts were displaced against each other, and then after it.
template <Accumulator Acc>
void merge_partials(TensorView<Acc> out_a, RowView<Acc> lse_a,
                    std::type_identity_t<TensorView<const Acc>> out_b,
                    std::type_identity_t<RowView<const Acc>> lse_b) {
  const char* const names[4] = {"batch", "heads", "tokens", "channels"};
  for (int i = 0; i < 4; ++i) {
    ROVE_EXPECT(out_a.extent[i] == out_b.extent[i], "the partial outputs have ", names[i], " ",
                out_a.extent[i], " and ", out_b.extent[i]);
    ROVE_EXPECT(i == 3 || (lse_a.extent[i] == out_a.extent[i] && lse_b.extent[i] == out_a.extent[i]),
                "the partial log-sum-exps have ", names[i], " ", lse_a.extent[i % 3], " and ",
                lse_b.extent[i % 3], ", the outputs ", out_a.extent[i]);
  }
  for (Index b = 0; b < out_a.batch(); ++b) {
    for (Index h = 0; h < out_a.heads(); ++h) {
      for (Index t = 0; t < out_a.tokens(); ++t) {
        const detail::RowMerge<Acc> joined(lse_a(b, h, t), lse_b(b, h, t));
        for (Index c = 0; c < out_a.channels(); ++c) {
          out_a(b, h, t, c) = joined(out_a(b, h, t, c), out_b(b, h, t, c));
        }
        lse_a(b, h, t) = joined.lse;
      }
    }
  }
}

ROVE_END_TAGGED

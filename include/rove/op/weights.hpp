/// \file
/// The attention weights themselves, for looking inside.
#pragma once

#include <algorithm>
#include <limits>
#include <numbers>
#include <span>

#include "rove/attention/problem.hpp"
#include "rove/attention/row_io.hpp"
#include "rove/attention/softmax_state.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/core/view_checks.hpp"
#include "rove/op/attention.hpp"
#include "rove/op/frame_transforms.hpp"
#include "rove/op/frames.hpp"
#include "rove/op/materialise.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

template <class Problem, class Transforms, class T>
class WeightRows {
  using Acc = typename Problem::accumulator;

 public:
  WeightRows(const Problem& problem, const Transforms& transforms, TensorView<T> weights,
             const Context& context)
      : problem_(problem), transforms_(transforms), weights_(weights), used_(used_slots(problem)) {
    const Index channels = problem.channels();
    Context::Scope scope(context);
    keys_ = scope.template allocate<Acc>(problem.batch() * problem.kv_heads() * used_.count() * channels);
    const auto scratch = scope.template per_worker<Acc>(channels + used_.count());
    const auto seen = scope.template per_worker<unsigned char>(used_.count());
    for_each_row(context, problem.batch(), problem.kv_heads(), used_.count(),
                 [&](Index b, Index h, Index t, int) {
                   const SlotRange slots = problem_.slots(b);
                   const Index slot = used_.first + t;
                   if (slot < slots.first || slot >= slots.last) return;
                   read_key(problem_, transforms_.key, b, h, slot, key(b, h, slot));
                 });
    for_each_row(
        context, problem.batch(), problem.heads(), problem.q_len(),
        [&](Index b, Index h, Index row, int worker) { fill(b, h, row, scratch(worker), seen(worker)); });
  }

 private:
  std::span<Acc> key(Index b, Index kv_head, Index slot) const {
    const Index place = (b * problem_.kv_heads() + kv_head) * used_.count() + (slot - used_.first);
    return keys_.subspan(static_cast<std::size_t>(place * problem_.channels()),
                         static_cast<std::size_t>(problem_.channels()));
  }

  void fill(Index b, Index head, Index row, std::span<Acc> scratch, std::span<unsigned char> seen) const {
    const auto query = scratch.first(static_cast<std::size_t>(problem_.channels()));
    const auto logits = scratch.subspan(query.size());
    read_query(problem_, transforms_.query, b, head, row, query);
    const Acc scale = static_cast<Acc>(problem_.effective_scale());
    for (Acc& x : query) x *= scale;

    SoftmaxState<Acc> state;
    const SlotRange slots = problem_.slots(b);
    std::fill(seen.begin(), seen.end(), static_cast<unsigned char>(0));
    for (Index slot = slots.first; slot < slots.last; ++slot) {
      const Site site = problem_.site(b, head, row, slot);
      if (!problem_.mask.visible(site)) continue;
      Acc logit = 0;
      const auto turned = key(b, problem_.kv_head(head), slot);
      for (std::size_t c = 0; c < query.size(); ++c) logit = mul_add(query[c], turned[c], logit);
      logit = problem_.score(logit, site) * std::numbers::log2e_v<Acc>;
      const auto place = static_cast<std::size_t>(slot - used_.first);
      logits[place] = logit;
      seen[place] = 1;
      const Acc rescale = state.raise(logit);
      state.add(rescale, simd::exp2_kernel(logit - state.reference()));
    }
    if (problem_.sinks.data() != nullptr && !state.empty()) {
      const Acc sink = problem_.sinks[static_cast<std::size_t>(head)] * std::numbers::log2e_v<Acc>;
      state = merge(state, SoftmaxState<Acc>::of(sink)).state;
    }
    T* out = weights_.row(b, head, row);
    for (Index slot = 0; slot < problem_.kv_len(); ++slot, out += weights_.channel_stride()) {
      const auto place = static_cast<std::size_t>(slot - used_.first);
      Acc weight = 0;
      // By selection: in a row that is NaN, what it does not see still has weight 0.
      if (!state.empty() && slot >= used_.first && slot < used_.last && seen[place] != 0) {
        weight = simd::exp2_kernel(logits[place] - state.reference()) / state.sum;
      }
      store_rounded(out, weight);
    }
  }

  const Problem& problem_;
  const Transforms& transforms_;
  TensorView<T> weights_;
  SlotRange used_;
  std::span<Acc> keys_;
};

template <class Problem, class Transforms, class T>
void write_weights(const Problem& problem, const Transforms& transforms, const TensorView<T>& weights,
                   const Context& context) {
  const Index wanted[4] = {problem.batch(), problem.heads(), problem.q_len(), problem.kv_len()};
  const char* const names[4] = {"batch", "heads", "queries", "keys"};
  for (int i = 0; i < 4; ++i) {
    ROVE_EXPECT(weights.extent[i] == wanted[i], "the weights' ", names[i], " must be ", wanted[i], ", got ",
                weights.extent[i]);
  }
  check_view(weights, "weights");
  ROVE_EXPECT(!overlaps_itself(weights), "the weights overlap themselves: two elements share one place");
  ROVE_EXPECT(!overlaps(weights, problem.q), "the weights share memory with q");
  if constexpr (requires { problem.kv.overlaps(weights); }) {
    ROVE_EXPECT(!problem.kv.overlaps(weights), "the weights share memory with the keys or values");
  }
  if (weights.empty()) return;
  WeightRows<Problem, Transforms, T>(problem, transforms, weights, context);
}

}  // namespace detail

/// Writes A `[batch, heads, q_len, kv_len]`, the weights that `attention(problem, frames, …)` multiplies
/// (turned) values by; columns go by slot. Invisible and unused slots get 0; a row without visible keys is
/// all 0; with sinks a row sums to less than 1. `problem.out` and `problem.lse` are not written. O(q_len ·
/// kv_len) memory is the caller's; logits are computed in the accumulator type. Throws `Error` as the call
/// itself would.
template <Scalar TQ, KeyValues KV, Scalar TOut, Mask M, Score S, Frame FQ, Frame FK, Frame FV, Frame FO,
          Scalar T>
void attention_weights(const AttentionProblem<TQ, KV, TOut, M, S>& problem,
                       const Frames<FQ, FK, FV, FO>& frames, TensorView<T> weights,
                       const Context& context = {}) {
  problem.check();
  detail::check_frames(problem, frames);
  const auto scaled = detail::with_logit_factor(problem, frames.logit_factor);
  detail::write_weights(scaled, detail::frame_transforms(frames), weights, context);
}

/// The weights of attention without frames.
template <Scalar TQ, KeyValues KV, Scalar TOut, Mask M, Score S, Scalar T>
void attention_weights(const AttentionProblem<TQ, KV, TOut, M, S>& problem, TensorView<T> weights,
                       const Context& context = {}) {
  problem.check();
  detail::write_weights(problem, RowTransforms<>{}, weights, context);
}

ROVE_END_TAGGED

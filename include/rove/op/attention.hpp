/// \file
/// The operators: attention with frames round any kernel.
#pragma once

#include <type_traits>
#include <utility>

#include "rove/attention/kernel.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"
#include "rove/frame/frame.hpp"
#include "rove/op/frame_transforms.hpp"
#include "rove/op/frames.hpp"
#include "rove/op/materialise.hpp"

ROVE_BEGIN_TAGGED

/// The kernel of a call that names none.
using DefaultKernel = TiledKernel;

namespace detail {

template <class F, class Acc>
inline constexpr bool turns = is_identity_v<F> || FrameOn<F, Acc>;

/// The problem with the frames' factor on its default scale.
template <class Problem>
Problem with_logit_factor(Problem problem, double factor) {
  ROVE_EXPECT(factor > 0, "the frames' logit factor must be positive, got ", factor);
  problem.logit_factor *= factor;
  return problem;
}

/// What a kernel is given: the problem checked, alone and against the frames, with their factor.
template <class Problem, Frame FQ, Frame FK, Frame FV, Frame FO>
Problem checked(const Problem& problem, const Frames<FQ, FK, FV, FO>& frames) {
  using Acc = typename Problem::accumulator;
  static_assert(
      turns<FQ, Acc> && turns<FK, Acc> && turns<FV, Acc> && turns<FO, Acc>,
      "a frame cannot be applied to rows of the problem's accumulator type (float; double if any operand "
      "is)");
  problem.check();
  check_frames(problem, frames);
  return with_logit_factor(problem, frames.logit_factor);
}

template <class Problem, class Transforms, class K>
void run(const Problem& problem, const Transforms& transforms, const Context& context, const K& kernel) {
  if constexpr (FusingKernel<K, Problem, Transforms>) {
    kernel.fused(problem, transforms, context);
  } else {
    static_assert(!NamesFusedEntry<K>,
                  "the kernel has a member named fused that cannot be called as "
                  "fused(problem, row_transforms, context) const");
    using Call = MaterialisedCall<K, Problem, Transforms>;
    const Call call(problem, transforms);
    call(kernel, context);
  }
}

}  // namespace detail

/// Attention of rows as they are:
///
///     out_i = Σ_j A_ij v_j ,   A_ij = softmax_j(score(scale · ⟨q_i, k_j⟩)) over the visible j
///
/// \param problem operands, mask, score; `problem.out` (and `problem.lse`) are written
/// \param context executor and reusable memory; serial, with memory for this call, if left out
/// \param kernel  any callable kernel(problem, context); one without a fused entry is given tensor views in
/// the
///                accumulator type
///
/// Shapes `[batch, heads, tokens, channels]`. out may be q itself (same data, extents and strides) and must
/// not overlap any other operand. Accumulators are float, or double if any operand is. Each result is rounded
/// once, at the end. Throws `Error` where operands do not fit together, before anything is written.
template <Scalar TQ, KeyValues KV, Scalar TOut, Mask M, Score S, class K = DefaultKernel>
void attention(const AttentionProblem<TQ, KV, TOut, M, S>& problem, const Context& context = {},
               const K& kernel = {}) {
  problem.check();
  if (problem.out.empty()) return;
  detail::run(problem, RowTransforms<>{}, context, kernel);
}

/// Attention whose operands turn by `frames`:
///
///     s_ij = scale · ⟨Q_i⁻ᵀ q_i, K_j k_j⟩ ;  out_i = O_i⁻¹ Σ_j A_ij V_j v_j
///
/// A kernel with a fused entry reads and writes rows through the frames; for others turned operands are put
/// in memory first. The frames' logit factor multiplies the default scale only. Further as `attention`
/// without frames.
template <Scalar TQ, KeyValues KV, Scalar TOut, Mask M, Score S, Frame FQ, Frame FK, Frame FV, Frame FO,
          class K = DefaultKernel>
void attention(const AttentionProblem<TQ, KV, TOut, M, S>& problem, const Frames<FQ, FK, FV, FO>& frames,
               const Context& context = {}, const K& kernel = {}) {
  const auto checked = detail::checked(problem, frames);
  if (checked.out.empty()) return;
  detail::run(checked, detail::frame_transforms(frames), context, kernel);
}

/// RoVE attention of a sequence over itself:
///
///     y_i = R_i⁻¹ Σ_j A_ij R_j v_j ,   A from s_ij = scale · ⟨R_i⁻ᵀ q_i, R_j k_j⟩             (arXiv
///     2606.11275)
///
/// For models that were trained with it: on a model trained with RoPE it computes another function. Requires
/// q_len = kv_len = frame.tokens(); for queries at the end of a cache see the other form.
template <class Problem, Frame F, class K = DefaultKernel>
void rove_attention(const Problem& problem, const F& frame, const Context& context = {},
                    const K& kernel = {}) {
  attention(problem, rove_frames(frame), context, kernel);
}

/// RoVE attention with the frames of the query rows (q_len tokens) and of the key slots (at least kv_len)
/// apart.
template <class Problem, Frame Q, Frame FK, class K = DefaultKernel>
void rove_attention(const Problem& problem, const Q& at_queries, const FK& at_keys,
                    const Context& context = {}, const K& kernel = {}) {
  attention(problem, rove_frames(at_queries, at_keys), context, kernel);
}

/// RoPE attention of a sequence over itself: queries and keys turn, values do not. Requires
/// q_len = kv_len = frame.tokens().
template <class Problem, Frame F, class K = DefaultKernel>
void rope_attention(const Problem& problem, const F& frame, const Context& context = {},
                    const K& kernel = {}) {
  attention(problem, rope_frames(frame), context, kernel);
}

/// RoPE attention with the frames of the query rows (q_len tokens) and of the key slots (at least kv_len)
/// apart.
template <class Problem, Frame Q, Frame FK, class K = DefaultKernel>
void rope_attention(const Problem& problem, const Q& at_queries, const FK& at_keys,
                    const Context& context = {}, const K& kernel = {}) {
  attention(problem, rope_frames(at_queries, at_keys), context, kernel);
}

ROVE_END_TAGGED

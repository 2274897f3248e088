/// \file
/// Which frame turns which operand of an attention call.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/frame/frame.hpp"

ROVE_BEGIN_TAGGED

/// The frames of one attention call:
///
///     s_ij = scale · ⟨Q_i⁻ᵀ q_i, K_j k_j⟩ ;  y_i = O_i⁻¹ Σ_j A_ij V_j v_j
///
/// Query and output frames go by local row and have q_len tokens; key and value frames go by slot and have at
/// least kv_len. Each has a batch of 1 or the problem's. `rope_frames` and `rove_frames` make the usual ones.
template <Frame Q = IdentityFrame, Frame K = IdentityFrame, Frame V = IdentityFrame, Frame O = IdentityFrame>
struct Frames {
  Q query;
  K key;
  V value;
  O output;
  double logit_factor = 1;    ///< multiplies the default scale; a scale that the caller gave is left alone
  bool one_sequence = false;  ///< the query is the key sequence: q_len = kv_len = tokens() is required
};

namespace detail {

/// The factor on the default scale comes with the queries' frame, as m does; with the keys' where queries
/// were turned before the call.
template <Frame Q, Frame K>
double logit_factor_of(const Q& query, const K& key) {
  if constexpr (is_identity_v<Q>) {
    return frame_logit_factor(key);
  } else {
    return frame_logit_factor(query);
  }
}

}  // namespace detail

/// RoPE over one sequence that attends to itself: queries and keys turn, values do not. Requires
/// q_len = kv_len = frame.tokens(), so that a query at the end of a cache is never turned as token 0.
///
/// The frame's attention factor m is attached to the queries as m² (m where `keys` says that the keys have
/// theirs). Su et al., RoFormer (arXiv 2104.09864).
template <Frame F>
auto rope_frames(F frame, KeyFactor keys = KeyFactor::in_queries) {
  const double logit_factor = frame_logit_factor(frame);
  auto query = query_frame(frame, keys);
  return Frames<decltype(query), F>{std::move(query), std::move(frame), {}, {}, logit_factor, true};
}

/// RoPE with the frames of the query rows and of the key slots apart: decoding, cross attention.
template <Frame Q, Frame K>
auto rope_frames(const Q& at_queries, K at_keys, KeyFactor keys = KeyFactor::in_queries) {
  const double logit_factor = detail::logit_factor_of(at_queries, at_keys);
  auto query = query_frame(at_queries, keys);
  return Frames<decltype(query), K>{std::move(query), std::move(at_keys), {}, {}, logit_factor, false};
}

/// RoVE over one sequence that attends to itself: queries, keys and values turn, the result turns back at the
/// query. Requires q_len = kv_len = frame.tokens(). The model must have been trained with it.
///
///     y_i = R_i⁻¹ Σ_j A_ij R_j v_j                                                    (arXiv 2606.11275)
///
/// Values turn by the pure rotation, whatever the attention factor.
template <Frame F>
auto rove_frames(F frame, KeyFactor keys = KeyFactor::in_queries) {
  const double logit_factor = frame_logit_factor(frame);
  auto query = query_frame(frame, keys);
  return Frames<decltype(query), F, F, F>{std::move(query), frame, frame, frame, logit_factor, true};
}

/// RoVE with the frames of the query rows and of the key slots apart: values turn at the keys, outputs at the
/// queries.
template <Frame Q, Frame K>
auto rove_frames(Q at_queries, K at_keys, KeyFactor keys = KeyFactor::in_queries) {
  const double logit_factor = detail::logit_factor_of(at_queries, at_keys);
  auto query = query_frame(at_queries, keys);
  return Frames<decltype(query), K, K, Q>{std::move(query),      at_keys,      at_keys,
                                          std::move(at_queries), logit_factor, false};
}

/// RoVE with values in a frame of their own, of other width, pairing or frequencies than the keys': query and
/// key frames as in the two-frame form, `value` by slot, `output` by query row.
template <Frame Q, Frame K, Frame V, Frame O>
auto rove_frames(const Q& query, K key, V value, O output, KeyFactor keys = KeyFactor::in_queries) {
  const double logit_factor = detail::logit_factor_of(query, key);
  auto turned = query_frame(query, keys);
  return Frames<decltype(turned), K, V, O>{std::move(turned), std::move(key), std::move(value),
                                           std::move(output), logit_factor,   false};
}

/// The same with the output in the value frame, whose tokens() must then be q_len: values of the sequence
/// itself.
template <Frame Q, Frame K, Frame V>
auto rove_frames(const Q& query, K key, V value, KeyFactor keys = KeyFactor::in_queries) {
  auto output = value;
  return rove_frames(query, std::move(key), std::move(value), std::move(output), keys);
}

namespace detail {

template <Frame F>
void check_frame(const F& frame, const char* role, const char* rows, Index batch, Index channels,
                 Index tokens, bool exactly) {
  if constexpr (!is_identity_v<F>) {
    ROVE_EXPECT(frame.batch() == 1 || frame.batch() == batch, "the ", role, " frame has batch ",
                frame.batch(), ", the problem has ", batch);
    ROVE_EXPECT(frame.channels() <= channels, "the ", role, " frame turns ", frame.channels(),
                " channels of rows that have ", channels);
    ROVE_EXPECT(exactly ? frame.tokens() == tokens : frame.tokens() >= tokens, "the ", role, " frame has ",
                frame.tokens(), " tokens where there are ", tokens, " ", rows,
                exactly ? ": take rows(frame, first, count) of a longer one" : "");
  }
}

/// Frames against the problem they turn; before anything is written.
template <class Problem, Frame Q, Frame K, Frame V, Frame O>
void check_frames(const Problem& problem, const Frames<Q, K, V, O>& frames) {
  if (frames.one_sequence) {
    const Index tokens = frames.key.tokens();
    ROVE_EXPECT(problem.q_len() == problem.kv_len() && (is_identity_v<K> || problem.kv_len() == tokens),
                "one frame of ", tokens,
                " tokens serves queries and keys only where there are as many of both; there are ",
                problem.q_len(), " queries and ", problem.kv_len(),
                " keys: give the frames of the query rows and of the key slots, e.g. rows(frame, first, "
                "count) and frame");
  }
  check_frame(frames.query, "query", "queries", problem.batch(), problem.channels(), problem.q_len(), true);
  check_frame(frames.key, "key", "keys", problem.batch(), problem.channels(), problem.kv_len(), false);
  check_frame(frames.value, "value", "keys", problem.batch(), problem.value_channels(), problem.kv_len(),
              false);
  check_frame(frames.output, "output", "queries", problem.batch(), problem.value_channels(), problem.q_len(),
              true);
}

}  // namespace detail

ROVE_END_TAGGED

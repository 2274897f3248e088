/// \file
/// One attention call as a value: operands, mask, score, and everything a kernel must know to honour them.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "rove/attention/key_values.hpp"
#include "rove/attention/key_values/tensor.hpp"
#include "rove/attention/mask.hpp"
#include "rove/attention/score.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/check.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/core/view_checks.hpp"

namespace rove {

/// Where the queries stand among the keys: query row i has the absolute index offset[b] + i.
struct QueryOffset {
  enum class Kind { unspecified, shared, per_batch, last };
  Kind kind = Kind::unspecified;
  Index value = 0;          ///< for `shared`
  IntegerSpan values = {};  ///< for `per_batch`: one per batch row, borrowed
};

/// The first query stands at index 0 (PyTorch's `is_causal`).
ROVE_ALWAYS_INLINE QueryOffset align_first() {
  return {QueryOffset::Kind::shared, 0, {}};
}

/// The last query stands at the last used key (FlashAttention's causal): offset = its index + 1 − q_len.
ROVE_ALWAYS_INLINE QueryOffset align_last() {
  return {QueryOffset::Kind::last, 0, {}};
}

}  // namespace rove

ROVE_BEGIN_TAGGED

/// Attention of queries over keys and values:
///
///     s_ij = scale · ⟨q_i, k_j⟩ ;  A_ij = softmax_j(score(s_ij)) over the visible j ;  out_i = Σ_j A_ij v_j
///
/// with keys and values of query head h at kv head h / (heads / kv_heads). Sums, softmax, log-sum-exp and
/// sinks are in `accumulator`: double if any operand is double, otherwise float. An aggregate of borrowed
/// views: nothing is owned, spans (key lengths, offsets, sinks) included. The `with_…` members return a
/// changed copy.
///
/// \tparam TQ   storage of the queries
/// \tparam KV   a model of `KeyValues`
/// \tparam TOut storage of the output
template <Scalar TQ, KeyValues KV, Scalar TOut, Mask M = AllVisible, class S = NoScore>
struct AttentionProblem {
  using query_storage = TQ;
  using key_storage = typename KV::key_storage;
  using value_storage = typename KV::value_storage;
  using output_storage = TOut;
  using accumulator = row_accumulator_t<TQ, key_storage, value_storage, TOut>;
  using key_values_type = KV;
  using mask_type = M;
  using score_type = S;

  TensorView<const TQ> q;                   ///< [batch, heads, q_len, channels]
  KV kv;                                    ///< [batch, kv_heads, kv_len, channels | value channels]
  TensorView<TOut> out;                     ///< [batch, heads, q_len, value channels]
  M mask;                                   ///< which pairs see each other
  S score;                                  ///< what happens to a logit after scaling
  std::optional<double> scale = {};         ///< factor on ⟨q, k⟩; left out: logit_factor / √channels
  double logit_factor = 1;                  ///< a scaling's own factor on the default scale
  QueryOffset query_offset = {};            ///< where row 0 stands among the keys
  IntegerSpan key_lengths = {};             ///< per batch row: slots at or past it are not there; borrowed
  RowView<accumulator> lse = {};            ///< optional result: ln Σ_j exp(s_ij), sinks included
  std::span<const accumulator> sinks = {};  ///< per query head: a logit that takes weight and has no value

  Index batch() const { return q.batch(); }
  Index heads() const { return q.heads(); }
  Index kv_heads() const { return kv.heads(); }
  Index q_len() const { return q.tokens(); }
  Index kv_len() const { return kv.length(); }
  Index channels() const { return q.channels(); }
  Index value_channels() const { return kv.value_channels(); }
  Index group() const { return kv.heads() == 0 ? 1 : q.heads() / kv.heads(); }
  Index kv_head(Index head) const { return head / group(); }
  AttentionShape shape() const { return {batch(), heads(), kv_heads(), q_len(), kv_len()}; }

  /// The slots of batch row b that are in use: the cache's, cut by the key length.
  SlotRange slots(Index b) const {
    SlotRange range = kv.slots(b);
    if (key_lengths) range.last = (std::min)(range.last, key_lengths[b]);
    range.last = (std::max)(range.first, range.last);
    return range;
  }

  /// The absolute index of query row 0 of batch row b.
  Index first_query(Index b) const {
    switch (query_offset.kind) {
      case QueryOffset::Kind::unspecified:
        return 0;
      case QueryOffset::Kind::shared:
        return query_offset.value;
      case QueryOffset::Kind::per_batch:
        return query_offset.values[b];
      case QueryOffset::Kind::last:
        break;
    }
    const SlotRange used = slots(b);
    const Index next = used.first == used.last ? used.last : kv.indices(b, used.last - 1).first + 1;
    return next - q_len();
  }

  /// Everything masks and scores may be asked about one pair; looks the key's index up.
  Site site(Index b, Index head, Index row, Index slot) const {
    return {b, head, row, slot, first_query(b) + row, kv.indices(b, slot).first};
  }

  /// The factor on ⟨q, k⟩: as given, otherwise logit_factor / √channels.
  double effective_scale() const {
    return scale ? *scale : logit_factor / std::sqrt(static_cast<double>(channels()));
  }

  /// The same call under another mask.
  template <Mask M2>
  auto with_mask(M2 other) const {
    return rebuilt(kv, std::move(other), score);
  }
  /// The same call where a pair must be visible to the present mask and to this one.
  template <Mask M2>
  auto and_mask(M2 other) const {
    return rebuilt(kv, mask & std::move(other), score);
  }
  /// The same call under another score; compose with `|`.
  template <class S2>
  requires Score<S2>
  auto with_score(S2 other) const { return rebuilt(kv, mask, std::move(other)); }
  AttentionProblem with_scale(double factor) const {
    AttentionProblem changed = *this;
    changed.scale = factor;
    return changed;
  }
  AttentionProblem with_query_offset(QueryOffset offset) const {
    AttentionProblem changed = *this;
    changed.query_offset = offset;
    return changed;
  }
  /// Row 0 of every batch row stands at absolute index `first`.
  AttentionProblem with_query_offset(Index first) const {
    return with_query_offset(QueryOffset{QueryOffset::Kind::shared, first, {}});
  }
  /// Row 0 of batch row b stands at absolute index offsets[b]; borrowed.
  AttentionProblem with_query_offsets(IntegerSpan offsets) const {
    return with_query_offset(QueryOffset{QueryOffset::Kind::per_batch, 0, offsets});
  }
  /// Batch row b uses slots below lengths[b] only; borrowed.
  AttentionProblem with_key_lengths(IntegerSpan lengths) const {
    AttentionProblem changed = *this;
    changed.key_lengths = lengths;
    return changed;
  }
  /// Also write the natural log-sum-exp of each row, `[batch, heads, q_len]`.
  AttentionProblem with_lse(RowView<accumulator> rows) const {
    AttentionProblem changed = *this;
    changed.lse = rows;
    return changed;
  }
  /// One sink logit per query head joins each row's softmax, with no value; borrowed.
  AttentionProblem with_sinks(std::span<const accumulator> logits) const {
    AttentionProblem changed = *this;
    changed.sinks = logits;
    return changed;
  }
  /// The same call over other keys and values of the same accumulator type.
  template <KeyValues KV2>
  auto with_key_values(KV2 other) const {
    return rebuilt(std::move(other), mask, score);
  }

  /// Throws `Error` where the operands do not fit together. O(batch); operators and kernels call it before
  /// they write anything.
  void check() const;

 private:
  template <class KV2, class M2, class S2>
  AttentionProblem<TQ, KV2, TOut, M2, S2> rebuilt(KV2 kv2, M2 mask2, S2 score2) const {
    using Rebuilt = AttentionProblem<TQ, KV2, TOut, M2, S2>;
    static_assert(std::is_same_v<typename Rebuilt::accumulator, accumulator>,
                  "the other keys and values change the accumulator type: start a new problem");
    return Rebuilt{q,     std::move(kv2), out,          std::move(mask2), std::move(score2),
                   scale, logit_factor,   query_offset, key_lengths,      lse,
                   sinks};
  }
};

/// Attention of q over any model of `KeyValues` into out.
template <class TQ, KeyValues KV, Scalar TOut>
auto attention_problem(TensorView<TQ> q, KV kv, TensorView<TOut> out) {
  return AttentionProblem<std::remove_const_t<TQ>, KV, TOut>{
      .q = q, .kv = std::move(kv), .out = out, .mask = {}, .score = {}};
}

/// Attention of q over the key rows k and value rows v into out.
template <class TQ, class TK, class TV, Scalar TOut>
auto attention_problem(TensorView<TQ> q, TensorView<TK> k, TensorView<TV> v, TensorView<TOut> out) {
  return attention_problem(q, key_values(k, v), out);
}

template <Scalar TQ, KeyValues KV, Scalar TOut, Mask M, class S>
void AttentionProblem<TQ, KV, TOut, M, S>::check() const {
  check_key_values(kv);
  for (const auto& [name, extent] :
       {std::pair{"batch", batch()}, {"heads", heads()}, {"tokens", q_len()}, {"channels", channels()}}) {
    ROVE_EXPECT(extent >= 0, "q's ", name, " must not be negative, got ", extent);
  }
  ROVE_EXPECT(kv.batch() == batch(), "keys and values have batch ", kv.batch(), ", q has ", batch());
  ROVE_EXPECT(kv.heads() > 0 || heads() == 0, "q has ", heads(), " heads but there are ", kv.heads(),
              " key/value heads to read");
  ROVE_EXPECT(heads() == 0 || heads() % kv.heads() == 0, "q's heads (", heads(),
              ") must be a multiple of the key/value heads (", kv.heads(), ")");
  ROVE_EXPECT(kv.key_channels() == channels(), "keys have ", kv.key_channels(), " channels, q has ",
              channels());
  ROVE_EXPECT(channels() > 0, "q must have at least 1 channel, got ", channels());
  ROVE_EXPECT(value_channels() > 0, "values must have at least 1 channel, got ", value_channels());
  const Index wanted[4] = {batch(), heads(), q_len(), value_channels()};
  const char* const names[4] = {"batch", "heads", "tokens", "channels"};
  for (int i = 0; i < 4; ++i) {
    ROVE_EXPECT(out.extent[i] == wanted[i], "out's ", names[i], " must be ", wanted[i], ", got ",
                out.extent[i]);
  }
  check_view(q, "q");
  check_view(out, "out");
  ROVE_EXPECT(!overlaps_itself(out), "out overlaps itself: two of its elements share one place");
  ROVE_EXPECT(!overlaps(out, q) || same_storage(out, q),
              "out may share q's memory only with q's element type, data, extents and strides");
  if constexpr (requires { kv.overlaps(out); }) {
    ROVE_EXPECT(!kv.overlaps(out), "out shares memory with the keys or values");
  }
  if (lse) {
    for (int i = 0; i < 3; ++i) {
      ROVE_EXPECT(lse.extent[i] == wanted[i], "lse's ", names[i], " must be ", wanted[i], ", got ",
                  lse.extent[i]);
    }
    const TensorView<accumulator> rows{lse.data,
                                       {lse.extent[0], lse.extent[1], lse.extent[2], 1},
                                       {lse.stride[0], lse.stride[1], lse.stride[2], 1}};
    check_view(rows, "lse");
    ROVE_EXPECT(!overlaps_itself(lse), "lse overlaps itself: two of its elements share one place");
    ROVE_EXPECT(!overlaps(rows, q) && !overlaps(rows, out), "lse shares memory with q or out");
    if constexpr (requires { kv.overlaps(rows); }) {
      ROVE_EXPECT(!kv.overlaps(rows), "lse shares memory with the keys or values");
    }
  }
  ROVE_EXPECT(sinks.data() == nullptr || static_cast<Index>(sinks.size()) == heads(), "there are ",
              sinks.size(), " sinks for ", heads(), " query heads");
  ROVE_EXPECT(!scale || std::isfinite(*scale), "scale must be finite, got ", *scale);
  if (key_lengths) {
    ROVE_EXPECT(key_lengths.size() == batch(), "there are ", key_lengths.size(), " key lengths for batch ",
                batch());
    for (Index b = 0; b < batch(); ++b) {
      ROVE_EXPECT(key_lengths[b] >= 0 && key_lengths[b] <= kv.slots(b).last, "key length ", key_lengths[b],
                  " of batch row ", b, " is outside [0, ", kv.slots(b).last, "]");
    }
  }
  if (query_offset.kind == QueryOffset::Kind::per_batch) {
    ROVE_EXPECT(query_offset.values.size() == batch(), "there are ", query_offset.values.size(),
                " query offsets for batch ", batch());
  }
  ROVE_EXPECT(
      query_offset.kind != QueryOffset::Kind::unspecified || q_len() == kv_len() ||
          !(mask_order_aware(mask) || score_order_aware(score)),
      "the mask or score depends on order and q has ", q_len(), " tokens where there are ", kv_len(),
      " keys: say with_query_offset(align_first()) (row 0 is token 0, as in PyTorch), "
      "with_query_offset(align_last()) (the last row is the last key, as in FlashAttention) or a number");
  mask_check(mask, shape());
  score_check(score, shape());
}

ROVE_END_TAGGED

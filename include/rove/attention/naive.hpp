/// \file
/// The kernel to read and to compare others with: every step of the arithmetic in plain loops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/key_blocks.hpp"
#include "rove/attention/phased_kernel.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/row_io.hpp"
#include "rove/attention/row_transform.hpp"
#include "rove/attention/softmax_rows.hpp"
#include "rove/attention/softmax_state.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_math.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// One naive call: packs a kv head's keys and values once, then runs the online softmax row by row over them.
template <class Problem, class Transforms>
class NaiveRun {
  using Acc = typename Problem::accumulator;
  static constexpr Acc minus_infinity = -std::numeric_limits<Acc>::infinity();
  static constexpr bool has_score = !is_no_score<typename Problem::score_type>;
  static constexpr Index rows_per_task = 16;

 public:
  NaiveRun(const Problem& problem, const Transforms& transforms, int workers)
      : problem_(problem),
        transforms_(transforms),
        workers_(workers),
        channels_(problem.channels()),
        value_channels_(problem.value_channels()),
        blocks_(problem_),
        block_(blocks_.length()),
        // Where no score has to see natural logits, the change to units of log 2 rides on the scale.
        query_factor_(static_cast<Acc>(problem.effective_scale() * (has_score ? 1 : std::numbers::log2e))) {}
  NaiveRun(const NaiveRun&) = delete;
  NaiveRun& operator=(const NaiveRun&) = delete;

  WorkspaceSize workspace() const {
    WorkspaceSize size;
    size.add<Acc>(key_elements());
    size.add<Acc>(value_elements());
    size.add_per_worker<Acc>(worker_elements(), workers_);
    return size;
  }
  void allocate(Context::Scope& scope) {
    keys_ = scope.template allocate<Acc>(key_elements());
    values_ = scope.template allocate<Acc>(value_elements());
    scratch_.emplace(scope.template per_worker<Acc>(worker_elements()));
  }

  /// For one key/value head after the other: a phase that packs its blocks, a phase for its query rows.
  Index phases() const { return 2 * problem_.batch() * problem_.kv_heads(); }
  Index tasks(Index phase) const {
    return phase % 2 == 0 ? blocks_.of(batch_of(phase)).count() : problem_.group() * slices();
  }
  void run(Index phase, Index task, int worker) {
    const Index b = batch_of(phase), kv_head = phase / 2 % problem_.kv_heads();
    const std::span<Acc> scratch = (*scratch_)(worker);
    if (phase % 2 == 0) return pack(b, kv_head, blocks_.of(b).first + task, scratch);
    const Index head = kv_head * problem_.group() + task / slices();
    const Index first = task % slices() * rows_per_task;
    const Index last = (std::min)(first + rows_per_task, problem_.q_len());
    for (Index row = first; row < last; ++row) attend(b, head, row, scratch);
  }

 private:
  Index batch_of(Index phase) const { return phase / 2 / problem_.kv_heads(); }
  Index slices() const { return (problem_.q_len() + rows_per_task - 1) / rows_per_task; }
  Index key_elements() const { return blocks_.most() * block_ * channels_; }
  Index value_elements() const { return blocks_.most() * block_ * value_channels_; }
  Index worker_elements() const {
    return (std::max)(channels_, value_channels_) + block_ + 3 * value_channels_;
  }
  Acc* packed_keys(Index b, Index block) {
    return keys_.data() + (block - blocks_.of(b).first) * block_ * channels_;
  }
  Acc* packed_values(Index b, Index block) {
    return values_.data() + (block - blocks_.of(b).first) * block_ * value_channels_;
  }

  /// Keys go to [channel][slot], so that the loop over slots is innermost and contiguous; values stay rows.
  /// Both pass their transform on the way. Slots that are not in use become zeros.
  void pack(Index b, Index kv_head, Index block, std::span<Acc> scratch) {
    const SlotRange used = blocks_.slots(b, block);
    Acc* const keys = packed_keys(b, block);
    Acc* const values = packed_values(b, block);
    for (Index j = 0; j < block_; ++j) {
      const Index slot = block * block_ + j;
      const bool present = slot >= used.first && slot < used.last;
      const auto key = scratch.first(static_cast<std::size_t>(channels_));
      const std::span<Acc> value(values + j * value_channels_, static_cast<std::size_t>(value_channels_));
      if (present) {
        read_key(problem_, transforms_.key, b, kv_head, slot, key);
        read_value(problem_, transforms_.value, b, kv_head, slot, value);
      } else {
        std::fill(key.begin(), key.end(), Acc(0));
        std::fill(value.begin(), value.end(), Acc(0));
      }
      for (Index c = 0; c < channels_; ++c) keys[c * block_ + j] = key[static_cast<std::size_t>(c)];
    }
  }

  void attend(Index b, Index head, Index row, std::span<Acc> scratch) {
    const auto width = static_cast<std::size_t>(value_channels_);
    const std::span<Acc> query = scratch.first(static_cast<std::size_t>(channels_));
    // The finished row lies where the query was: by then no one reads that.
    const std::span<Acc> finished = scratch.first(width);
    Acc* const weights = scratch.data() + (std::max)(channels_, value_channels_);
    Acc* const total = weights + block_;
    Acc* const chunk = total + value_channels_;
    Acc* const partial = chunk + value_channels_;

    read_query(problem_, transforms_.query, b, head, row, query);
    for (Acc& x : query) x *= query_factor_;

    const SlotRange all = blocks_.of(b);
    const Index blocks_per_chunk = blocks_.to_a_chunk();
    SoftmaxState<Acc> total_state;
    std::fill_n(total, width, Acc(0));
    for (Index block = all.first; block < all.last;) {
      const Index chunk_end = (std::min)(all.last, (block / blocks_per_chunk + 1) * blocks_per_chunk);
      SoftmaxState<Acc> chunk_state;
      std::fill_n(chunk, width, Acc(0));
      for (; block < chunk_end; ++block) {
        add_block(Site{b, head, row, 0, problem_.first_query(b) + row, 0}, block, query.data(), weights,
                  partial, chunk, chunk_state);
      }
      const auto merged = merge(total_state, chunk_state);
      for (Index c = 0; c < value_channels_; ++c) {
        total[c] = mul_add(chunk[c], merged.weight_b, total[c] * merged.weight_a);
      }
      total_state = merged.state;
    }
    finish_row(problem_, transforms_.output, b, head, row, total, total_state, finished);
  }

  /// One key block joins the row's running softmax and output.
  void add_block(Site site, Index block, const Acc* query, Acc* weights, Acc* partial, Acc* output,
                 SoftmaxState<Acc>& state) {
    std::uint64_t visible[longest_key_block / 64] = {};
    if (!look(site, block, visible)) return;

    const Acc* keys = packed_keys(site.batch, block);
    std::fill_n(weights, block_, Acc(0));
    for (Index c = 0; c < channels_; ++c, keys += block_) {
      for (Index j = 0; j < block_; ++j) weights[j] = mul_add(query[c], keys[j], weights[j]);
    }
    if constexpr (has_score) apply_score(site, block, visible, weights);

    // Invisible logits are left out by selection, so that nothing a masked slot holds, NaN even, gets
    // further.
    Acc top = minus_infinity;
    for (Index j = 0; j < block_; ++j) {
      weights[j] = seen(visible, j) ? weights[j] : minus_infinity;
      top = weights[j] > top ? weights[j] : top;
    }
    const Acc rescale = state.raise(top);
    exponentiate(weights, state.reference());
    state.add(rescale, sum_of_lanes(weights, block_));

    std::fill_n(partial, value_channels_, Acc(0));
    const Acc* values = packed_values(site.batch, block);
    for (Index j = 0; j < block_; ++j, values += value_channels_) {
      if (!seen(visible, j)) continue;
      for (Index c = 0; c < value_channels_; ++c) partial[c] = mul_add(weights[j], values[c], partial[c]);
    }
    for (Index c = 0; c < value_channels_; ++c) output[c] = mul_add(output[c], rescale, partial[c]);
  }

  /// weights[j] ← 2^(weights[j] − reference)
  void exponentiate(Acc* weights, Acc reference) const {
    using P = simd::packet_t<Acc>;
    for (Index j = 0; j < block_; j += simd::width<P>) {
      simd::store<P>(weights + j,
                     simd::exp2_kernel<P>(simd::load<P>(weights + j) - simd::broadcast<P>(reference)));
    }
  }

  static bool seen(const std::uint64_t* visible, Index j) { return (visible[j / 64] >> (j % 64) & 1U) != 0; }

  /// Fills in which slots of a block the row sees; false where it sees none.
  bool look(Site site, Index block, std::uint64_t* visible) const {
    const SlotRange used = blocks_.slots(site.batch, block);
    const IndexRun run = problem_.kv.indices(site.batch, used.first);
    if (run.count >= used.count()) {
      const TileRange range{site.batch, site.head,  site.row,       site.row + 1, used.first,
                            used.last,  site.query, site.query + 1, run.first,    run.first + used.count()};
      if (mask_tile(problem_.mask, range) == TileVisibility::none) return false;
    }
    return visible_slots(problem_, site, block * block_, used, visible);
  }

  /// Natural logits through the score, then to units of log 2.
  void apply_score(Site site, Index block, const std::uint64_t* visible, Acc* logits) const {
    for (Index j = 0; j < block_; ++j) {
      if (!seen(visible, j)) continue;
      site.slot = block * block_ + j;
      site.key = problem_.kv.indices(site.batch, site.slot).first;
      logits[j] = problem_.score(logits[j], site) * std::numbers::log2e_v<Acc>;
    }
  }

  const Problem problem_;
  const Transforms transforms_;
  int workers_;
  Index channels_;
  Index value_channels_;
  KeyBlocks<Problem> blocks_;
  Index block_;
  Acc query_factor_;
  std::span<Acc> keys_;
  std::span<Acc> values_;
  std::optional<PerWorker<Acc>> scratch_;
};

}  // namespace detail

/// Attention by plain loops in the library's fixed arithmetic (see arithmetic.hpp): single-pass online
/// softmax over key blocks, no tiling over queries, no packets written by hand. It takes every problem and
/// fuses row transforms. Work is split over key blocks while packing, then over query rows; a row's bits do
/// not depend on the split.
///
/// Workspace: the keys and values of one kv head in the accumulator type, and a few rows a worker.
struct NaiveKernel : detail::PhasedKernel<detail::NaiveRun> {
  /// For `explain`.
  template <class Problem>
  std::string describe(const Problem& problem) const {
    using Acc = typename Problem::accumulator;
    return "naive kernel, key blocks of " +
           std::to_string(detail::key_block_length<Acc>(problem.channels(), problem.value_channels()));
  }
};

ROVE_END_TAGGED

/// \file
/// oneDNN as a kernel: matmul, softmax, matmul, with all scores in memory and the mask added to them.
#pragma once

#include <omp.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <rove/rove.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace onednn {

using rove::Index;

/// One OpenMP thread for what the calling thread gives oneDNN while this lives: the context's workers share
/// the heads out already.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_;
};

inline const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// What is added to the scores of a head, [queries, keys]: 0 where a key is seen, −∞ where it is not. Heads
/// tend to have the same mask, so only the places that differ from the head before are written.
class AdditiveMask {
 public:
  static Index words(Index queries, Index keys) { return queries * ((keys + 63) / 64); }

  AdditiveMask(std::span<std::uint64_t> seen, std::span<float> addends) : seen_(seen), addends_(addends) {}

  template <class Problem>
  void update(const Problem& problem, Index b, Index head, rove::SlotRange slots) {
    if (keys_ != slots.count()) {
      keys_ = slots.count();
      std::fill(seen_.begin(), seen_.end(), 0);
      std::fill(addends_.begin(), addends_.end(), hidden);
    }
    std::uint64_t* before = seen_.data();
    for (Index row = 0; row < problem.q_len(); ++row) {
      for (Index slot = slots.first; slot < slots.last; slot += 64, ++before) {
        const Index count = (std::min)(Index{64}, slots.last - slot);
        const std::uint64_t now = seen_slots(problem, problem.site(b, head, row, slot), count);
        float* const addends = addends_.data() + row * keys_ + (slot - slots.first);
        for (std::uint64_t changed = now ^ *before; changed != 0; changed &= changed - 1) {
          const int i = std::countr_zero(changed);
          addends[i] = (now >> i & 1) != 0 ? 0 : hidden;
        }
        *before = now;
      }
    }
  }

  const float* addends() const { return addends_.data(); }

  bool sees_nothing(Index row) const {
    const Index words = (keys_ + 63) / 64;
    const std::uint64_t* const first = seen_.data() + row * words;
    return std::all_of(first, first + words, [](std::uint64_t word) { return word == 0; });
  }

 private:
  static constexpr float hidden = -std::numeric_limits<float>::infinity();

  /// Bit i: whether slot site.slot + i is seen. A mask is asked about keys whose indices follow each other.
  template <class Problem>
  static std::uint64_t seen_slots(const Problem& problem, rove::Site site, Index count) {
    std::uint64_t seen = 0;
    for (Index done = 0; done < count;) {
      const rove::IndexRun run = problem.kv.indices(site.batch, site.slot);
      const Index part = (std::min)(run.count, count - done);
      site.key = run.first;
      seen |= rove::mask_bits(problem.mask, site, static_cast<int>(part)) << done;
      site.slot += part;
      done += part;
    }
    return seen;
  }

  std::span<std::uint64_t> seen_;
  std::span<float> addends_;
  Index keys_ = -1;
};

/// The three primitives for one head of a batch row. Making them takes microseconds: oneDNN keeps what it has
/// compiled for a shape. A head is a batch of 1 and not a plain matrix, for which oneDNN 2.6 has slower
/// code; nor are heads batched, since the scores of one may stay in the cache from one primitive to the next.
class HeadAttention {
 public:
  template <class Problem>
  HeadAttention(const Problem& problem, Index keys, bool masked) {
    const OneThread one;
    const Index queries = problem.q_len();
    const Desc scores = rows(queries, keys, keys);
    const Desc q = rows(queries, problem.channels(), problem.q.stride[2]);
    const Desc k_transposed = columns(problem.channels(), keys, problem.kv.k.stride[2]);
    const Desc v = rows(keys, problem.value_channels(), problem.kv.v.stride[2]);
    const Desc out = rows(queries, problem.value_channels(), problem.out.stride[2]);

    dnnl::primitive_attr plain;
    plain.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::primitive_attr scaled_and_masked;
    scaled_and_masked.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    scaled_and_masked.set_output_scales(0, {static_cast<float>(problem.effective_scale())});
    if (masked) {
      dnnl::post_ops add_mask;
      add_mask.append_binary(dnnl::algorithm::binary_add, scores);
      scaled_and_masked.set_post_ops(add_mask);
    }
    constexpr int keys_axis = 2;
    score_ = {{q, k_transposed, scores}, scaled_and_masked, cpu()};
    softmax_ = {{dnnl::prop_kind::forward_inference, scores, keys_axis}, plain, cpu()};
    mix_ = {{scores, v, out}, plain, cpu()};
    run_score_ = dnnl::matmul(score_);
    run_softmax_ = dnnl::softmax_forward(softmax_);
    run_mix_ = dnnl::matmul(mix_);
  }

  /// Bytes of working memory that `operator()` is to be given.
  Index scratch_bytes() const {
    const auto bytes = [](const auto& primitive) {
      return static_cast<Index>(primitive.scratchpad_desc().get_size());
    };
    return (std::max)({bytes(score_), bytes(softmax_), bytes(mix_)});
  }

  std::string describe() const {
    return std::string(score_.impl_info_str()) + ", " + softmax_.impl_info_str() + ", " +
           mix_.impl_info_str();
  }

  /// out = softmax(scale q kᵀ + mask) v, each pointer at the first row; `mask` is null where there is none.
  void operator()(const float* q, const float* k, const float* v, const float* mask, float* scores,
                  std::byte* scratch, float* out) const {
    dnnl::stream stream(cpu());
    const auto scores_memory = memory(score_.dst_desc(), scores);
    std::unordered_map<int, dnnl::memory> score_arguments{
        {DNNL_ARG_SRC, memory(score_.src_desc(), q)},
        {DNNL_ARG_WEIGHTS, memory(score_.weights_desc(), k)},
        {DNNL_ARG_DST, scores_memory},
        {DNNL_ARG_SCRATCHPAD, memory(score_.scratchpad_desc(), scratch)}};
    if (mask != nullptr) {
      score_arguments[DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1] = memory(score_.dst_desc(), mask);
    }
    run_score_.execute(stream, score_arguments);
    run_softmax_.execute(stream, {{DNNL_ARG_SRC, scores_memory},
                                  {DNNL_ARG_DST, scores_memory},
                                  {DNNL_ARG_SCRATCHPAD, memory(softmax_.scratchpad_desc(), scratch)}});
    run_mix_.execute(stream, {{DNNL_ARG_SRC, scores_memory},
                              {DNNL_ARG_WEIGHTS, memory(mix_.weights_desc(), v)},
                              {DNNL_ARG_DST, memory(mix_.dst_desc(), out)},
                              {DNNL_ARG_SCRATCHPAD, memory(mix_.scratchpad_desc(), scratch)}});
    stream.wait();
  }

 private:
  using Desc = dnnl::memory::desc;

  /// A matrix [count, width] whose rows are `stride` apart; of a single one the stride may be anything.
  static Desc rows(Index count, Index width, Index stride) {
    if (count == 1) stride = width;
    return {{1, count, width}, dnnl::memory::data_type::f32, {count * stride, stride, 1}};
  }
  /// The same, transposed: [width, count].
  static Desc columns(Index width, Index count, Index stride) {
    if (count == 1) stride = width;
    return {{1, width, count}, dnnl::memory::data_type::f32, {count * stride, 1, stride}};
  }

  /// oneDNN's memory objects do not know const; sources are only read.
  template <class T>
  static dnnl::memory memory(const Desc& desc, T* data) {
    return {desc, cpu(), const_cast<std::remove_const_t<T>*>(data)};
  }

  dnnl::matmul::primitive_desc score_, mix_;
  dnnl::softmax_forward::primitive_desc softmax_;
  dnnl::matmul run_score_, run_mix_;
  dnnl::softmax_forward run_softmax_;
};

/// What the kernel takes: floats, keys and values in tensors. The operator makes that of any cache and of
/// 16-bit scalars; of doubles it makes doubles.
template <class Problem>
concept FloatTensors = std::same_as<typename Problem::query_storage, float> &&
    std::same_as<typename Problem::key_storage, float> &&
    std::same_as<typename Problem::value_storage, float> &&
    std::same_as<typename Problem::output_storage, float> && requires(const Problem& problem) {
  problem.kv.k;
  problem.kv.v;
  problem.kv.first_slot;
};

/// Attention by oneDNN, one head at a time, [queries, keys] floats of scores (and as many of mask) a worker.
/// A row that sees nothing becomes 0, as it should. Scores, sinks and log-sum-exps are beyond a softmax
/// primitive, and refused. NaN and infinities must not be in the operands even where the mask hides them: −∞
/// is added to a hidden score and its weight of 0 multiplies a value.
struct OneDnnKernel {
  template <FloatTensors Problem>
  void operator()(const Problem& problem, const rove::Context& context) const {
    problem.check();
    if (problem.out.empty()) return;
    const Plan plan(problem);

    rove::Context::Scope scope(context);
    const auto scores = scope.per_worker<float>(plan.scores);
    const auto scratch = scope.per_worker<std::byte>(plan.scratch);
    const auto seen = scope.per_worker<std::uint64_t>(plan.mask_words);
    const auto addends = scope.per_worker<float>(plan.mask_addends);
    std::vector<AdditiveMask> masks;
    for (int worker = 0; worker < context.concurrency(); ++worker)
      masks.emplace_back(seen(worker), addends(worker));

    context.for_each(problem.batch() * problem.heads(), [&](Index task, int worker) {
      const OneThread one;
      const Index b = task / problem.heads(), head = task % problem.heads();
      const Index kv_head = problem.kv_head(head);
      const rove::SlotRange slots = problem.slots(b);
      const auto& attend = plan.of_row[static_cast<std::size_t>(b)];
      if (!attend) {
        for (Index row = 0; row < problem.q_len(); ++row) set_to_zero(problem, b, head, row);
        return;
      }
      const Index first = slots.first - problem.kv.first_slot;
      AdditiveMask& mask = masks[static_cast<std::size_t>(worker)];
      if (plan.masked) mask.update(problem, b, head, slots);
      (*attend)(problem.q.row(b, head, 0), problem.kv.k.row(b, kv_head, first),
                problem.kv.v.row(b, kv_head, first), plan.masked ? mask.addends() : nullptr,
                scores(worker).data(), scratch(worker).data(), problem.out.row(b, head, 0));
      if (!plan.masked) return;
      for (Index row = 0; row < problem.q_len(); ++row)
        if (mask.sees_nothing(row)) set_to_zero(problem, b, head, row);  // oneDNN's is NaN
    });
  }

  /// For workspace_bytes and callers' own memory; what oneDNN allocates itself is not in it.
  template <FloatTensors Problem>
  rove::WorkspaceSize workspace(const Problem& problem, int workers) const {
    rove::WorkspaceSize size;
    if (problem.out.empty()) return size;
    const Plan plan(problem);
    return size.add_per_worker<float>(plan.scores, workers)
        .template add_per_worker<std::byte>(plan.scratch, workers)
        .template add_per_worker<std::uint64_t>(plan.mask_words, workers)
        .template add_per_worker<float>(plan.mask_addends, workers);
  }

  /// For `explain`: which of oneDNN's implementations it is.
  template <FloatTensors Problem>
  std::string describe(const Problem& problem) const {
    const dnnl_version_t& version = *dnnl_version();
    const std::string name = "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) +
                             "." + std::to_string(version.patch);
    if (problem.out.empty()) return name;
    for (const auto& head : Plan(problem).of_row)
      if (head) return name + ": " + head->describe();
    return name;
  }

 private:
  /// What one call is going to do.
  struct Plan {
    bool masked = false;
    std::vector<std::optional<HeadAttention>> of_row;  ///< batch rows differ in their keys, or have none
    Index scores = 0, scratch = 0, mask_words = 0, mask_addends = 0;  ///< of a worker

    template <class Problem>
    explicit Plan(const Problem& problem) {
      check(problem);
      for (Index task = 0; task < problem.batch() * problem.heads() && !masked; ++task)
        masked = hides(problem, task / problem.heads(), task % problem.heads());
      const Index queries = problem.q_len();
      for (Index b = 0; b < problem.batch(); ++b) {
        const Index keys = problem.slots(b).count();
        of_row.emplace_back();
        if (keys == 0) continue;
        const HeadAttention& head = of_row.back().emplace(problem, keys, masked);
        scores = (std::max)(scores, queries * keys);
        scratch = (std::max)(scratch, head.scratch_bytes());
        if (masked) mask_words = (std::max)(mask_words, AdditiveMask::words(queries, keys));
      }
      if (masked) mask_addends = scores;
    }
  };

  /// What the operator cannot know: throws `rove::Error` before anything is written.
  template <class Problem>
  static void check(const Problem& problem) {
    ROVE_EXPECT((std::is_same_v<typename Problem::score_type, rove::NoScore>),
                "OneDnnKernel has no place for a score between its matmul and its softmax");
    ROVE_EXPECT(problem.sinks.empty(), "OneDnnKernel takes no sinks, got ", problem.sinks.size());
    ROVE_EXPECT(!problem.lse, "OneDnnKernel gives no log-sum-exps: its softmax keeps none");
    check_rows(problem.q, "q");
    check_rows(problem.kv.k, "k");
    check_rows(problem.kv.v, "v");
    check_rows(problem.out, "out");
  }

  template <class T>
  static void check_rows(const rove::TensorView<T>& view, const char* name) {
    ROVE_EXPECT(view.channels() == 1 || view.channel_stride() == 1, "OneDnnKernel: the channels of ", name,
                " must lie side by side, their stride is ", view.channel_stride());
    ROVE_EXPECT(view.tokens() <= 1 || view.stride[2] >= view.channels(), "OneDnnKernel: the tokens of ", name,
                " must be at least ", view.channels(), " elements apart, their stride is ", view.stride[2]);
  }

  /// Whether some query of that head may not see some key.
  template <class Problem>
  static bool hides(const Problem& problem, Index b, Index head) {
    const rove::SlotRange slots = problem.slots(b);
    if (slots.empty()) return false;
    const Index query = problem.first_query(b);
    return rove::mask_tile(problem.mask, {b, head, 0, problem.q_len(), slots.first, slots.last, query,
                                          query + problem.q_len(), problem.kv.indices(b, slots.first).first,
                                          problem.kv.indices(b, slots.last - 1).first + 1}) !=
           rove::TileVisibility::all;
  }

  template <class Problem>
  static void set_to_zero(const Problem& problem, Index b, Index head, Index row) {
    float* const first = problem.out.row(b, head, row);
    std::fill(first, first + problem.value_channels(), 0.0F);
  }
};

}  // namespace onednn

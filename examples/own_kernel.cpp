// A kernel of one's own: the textbook's matmul, softmax, matmul. It knows nothing of frames: the operator
// turns queries, keys and values in memory first, calls the kernel, and turns the result back.
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <rove/rove.hpp>
#include <type_traits>
#include <vector>

#include "support/real_layer.hpp"

namespace {

using rove::Index;

// One head of a view as an Eigen matrix of tokens × channels, whatever its strides.
template <class T>
auto matrix_of(const rove::TensorView<T>& view, Index b, Index head) {
  using Plain = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Matrix = std::conditional_t<std::is_const_v<T>, const Plain, Plain>;
  using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  return Eigen::Map<Matrix, 0, Strides>(view.row(b, head, 0), view.tokens(), view.channels(),
                                        Strides(view.stride[2], view.channel_stride()));
}

// Any callable kernel(problem, context) is a kernel. Whatever the caller's scalars and cache are, the problem
// it is given has plain tensors in the accumulator's type: q, kv.k, kv.v and out.
struct MatmulKernel {
  template <class Problem>
  void operator()(const Problem& problem, const rove::Context& context) const {
    // The context's workers share the heads out.
    context.for_each(problem.batch() * problem.heads(), [&](Index task, int /*worker*/) {
      attend(problem, task / problem.heads(), task % problem.heads());
    });
  }

 private:
  template <class Problem>
  static void attend(const Problem& problem, Index b, Index head) {
    using T = typename Problem::accumulator;
    constexpr T minus_infinity = -std::numeric_limits<T>::infinity();

    // A key is known by its slot. Those in use are what the cache holds, up to the batch row's key length.
    const rove::SlotRange slots = problem.slots(b);
    constexpr int tokens = 2;
    const Index first = slots.first - problem.kv.first_slot;
    const auto queries = matrix_of(problem.q, b, head);
    const auto keys = matrix_of(problem.kv.k.slice(tokens, first, slots.count()), b, problem.kv_head(head));
    const auto values = matrix_of(problem.kv.v.slice(tokens, first, slots.count()), b, problem.kv_head(head));

    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> weights =
        queries * keys.transpose() * static_cast<T>(problem.effective_scale());

    for (Index row = 0; row < problem.q_len(); ++row) {
      // A sink takes weight and has no value: one more logit of every row.
      const T sink = problem.sinks.empty() ? minus_infinity : problem.sinks[static_cast<std::size_t>(head)];
      T largest = sink;
      for (Index slot = slots.first; slot < slots.last; ++slot) {
        T& logit = weights(row, slot - slots.first);
        // The score first, then the mask; both are asked with all there is to know about the pair.
        const rove::Site site = problem.site(b, head, row, slot);
        logit = problem.mask.visible(site) ? problem.score(logit, site) : minus_infinity;
        largest = std::max(largest, logit);
      }
      T lse = minus_infinity;
      if (largest == minus_infinity) {
        weights.row(row).setZero();  // a row that sees nothing is 0, not NaN
      } else {
        weights.row(row) = (weights.row(row).array() - largest).exp();
        const T sum = weights.row(row).sum() + std::exp(sink - largest);
        weights.row(row) /= sum;
        lse = largest + std::log(sum);
      }
      if (problem.lse) problem.lse(b, head, row) = lse;
    }
    // An invisible value counts 0 times, which is 0 unless it is NaN or infinite.
    matrix_of(problem.out, b, head) = weights * values;
  }
};

bool report(const char* what, double difference) {
  const bool good = difference < 1e-5;  // values reach 3.7; NaN is not good
  std::printf("%-58s %.1e  %s\n", what, difference, good ? "ok" : "WRONG");
  return good;
}

}  // namespace

int main() {
  const support::RealLayer layer;
  const Index heads = layer.heads(), tokens = layer.tokens();
  const auto frame = layer.frame();
  std::vector<float> mine(layer.q.values.size()), theirs(mine.size());
  std::vector<float> my_lse(static_cast<std::size_t>(heads * tokens)), their_lse(my_lse.size());
  const auto problem_into = [&](std::vector<float>& out) {
    return rove::attention_problem(support::view(layer.q), support::view(layer.k), support::view(layer.v),
                                   rove::bhtd(out.data(), 1, heads, tokens, layer.channels()));
  };
  const rove::Context context;
  bool good = true;

  rove::rope_attention(problem_into(mine).with_mask(rove::causal()), frame, context, MatmulKernel());
  good &=
      report("RoPE, from what the model computed", support::largest_difference(mine, layer.attention.values));

  rove::rove_attention(problem_into(mine).with_mask(rove::causal()), frame, context, MatmulKernel());
  rove::rove_attention(problem_into(theirs).with_mask(rove::causal()), frame);
  good &= report("RoVE, from the library's kernel", support::largest_difference(mine, theirs));

  // Everything a problem may ask for at once. Rows from 100 + 32 on see nothing but the sink.
  const std::vector<int> key_lengths{100};
  const std::vector<float> sinks(static_cast<std::size_t>(heads), 0.5F);
  const auto everything = [&](const auto& problem, std::vector<float>& lse) {
    return problem.with_mask(rove::window(32))
        .with_score(rove::soft_cap(20) | rove::alibi(heads))
        .with_key_lengths(key_lengths)
        .with_sinks(sinks)
        .with_lse(rove::bht(lse.data(), 1, heads, tokens));
  };
  rove::rove_attention(everything(problem_into(mine), my_lse), frame, context, MatmulKernel());
  rove::rove_attention(everything(problem_into(theirs), their_lse), frame);
  good &= report("window, soft-cap, ALiBi, key length, sinks: outputs",
                 support::largest_difference(mine, theirs));
  good &= report("                                            log-sum-exps",
                 support::largest_difference(my_lse, their_lse));

  // A lambda does as well, and the operator says what it is going to do with it.
  const auto lambda = [](const auto& problem, const rove::Context& c) { MatmulKernel()(problem, c); };
  const auto causal = problem_into(mine).with_mask(rove::causal());
  std::printf("%s\n", rove::explain(causal, rove::rove_frames(frame), lambda).c_str());
  return good ? 0 : 1;
}

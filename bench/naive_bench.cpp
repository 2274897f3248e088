// Attention by the naive kernel: plain, RoPE and RoVE.

#include <benchmark/benchmark.h>

#include "bench/support/attention_case.hpp"
#include "rove/attention/naive.hpp"
#include "rove/op/attention.hpp"

namespace {

using bench::AttentionShape;

/// range: channels, tokens, 1 for causal
template <class Call>
void time_call(benchmark::State& state, const Call& call) {
  const AttentionShape shape{.head_dim = state.range(0),
                             .q_len = state.range(1),
                             .kv_len = state.range(1),
                             .heads = 2,
                             .kv_heads = 1,
                             .causal = state.range(2) != 0};
  bench::AttentionOperands<float> operands(shape);
  const rove::Context context;
  const auto run = [&](const auto& problem) {
    for (auto _ : state) {
      call(problem, operands.frame(), context);
      benchmark::ClobberMemory();
    }
  };
  if (shape.causal) {
    run(operands.problem().with_mask(rove::causal()));
  } else {
    run(operands.problem());
  }
  state.counters["flops"] =
      benchmark::Counter(bench::attention_flops(shape), benchmark::Counter::kIsIterationInvariantRate);
}

void plain(benchmark::State& state) {
  time_call(state, [](const auto& problem, const auto&, const rove::Context& context) {
    rove::attention(problem, context, rove::NaiveKernel{});
  });
}
void rope(benchmark::State& state) {
  time_call(state, [](const auto& problem, const auto& frame, const rove::Context& context) {
    rove::rope_attention(problem, frame, context, rove::NaiveKernel{});
  });
}
void rove_values(benchmark::State& state) {
  time_call(state, [](const auto& problem, const auto& frame, const rove::Context& context) {
    rove::rove_attention(problem, frame, context, rove::NaiveKernel{});
  });
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"channels", "tokens", "causal"})
      ->Args({64, 256, 0})
      ->Args({64, 256, 1})
      ->Args({128, 256, 1})
      ->Args({64, 1024, 1})
      ->Unit(benchmark::kMillisecond);
}

BENCHMARK(plain)->Apply(shapes);
BENCHMARK(rope)->Apply(shapes);
BENCHMARK(rove_values)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();

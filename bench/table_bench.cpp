// Building rotation tables, and reading factored ones.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#include "rove/position/factored_rotation_table.hpp"
#include "rove/position/rotary_frequencies.hpp"

namespace {

rove::RotaryFrequencies frequencies(benchmark::State& state) {
  return rove::rotary_frequencies({.rotary_dim = 2 * state.range(1), .rope_theta = 1e6});
}

/// range: tokens, pairs
template <class Table>
void build(benchmark::State& state) {
  const auto given = frequencies(state);
  const auto positions = rove::consecutive_positions(state.range(0));
  for (auto _ : state) {
    const Table table(given, positions);
    benchmark::DoNotOptimize(table);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0) * state.range(1));
}

/// Every row in turn, beside a memory as large as one row.
template <class T>
void read_factored(benchmark::State& state) {
  const rove::FactoredRotationTable<T> table(frequencies(state), rove::consecutive_positions(state.range(0)));
  std::vector<T> scratch(static_cast<std::size_t>(table.scratch_size()));
  rove::Index t = 0;
  for (auto _ : state) {
    const auto row = table.row(0, t, scratch);
    benchmark::DoNotOptimize(row.cos);
    benchmark::ClobberMemory();
    t = t + 1 == table.rows() ? 0 : t + 1;
  }
  state.SetItemsProcessed(state.iterations() * state.range(1));
}

void tokens_and_pairs(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "pairs"})->Args({4096, 64})->Args({131072, 64})->Unit(benchmark::kMillisecond);
}

BENCHMARK(build<rove::RotationTable<float>>)->Apply(tokens_and_pairs);
BENCHMARK(build<rove::RotationTable<double>>)->Apply(tokens_and_pairs);
BENCHMARK(build<rove::FactoredRotationTable<float>>)->Apply(tokens_and_pairs);
BENCHMARK(read_factored<float>)->ArgNames({"tokens", "pairs"})->Args({4'000'000, 64});
BENCHMARK(read_factored<double>)->ArgNames({"tokens", "pairs"})->Args({4'000'000, 64});

}  // namespace

BENCHMARK_MAIN();

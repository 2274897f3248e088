// Turning a whole tensor, beside copying one: bytes of the tensor read and written.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstring>

#include "bench/support/buffer.hpp"
#include "rove/frame/rotate.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"

namespace {

using bench::Buffer;
using rove::Index;
using rove::Pairing;

constexpr Index heads = 32, tokens = 4096, channels = 128;
constexpr Index elements = heads * tokens * channels;

auto frame(Pairing pairing) {
  return rove::RotaryFrame(
      rove::RotationTable<float>(rove::rotary_frequencies({.rotary_dim = channels, .rope_theta = 5e5}),
                                 rove::consecutive_positions(tokens)),
      pairing);
}

template <class T>
void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * 2 * elements * static_cast<Index>(sizeof(T)));
}

template <class T>
void copy(benchmark::State& state) {
  const Buffer<T> from(elements, 1);
  Buffer<T> to(elements, 2);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), static_cast<std::size_t>(from.bytes()));
    benchmark::ClobberMemory();
  }
  count_bytes<T>(state);
}

template <class T, Pairing pairing>
void in_place(benchmark::State& state) {
  const auto turn = frame(pairing);
  Buffer<T> x(elements);
  for (auto _ : state) {
    rove::rotate(turn, rove::bhtd(x.data(), 1, heads, tokens, channels));
    benchmark::ClobberMemory();
  }
  count_bytes<T>(state);
}

template <class T, Pairing pairing>
void out_of_place(benchmark::State& state) {
  const auto turn = frame(pairing);
  const Buffer<T> from(elements, 1);
  Buffer<T> to(elements, 2);
  for (auto _ : state) {
    rove::rotate(turn, rove::bhtd(from.data(), 1, heads, tokens, channels),
                 rove::bhtd(to.data(), 1, heads, tokens, channels));
    benchmark::ClobberMemory();
  }
  count_bytes<T>(state);
}

#define ROVE_ROTATE_BENCH(T)                                                      \
  BENCHMARK(copy<T>)->Unit(benchmark::kMillisecond);                              \
  BENCHMARK(in_place<T, Pairing::half_split>)->Unit(benchmark::kMillisecond);     \
  BENCHMARK(in_place<T, Pairing::interleaved>)->Unit(benchmark::kMillisecond);    \
  BENCHMARK(out_of_place<T, Pairing::half_split>)->Unit(benchmark::kMillisecond); \
  BENCHMARK(out_of_place<T, Pairing::interleaved>)->Unit(benchmark::kMillisecond)

ROVE_ROTATE_BENCH(float);
ROVE_ROTATE_BENCH(Eigen::bfloat16);

}  // namespace

BENCHMARK_MAIN();

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/compare/cases.hpp"
#include "bench/support/buffer.hpp"
#include "rove/position/factored_rotation_table.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"

namespace bench {
namespace {

constexpr Index head_dim = 128;

/// What one would write without a library: angles in double, results in float.
void fill_by_libm(std::span<const double> inv_freq, Index tokens, float* cos, float* sin) {
  for (Index t = 0; t < tokens; ++t) {
    for (const double frequency : inv_freq) {
      const double angle = static_cast<double>(t) * frequency;
      *cos++ = static_cast<float>(std::cos(angle));
      *sin++ = static_cast<float>(std::sin(angle));
    }
  }
  clobber_memory();
}

/// Keeps what was built until the compiler has seen it leave.
template <class Table>
void build(const rove::RotaryFrequencies& frequencies, Index tokens) {
  const Table table(frequencies, rove::consecutive_positions(tokens));
  asm volatile("" : : "r"(&table) : "memory");
}

void compare(Bench& bench, Index tokens) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = head_dim, .rope_theta = 5e5});
  Buffer<float> cos(tokens * head_dim / 2), sin(tokens * head_dim / 2);
  const std::vector<Rival> rivals{
      {"table/libm", [&] { fill_by_libm(frequencies.inv_freq, tokens, cos.data(), sin.data()); }},
      {"table/plain", [&] { build<rove::RotationTable<float>>(frequencies, tokens); }},
      {"table/plain", [&] { build<rove::RotationTable<double>>(frequencies, tokens); }},
      {"table/factored", [&] { build<rove::FactoredRotationTable<float>>(frequencies, tokens); }}};
  const char* const scalars[] = {"float", "float", "double", "float"};
  // A factored table does not hold what it gives.
  const double element_bytes[] = {sizeof(float), sizeof(float), sizeof(double), 0};
  if (!bench.wants(rivals)) return;
  const auto taken = race(rivals, bench.options().draws);
  for (std::size_t i = 0; i < rivals.size(); ++i) {
    Record record{.name = rivals[i].name, .scalar = scalars[i], .draws = taken[i]};
    record.head_dim = head_dim;
    record.q_len = tokens;
    if (element_bytes[i] > 0) record.set_bytes(static_cast<double>(tokens * head_dim) * element_bytes[i]);
    bench.add(record);
  }
}

}  // namespace

void compare_tables(Bench& bench) {
  bench.section("Rotation tables: bytes of the table written", [&] {
    compare(bench, 4096);
    if (bench.options().full) compare(bench, 131072);
  });
}

}  // namespace bench

#include <cstddef>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "bench/compare/cases.hpp"
#include "bench/compare/openblas.hpp"
#include "bench/compare/peak.hpp"
#include "bench/compare/plain_attention.hpp"

namespace bench {
namespace {

constexpr int matrix = 2048;
constexpr rove::Index peak_steps = 4'000'000;  // some 15 ms

/// All subjects with one thread and with two, one after the other. The peak says what two threads can do here
/// at all: where both of the machine's CPUs are on one core, as much as one.
void compare_two(Bench& bench) {
  const FmaBurst peak(peak_steps);
  Sgemm sgemm(matrix);
  std::vector<AttentionShape> shapes = usual_shapes(bench.tokens(1024));
  const std::size_t many_heads = shapes.size();
  for (const AttentionShape& shape : usual_shapes(bench.tokens(4096), 1)) shapes.push_back(shape);

  std::list<PlainAttention> subjects;
  std::vector<Rival> rivals;
  const auto add = [&](const char* name, const auto& run) {
    for (const int threads : {1, 2}) {
      rivals.push_back({name, [&bench, run, threads] { run(bench.workers(threads)); }});
    }
  };
  add("threads/peak", [&](const Workers& workers) { peak(workers); });
  add("threads/sgemm-2048", [&](const Workers& workers) { sgemm(workers.threads()); });
  for (const AttentionShape& shape : shapes) {
    PlainAttention& subject = subjects.emplace_back(shape);
    add("threads/tiled", [&](const Workers& workers) { subject(workers); });
  }
  if (!bench.wants(rivals)) return;
  const auto taken = race(rivals, bench.options().draws);

  double possible = 0;
  for (std::size_t i = 0; i < rivals.size(); ++i) {
    const int threads = i % 2 == 0 ? 1 : 2;
    const bool is_peak = i / 2 == 0, is_sgemm = i / 2 == 1;
    Record record{.name = rivals[i].name, .scalar = "float", .threads = threads, .draws = taken[i]};
    if (is_peak || is_sgemm) {
      record.set_flops(is_sgemm ? sgemm.flops() : peak.flops() * threads);
    } else {
      const AttentionShape& shape = shapes[i / 2 - 2];
      record.set_shape(shape);
      record.set_flops(attention_flops(shape));
    }
    if (threads == 2) {
      record.speedup = taken[i - 1].best() / taken[i].best() * (is_peak ? 2 : 1);  // twice the work
      if (is_peak) possible = *record.speedup;
    }
    if (threads == 2 && !is_peak && !is_sgemm) {
      const bool many = i / 2 - 2 < many_heads;
      const double bar = many ? 1.90 : 1.85;
      bench.add(Target{.row = many ? "2 threads over 1, 8 heads n=1024" : "2 threads over 1, 1 head n=4096",
                       .shape = shape_name(shapes[i / 2 - 2]),
                       .measured = *record.speedup,
                       .side = Side::at_least,
                       .bar = bar,
                       .obstacle = possible < bar
                                       ? "the peak itself gains " + std::to_string(possible).substr(0, 4)
                                       : ""});
    }
    bench.add(record);
  }
}

}  // namespace

void compare_threads(Bench& bench) {
  bench.section("Two threads, the caller's and another", [&] {
    if (std::thread::hardware_concurrency() < 2) return;
    compare_two(bench);
  });
}

}  // namespace bench

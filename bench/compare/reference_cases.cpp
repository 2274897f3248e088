#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "bench/compare/cases.hpp"
#include "bench/compare/openblas.hpp"
#include "bench/compare/openblas_core.hpp"
#include "bench/compare/peak.hpp"

namespace bench {
namespace {

constexpr int matrix = 2048;
constexpr rove::Index peak_steps = 4'000'000;  // some 15 ms
constexpr int most_draws = 31;                 // no ratio near 1 is taken here
/// Below this share of the peak OpenBLAS runs kernels that are not meant for this CPU, or the machine is
/// busy: no rival to boast of beating.
constexpr double fair_share = 0.55;

/// Where the user's environment, not OpenBLAS, chose kernels too old for this CPU.
std::string hint_at_environment() {
  const char* const chosen = std::getenv("OPENBLAS_CORETYPE");
  const std::string better = core_to_ask_for(this_cpu(), openblas_core());
  if (chosen == nullptr || better.empty()) return {};
  return "OPENBLAS_CORETYPE=" + std::string(chosen) + " is set; this CPU has what " + better + " needs.\n";
}

void compare(Bench& bench, int threads) {
  const Workers& workers = bench.workers(threads);
  const FmaBurst peak(peak_steps);
  Sgemm sgemm(matrix);
  const std::vector<Rival> rivals{{"reference/peak", [&] { peak(workers); }},
                                  {"reference/sgemm-2048", [&] { sgemm(threads); }}};
  const auto taken = race(rivals, std::min(bench.options().draws, most_draws));

  Record of_peak{.name = rivals[0].name, .scalar = "float", .threads = threads, .draws = taken[0]};
  of_peak.set_flops(peak.flops() * threads);
  Record of_sgemm{.name = rivals[1].name, .scalar = "float", .threads = threads, .draws = taken[1]};
  of_sgemm.set_flops(sgemm.flops());
  const double share = *of_sgemm.gflops / *of_peak.gflops;
  of_sgemm.vs_peak = share;

  if (!sgemm.is_right()) {
    std::cout << "OpenBLAS's product is wrong: it is left out.\n";
  } else if (share < fair_share) {
    std::cout << "OpenBLAS reaches " << share << " of the peak with " << threads << " threads, less than "
              << fair_share << ": nothing is compared with it.\n"
              << hint_at_environment();
  } else {
    bench.sgemm_gflops[threads] = *of_sgemm.gflops;
  }
  bench.add(of_peak);
  if (sgemm.is_right()) bench.add(of_sgemm);
}

}  // namespace

void compare_references(Bench& bench) {
  bench.section("References: 12 independent chains of multiply-adds; OpenBLAS, 2048 x 2048 x 2048", [&] {
    for (const int threads : bench.options().threads) compare(bench, threads);
  });
}

}  // namespace bench

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/compare/cases.hpp"
#include "bench/compare/kernels.hpp"
#include "bench/compare/peak.hpp"
#include "bench/support/attention_case.hpp"
#include "rove/op/attention.hpp"

namespace bench {
namespace {

constexpr rove::Index peak_steps = 1'000'000;  // some 4 ms

/// The peak, then every kernel's plain, RoPE and RoVE attention, RoVE next to RoPE.
template <class Problem, class F>
std::vector<Rival> attention_rivals(bool full, const Problem& problem, const F& frame, const Workers& workers,
                                    const FmaBurst& peak) {
  const rove::Context& context = workers.context();
  std::vector<Rival> rivals{{"peak", [&] { peak(workers); }}};
  for_each_kernel(full, [&](const std::string& name, const auto& kernel) {
    rivals.push_back(
        {"attention/" + name + "/plain", [&, kernel] { rove::attention(problem, context, kernel); }});
    rivals.push_back({"attention/" + name + "/rope",
                      [&, kernel] { rove::rope_attention(problem, frame, context, kernel); }});
    rivals.push_back({"attention/" + name + "/rove",
                      [&, kernel] { rove::rove_attention(problem, frame, context, kernel); }});
  });
  return rivals;
}

template <class Problem, class F>
void compare(Bench& bench, const AttentionShape& shape, int threads, const Problem& problem, const F& frame) {
  const Workers& workers = bench.workers(threads);
  const FmaBurst peak(peak_steps);
  const auto rivals = attention_rivals(bench.options().full, problem, frame, workers, peak);
  if (!bench.wants(std::span(rivals).subspan(1))) return;
  const auto taken = race(rivals, bench.options().draws);
  const double peak_gflops = peak.flops() * threads / taken[0].best() * 1e-9;
  for (std::size_t i = 1; i < rivals.size(); ++i) {
    Record record{.name = rivals[i].name, .scalar = "float", .threads = threads, .draws = taken[i]};
    record.set_shape(shape);
    record.set_flops(attention_flops(shape));
    record.vs_peak = *record.gflops / peak_gflops;
    if (const auto sgemm = bench.sgemm_gflops.find(threads); sgemm != bench.sgemm_gflops.end()) {
      record.vs_sgemm = *record.gflops / sgemm->second;
    }
    if (record.name.ends_with("/rove")) {
      record.rove_over_rope = paired_ratio(taken[i].seconds, taken[i - 1].seconds);
    }
    bench.add(record);
  }
}

void compare(Bench& bench, const AttentionShape& shape) {
  AttentionOperands<float> operands(shape);
  for (const int threads : bench.options().threads) {
    if (shape.causal) {
      compare(bench, shape, threads, operands.problem().with_mask(rove::causal()), operands.frame());
    } else {
      compare(bench, shape, threads, operands.problem(), operands.frame());
    }
  }
}

}  // namespace

void compare_attention(Bench& bench) {
  bench.section("Attention: 4 d flops for each visible pair of a query and a key; RoVE's time over RoPE's",
                [&] {
                  std::vector<rove::Index> lengths{256, 1024};
                  if (bench.options().full) lengths.push_back(4096);
                  for (const rove::Index tokens : lengths) {
                    for (const rove::Index head_dim : {64, 128}) {
                      for (const bool causal : {false, true}) {
                        compare(bench, {.head_dim = head_dim,
                                        .q_len = tokens,
                                        .kv_len = tokens,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .causal = causal});
                      }
                    }
                  }
                });
}

}  // namespace bench

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/compare/cases.hpp"
#include "bench/compare/kernels.hpp"
#include "bench/compare/peak.hpp"
#include "bench/compare/plain_attention.hpp"
#include "bench/support/attention_case.hpp"
#include "rove/op/attention.hpp"

namespace bench {
namespace {

constexpr rove::Index peak_steps = 1'000'000;  // some 4 ms

/// The peak, then every kernel's plain, RoPE and RoVE attention, neighbours that are compared.
template <class Problem, class F>
std::vector<Rival> attention_rivals(bool small, const Problem& problem, const F& frame,
                                    const Workers& workers, const FmaBurst& peak) {
  const rove::Context& context = workers.context();
  std::vector<Rival> rivals{{"peak", [&] { peak(workers); }}};
  for_each_kernel(small, [&](const std::string& name, const auto& kernel) {
    rivals.push_back(
        {"attention/" + name + "/plain", [&, kernel] { rove::attention(problem, context, kernel); }});
    rivals.push_back({"attention/" + name + "/rope",
                      [&, kernel] { rove::rope_attention(problem, frame, context, kernel); }});
    rivals.push_back({"attention/" + name + "/rove",
                      [&, kernel] { rove::rove_attention(problem, frame, context, kernel); }});
  });
  return rivals;
}

/// What positions may cost: one thread, as many heads of keys as of queries.
void add_targets(Bench& bench, const Record& record, const AttentionShape& shape) {
  if (record.threads != 1 || shape.heads != 8 || shape.kv_heads != 8) return;
  const bool is_long = shape.q_len >= bench.tokens(1024), is_short = shape.q_len == bench.tokens(256);
  const std::string name = shape_name(shape);
  if (record.name == "attention/tiled/rope" && is_long) {
    bench.add(Target{.row = "RoPE over plain, n >= 1024",
                     .shape = name,
                     .measured = record.over_plain->of_bests,
                     .side = Side::at_most,
                     .bar = 1.02,
                     .ratio = record.over_plain});
  }
  if (record.name == "attention/tiled/rove" && (is_long || is_short)) {
    bench.add(Target{.row = is_long        ? "RoVE over RoPE, n >= 1024 (median)"
                            : shape.causal ? "RoVE over RoPE, n = 256 causal (median)"
                                           : "RoVE over RoPE, n = 256 (median)",
                     .shape = name,
                     .measured = record.rove_over_rope->median,
                     .side = Side::at_most,
                     .bar = is_long        ? 1.02
                            : shape.causal ? 1.08
                                           : 1.04,
                     .ratio = record.rove_over_rope,
                     .by_interval = true});
  }
}

template <class Problem, class F>
void compare(Bench& bench, bool small, const AttentionShape& shape, int threads, const Problem& problem,
             const F& frame) {
  const Workers& workers = bench.workers(threads);
  const FmaBurst peak(peak_steps);
  const auto rivals = attention_rivals(small, problem, frame, workers, peak);
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
    if (record.name.ends_with("/rope")) {
      record.over_plain = paired_ratio(taken[i].seconds, taken[i - 1].seconds);
    }
    if (record.name.ends_with("/rove")) {
      record.rove_over_rope = paired_ratio(taken[i].seconds, taken[i - 1].seconds);
    }
    add_targets(bench, record, shape);
    bench.add(record);
  }
}

void compare(Bench& bench, bool small, const AttentionShape& shape) {
  AttentionOperands<float> operands(shape);
  for (const int threads : bench.options().threads) {
    if (bench.options().targets && threads != 1) continue;
    if (shape.causal) {
      compare(bench, small, shape, threads, operands.problem().with_mask(rove::causal()), operands.frame());
    } else {
      compare(bench, small, shape, threads, operands.problem(), operands.frame());
    }
  }
}

}  // namespace

void compare_kernels(Bench& bench) {
  bench.section("Kernels: 4 d flops for each visible pair of a query and a key, as in all that follows", [&] {
    AttentionShape shape = self_attention(64, bench.tokens(256), true, 2);
    shape.kv_heads = 1;
    compare(bench, true, shape);
  });
}

void compare_frames(Bench& bench) {
  bench.section("Frames: RoVE's time over RoPE's, RoPE's over plain attention's", [&] {
    std::vector<AttentionShape> shapes;
    const auto add_usual = [&](Index tokens) {
      for (const AttentionShape& shape : usual_shapes(bench.tokens(tokens))) shapes.push_back(shape);
    };
    shapes.push_back(self_attention(64, bench.tokens(128), false, 32));
    add_usual(256);
    add_usual(512);
    add_usual(1024);
    shapes.push_back(self_attention(64, bench.tokens(1024), true, 9));  // SmolLM2 135M
    shapes.back().kv_heads = 3;
    if (bench.has_time()) add_usual(4096);
    for (const AttentionShape& shape : shapes) compare(bench, false, shape);
  });
}

}  // namespace bench

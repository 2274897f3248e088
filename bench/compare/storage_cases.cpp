#include <cstddef>
#include <string>
#include <vector>

#include "bench/compare/cases.hpp"
#include "bench/compare/plain_attention.hpp"
#include "bench/support/attention_case.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/op/attention.hpp"

namespace bench {
namespace {

constexpr int few_draws = 31;       // of shapes that take seconds a round
constexpr int very_few_draws = 11;  // of shapes that take many

/// 16-bit operands: only what comes in and goes out differs, the work in between is float's.
void compare_storage_at(Bench& bench, const AttentionShape& shape) {
  const Workers& workers = bench.workers(1);
  const rove::Context& context = workers.context();
  const rove::TiledKernel kernel;
  PlainAttention single(shape);
  AttentionOperands<Eigen::bfloat16> brain(shape);
  AttentionOperands<Eigen::half> half(shape);
  const auto run = [&](auto& operands) {
    if (shape.causal) {
      rove::attention(operands.problem().with_mask(rove::causal()), context, kernel);
    } else {
      rove::attention(operands.problem(), context, kernel);
    }
  };
  const char* const name = "storage/tiled";
  const char* const scalars[] = {"float", "bfloat16", "half"};
  const std::vector<Rival> rivals{
      {name, [&] { single(workers); }}, {name, [&] { run(brain); }}, {name, [&] { run(half); }}};
  if (!bench.wants(rivals)) return;
  const auto taken = race(rivals, bench.draws(few_draws));
  for (std::size_t i = 0; i < rivals.size(); ++i) {
    Record record{.name = name, .scalar = scalars[i], .draws = taken[i]};
    record.set_shape(shape);
    record.set_flops(attention_flops(shape));
    if (i > 0) {
      record.over_plain = paired_ratio(taken[i].seconds, taken[0].seconds);
      bench.add(Target{.row = "bfloat16 or half of float's speed, n=4096",
                       .shape = scalars[i] + (", " + shape_name(shape)),
                       .measured = 1 / record.over_plain->of_bests,
                       .side = Side::at_least,
                       .bar = 0.97});
    }
    bench.add(record);
  }
}

void compare_window_at(Bench& bench, Index head_dim) {
  const AttentionShape shape = self_attention(head_dim, bench.tokens(16384), true);
  const rove::Context& context = bench.workers(1).context();
  const rove::TiledKernel kernel;
  AttentionOperands<float> operands(shape);
  const auto all = operands.problem().with_mask(rove::causal());
  const auto near = operands.problem().with_mask(rove::window(bench.tokens(512)));
  const std::vector<Rival> rivals{{"window/none", [&] { rove::attention(all, context, kernel); }},
                                  {"window/512", [&] { rove::attention(near, context, kernel); }}};
  if (!bench.wants(rivals)) return;
  const auto taken = race(rivals, bench.draws(very_few_draws));
  for (std::size_t i = 0; i < rivals.size(); ++i) {
    Record record{.name = rivals[i].name, .scalar = "float", .draws = taken[i]};
    record.set_shape(shape);
    if (i == 0) {
      record.set_flops(attention_flops(shape));
    } else {
      record.over_plain = paired_ratio(taken[1].seconds, taken[0].seconds);
      bench.add(Target{.row = "window 512 of n=16384, time over causal",
                       .shape = shape_name(shape),
                       .measured = record.over_plain->of_bests,
                       .side = Side::at_most,
                       .bar = 0.08,
                       .ratio = record.over_plain});
    }
    bench.add(record);
  }
}

}  // namespace

void compare_storage(Bench& bench) {
  bench.section("16-bit operands: time over that of float", [&] {
    for (const AttentionShape& shape : usual_shapes(bench.tokens(4096))) compare_storage_at(bench, shape);
  });
}

void compare_window(Bench& bench) {
  bench.section("A window: time over that of the whole past", [&] {
    for (const Index head_dim : {128, 64}) compare_window_at(bench, head_dim);
  });
}

}  // namespace bench

#include <algorithm>
#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "bench/compare/cases.hpp"
#include "bench/compare/openblas.hpp"
#include "bench/compare/openblas_core.hpp"
#include "bench/compare/peak.hpp"
#include "bench/compare/plain_attention.hpp"
#include "bench/compare/tile_products.hpp"

namespace bench {
namespace {

constexpr int matrix = 2048;
constexpr rove::Index peak_steps = 4'000'000;  // some 15 ms
constexpr int few_draws = 31;                  // of shapes that take seconds a round
/// Below this share of the peak sgemm is no measure of the CPU.
constexpr double fair_share = 0.84;

/// Of n=4096: what is left where softmax costs as much as 12 more channels would.
double share_of_products(Index head_dim) {
  return static_cast<double>(head_dim) / static_cast<double>(head_dim + 12);
}

/// The bar of n=4096 as a share of the FMA peak; none for instruction sets without one.
struct PeakBar {
  std::string row;
  double wide = 0, narrow = 0;  ///< for 128 and 64 channels
  bool causal = false;          ///< whether causal attention has it too
};

PeakBar peak_bar() {
#if defined(__AVX512F__)
  if (this_cpu().amd) return {"n=4096 of the peak, Zen 4", 0.88, 0.80};
  return {"n=4096 of the peak, Intel AVX-512", 0.80, 0.75};
#elif defined(__AVX2__) && defined(__FMA__)
  return {"n=4096 of the peak, AVX2 build", 0.78, 0, true};
#else
  return {};
#endif
}

Record speed_record(const char* name, const AttentionShape& shape, const Draws& draws, double peak_gflops) {
  Record record{.name = name, .scalar = "float", .draws = draws};
  record.set_shape(shape);
  record.set_flops(attention_flops(shape));
  record.vs_peak = *record.gflops / peak_gflops;
  return record;
}

/// The peak, then plain attention of each shape: records in the order of the shapes, none where none was
/// asked for.
std::vector<Record> race_shapes(Bench& bench, const char* name, const std::vector<AttentionShape>& shapes,
                                int draws) {
  const Workers& workers = bench.workers(1);
  const FmaBurst peak(peak_steps);
  std::list<PlainAttention> subjects;
  std::vector<Rival> rivals{{name, [&] { peak(workers); }}};
  if (!bench.wants(rivals)) return {};
  for (const AttentionShape& shape : shapes) {
    PlainAttention& subject = subjects.emplace_back(shape);
    rivals.push_back({name, [&] { subject(workers); }});
  }
  const auto taken = race(rivals, draws);
  std::vector<Record> records;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    records.push_back(speed_record(name, shapes[i], taken[i + 1], peak.flops() / taken[0].best() * 1e-9));
  }
  return records;
}

/// 4096 tokens beside the peak, sgemm and the tile products alone.
void compare_long(Bench& bench) {
  const Workers& workers = bench.workers(1);
  const FmaBurst peak(peak_steps);
  Sgemm sgemm(matrix);
  std::list<TileProducts> products;
  std::list<PlainAttention> subjects;
  std::vector<Rival> rivals{{"speed/peak", [&] { peak(workers); }}, {"speed/sgemm-2048", [&] { sgemm(1); }}};
  const Index widths[] = {128, 64};
  for (const Index head_dim : widths) {
    TileProducts& tiles = products.emplace_back(head_dim, 32);
    rivals.push_back({"speed/tiles/scores", [&] { tiles.scores(); }});
    rivals.push_back({"speed/tiles/outputs", [&] { tiles.outputs(); }});
  }
  const std::vector<AttentionShape> shapes = usual_shapes(bench.tokens(4096));
  for (const AttentionShape& shape : shapes) {
    PlainAttention& subject = subjects.emplace_back(shape);
    rivals.push_back({"speed/tiled", [&] { subject(workers); }});
  }
  if (!bench.wants(rivals)) return;
  const auto taken = race(rivals, bench.draws(few_draws));
  const auto gflops = [&](double flops, std::size_t i) { return flops / taken[i].best() * 1e-9; };
  const double peak_gflops = gflops(peak.flops(), 0), sgemm_gflops = gflops(sgemm.flops(), 1);

  const auto ratio = [&](double flops, const Draws& draws, double other_flops, const Draws& other) {
    return speed_ratio(flops, draws.seconds, other_flops, other.seconds);
  };

  // The products: both together do what attention's flops count.
  Draws both[2];
  double products_flops[2];
  double products_share[2];
  std::size_t at = 2;
  for (const TileProducts& tiles : products) {
    const std::size_t which = (at - 2) / 2;
    for (std::size_t i = at; i < at + 2; ++i) {
      Record record{.name = rivals[i].name, .scalar = "float", .draws = taken[i]};
      record.head_dim = widths[which];
      record.set_flops(tiles.flops());
      record.vs_peak = *record.gflops / peak_gflops;
      bench.add(record);
    }
    products_flops[which] = 2 * tiles.flops();
    products_share[which] =
        products_flops[which] / (taken[at].best() + taken[at + 1].best()) * 1e-9 / peak_gflops;
    for (std::size_t i = 0; i < taken[at].seconds.size(); ++i) {
      both[which].seconds.push_back(taken[at].seconds[i] + taken[at + 1].seconds[i]);
    }
    bench.add(Target{.row = "tile products alone, of the peak",
                     .shape = "d=" + std::to_string(widths[which]),
                     .measured = products_share[which],
                     .side = Side::at_least,
                     .bar = 0.90,
                     .ratio = ratio(products_flops[which], both[which], peak.flops(), taken[0])});
    at += 2;
  }

  const double sgemm_share = sgemm_gflops / peak_gflops;
  std::string obstacle;
#if !defined(__AVX512F__)
  if (this_cpu().avx512) obstacle = "sgemm has wider registers than this build";
#endif
  if (!sgemm.is_right()) {
    obstacle = "OpenBLAS's product is wrong";
  } else if (obstacle.empty() && sgemm_share < fair_share) {
    obstacle = "sgemm is at " + std::to_string(sgemm_share).substr(0, 4) + " of the peak";
  }
  const PeakBar bar = peak_bar();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const AttentionShape& shape = shapes[i];
    const bool wide = shape.head_dim == 128;
    const std::string name = shape_name(shape);
    const double flops = attention_flops(shape);
    const std::size_t long_one = wide ? 0 : 1;
    Record record = speed_record("speed/tiled", shape, taken[at + i], peak_gflops);
    record.vs_sgemm = *record.gflops / sgemm_gflops;
    record.vs_long = *record.gflops / gflops(attention_flops(shapes[long_one]), at + long_one);
    const double peak_wanted = wide ? bar.wide : bar.narrow;
    if (peak_wanted > 0 && (!shape.causal || bar.causal)) {
      bench.add(Target{bar.row, name, *record.vs_peak, Side::at_least, peak_wanted,
                       ratio(flops, taken[at + i], peak.flops(), taken[0])});
    }
    if (!shape.causal) {
      const double share = share_of_products(shape.head_dim);
      bench.add(Target{"n=4096 of d/(d+12) of the tile products", name,
                       *record.vs_peak / (share * products_share[long_one]), Side::at_least, 0.97,
                       ratio(flops, taken[at + i], share * products_flops[long_one], both[long_one])});
    }
    bench.add(Target{.row = wide ? "n=4096 of sgemm, d=128" : "n=4096 of sgemm, d=64",
                     .shape = name,
                     .measured = *record.vs_sgemm,
                     .side = Side::at_least,
                     .bar = wide ? 0.94 : 0.87,
                     .ratio = ratio(flops, taken[at + i], sgemm.flops(), taken[1]),
                     .obstacle = obstacle});
    if (shape.causal) {
      bench.add(Target{"n=4096 causal of all pairs", name, *record.vs_long, Side::at_least, 0.95,
                       ratio(flops, taken[at + i], attention_flops(shapes[long_one]), taken[at + long_one])});
    }
    bench.add(record);
  }
}

/// Shorter sequences beside 4096 tokens that all see each other.
void compare_short(Bench& bench) {
  struct Row {
    AttentionShape shape;
    double bar;
  };
  AttentionShape small_model = self_attention(64, bench.tokens(1024), true, 9);
  small_model.kv_heads = 3;
  const Row rows[] = {{self_attention(128, bench.tokens(1024), true), 0.86},
                      {self_attention(64, bench.tokens(1024), true), 0.84},
                      {self_attention(64, bench.tokens(512), true), 0.75},
                      {self_attention(64, bench.tokens(128), false, 32), 0.72},
                      {small_model, 0.83}};
  std::vector<AttentionShape> shapes{self_attention(128, bench.tokens(4096), false),
                                     self_attention(64, bench.tokens(4096), false)};
  for (const Row& row : rows) shapes.push_back(row.shape);
  auto records = race_shapes(bench, "speed/tiled/short", shapes, bench.options().draws);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::size_t long_one = shapes[i].head_dim == 128 ? 0 : 1;
    records[i].vs_long = *records[i].gflops / *records[long_one].gflops;
    if (i >= 2) {
      bench.add(Target{"of n=4096: " + shape_name(shapes[i]), shape_name(shapes[i]), *records[i].vs_long,
                       Side::at_least, rows[i - 2].bar,
                       speed_ratio(attention_flops(shapes[i]), records[i].draws.seconds,
                                   attention_flops(shapes[long_one]), records[long_one].draws.seconds)});
    }
    bench.add(records[i]);
  }
}

}  // namespace

void compare_speeds(Bench& bench) {
  bench.section("Speed: the tile products alone and plain attention, of the peak, sgemm and 4096 tokens",
                [&] {
                  compare_long(bench);
                  compare_short(bench);
                });
}

void compare_head_sizes(Bench& bench) {
  bench.section("Head sizes beside 64 and 128", [&] {
    for (const bool causal : {false, true}) {
      std::vector<AttentionShape> shapes;
      for (const Index head_dim : {64, 128, 80, 96, 112, 256, 40}) {
        shapes.push_back(self_attention(head_dim, bench.tokens(4096), causal));
      }
      const auto records = race_shapes(bench, "speed/tiled/head-size", shapes, bench.draws(few_draws));
      for (std::size_t i = 0; i < records.size(); ++i) {
        if (i >= 2) {
          const bool narrow = shapes[i].head_dim == 40;
          bench.add(
              Target{.row = narrow ? "head size 40 of 64 or 128" : "head sizes 80, 96, 112, 256 of 64 or 128",
                     .shape = shape_name(shapes[i]),
                     .measured = *records[i].gflops / std::min(*records[0].gflops, *records[1].gflops),
                     .side = Side::at_least,
                     .bar = narrow ? 0.78 : 0.85});
        }
        bench.add(records[i]);
      }
    }
  });
}

}  // namespace bench

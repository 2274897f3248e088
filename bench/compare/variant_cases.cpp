#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "bench/compare/cases.hpp"
#include "bench/compare/plain_attention.hpp"
#include "bench/support/attention_case.hpp"
#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/masks_documents.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/op/attention.hpp"

namespace bench {
namespace {

/// Makes logits of 2048 keys spread over 200 where operands have variance 1: their standard deviation is
/// √channels times the scale, and the farthest of 2048 are some 6.8 of these apart.
constexpr double wide_deviation = 30;

struct Variants {
  Bench& bench;
  const AttentionShape& shape;

  /// Both in turn. `row` is what the target is called.
  template <class Plain, class Variant>
  void race_pair(const char* name, const char* row, double bar, const Plain& plain, const Variant& variant) {
    const rove::Context& context = bench.workers(1).context();
    const rove::TiledKernel kernel;
    const std::vector<Rival> rivals{{name, [&] { rove::attention(plain, context, kernel); }},
                                    {name, [&] { rove::attention(variant, context, kernel); }}};
    if (!bench.wants(rivals)) return;
    const auto taken = race(rivals, bench.options().draws);
    Record record{.name = name, .scalar = "float", .draws = taken[1]};
    record.set_shape(shape);
    record.over_plain = paired_ratio(taken[1].seconds, taken[0].seconds);
    bench.add(Target{.row = row,
                     .shape = shape_name(shape),
                     .measured = record.over_plain->of_bests,
                     .side = Side::at_most,
                     .bar = bar,
                     .ratio = record.over_plain});
    bench.add(record);
  }
};

/// Every variant of `plain`, whose mask stays.
template <class Problem>
void compare(Bench& bench, const AttentionShape& shape, const Problem& plain) {
  Variants variants{bench, shape};
  const Index n = shape.q_len;
  variants.race_pair("variant/soft-cap", "soft-cap, time over none", 1.30, plain,
                     plain.with_score(rove::soft_cap(30)));
  variants.race_pair("variant/alibi", "ALiBi, time over none", 1.05, plain,
                     plain.with_score(rove::alibi(shape.heads)));
  {
    Buffer<float> bias(n * n, 7);
    variants.race_pair("variant/bias", "full bias, time over none", 1.20, plain,
                       plain.with_score(rove::additive_bias(rove::bhtd(bias.data(), 1, 1, n, n))));
  }
  {
    // Hides one of eight, anywhere, so that no tile is all visible.
    Memory<unsigned char> seen(n * n);
    const Buffer<float> random(n * n, 8);
    for (Index i = 0; i < n * n; ++i) seen.data()[i] = random.data()[i] > -1.299F ? 1 : 0;
    variants.race_pair("variant/boolean-mask", "boolean mask, time over none", 1.12, plain,
                       plain.and_mask(rove::boolean_mask(rove::bhtd(seen.data(), 1, 1, n, n))));
  }
  const std::vector<Index> cumulative{0, n / 2, n};
  variants.race_pair("variant/two-documents", "two documents, time over one", 0.60, plain,
                     plain.and_mask(rove::documents(cumulative)));
  variants.race_pair("variant/wide-logits", "wide logits, time over narrow", 1.05, plain,
                     plain.with_scale(wide_deviation * plain.effective_scale()));
}

}  // namespace

void compare_variants(Bench& bench) {
  bench.section("Variants: time over that of plain attention", [&] {
    for (const bool causal : {false, true}) {
      const AttentionShape shape = self_attention(128, bench.tokens(2048), causal);
      AttentionOperands<float> operands(shape);
      if (causal) {
        compare(bench, shape, operands.problem().with_mask(rove::causal()));
      } else {
        compare(bench, shape, operands.problem());
      }
    }
  });
}

}  // namespace bench

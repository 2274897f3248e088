// One attention call as a value: what it answers, and where its queries and keys stand.
#include "rove/attention/problem.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "rove/attention/key_values.hpp"
#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::bht;
using rove::bhtd;
using rove::causal;
using rove::Index;

// ---- What it answers ----------------------------------------------------------------------------

TEST(AttentionProblem, extents_and_grouped_heads) {
  Operands<float> x(2, 6, 3, 4, 7, 8, 5);
  const auto problem = x.problem();
  EXPECT_EQ(problem.batch(), 2);
  EXPECT_EQ(problem.heads(), 6);
  EXPECT_EQ(problem.kv_heads(), 3);
  EXPECT_EQ(problem.q_len(), 4);
  EXPECT_EQ(problem.kv_len(), 7);
  EXPECT_EQ(problem.channels(), 8);
  EXPECT_EQ(problem.value_channels(), 5);
  EXPECT_EQ(problem.group(), 2);
  const rove::AttentionShape shape = problem.shape();
  EXPECT_EQ(shape.batch, 2);
  EXPECT_EQ(shape.heads, 6);
  EXPECT_EQ(shape.kv_heads, 3);
  EXPECT_EQ(shape.q_len, 4);
  EXPECT_EQ(shape.kv_len, 7);
}

TEST(AttentionProblem, B13_heads_are_grouped_not_tiled) {
  Operands<float> x(1, 4, 2, 1, 1, 4, 4);
  const auto problem = x.problem();
  EXPECT_EQ(problem.kv_head(0), 0);
  EXPECT_EQ(problem.kv_head(1), 0);
  EXPECT_EQ(problem.kv_head(2), 1);
  EXPECT_EQ(problem.kv_head(3), 1);
}

TEST(AttentionProblem, B76_effective_scale_is_one_over_root_channels_unless_given) {
  Operands<float> x(1, 1, 1, 1, 1, 80, 4);
  auto problem = x.problem();
  EXPECT_EQ(problem.effective_scale(), 1 / std::sqrt(80.0));
  problem.logit_factor = 1.5;
  EXPECT_EQ(problem.effective_scale(), 1.5 / std::sqrt(80.0));
  // The factor belongs to the default scale alone.
  EXPECT_EQ(problem.with_scale(0.25).effective_scale(), 0.25);
  EXPECT_EQ(problem.with_scale(0).effective_scale(), 0);
}

TEST(AttentionProblem, accumulators_are_double_if_any_operand_is) {
  const auto accumulator = []<class Q, class K, class V, class Out>(Q q, K k, V v, Out out) {
    return typename decltype(rove::attention_problem(bhtd(&q, 1, 1, 1, 1), bhtd(&k, 1, 1, 1, 1),
                                                     bhtd(&v, 1, 1, 1, 1),
                                                     bhtd(&out, 1, 1, 1, 1)))::accumulator{};
  };
  const float f = 0;
  const double d = 0;
  const Eigen::half h{};
  const Eigen::bfloat16 b{};
  static_assert(std::is_same_v<decltype(accumulator(f, h, b, h)), float>);
  static_assert(std::is_same_v<decltype(accumulator(d, h, b, h)), double>);
  static_assert(std::is_same_v<decltype(accumulator(f, d, b, h)), double>);
  static_assert(std::is_same_v<decltype(accumulator(f, h, d, h)), double>);
  static_assert(std::is_same_v<decltype(accumulator(f, h, b, d)), double>);
  static_assert(std::is_same_v<rove::row_accumulator_t<float, std::int8_t, std::int8_t, float>, float>);
}

TEST(AttentionProblem, each_with_returns_a_changed_copy) {
  Operands<float> x(1, 2, 2, 3, 3, 4, 4);
  const std::vector<Index> lengths = {2}, offsets = {7};
  const std::vector<float> sinks = {1, 2};
  const auto base = rove::attention_problem(x.problem().q, x.problem().kv, x.problem().out);
  EXPECT_FALSE(base.lse);
  EXPECT_FALSE(base.key_lengths);
  EXPECT_FALSE(base.scale);
  EXPECT_EQ(base.sinks.data(), nullptr);
  const auto changed = base.with_lse(bht(x.lse.data(), 1, 2, 3))
                           .with_key_lengths(lengths)
                           .with_query_offsets(offsets)
                           .with_sinks(sinks)
                           .with_scale(0.5)
                           .with_mask(causal())
                           .with_score(rove::soft_cap(3.0));
  EXPECT_FALSE(base.lse) << "the original is as it was";
  EXPECT_EQ(changed.lse.data, x.lse.data());
  EXPECT_EQ(changed.key_lengths.size(), 1);
  EXPECT_EQ(changed.first_query(0), 7);
  EXPECT_EQ(changed.sinks.data(), sinks.data());
  EXPECT_EQ(changed.scale, 0.5);
  static_assert(std::is_same_v<decltype(changed)::mask_type, rove::Causal>);
  // What changes the type keeps all of the rest; with_mask replaces, and_mask adds.
  auto factor = changed;
  factor.logit_factor = 2;
  const auto again = factor.with_mask(rove::window(2)).and_mask(!rove::window(1));
  EXPECT_EQ(again.logit_factor, 2);
  EXPECT_EQ(again.lse.data, x.lse.data());
  EXPECT_EQ(again.key_lengths.size(), 1);
  EXPECT_EQ(again.first_query(0), 7);
  EXPECT_EQ(again.sinks.data(), sinks.data());
  EXPECT_EQ(again.scale, 0.5);
  EXPECT_FALSE(
      again.mask.visible(again.site(0, 0, 0, 0).query == 7 ? rove::Site{0, 0, 0, 0, 7, 7} : rove::Site{}));
  EXPECT_TRUE(again.mask.visible(rove::Site{0, 0, 0, 0, 7, 6}));
  EXPECT_FALSE(again.mask.visible(rove::Site{0, 0, 0, 0, 7, 5}));
  const auto ring = again.with_key_values(rove::ring_key_values(x.problem().kv.k, x.problem().kv.v, 5));
  EXPECT_EQ(ring.kv_len(), 5);
  EXPECT_EQ(ring.logit_factor, 2);
  EXPECT_EQ(ring.sinks.data(), sinks.data());
}

TEST(AttentionProblem, slots_are_the_caches_cut_by_the_key_length) {
  Operands<float> x(3, 1, 1, 2, 8, 4, 4);
  const std::vector<std::int32_t> lengths = {8, 0, 5};
  const auto whole = x.problem();
  EXPECT_EQ(whole.slots(1).first, 0);
  EXPECT_EQ(whole.slots(1).last, 8);
  const auto cut = whole.with_key_lengths(lengths);
  EXPECT_EQ(cut.slots(0).last, 8);
  EXPECT_TRUE(cut.slots(1).empty());
  EXPECT_EQ(cut.slots(2).last, 5);
  // A ring of 8 places after 11 keys holds [3, 11); a length of 5 leaves [3, 5), one of 2 nothing.
  const std::vector<Index> ring_lengths = {5, 2, 11};
  const auto ring =
      whole.with_key_values(rove::ring_key_values(whole.kv.k, whole.kv.v, 11)).with_key_lengths(ring_lengths);
  EXPECT_EQ(ring.slots(0).first, 3);
  EXPECT_EQ(ring.slots(0).last, 5);
  EXPECT_TRUE(ring.slots(1).empty());
  EXPECT_EQ(ring.slots(2).count(), 8);
}

TEST(AttentionProblem, where_the_queries_stand) {
  Operands<float> x(3, 1, 1, 2, 8, 4, 4);
  const std::vector<std::int32_t> lengths = {8, 0, 5};
  const auto problem = x.problem().with_key_lengths(lengths);
  EXPECT_EQ(problem.first_query(0), 0) << "unspecified";
  EXPECT_EQ(problem.with_query_offset(rove::align_first()).first_query(2), 0);
  EXPECT_EQ(problem.with_query_offset(-17).first_query(2), -17);
  const auto last = problem.with_query_offset(rove::align_last());
  EXPECT_EQ(last.first_query(0), 6);
  EXPECT_EQ(last.first_query(1), -2) << "no keys: the last query stands before index 0";
  EXPECT_EQ(last.first_query(2), 3);
  const std::vector<std::int32_t> narrow = {1, 2, -3};
  const std::vector<std::int64_t> wide = {Index{1} << 40, 2, -3};
  EXPECT_EQ(problem.with_query_offsets(narrow).first_query(2), -3);
  EXPECT_EQ(problem.with_query_offsets(wide).first_query(0), Index{1} << 40);
  // align_last goes by the last key's index, not by its slot.
  const auto moved =
      problem.with_key_values(rove::displaced(problem.kv, 100)).with_query_offset(rove::align_last());
  EXPECT_EQ(moved.first_query(0), 106);
  EXPECT_EQ(moved.first_query(2), 103);
}

TEST(AttentionProblem, site_of_a_pair) {
  Operands<float> x(2, 4, 2, 3, 8, 4, 4);
  const std::vector<Index> offsets = {10, 20};
  const auto problem =
      x.problem().with_key_values(rove::displaced(x.problem().kv, -4)).with_query_offsets(offsets);
  const rove::Site site = problem.site(1, 3, 2, 5);
  EXPECT_EQ(site.batch, 1);
  EXPECT_EQ(site.head, 3);
  EXPECT_EQ(site.row, 2);
  EXPECT_EQ(site.slot, 5);
  EXPECT_EQ(site.query, 22);
  EXPECT_EQ(site.key, 1);
}

// ---- Masks by local row, order by index ---------------------------------------------------------

TEST(AttentionProblem, N06_a_boolean_mask_with_an_offset_goes_by_local_row) {
  // 2 rows × 5 keys in memory of exactly that size: the sanitizer sees what reads by absolute query.
  Operands<float> x(1, 1, 1, 2, 5, 8, 8, 3);
  const std::vector<unsigned char> seen = {1, 0, 1, 1, 0, 0, 0, 1, 0, 1};
  const auto problem = x.problem()
                           .with_mask(rove::boolean_mask(bhtd(seen.data(), 1, 1, 2, 5)))
                           .with_query_offset(rove::align_last());
  rove::NaiveKernel{}(problem);
  judge(problem);
  const std::vector<float> expected = x.out;
  rove::NaiveKernel{}(problem.with_query_offset(1000));
  EXPECT_EQ(x.out, expected);
}

TEST(AttentionProblem, B10_one_query_at_a_time_sees_what_the_prefill_saw) {
  Operands<float> whole(1, 2, 1, 12, 12, 8, 8, 4);
  rove::NaiveKernel{}(whole.problem().with_mask(rove::window(4)));
  for (Index i = 0; i < 12; ++i) {
    // Decoding: i + 1 keys so far, one query at their end.
    Operands<float> one = whole;
    const auto base = one.problem();
    const auto problem = rove::attention_problem(base.q.slice(2, i, 1), base.kv.k.slice(2, 0, i + 1),
                                                 base.kv.v.slice(2, 0, i + 1), base.out.slice(2, i, 1))
                             .with_mask(rove::window(4))
                             .with_query_offset(rove::align_last());
    rove::NaiveKernel{}(problem);
    for (Index h = 0; h < 2; ++h) {
      for (Index c = 0; c < 8; ++c)
        EXPECT_EQ(base.out(0, h, i, c), whole.problem().out(0, h, i, c)) << "query " << i;
    }
  }
}

}  // namespace
}  // namespace rove_test

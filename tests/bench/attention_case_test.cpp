// What an attention call is said to cost.

#include "bench/support/attention_case.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "rove/op/attention.hpp"

namespace {

using bench::AttentionShape;

/// Pairs that the library's own mask lets through.
double pairs_by_mask(const AttentionShape& shape) {
  bench::AttentionOperands<float> operands(shape);
  const auto problem = operands.problem().with_mask(rove::causal()).with_query_offset(rove::align_last());
  double pairs = 0;
  for (rove::Index row = 0; row < shape.q_len; ++row) {
    for (rove::Index slot = 0; slot < shape.kv_len; ++slot) {
      pairs += !shape.causal || problem.mask.visible(problem.site(0, 0, row, slot)) ? 1 : 0;
    }
  }
  return pairs;
}

TEST(AttentionCase, counts_visible_pairs_only) {
  for (const bool causal : {false, true}) {
    for (const auto& [q_len, kv_len] : {std::pair<rove::Index, rove::Index>{7, 7}, {1, 9}, {4, 9}, {9, 4}}) {
      const AttentionShape shape{
          .head_dim = 4, .q_len = q_len, .kv_len = kv_len, .heads = 2, .kv_heads = 1, .causal = causal};
      EXPECT_EQ(bench::visible_pairs(shape), pairs_by_mask(shape)) << q_len << ' ' << kv_len << ' ' << causal;
    }
  }
}

TEST(AttentionCase, flops_are_four_for_each_pair_channel_and_query_head) {
  EXPECT_EQ(bench::attention_flops(
                {.head_dim = 64, .q_len = 4, .kv_len = 4, .heads = 6, .kv_heads = 2, .causal = true}),
            4.0 * 64 * 10 * 6);
}

TEST(AttentionCase, operands_make_a_problem_that_can_be_run) {
  bench::AttentionOperands<float> operands(
      {.head_dim = 8, .q_len = 5, .kv_len = 5, .heads = 4, .kv_heads = 2, .causal = true});
  const auto problem = operands.problem().with_mask(rove::causal());
  rove::rove_attention(problem, operands.frame());
  // Token 0 sees itself only and stands at position 0.
  for (rove::Index head = 0; head < 4; ++head) {
    for (rove::Index c = 0; c < 8; ++c) {
      EXPECT_EQ(problem.out(0, head, 0, c), problem.kv.values(0, head / 2, 0).data[c]);
    }
  }
}

TEST(Buffer, holds_numbers_of_mean_0_and_variance_1_from_the_start_of_a_page) {
  const bench::Buffer<float> buffer(100000, 5), same(100000, 5), other(100000, 6);
  double sum = 0, squares = 0;
  for (rove::Index i = 0; i < buffer.size(); ++i) {
    sum += buffer.data()[i];
    squares += static_cast<double>(buffer.data()[i]) * buffer.data()[i];
    ASSERT_EQ(buffer.data()[i], same.data()[i]);
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
  EXPECT_NE(buffer.data()[0], other.data()[0]);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
  EXPECT_EQ(buffer.bytes(), 400000);
}

}  // namespace

// What an attention call refuses, with which message, before anything is written.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "rove/core/tensor_view.hpp"
#include "support/error_of.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::bhtd;
using rove::causal;
using rove::Index;
using test::error_of;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The message of the call, which must not have written anything.
template <class Problem>
std::string refused(Operands<float>& x, const Problem& problem) {
  const std::string message = error_of([&] { problem.check(); });
  EXPECT_EQ(error_of([&] { rove::NaiveKernel{}(problem); }), message);
  EXPECT_EQ(x.out, std::vector<float>(x.out.size(), -77)) << message;
  EXPECT_EQ(x.lse, std::vector<float>(x.lse.size(), -77)) << message;
  return message;
}

TEST(AttentionProblemRefuses, shapes_that_do_not_fit) {
  Operands<float> x(2, 4, 2, 3, 5, 8, 6);
  const auto ok = x.problem();
  EXPECT_EQ(error_of([&] { ok.check(); }), "(no error)");
  auto p = ok;
  for (int d = 0; d < 4; ++d) {
    const char* const names[4] = {"batch", "heads", "tokens", "channels"};
    p = ok;
    p.q.extent[d] = -3;
    EXPECT_EQ(refused(x, p), std::string("q's ") + names[d] + " must not be negative, got -3");
  }
  p = ok;
  p.q.extent[0] = 1;
  EXPECT_EQ(refused(x, p), "keys and values have batch 2, q has 1");
  p = ok;
  p.kv.k.extent[1] = p.kv.v.extent[1] = 0;
  EXPECT_EQ(refused(x, p), "q has 4 heads but there are 0 key/value heads to read");
  p = ok;
  p.kv.k.extent[1] = p.kv.v.extent[1] = 3;
  EXPECT_EQ(refused(x, p), "q's heads (4) must be a multiple of the key/value heads (3)");
  p = ok;
  p.kv.k.extent[3] = 7;
  EXPECT_EQ(refused(x, p), "keys have 7 channels, q has 8");
  p = ok;
  p.q.extent[3] = p.kv.k.extent[3] = 0;
  EXPECT_EQ(refused(x, p), "q must have at least 1 channel, got 0");
  p = ok;
  p.kv.v.extent[3] = p.out.extent[3] = 0;
  EXPECT_EQ(refused(x, p), "values must have at least 1 channel, got 0");
  const Index wanted[4] = {2, 4, 3, 6};
  const char* const names[4] = {"batch", "heads", "tokens", "channels"};
  for (int d = 0; d < 4; ++d) {
    p = ok;
    p.out.extent[d] -= 1;
    EXPECT_EQ(refused(x, p), std::string("out's ") + names[d] + " must be " + std::to_string(wanted[d]) +
                                 ", got " + std::to_string(wanted[d] - 1));
  }
  for (int d = 0; d < 3; ++d) {
    p = ok;
    p.lse.extent[d] += 1;
    EXPECT_EQ(refused(x, p), std::string("lse's ") + names[d] + " must be " + std::to_string(wanted[d]) +
                                 ", got " + std::to_string(wanted[d] + 1));
  }
  p = ok;
  p.kv.v.extent[2] = 4;
  EXPECT_EQ(refused(x, p), "k has 5 tokens, v has 4");
}

TEST(AttentionProblemRefuses, views_that_cannot_be_addressed) {
  Operands<float> x(2, 4, 2, 3, 5, 8, 6);
  const auto ok = x.problem();
  auto p = ok;
  p.q.data = nullptr;
  EXPECT_EQ(refused(x, p), "q is null but has 192 elements");
  p = ok;
  p.out.data = nullptr;
  EXPECT_EQ(refused(x, p), "out is null but has 144 elements");
  p = ok;
  p.kv.v.data = nullptr;
  EXPECT_EQ(refused(x, p), "v is null but has 120 elements");
  p = ok;
  p.q.stride[2] = Index{1} << 61;
  EXPECT_EQ(refused(x, p),
            "q: offsets do not fit in 64 bits, tokens has extent 3 and stride 2305843009213693952");
  p = ok;
  p.lse.stride[1] = Index{1} << 61;
  EXPECT_EQ(refused(x, p),
            "lse: offsets do not fit in 64 bits, heads has extent 4 and stride 2305843009213693952");
}

TEST(AttentionProblemRefuses, outputs_that_share_memory) {
  Operands<float> x(2, 4, 2, 3, 3, 8, 8);
  const auto ok = x.problem();
  auto p = ok;
  p.out.stride[1] = 0;
  EXPECT_EQ(refused(x, p), "out overlaps itself: two of its elements share one place");
  p = ok;
  p.out.stride[2] = 7;
  EXPECT_EQ(refused(x, p), "out overlaps itself: two of its elements share one place");
  p = ok;
  p.lse.stride[2] = 0;
  EXPECT_EQ(refused(x, p), "lse overlaps itself: two of its elements share one place");

  // out = q: the same data, extents and strides, nothing else.
  const char* const as_q = "out may share q's memory only with q's element type, data, extents and strides";
  p = ok;
  p.out = bhtd(x.q.data(), 2, 4, 3, 8);
  EXPECT_EQ(error_of([&] { p.check(); }), "(no error)");
  p.out = rove::bthd(x.q.data(), 2, 3, 4, 8);
  EXPECT_EQ(refused(x, p), as_q);
  p.out = bhtd(x.q.data() + 8, 2, 4, 3, 8);
  p.out.extent[0] = 2;
  EXPECT_EQ(refused(x, p), as_q);
  const std::vector<float> q = x.q;
  p.out = bhtd(x.k.data(), 2, 4, 3, 8);
  p.out.stride[0] = 0;
  EXPECT_EQ(refused(x, p), "out overlaps itself: two of its elements share one place");
  EXPECT_EQ(x.q, q);
  // Wider than q in memory but over the same bytes.
  auto* const doubles = reinterpret_cast<double*>(x.q.data());
  EXPECT_EQ(error_of([&] {
              rove::attention_problem(ok.q.slice(0, 0, 1).slice(1, 0, 2), ok.kv.k.slice(0, 0, 1),
                                      ok.kv.v.slice(0, 0, 1), bhtd(doubles, 1, 2, 3, 8))
                  .check();
            }),
            as_q);

  const char* const as_kv = "out shares memory with the keys or values";
  Operands<float> y(1, 2, 2, 3, 3, 8, 8);
  auto kv = y.problem();
  kv.out = bhtd(y.k.data(), 1, 2, 3, 8);
  EXPECT_EQ(refused(y, kv), as_kv);
  kv.out = bhtd(y.v.data(), 1, 2, 3, 8);
  EXPECT_EQ(refused(y, kv), as_kv);

  p = ok;
  p.lse.data = x.out.data() + 5;
  EXPECT_EQ(refused(x, p), "lse shares memory with q or out");
  p.lse.data = x.q.data();
  EXPECT_EQ(refused(x, p), "lse shares memory with q or out");
  p.lse.data = x.v.data() + 3;
  EXPECT_EQ(refused(x, p), "lse shares memory with the keys or values");
}

TEST(AttentionProblemRefuses, numbers_that_make_no_sense) {
  Operands<float> x(2, 4, 2, 3, 5, 8, 6);
  const auto ok = x.problem();
  const std::vector<float> three = {1, 2, 3}, four = {1, 2, 3, 4};
  EXPECT_EQ(refused(x, ok.with_sinks(three)), "there are 3 sinks for 4 query heads");
  EXPECT_EQ(error_of([&] { ok.with_sinks(four).check(); }), "(no error)");
  EXPECT_EQ(refused(x, ok.with_scale(infinity)), "scale must be finite, got inf");
  EXPECT_EQ(refused(x, ok.with_scale(std::nan(""))), "scale must be finite, got nan");
  EXPECT_EQ(error_of([&] { ok.with_scale(-0.5).check(); }), "(no error)");
  const std::vector<Index> one = {5}, negative = {5, -1}, long_ones = {6, 5};
  const std::vector<std::int32_t> good = {0, 5};
  EXPECT_EQ(refused(x, ok.with_key_lengths(one)), "there are 1 key lengths for batch 2");
  EXPECT_EQ(refused(x, ok.with_key_lengths(negative)), "key length -1 of batch row 1 is outside [0, 5]");
  EXPECT_EQ(refused(x, ok.with_key_lengths(long_ones)), "key length 6 of batch row 0 is outside [0, 5]");
  EXPECT_EQ(error_of([&] { ok.with_key_lengths(good).check(); }), "(no error)");
  EXPECT_EQ(refused(x, ok.with_query_offsets(one)), "there are 1 query offsets for batch 2");
}

TEST(AttentionProblemRefuses, an_order_without_an_offset) {
  const std::string message =
      "the mask or score depends on order and q has 3 tokens where there are 5 keys: say "
      "with_query_offset(align_first()) (row 0 is token 0, as in PyTorch), with_query_offset(align_last()) "
      "(the last "
      "row is the last key, as in FlashAttention) or a number";
  Operands<float> x(2, 4, 2, 3, 5, 8, 6);
  EXPECT_EQ(refused(x, x.problem().with_mask(causal())), message);
  EXPECT_EQ(refused(x, x.problem().with_score(rove::alibi(4))), message);
  EXPECT_EQ(error_of([&] { x.problem().with_mask(causal()).with_query_offset(rove::align_first()).check(); }),
            "(no error)");
  EXPECT_EQ(error_of([&] { x.problem().with_mask(causal()).with_query_offset(rove::align_last()).check(); }),
            "(no error)");
  EXPECT_EQ(error_of([&] { x.problem().with_mask(causal()).with_query_offset(2).check(); }), "(no error)");
  // No order, no question; nor where there are as many of both.
  EXPECT_EQ(error_of([&] { x.problem().with_mask(rove::prefix(3)).with_score(rove::soft_cap(2.0)).check(); }),
            "(no error)");
  Operands<float> square(2, 4, 2, 5, 5, 8, 6);
  EXPECT_EQ(error_of([&] { square.problem().with_mask(causal()).check(); }), "(no error)");
}

TEST(AttentionProblemRefuses, what_its_mask_and_score_refuse) {
  Operands<float> x(2, 4, 2, 5, 5, 8, 6);
  const std::vector<unsigned char> seen(36, 1);
  EXPECT_EQ(refused(x, x.problem().with_mask(rove::boolean_mask(bhtd(seen.data(), 1, 1, 6, 5)))),
            "boolean_mask: extent 2 (q_len) is 6, must be 5 or 1");
  const std::string message = refused(x, x.problem().with_score(rove::alibi(3)));
  EXPECT_NE(message.find("alibi"), std::string::npos) << message;
}

}  // namespace
}  // namespace rove_test

// What the operators refuse, with which message, before anything is written.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/op/attention.hpp"
#include "support/error_of.hpp"
#include "support/judge.hpp"
#include "support/rotary.hpp"

namespace rove_test {
namespace {

using rove::causal;
using rove::consecutive_positions;
using rove::Index;
using test::error_of;

template <class Frames>
std::string refused(Operands<float>& x, const Frames& frames) {
  const auto problem = x.problem();
  const std::string message = error_of([&] { rove::attention(problem, frames); });
  EXPECT_EQ(error_of([&] {
              rove::attention(problem, frames, rove::Context{}, rove::materialised(rove::NaiveKernel{}));
            }),
            message);
  EXPECT_EQ(x.out, std::vector<float>(x.out.size(), -77)) << message;
  EXPECT_EQ(x.lse, std::vector<float>(x.lse.size(), -77)) << message;
  return message;
}

TEST(AttentionRefuses, N01_one_frame_for_queries_at_the_end_of_a_cache) {
  const Kind kind{};
  Operands<float> x(1, 2, 1, 2, 5, 16, 16, 19);
  const std::string end =
      ": give the frames of the query rows and of the key slots, e.g. rows(frame, first, count) and frame";
  const auto five = rotary(kind, consecutive_positions(5));
  const std::string message =
      "one frame of 5 tokens serves queries and keys only where there are as many of both; there are 2 "
      "queries and 5 keys" +
      end;
  EXPECT_EQ(refused(x, rove::rove_frames(five)), message);
  EXPECT_EQ(refused(x, rove::rope_frames(five)), message);
  Operands<float> square(1, 2, 1, 5, 5, 16, 16, 20);
  EXPECT_EQ(refused(square, rove::rove_frames(rotary(kind, consecutive_positions(6)))),
            "one frame of 6 tokens serves queries and keys only where there are as many of both; there are 5 "
            "queries and 5 keys" +
                end);
  // Said with two frames it is right, and the queries are turned as tokens 3 and 4.
  const auto problem = x.problem().with_query_offset(rove::align_last()).with_mask(causal());
  rove::rove_attention(problem, rove::rows(five, 3, 2), five);
  judge(problem, {.query = matrix(kind, 16, {3}),
                  .key = matrix(kind, 16, {0}),
                  .value = matrix(kind, 16, {0}),
                  .output = matrix(kind, 16, {3})});
  rove::rope_attention(problem, rove::rows(five, 3, 2), five);
  judge(problem, {.query = matrix(kind, 16, {3}), .key = matrix(kind, 16, {0}), .value = {}, .output = {}});
}

TEST(AttentionRefuses, frames_that_do_not_fit) {
  const Kind kind{}, wide{.rotary_dim = 18};
  const std::array<Index, 3> three = {0, 1, 2};
  Operands<float> x(2, 2, 1, 2, 5, 16, 16, 21);
  const auto q = rotary(kind, consecutive_positions(2)), k = rotary(kind, consecutive_positions(5));
  const std::string longer = ": take rows(frame, first, count) of a longer one";
  EXPECT_EQ(refused(x, rove::rope_frames(k, k)),
            "the query frame has 5 tokens where there are 2 queries" + longer);
  EXPECT_EQ(refused(x, rove::rope_frames(rotary(kind, consecutive_positions(1)), k)),
            "the query frame has 1 tokens where there are 2 queries" + longer);
  EXPECT_EQ(refused(x, rove::rope_frames(q, rotary(kind, consecutive_positions(4)))),
            "the key frame has 4 tokens where there are 5 keys");
  EXPECT_EQ(refused(x, rove::rove_frames(q, k, rotary(kind, consecutive_positions(4)), q)),
            "the value frame has 4 tokens where there are 5 keys");
  EXPECT_EQ(refused(x, rove::rove_frames(q, k, k, k)),
            "the output frame has 5 tokens where there are 2 queries" + longer);
  // The output left out is the value frame, which then must be the queries' too.
  EXPECT_EQ(refused(x, rove::rove_frames(q, k, k)),
            "the output frame has 5 tokens where there are 2 queries" + longer);
  EXPECT_EQ(refused(x, rove::rope_frames(rotary(wide, consecutive_positions(2)), k)),
            "the query frame turns 18 channels of rows that have 16");
  EXPECT_EQ(refused(x, rove::rope_frames(q, rotary(wide, consecutive_positions(5)))),
            "the key frame turns 18 channels of rows that have 16");
  EXPECT_EQ(refused(x, rove::rove_frames(q, k, rotary(wide, consecutive_positions(5)), q)),
            "the value frame turns 18 channels of rows that have 16");
  EXPECT_EQ(refused(x, rove::rove_frames(q, k, k, rotary(wide, consecutive_positions(2)))),
            "the output frame turns 18 channels of rows that have 16");
  EXPECT_EQ(refused(x, rove::rope_frames(rotary(kind, consecutive_positions(2, three)), k)),
            "the query frame has batch 3, the problem has 2");
  EXPECT_EQ(refused(x, rove::rope_frames(q, rotary(kind, consecutive_positions(5, three)))),
            "the key frame has batch 3, the problem has 2");
  // Key and value frames may be longer than the cache is full.
  EXPECT_EQ(error_of([&] {
              rove::attention(x.problem(), rove::rope_frames(q, rotary(kind, consecutive_positions(50))));
            }),
            "(no error)");
}

TEST(AttentionRefuses, a_logit_factor_that_is_none) {
  Operands<float> x(1, 1, 1, 2, 2, 16, 16, 22);
  auto frames = rove::rope_frames(rotary(Kind{}, consecutive_positions(2)));
  frames.logit_factor = 0;
  EXPECT_EQ(refused(x, frames), "the frames' logit factor must be positive, got 0");
  frames.logit_factor = -1.5;
  EXPECT_EQ(refused(x, frames), "the frames' logit factor must be positive, got -1.5");
}

// What problem and frames refuse, whichever kernel there is.
TEST(AttentionRefuses, the_problem_first) {
  Operands<float> x(1, 1, 1, 2, 5, 16, 16, 23);
  const auto problem = x.problem().with_mask(causal());
  const std::string message = error_of([&] { rove::attention(problem); });
  EXPECT_EQ(message.substr(0, 40), "the mask or score depends on order and q");
  EXPECT_EQ(
      error_of([&] { rove::attention(problem, rove::Context{}, [](const auto&, const auto&) { FAIL(); }); }),
      message);
}

}  // namespace
}  // namespace rove_test

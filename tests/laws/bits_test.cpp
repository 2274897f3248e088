// The same bits, however a call is carried out: a row's result depends on its own inputs alone, not on batch,
// slicing, workers, executor, path, what was in memory, or which tiles are skipped.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/op/attention.hpp"
#include "support/bits.hpp"
#include "support/eigen_thread_pool.hpp"
#include "support/executors.hpp"
#include "support/frames.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::Context;
using rove::Index;
using rove::unbounded;
using rove::window;

TEST(Bits, fused_and_materialised_by_either_kernel) {
  const auto check = [](const auto& kernel) {
    Call call;
    rove::attention(call.problem(), Call::frames(), Context{}, kernel);
    EXPECT_EQ(call.bits(), expected());
  };
  check(rove::NaiveKernel{});
  check(rove::materialised(rove::NaiveKernel{}));
  check(rove::TiledKernel{});
  check(rove::materialised(rove::TiledKernel{}));
}

// B72: 33 tokens were wrong with more than one thread.
TEST(Bits, B72_workers_and_executors) {
  const auto check = [](const Context& context, const std::string& name) {
    for (const bool fused : {true, false}) {
      Call call;
      if (fused) {
        rove::attention(call.problem(), Call::frames(), context);
      } else {
        rove::attention(call.problem(), Call::frames(), context, rove::materialised(rove::NaiveKernel{}));
      }
      EXPECT_EQ(call.bits(), expected()) << name << (fused ? ", fused" : ", materialised");
    }
  };
  check(Context{}, "serial");
  for (const int workers : {1, 2, 3, 8}) {
    Eigen::ThreadPool pool(workers);
    check(Context(rove::on(pool)), "pool of " + std::to_string(workers));
    test::StridedThreads threads(workers);
    check(Context(rove::on(threads)), "threads " + std::to_string(workers));
#if defined(_OPENMP)
    check(Context(rove::on_openmp(workers)), "OpenMP " + std::to_string(workers));
#endif
  }
}

TEST(Bits, a_second_call_in_the_same_memory) {
  // Whatever the first call left there.
  const Context context;
  Call first;
  rove::attention(first.problem(), Call::frames(), context);
  Operands<float> other(1, 2, 2, 7, 7, width, width, 2);
  rove::attention(other.problem().with_mask(window(unbounded, 0)), context);
  Call second;
  rove::attention(second.problem(), Call::frames(), context);
  EXPECT_EQ(second.bits(), expected());
}

TEST(Bits, slices_of_the_batch_the_heads_and_the_queries) {
  Call call;
  const auto whole = call.problem();
  const auto part = [&](Index b, Index kv_head, Index first, Index count) {
    const auto slice = [&](const auto& view, Index head, Index heads) {
      return view.slice(0, b, 1).slice(1, head, heads);
    };
    auto lse = whole.lse;
    lse.data = &whole.lse(b, 2 * kv_head, first);
    lse.extent[0] = 1;
    lse.extent[1] = 2;
    lse.extent[2] = count;
    const auto problem = rove::attention_problem(slice(whole.q, 2 * kv_head, 2).slice(2, first, count),
                                                 slice(whole.kv.k, kv_head, 1), slice(whole.kv.v, kv_head, 1),
                                                 slice(whole.out, 2 * kv_head, 2).slice(2, first, count))
                             .with_lse(lse)
                             .with_query_offset(Call::kv_len - Call::q_len + first)
                             .with_mask(window(unbounded, 0));
    rove::attention(problem, rove::rove_frames(
                                 AnyFrame<float>(rove::rows(
                                     frame_at(100 + Call::kv_len - Call::q_len, Call::q_len), first, count)),
                                 frame_at(100, Call::kv_len)));
  };
  for (Index b = 0; b < 3; ++b) {
    for (Index kv_head = 0; kv_head < 2; ++kv_head) {
      for (const auto& [first, count] : {std::pair<Index, Index>{0, 1}, {1, 15}, {16, 16}, {32, 1}}) {
        part(b, kv_head, first, count);
      }
    }
  }
  EXPECT_EQ(call.bits(), expected());
}

// ---- Masks and lengths --------------------------------------------------------------------------

/// A mask that answers one pair at a time: no tile is ever skipped or taken whole.
template <class M>
struct OneByOne {
  M mask;
  bool visible(const rove::Site& site) const { return mask.visible(site); }
};

TEST(Bits, tiles_that_are_skipped_and_tiles_that_are_looked_into) {
  Operands<float> x(1, 2, 1, 300, 300, width, width, 3), y = x;
  const auto frames = rove::rove_frames(frame_at(100, 300));
  for (const auto& mask : {window(unbounded, 0), window(40), window(3, 70), window(299, 0), window(1)}) {
    rove::attention(x.problem().with_mask(mask), frames);
    rove::attention(y.problem().with_mask(OneByOne<rove::Window>{mask}), frames);
    EXPECT_EQ(bits_of(x.problem().out), bits_of(y.problem().out));
    EXPECT_EQ(bits_of(as_tensor(x.problem().lse)), bits_of(as_tensor(y.problem().lse)));
  }
}

TEST(Bits, rows_that_see_nothing_between_others) {
  Operands<float> x(1, 2, 1, 40, 40, width, width, 9), y = x;
  const auto frames = rove::rove_frames(frame_at(100, 40));
  const auto blind = [](Index query) { return query % 5 == 1 || query % 5 == 2 || query == 39; };
  rove::attention(x.problem(), frames);
  rove::attention(y.problem().with_query_offset(0).with_mask(
                      rove::mask([&](Index, Index, Index query, Index) { return !blind(query); })),
                  frames);
  const std::vector<unsigned char> zeros(std::size_t{width} * sizeof(float), 0);
  for (Index h = 0; h < 2; ++h) {
    for (Index i = 0; i < 40; ++i) {
      const auto row = [&](auto& operands) {
        return bits_of(operands.problem().out.slice(1, h, 1).slice(2, i, 1));
      };
      EXPECT_EQ(row(y), blind(i) ? zeros : row(x)) << "head " << h << ", row " << i;
    }
  }
}

TEST(Bits, keys_beyond_the_causal_edge_need_not_be_there) {
  // Row i of the whole is the last row over i + 1 keys.
  Operands<float> x(1, 2, 1, 300, 300, width, width, 4), y = x;
  rove::attention(x.problem().with_mask(window(unbounded, 0)), rove::rove_frames(frame_at(100, 300)));
  for (const Index i : {0, 1, 15, 16, 31, 254, 255, 256, 299}) {
    const auto base = y.problem();
    auto lse = base.lse;
    lse.data = &base.lse(0, 0, i);
    lse.extent[2] = 1;
    const auto problem = rove::attention_problem(base.q.slice(2, i, 1), base.kv.k.slice(2, 0, i + 1),
                                                 base.kv.v.slice(2, 0, i + 1), base.out.slice(2, i, 1))
                             .with_lse(lse)
                             .with_query_offset(i)
                             .with_mask(window(unbounded, 0));
    rove::attention(problem, rove::rove_frames(frame_at(100 + i, 1), frame_at(100, i + 1)));
    EXPECT_EQ(bits_of(problem.out), bits_of(x.problem().out.slice(2, i, 1))) << "row " << i;
    EXPECT_EQ(bits_of(as_tensor(problem.lse)), bits_of(as_tensor(x.problem().lse).slice(2, i, 1)))
        << "row " << i;
  }
}

TEST(Bits, key_lengths_are_shorter_tensors) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Call call;
  const std::vector<std::int32_t> lengths = {300, 256, 7};
  for (Index b = 0; b < 3; ++b) {
    for (Index h = 0; h < 2; ++h) {
      for (Index t = lengths[static_cast<std::size_t>(b)]; t < 300; ++t) {
        for (Index c = 0; c < width; ++c) {
          const auto at = static_cast<std::size_t>(((b * 2 + h) * 300 + t) * width + c);
          call.x.k[at] = call.x.v[at] = nan;
        }
      }
    }
  }
  const auto problem = call.problem().with_key_lengths(lengths).with_mask(window(unbounded, unbounded));
  rove::attention(problem, Call::frames());
  for (Index b = 0; b < 3; ++b) {
    Call alone;
    const Index n = lengths[static_cast<std::size_t>(b)];
    const auto one = alone.problem();
    const auto shorter =
        rove::attention_problem(one.q.slice(0, b, 1), problem.kv.k.slice(0, b, 1).slice(2, 0, n),
                                problem.kv.v.slice(0, b, 1).slice(2, 0, n), one.out.slice(0, b, 1))
            .with_query_offset(0)
            .with_mask(window(unbounded, unbounded));
    rove::attention(shorter, rove::rove_frames(frame_at(100 + 267, 33), frame_at(100, n)));
    EXPECT_EQ(bits_of(shorter.out), bits_of(problem.out.slice(0, b, 1))) << "batch row " << b;
  }
}

TEST(Bits, rows_that_see_the_same_keys_in_other_chunks_of_4096) {
  // Two chunks: a query over all of the keys, alone and among others.
  Operands<float> x(1, 1, 1, 3, 4200, 4, 4, 5), y = x;
  rove::attention(x.problem().with_query_offset(4197).with_mask(window(unbounded, 0)));
  const auto base = y.problem();
  rove::attention(
      rove::attention_problem(base.q.slice(2, 1, 1), base.kv.k, base.kv.v, base.out.slice(2, 1, 1))
          .with_query_offset(4198)
          .with_mask(window(unbounded, 0)));
  EXPECT_EQ(bits_of(base.out.slice(2, 1, 1)), bits_of(x.problem().out.slice(2, 1, 1)));
}

// ---- Decoding -----------------------------------------------------------------------------------

// B54: decoding one token with a bias of zeros for all heads and rows.
TEST(Bits, B54_one_token_with_a_broadcast_zero_bias_is_the_full_forward) {
  Operands<float> full(1, 4, 2, 33, 33, width, width, 7), one = full;
  const std::vector<float> zeros(33, 0);
  rove::attention(full.problem()
                      .with_mask(window(unbounded, 0))
                      .with_score(rove::additive_bias(rove::bhtd(zeros.data(), 1, 1, 1, 33))),
                  rove::rove_frames(frame_at(100, 33)));
  const auto base = one.problem();
  rove::attention(rove::attention_problem(base.q.slice(2, 32, 1), base.kv, base.out.slice(2, 32, 1))
                      .with_query_offset(rove::align_last())
                      .with_mask(window(unbounded, 0))
                      .with_score(rove::additive_bias(rove::bhtd(zeros.data(), 1, 1, 1, 33))),
                  rove::rove_frames(frame_at(132, 1), frame_at(100, 33)));
  EXPECT_EQ(bits_of(base.out.slice(2, 32, 1)), bits_of(full.problem().out.slice(2, 32, 1)));
}

}  // namespace
}  // namespace rove_test

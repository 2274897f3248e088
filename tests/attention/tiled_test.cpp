#include "rove/attention/tiled.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/masks_documents.hpp"
#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "support/executors.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::causal;
using rove::Index;
using rove::NaiveKernel;
using rove::TiledKernel;
using rove::window;

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Both kernels on the same operands, the problem made by `make`: their arithmetic is one, so their bits are.
template <class T, class Make>
void expect_naive_bits(Operands<T> operands, const Make& make, const rove::Context& context = {}) {
  Operands<T> naive = operands;
  NaiveKernel{}(make(naive.problem()));
  TiledKernel{}(make(operands.problem()), context);
  EXPECT_TRUE(same_bits(operands.out, naive.out));
  EXPECT_TRUE(same_bits(operands.lse, naive.lse));
}

// Rows round the tile's (6, 14) and its parts, keys round the panel (16) and the block (256), widths that
// fill no packet.
TEST(TiledKernel, HasTheNaiveKernelsBitsAtEverySize) {
  unsigned seed = 1;
  for (const Index n : {1, 2, 5, 6, 7, 13, 14, 15, 16, 17, 63, 113, 255, 257}) {
    for (const Index d : {1, 16, 19, 40, 64}) {
      SCOPED_TRACE("n " + std::to_string(n) + " d " + std::to_string(d));
      const Operands<float> x(1, 2, 1, n, n, d, d == 16 ? 24 : d, seed++);
      expect_naive_bits(x, [](auto problem) { return problem; });
      expect_naive_bits(x, [](auto problem) { return problem.with_mask(causal()); });
      expect_naive_bits(
          x, [](auto problem) { return problem.with_mask(window(20)).with_score(rove::soft_cap(3)); });
    }
  }
}

TEST(TiledKernel, IsWithinTheBound) {
  Operands<float> x(1, 4, 2, 150, 300, 64, 80, 3);
  const auto problem = x.problem().with_mask(causal()).with_query_offset(rove::align_last());
  TiledKernel{}(problem);
  judge(problem);
}

TEST(TiledKernel, HasTheNaiveKernelsBitsForEveryScalarAndProblem) {
  const auto last = [](auto problem) {
    return problem.with_mask(causal()).with_query_offset(rove::align_last());
  };
  expect_naive_bits(Operands<double>(1, 2, 2, 40, 300, 24, 8, 5), last);
  expect_naive_bits(Operands<Eigen::bfloat16>(2, 2, 1, 40, 300, 24, 8, 6), last);
  expect_naive_bits(Operands<Eigen::half>(1, 2, 2, 3, 300, 24, 8, 7), last);
  const std::vector<std::int32_t> lengths = {300, 17};
  const std::vector<float> sinks = {0.5F, -1, 3, -std::numeric_limits<float>::infinity()};
  const std::vector<float> bias = normal_numbers<float>(4 * 300, 22);
  const std::vector<std::int64_t> documents = {0, 10, 10, 200, 300};
  const Operands<float> x(2, 4, 2, 37, 300, 16, 8, 8);
  const auto base = [&](auto problem) {
    return problem.with_key_lengths(lengths).with_sinks(sinks).with_query_offset(5);
  };
  expect_naive_bits(x, base);
  expect_naive_bits(x, [&](auto p) { return base(p).with_mask(causal()).with_score(rove::alibi(4)); });
  expect_naive_bits(x, [&](auto p) {
    return base(p).with_score(rove::additive_bias(rove::bhtd(bias.data(), 1, 4, 1, 300)));
  });
  expect_naive_bits(x, [&](auto p) { return base(p).with_mask(rove::documents(documents) & !window(2)); });
  expect_naive_bits(x, [&](auto p) {
    return base(p).with_mask(rove::mask([](Index, Index, Index q, Index k) { return (q * 7 + k) % 5 == 0; }));
  });
}

TEST(TiledKernel, ChunksMergeInOrder) {
  for (const Index keys : {4096, 4096 + 16, 9000}) {
    expect_naive_bits(Operands<float>(1, 1, 1, 30, keys, 16, 16, 9),
                      [](auto p) { return p.with_mask(causal()).with_query_offset(rove::align_last()); });
  }
}

TEST(TiledKernel, N02_NanAndInfinityBehindTheMaskStayThere) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Index key : {0, 1, 13, 14, 15, 16, 31, 32, 100, 255, 256, 299}) {
    SCOPED_TRACE(key);
    const Operands<float> clean(1, 1, 1, 300, 300, 8, 8, 58);
    Operands<float> dirty = clean, expected = clean;
    for (Index c = 0; c < 8; ++c) {
      dirty.k[static_cast<std::size_t>(key * 8 + c)] = c == 0 ? std::numeric_limits<float>::infinity() : nan;
      dirty.v[static_cast<std::size_t>(key * 8 + c)] = nan;
    }
    TiledKernel{}(expected.problem().with_mask(causal()));
    TiledKernel{}(dirty.problem().with_mask(causal()));
    for (Index i = 0; i < 300; ++i) {
      for (Index c = 0; c < 8; ++c) {
        const auto at = static_cast<std::size_t>(i * 8 + c);
        if (i < key) {
          ASSERT_EQ(dirty.out[at], expected.out[at]) << "row " << i;
        } else {
          ASSERT_TRUE(std::isnan(dirty.out[at])) << "row " << i;
        }
      }
    }
  }
}

TEST(TiledKernel, RingsAndDisplacedKeys) {
  constexpr Index capacity = 90, appended = 400, d = 24;
  const auto q = normal_numbers<float>(20 * d, 1), k = normal_numbers<float>(capacity * d, 2),
             v = normal_numbers<float>(capacity * d, 3);
  std::vector<float> out(20 * d), naive(20 * d);
  const auto ring = rove::displaced(rove::ring_key_values(rove::bhtd(k.data(), 1, 1, capacity, d),
                                                          rove::bhtd(v.data(), 1, 1, capacity, d), appended),
                                    Index{-50});
  const auto problem = [&](std::vector<float>& to) {
    return rove::attention_problem(rove::bhtd(q.data(), 1, 1, 20, d), ring,
                                   rove::bhtd(to.data(), 1, 1, 20, d))
        .with_mask(window(60))
        .with_query_offset(rove::align_last());
  };
  TiledKernel{}(problem(out));
  NaiveKernel{}(problem(naive));
  EXPECT_TRUE(same_bits(out, naive));
}

TEST(TiledKernel, BitsDoNotDependOnWorkersOrSlices) {
  const Operands<float> x(2, 4, 2, 130, 130, 32, 32, 11);
  const auto with_mask = [](auto p) { return p.with_mask(causal()); };
  for (const int workers : {1, 2, 3, 8}) {
    test::StridedThreads threads(workers);
    expect_naive_bits(x, with_mask, rove::Context{rove::on(threads)});
  }
  Operands<float> whole = x, sliced = x;
  TiledKernel{}(with_mask(whole.problem()));
  for (Index first = 0; first < 130; first += 23) {
    auto problem = with_mask(sliced.problem()).with_query_offset(first);
    const Index count = std::min<Index>(23, 130 - first);
    problem.q = problem.q.slice(2, first, count);
    problem.out = problem.out.slice(2, first, count);
    problem.lse = {};
    TiledKernel{}(problem);
  }
  EXPECT_TRUE(same_bits(whole.out, sliced.out));
}

TEST(TiledKernel, WorkspaceIsExact) {
  Operands<float> x(2, 4, 2, 130, 130, 32, 32, 12);
  const auto problem = x.problem();
  const auto bytes = static_cast<std::size_t>(TiledKernel{}.workspace(problem, 1).bytes());
  std::vector<std::byte> memory(bytes);
  TiledKernel{}(problem, rove::Context{std::span<std::byte>(memory)});
  EXPECT_THROW(TiledKernel{}(problem, rove::Context{std::span<std::byte>(memory).first(bytes - 1)}),
               rove::Error);
}

}  // namespace
}  // namespace rove_test

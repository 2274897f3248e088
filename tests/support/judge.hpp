/// \file
/// Any attention problem held against the oracle, element by element, with the bound beside it; operands for
/// such problems.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "rove/attention/problem.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"
#include "support/oracle.hpp"

namespace rove_test {

/// Compares `problem.out` and `problem.lse`, as a kernel left them, with the oracle, and fails the test at
/// the first element that is wrong.
template <class Problem>
Verdict judge(const Problem& problem, const FrameMatrices& frames = {}, double c = 3) {
  const Comparison found = compare(problem, expectation(problem, frames, c));
  EXPECT_TRUE(found.fault.empty()) << found.fault;
  return found.verdict;
}

/// `count` normal numbers of the given size, rounded to T; the same on every machine for a seed.
template <class T>
std::vector<T> normal_numbers(std::size_t count, unsigned seed, double size = 1) {
  std::mt19937 engine(seed);
  // Box and Muller by hand: std::normal_distribution is another one in every standard library.
  const auto uniform = [&] { return (static_cast<double>(engine()) + 0.5) / 4294967296.0; };
  std::vector<T> numbers(count);
  for (T& x : numbers) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    x = static_cast<T>(static_cast<float>(size * radius * std::cos(6.283185307179586 * uniform())));
  }
  return numbers;
}

/// Operands of one call with memory of their own: q, k, v random, out and lse filled with a number that no
/// result has.
template <class TQ, class TK = TQ, class TV = TQ, class TOut = TQ>
struct Operands {
  using Acc = rove::accumulator_t<TQ, TK, TV, TOut>;
  rove::Index batch, heads, kv_heads, q_len, kv_len, channels, value_channels;
  std::vector<TQ> q;
  std::vector<TK> k;
  std::vector<TV> v;
  std::vector<TOut> out;
  std::vector<Acc> lse;

  Operands(rove::Index batch_, rove::Index heads_, rove::Index kv_heads_, rove::Index q_len_,
           rove::Index kv_len_, rove::Index channels_, rove::Index value_channels_, unsigned seed = 1,
           double size = 1)
      : batch(batch_),
        heads(heads_),
        kv_heads(kv_heads_),
        q_len(q_len_),
        kv_len(kv_len_),
        channels(channels_),
        value_channels(value_channels_),
        q(normal_numbers<TQ>(count(batch, heads, q_len, channels), seed, size)),
        k(normal_numbers<TK>(count(batch, kv_heads, kv_len, channels), seed + 1000, size)),
        v(normal_numbers<TV>(count(batch, kv_heads, kv_len, value_channels), seed + 2000)),
        out(count(batch, heads, q_len, value_channels), static_cast<TOut>(-77.0F)),
        lse(count(batch, heads, q_len, 1), Acc(-77)) {}

  auto problem() {
    return rove::attention_problem(rove::bhtd(q.data(), batch, heads, q_len, channels),
                                   rove::bhtd(k.data(), batch, kv_heads, kv_len, channels),
                                   rove::bhtd(v.data(), batch, kv_heads, kv_len, value_channels),
                                   rove::bhtd(out.data(), batch, heads, q_len, value_channels))
        .with_lse(rove::bht(lse.data(), batch, heads, q_len));
  }

 private:
  static std::size_t count(rove::Index a, rove::Index b, rove::Index c, rove::Index d) {
    return static_cast<std::size_t>(a * b * c * d);
  }
};

}  // namespace rove_test

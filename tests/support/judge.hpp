/// \file
/// Any attention problem held against the oracle, element by element, with the bound beside it.
#pragma once

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "rove/attention/problem.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/dense/dense.hpp"

namespace rove_test {

/// R_t of each role as a plain matrix, for batch row b; empty: the identity.
struct FrameMatrices {
  std::function<Eigen::MatrixXd(rove::Index b, rove::Index t)> query, key, value, output;
};

/// The largest error over its bound that was seen, of outputs and of log-sum-exps.
struct Verdict {
  double out = 0;
  double lse = 0;
};

template <class T>
constexpr rove::dense::Storage dense_storage() {
  if constexpr (std::is_same_v<T, double>) return rove::dense::Storage::float64;
  if constexpr (std::is_same_v<T, float>) return rove::dense::Storage::float32;
  if constexpr (std::is_same_v<T, Eigen::half>) return rove::dense::Storage::float16;
  return rove::dense::Storage::bfloat16;
}

/// One head of a problem as the oracle takes it. Rows are read as a caller would read them, by slot, and
/// indices are worked out anew from the documented conventions. Slots that are not in use are invisible.
template <class Problem>
rove::dense::AttentionInput dense_input(const Problem& problem, rove::Index b, rove::Index head,
                                        const FrameMatrices& frames = {}) {
  using rove::Index;
  rove::dense::AttentionInput in;
  const Index n = problem.q_len(), m = problem.kv_len();
  const Index kv_head = head / (problem.heads() / problem.kv_heads());
  in.q.resize(n, problem.channels());
  for (Index i = 0; i < n; ++i) {
    for (Index c = 0; c < problem.channels(); ++c) in.q(i, c) = static_cast<double>(problem.q(b, head, i, c));
  }
  Index first = problem.kv.slots(b).first, last = problem.kv.slots(b).last;
  if (problem.key_lengths && problem.key_lengths[b] < last) last = problem.key_lengths[b];
  in.k = Eigen::MatrixXd::Zero(m, problem.channels());
  in.v = Eigen::MatrixXd::Zero(m, problem.value_channels());
  std::vector<Index> index(static_cast<std::size_t>(m), 0);
  std::vector<double> row;
  for (Index j = first; j < last; ++j) {
    row.resize(static_cast<std::size_t>(problem.channels()));
    rove::read_key(problem.kv, b, kv_head, j, std::span<double>(row));
    for (Index c = 0; c < problem.channels(); ++c) in.k(j, c) = row[static_cast<std::size_t>(c)];
    row.resize(static_cast<std::size_t>(problem.value_channels()));
    rove::read_value(problem.kv, b, kv_head, j, std::span<double>(row));
    for (Index c = 0; c < problem.value_channels(); ++c) in.v(j, c) = row[static_cast<std::size_t>(c)];
    index[static_cast<std::size_t>(j)] = problem.kv.indices(b, j).first;
  }
  Index offset = 0;
  switch (problem.query_offset.kind) {
    case rove::QueryOffset::Kind::unspecified:
      break;
    case rove::QueryOffset::Kind::shared:
      offset = problem.query_offset.value;
      break;
    case rove::QueryOffset::Kind::per_batch:
      offset = problem.query_offset.values[b];
      break;
    case rove::QueryOffset::Kind::last:
      offset = (last > first ? index[static_cast<std::size_t>(last - 1)] + 1 : last) - n;
      break;
  }
  const auto site = [=](Index i, Index j) {
    return rove::Site{b, head, i, j, offset + i, index[static_cast<std::size_t>(j)]};
  };
  in.scale = problem.scale ? *problem.scale
                           : problem.logit_factor / std::sqrt(static_cast<double>(problem.channels()));
  in.visible = [=, mask = problem.mask](Index i, Index j) {
    return j >= first && j < last && mask.visible(site(i, j));
  };
  in.score = [=, score = problem.score](double s, Index i, Index j) { return score(s, site(i, j)); };
  if (problem.sinks.data() != nullptr)
    in.sink = static_cast<double>(problem.sinks[static_cast<std::size_t>(head)]);
  const auto role = [b](const auto& matrix) -> rove::dense::FrameMatrix {
    if (!matrix) return {};
    return [matrix, b](Index t) { return matrix(b, t); };
  };
  in.query_frame = role(frames.query);
  in.key_frame = role(frames.key);
  in.value_frame = role(frames.value);
  in.output_frame = role(frames.output);
  return in;
}

/// Compares `problem.out` and `problem.lse`, as a kernel left them, with the oracle. Every element must lie
/// within its bound; NaN and infinities must stand exactly where the oracle has them.
template <class Problem>
Verdict judge(const Problem& problem, const FrameMatrices& frames = {}, double c = 3) {
  using rove::Index;
  using Out = typename Problem::output_storage;
  constexpr auto precision = std::is_same_v<typename Problem::accumulator, double>
                                 ? rove::dense::Precision::float64
                                 : rove::dense::Precision::float32;
  Verdict verdict;
  const auto compare = [](double is, double should, double bound, double& worst, const std::string& what) {
    if (std::isnan(should)) {
      EXPECT_TRUE(std::isnan(is)) << what << " is " << is << ", should be NaN";
      return;
    }
    if (is == should) return;
    const double error = std::abs(is - should);
    EXPECT_LE(error, bound) << what << " is " << is << ", should be " << should;
    if (bound > 0) worst = std::max(worst, error / bound);
  };
  for (Index b = 0; b < problem.batch(); ++b) {
    for (Index h = 0; h < problem.heads(); ++h) {
      const auto result = rove::dense::attention(dense_input(problem, b, h, frames));
      const auto bound = rove::dense::error_bound(result, precision, dense_storage<Out>(), c);
      const auto lse_bound = rove::dense::lse_error_bound(result, precision, c);
      for (Index i = 0; i < problem.q_len(); ++i) {
        const std::string where =
            "(" + std::to_string(b) + ", " + std::to_string(h) + ", " + std::to_string(i);
        for (Index e = 0; e < problem.value_channels(); ++e) {
          compare(static_cast<double>(problem.out(b, h, i, e)), result.out(i, e), bound(i, e), verdict.out,
                  "out" + where + ", " + std::to_string(e) + ")");
        }
        if (problem.lse) {
          compare(static_cast<double>(problem.lse(b, h, i)), result.lse(i), lse_bound(i), verdict.lse,
                  "lse" + where + ")");
        }
        if (::testing::Test::HasFailure()) return verdict;
      }
    }
  }
  return verdict;
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

/// \file
/// What the oracle makes of any attention problem, and how far from it a result lies. Knows no test
/// framework: tests and the fuzz target share it.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/attention/problem.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/dense/attention.hpp"
#include "rove/dense/error_bound.hpp"

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

/// What each head should give, and by how much it may miss it.
struct Expectation {
  struct Head {
    rove::dense::AttentionResult result;
    Eigen::MatrixXd bound;      ///< on out, queries × value channels
    Eigen::VectorXd lse_bound;  ///< on lse
  };
  std::vector<Head> heads;  ///< [batch, heads]
};

template <class Problem>
constexpr rove::dense::Precision dense_precision() {
  return std::is_same_v<typename Problem::accumulator, double> ? rove::dense::Precision::float64
                                                               : rove::dense::Precision::float32;
}

/// The oracle's results for a problem as it stands: before a call that overwrites the queries.
template <class Problem>
Expectation expectation(const Problem& problem, const FrameMatrices& frames = {}, double c = 3) {
  constexpr auto precision = dense_precision<Problem>();
  Expectation expected;
  for (rove::Index b = 0; b < problem.batch(); ++b) {
    for (rove::Index h = 0; h < problem.heads(); ++h) {
      Expectation::Head head{rove::dense::attention(dense_input(problem, b, h, frames)), {}, {}};
      head.bound = rove::dense::error_bound(head.result, precision,
                                            dense_storage<typename Problem::output_storage>(), c);
      head.lse_bound = rove::dense::lse_error_bound(head.result, precision, c);
      expected.heads.push_back(std::move(head));
    }
  }
  return expected;
}

/// What a comparison found: the worst error over its bound, and the first element that is wrong, in words;
/// empty where none is.
struct Comparison {
  Verdict verdict;
  std::string fault;
};

/// Holds `problem.out` and `problem.lse`, as a kernel left them, against what they should be. Every element
/// must lie within its bound; NaN and infinities must stand exactly where the oracle has them.
template <class Problem>
Comparison compare(const Problem& problem, const Expectation& expected) {
  using rove::Index;
  Comparison found;
  const auto check = [&](double is, double should, double bound, double& worst, const char* what,
                         std::initializer_list<Index> place) {
    if (is == should || (std::isnan(is) && std::isnan(should))) return;
    const double error = std::abs(is - should);
    if (bound > 0) worst = std::max(worst, error / bound);
    if (error <= bound || !found.fault.empty()) return;
    std::ostringstream fault;
    fault.precision(17);
    fault << what << '(';
    for (const Index& i : place) fault << (&i == place.begin() ? "" : ", ") << i;
    fault << ") is " << is << ", should be " << should << " within " << bound;
    found.fault = fault.str();
  };
  for (Index b = 0; b < problem.batch(); ++b) {
    for (Index h = 0; h < problem.heads(); ++h) {
      const Expectation::Head& head = expected.heads[static_cast<std::size_t>(b * problem.heads() + h)];
      for (Index i = 0; i < problem.q_len(); ++i) {
        for (Index e = 0; e < problem.value_channels(); ++e) {
          check(static_cast<double>(problem.out(b, h, i, e)), head.result.out(i, e), head.bound(i, e),
                found.verdict.out, "out", {b, h, i, e});
        }
        if (problem.lse) {
          check(static_cast<double>(problem.lse(b, h, i)), head.result.lse(i), head.lse_bound(i),
                found.verdict.lse, "lse", {b, h, i});
        }
      }
    }
  }
  return found;
}

}  // namespace rove_test

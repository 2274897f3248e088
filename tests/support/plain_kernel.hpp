/// \file
/// A kernel as a user might write it: two passes over the keys, one row at a time, no fused entry.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "rove/attention/problem.hpp"
#include "rove/core/context.hpp"

namespace rove_test {

/// Sums in double whatever the accumulator; honours mask, score, lengths, offsets, sinks, LSE and scale.
inline constexpr auto plain_kernel = [](const auto& problem, const rove::Context& context) {
  using rove::Index;
  using Acc = typename std::remove_cvref_t<decltype(problem)>::accumulator;
  const double infinity = std::numeric_limits<double>::infinity();
  context.for_each(problem.batch() * problem.heads(), [&](Index task, int) {
    const Index b = task / problem.heads(), head = task % problem.heads();
    std::vector<double> logits;
    std::vector<Index> keys;
    std::vector<double> sum(static_cast<std::size_t>(problem.value_channels()));
    std::vector<double> row(static_cast<std::size_t>(problem.channels()));
    std::vector<double> value(sum.size());
    for (Index i = 0; i < problem.q_len(); ++i) {
      logits.clear();
      keys.clear();
      double top = -infinity;
      for (Index j = problem.slots(b).first; j < problem.slots(b).last; ++j) {
        const rove::Site site = problem.site(b, head, i, j);
        if (!problem.mask.visible(site)) continue;
        rove::read_key(problem.kv, b, problem.kv_head(head), j, std::span<double>(row));
        double dot = 0;
        for (Index c = 0; c < problem.channels(); ++c) {
          dot += rove::load_widened<double>(&problem.q(b, head, i, c)) * row[static_cast<std::size_t>(c)];
        }
        const double logit = problem.score(problem.effective_scale() * dot, site);
        keys.push_back(j);
        logits.push_back(logit);
        top = std::max(top, logit);
      }
      const double sink = problem.sinks.data() == nullptr
                              ? -infinity
                              : static_cast<double>(problem.sinks[static_cast<std::size_t>(head)]);
      const bool empty = top == -infinity;
      top = std::max(top, sink);
      double total = std::exp(sink - (top == -infinity ? 0 : top));
      std::fill(sum.begin(), sum.end(), 0);
      for (std::size_t n = 0; n < keys.size() && !empty; ++n) {
        const double weight = std::exp(logits[n] - top);
        total += weight;
        rove::read_value(problem.kv, b, problem.kv_head(head), keys[n], std::span<double>(value));
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += weight * value[c];
      }
      for (Index c = 0; c < problem.value_channels(); ++c) {
        const double y = empty ? 0 : sum[static_cast<std::size_t>(c)] / total;
        rove::store_rounded(&problem.out(b, head, i, c), static_cast<Acc>(y));
      }
      if (problem.lse) {
        problem.lse(b, head, i) = static_cast<Acc>(empty ? sink : top + std::log(total));
      }
    }
  });
};

}  // namespace rove_test

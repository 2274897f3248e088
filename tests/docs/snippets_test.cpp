// The code that CONTRIBUTING.md and docs/ show, between marks; tools/check_docs.py keeps them equal. Each
// piece is run against the formula written out.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <span>
#include <vector>

#include "rove/rove.hpp"

namespace {

using rove::Index;

// [docs:frame]
/// R_t = base^t · I.
struct Decay {
  double base;
  rove::Index width, count;
  static constexpr bool is_one_parameter = true;  // R_a R_b = R_{a+b}

  rove::Index batch() const { return 1; }
  rove::Index tokens() const { return count; }
  rove::Index channels() const { return width; }
  template <rove::Accumulator Acc>
  void apply(rove::Index, rove::Index t, std::span<Acc> row) const {
    multiply(std::pow(base, t), row);
  }
  template <rove::Accumulator Acc>
  void inverse(rove::Index, rove::Index t, std::span<Acc> row) const {
    multiply(std::pow(base, -t), row);
  }
  template <rove::Accumulator Acc>
  void transpose(rove::Index b, rove::Index t, std::span<Acc> row) const {
    apply(b, t, row);
  }
  template <rove::Accumulator Acc>
  void inverse_transpose(rove::Index b, rove::Index t, std::span<Acc> row) const {
    inverse(b, t, row);
  }

 private:
  template <rove::Accumulator Acc>
  static void multiply(double factor, std::span<Acc> row) {
    for (Acc& x : row) x *= static_cast<Acc>(factor);
  }
};
// [/docs:frame]

// [docs:mask]
/// A query sees every stride-th key, counted back from its own.
struct Strided {
  rove::Index stride;

  bool visible(const rove::Site& site) const {
    const rove::Index back = site.query - site.key;
    return back >= 0 && back % stride == 0;
  }
  // Optional, as are order_aware, bits and prefetch.
  void check(const rove::AttentionShape&) const {
    ROVE_EXPECT(stride >= 1, "Strided: stride must be at least 1, got ", stride);
  }
  rove::TileVisibility tile(const rove::TileRange& range) const {
    return range.key_first >= range.query_last ? rove::TileVisibility::none : rove::TileVisibility::some;
  }
};
// [/docs:mask]

// [docs:score]
/// s' = s / (1 + head), each head at a temperature of its own.
struct Cooling {
  template <rove::Accumulator Acc>
  Acc operator()(Acc s, const rove::Site& site) const {
    return s / static_cast<Acc>(1 + site.head);
  }
  // Optional, as are check, differentiable and prefetch.
  template <rove::simd::PacketLike P>
  P packet(P s, const rove::Site& first) const {
    return s / rove::simd::broadcast<P>(static_cast<rove::simd::lane_t<P>>(1 + first.head));
  }
  // Left out, order_aware is true.
  static constexpr bool order_aware() { return false; }
  template <rove::Accumulator Acc>
  Acc dscore(Acc, Acc, const rove::Site& site) const {
    return 1 / static_cast<Acc>(1 + site.head);
  }
};
// [/docs:score]

// [docs:kernel]
/// One query row after the other, one key after the other.
struct RowByRow {
  template <class Problem>
  void operator()(const Problem& problem, const rove::Context& context) const {
    context.for_each(problem.batch() * problem.heads(), [&](rove::Index task, int) {
      for (rove::Index row = 0; row < problem.q_len(); ++row)
        attend(problem, task / problem.heads(), task % problem.heads(), row);
    });
  }

 private:
  template <class Problem>
  static void attend(const Problem& problem, rove::Index b, rove::Index head, rove::Index row) {
    using Acc = typename Problem::accumulator;
    constexpr Acc log2e = std::numbers::log2e_v<Acc>;
    const Acc scale = static_cast<Acc>(problem.effective_scale());
    const rove::Index kv_head = problem.kv_head(head), width = problem.value_channels();
    rove::SoftmaxState<Acc> state;
    std::vector<Acc> key(static_cast<std::size_t>(problem.channels()));
    std::vector<Acc> value(static_cast<std::size_t>(width)), sum(value);
    const rove::SlotRange slots = problem.slots(b);
    for (rove::Index slot = slots.first; slot < slots.last; ++slot) {
      const rove::Site site = problem.site(b, head, row, slot);
      if (!problem.mask.visible(site)) continue;
      rove::read_key(problem.kv, b, kv_head, slot, std::span(key));
      rove::read_value(problem.kv, b, kv_head, slot, std::span(value));
      Acc dot = 0;
      for (std::size_t c = 0; c < key.size(); ++c)
        dot += problem.q(b, head, row, static_cast<rove::Index>(c)) * key[c];
      const Acc logit = problem.score(scale * dot, site) * log2e;
      const Acc rescale = state.raise(logit);
      const Acc weight = rove::simd::exp2_kernel(logit - state.reference());
      state.add(rescale, weight);
      for (std::size_t c = 0; c < sum.size(); ++c) sum[c] = sum[c] * rescale + weight * value[c];
    }
    Acc share = 1;
    if (!problem.sinks.empty()) {
      const Acc sink = problem.sinks[static_cast<std::size_t>(head)] * log2e;
      const auto merged = rove::merge(state, rove::SoftmaxState<Acc>::of(sink));
      share = merged.weight_a;
      state = merged.state;
    }
    for (std::size_t c = 0; c < sum.size(); ++c)
      problem.out(b, head, row, static_cast<rove::Index>(c)) =
          state.empty() ? Acc(0) : sum[c] * share / state.sum;
    if (problem.lse) problem.lse(b, head, row) = state.lse();
  }
};
// [/docs:kernel]

constexpr Index heads = 2, tokens = 11, channels = 6;

std::vector<float> draw(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> data(static_cast<std::size_t>(heads * tokens * channels));
  for (float& x : data) x = normal(random);
  return data;
}

/// Operands, and attention by its formula in double.
struct Case {
  std::vector<float> q_data = draw(1), k_data = draw(2), v_data = draw(3);
  std::vector<float> out_data = std::vector<float>(q_data.size());
  std::vector<float> lse_data = std::vector<float>(static_cast<std::size_t>(heads * tokens));
  rove::TensorView<const float> q = rove::bhtd(q_data.data(), 1, heads, tokens, channels);
  rove::TensorView<const float> k = rove::bhtd(k_data.data(), 1, heads, tokens, channels);
  rove::TensorView<const float> v = rove::bhtd(v_data.data(), 1, heads, tokens, channels);
  rove::TensorView<float> out = rove::bhtd(out_data.data(), 1, heads, tokens, channels);

  auto problem() const { return rove::attention_problem(q, k, v, out); }

  /// score(dot / √channels, head, i, j), −∞ where not seen; value(i, j) is a factor on v_j.
  template <class Score, class Value>
  void expect(Score score, Value value) const {
    for (Index h = 0; h < heads; ++h) {
      for (Index i = 0; i < tokens; ++i) {
        double sum = 0, row[channels] = {};
        for (Index j = 0; j < tokens; ++j) {
          double dot = 0;
          for (Index c = 0; c < channels; ++c) dot += double{q(0, h, i, c)} * double{k(0, h, j, c)};
          const double weight = std::exp(score(dot / std::sqrt(double{channels}), h, i, j));
          sum += weight;
          for (Index c = 0; c < channels; ++c) row[c] += weight * value(i, j) * double{v(0, h, j, c)};
        }
        for (Index c = 0; c < channels; ++c) {
          // Rows of at most 11 terms of size 1: far above float's rounding, far below any slip.
          EXPECT_NEAR(double{out(0, h, i, c)}, sum == 0 ? 0 : row[c] / sum, 1e-5)
              << h << ' ' << i << ' ' << c;
        }
      }
    }
  }
};

constexpr double unseen = -std::numeric_limits<double>::infinity();

TEST(DocsSnippets, frame) {
  static_assert(rove::Frame<Decay> && !rove::is_orthogonal_v<Decay> && rove::is_one_parameter_v<Decay>);
  const Case data;
  rove::rove_attention(data.problem().with_mask(rove::causal()), Decay{1.125, channels, tokens});
  const auto decay = [](Index i, Index j) { return std::pow(1.125, static_cast<double>(j - i)); };
  data.expect([&](double s, Index, Index i, Index j) { return j <= i ? s * decay(i, j) : unseen; }, decay);
}

TEST(DocsSnippets, mask) {
  const Case data;
  rove::attention(data.problem().with_mask(Strided{3}));
  data.expect([](double s, Index, Index i, Index j) { return j <= i && (i - j) % 3 == 0 ? s : unseen; },
              [](Index, Index) { return 1.0; });
  try {
    rove::attention(data.problem().with_mask(Strided{0}));
    FAIL();
  } catch (const rove::Error& error) {
    EXPECT_STREQ(error.what(), "Strided: stride must be at least 1, got 0");
  }
}

TEST(DocsSnippets, score) {
  static_assert(rove::DifferentiableScore<Cooling>);
  const Case data;
  rove::attention(data.problem().with_score(Cooling{}));
  data.expect([](double s, Index h, Index, Index) { return s / static_cast<double>(1 + h); },
              [](Index, Index) { return 1.0; });
}

TEST(DocsSnippets, kernel) {
  Case data;
  const std::vector<float> sinks{0.25F, -1};
  const auto problem =
      data.problem()
          .with_mask(rove::causal() & rove::mask([](Index, Index, Index query, Index) { return query != 4; }))
          .with_score(Cooling{})
          .with_sinks(sinks)
          .with_lse(rove::bht(data.lse_data.data(), 1, heads, tokens));
  const Decay frame{1.125, channels, tokens};
  rove::rove_attention(problem, frame, {}, RowByRow{});
  const auto out = data.out_data, lse = data.lse_data;
  rove::rove_attention(problem, frame);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], data.out_data[i], 1e-5) << i;
  for (std::size_t i = 0; i < lse.size(); ++i) EXPECT_NEAR(lse[i], data.lse_data[i], 1e-5) << i;
  EXPECT_FLOAT_EQ(lse[4], sinks[0]);
}

}  // namespace

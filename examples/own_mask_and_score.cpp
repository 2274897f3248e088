// A mask and a score of one's own: as structs, as lambdas, and joined with the library's. Each call is judged
// by the formula, written out as loops over all pairs.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <rove/rove.hpp>
#include <vector>

namespace {

using rove::Index;

// Queries see every stride-th key up to their own. visible() is all that a mask needs.
struct Dilated {
  Index stride;

  bool visible(const rove::Site& site) const {
    return site.key <= site.query && (site.query - site.key) % stride == 0;
  }
  // Optional: of a whole tile, so that a kernel may skip it. `some` is always a right answer.
  rove::TileVisibility tile(const rove::TileRange& range) const {
    return range.key_first >= range.query_last ? rove::TileVisibility::none : rove::TileVisibility::some;
  }
  // Optional: once a call, before anything is written.
  void check(const rove::AttentionShape&) const {
    ROVE_EXPECT(stride >= 1, "Dilated: stride must be at least 1, got ", stride);
  }
};

// Logits, scaled already, fade with the distance between query and key, each head at its own rate. A score is
// called for float and for double.
struct Fading {
  template <class T>
  T operator()(T s, const rove::Site& site) const {
    return s * factor<T>(site);
  }
  // ∂s_out/∂s_in, for gradients; optional.
  template <class T>
  T dscore(T, T, const rove::Site& site) const {
    return factor<T>(site);
  }

 private:
  template <class T>
  static T factor(const rove::Site& site) {
    return T{1} / static_cast<T>(1 + (site.head + 1) * std::abs(site.query - site.key));
  }
};

constexpr Index heads = 2, tokens = 37, channels = 16;

// out by the formula, in double. Visible and score are plain functions of (head, query, key).
template <class Visible, class Score>
std::vector<double> by_formula(const rove::TensorView<const float>& q, const rove::TensorView<const float>& k,
                               const rove::TensorView<const float>& v, Visible visible, Score score) {
  std::vector<double> out(static_cast<std::size_t>(heads * tokens * channels));
  for (Index h = 0; h < heads; ++h) {
    for (Index i = 0; i < tokens; ++i) {
      double* row = out.data() + (h * tokens + i) * channels;
      double sum = 0;
      for (Index j = 0; j < tokens; ++j) {
        if (!visible(h, i, j)) continue;
        double dot = 0;
        for (Index c = 0; c < channels; ++c) dot += double{q(0, h, i, c)} * double{k(0, h, j, c)};
        const double weight = std::exp(score(dot / std::sqrt(double{channels}), h, i, j));
        sum += weight;
        for (Index c = 0; c < channels; ++c) row[c] += weight * double{v(0, h, j, c)};
      }
      for (Index c = 0; c < channels; ++c) row[c] = sum == 0 ? 0 : row[c] / sum;
    }
  }
  return out;
}

bool agrees(const char* what, const std::vector<float>& out, const std::vector<double>& expected) {
  double largest = 0;
  bool good = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double error = std::abs(double{out[i]} - expected[i]);
    largest = (std::max)(largest, error);
    good = good && error < 1e-5;  // NaN is not
  }
  std::printf("%-44s largest error %.1e  %s\n", what, largest, good ? "ok" : "WRONG");
  return good;
}

}  // namespace

int main() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto size = static_cast<std::size_t>(heads * tokens * channels);
  std::vector<float> q_data(size), k_data(size), v_data(size), out_data(size);
  for (auto* data : {&q_data, &k_data, &v_data}) {
    for (float& x : *data) x = normal(random);
  }
  const rove::TensorView<const float> q = rove::bhtd(q_data.data(), 1, heads, tokens, channels);
  const rove::TensorView<const float> k = rove::bhtd(k_data.data(), 1, heads, tokens, channels);
  const rove::TensorView<const float> v = rove::bhtd(v_data.data(), 1, heads, tokens, channels);
  const auto problem =
      rove::attention_problem(q, k, v, rove::bhtd(out_data.data(), 1, heads, tokens, channels));
  bool good = true;

  // Structs.
  rove::attention(problem.with_mask(Dilated{3}).with_score(Fading{}));
  const auto dilated = [](Index, Index i, Index j) { return j <= i && (i - j) % 3 == 0; };
  const auto fading = [](double s, Index h, Index i, Index j) {
    return s / static_cast<double>(1 + (h + 1) * std::abs(i - j));
  };
  good &= agrees("structs", out_data, by_formula(q, k, v, dilated, fading));

  // Lambdas: shorter, asked about one pair at a time. Only the second head may see the future.
  const auto by_head = [](Index, Index head, Index query, Index key) { return head == 1 || key <= query; };
  const auto squash = [](auto s) { return s / (1 + std::abs(s)); };
  rove::attention(problem.with_mask(rove::mask(by_head)).with_score(rove::score(squash)));
  good &= agrees("lambdas", out_data,
                 by_formula(
                     q, k, v, [](Index h, Index i, Index j) { return h == 1 || j <= i; },
                     [](double s, Index, Index, Index) { return s / (1 + std::abs(s)); }));

  // Joined with the library's, by & | ! and |. Scores apply from left to right, the mask after them.
  rove::attention(problem.with_mask(Dilated{3} | rove::window(4))
                      .with_score(Fading{} | rove::soft_cap(2) | rove::alibi(heads)));
  good &= agrees(
      "Dilated | window, Fading | soft_cap | alibi", out_data,
      by_formula(
          q, k, v, [&](Index h, Index i, Index j) { return dilated(h, i, j) || (i - 4 < j && j <= i); },
          [&](double s, Index h, Index i, Index j) {
            const double slope = h == 0 ? 1.0 / 16 : 1.0 / 256;
            return 2 * std::tanh(fading(s, h, i, j) / 2) - slope * static_cast<double>(std::abs(i - j));
          }));

  // Chosen at run time: one type for any of them.
  const std::vector<int> cumulative{0, 9, 20, tokens};
  rove::AnyMask chosen = rove::causal();
  if (cumulative.size() > 2) chosen = chosen & rove::documents(cumulative);
  rove::attention(problem.with_mask(chosen));
  good &= agrees("AnyMask of causal documents", out_data,
                 by_formula(
                     q, k, v,
                     [](Index, Index i, Index j) {
                       const auto document = [](Index t) { return t < 9 ? 0 : t < 20 ? 1 : 2; };
                       return j <= i && document(i) == document(j);
                     },
                     [](double s, Index, Index, Index) { return s; }));
  return good ? 0 : 1;
}

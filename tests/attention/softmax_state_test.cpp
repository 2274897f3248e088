// The online softmax of one row: in parts, in any grouping, and where there is nothing to sum.
#include "rove/attention/softmax_state.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "support/error_of.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::Index;
using rove::MergedSoftmax;
using rove::SoftmaxState;
using test::error_of;

template <class Acc>
class Softmax : public ::testing::Test {};
using Accumulators = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Softmax, Accumulators);

template <class Acc>
constexpr Acc infinity = std::numeric_limits<Acc>::infinity();
template <class Acc>
constexpr Acc nan = std::numeric_limits<Acc>::quiet_NaN();
template <class Acc>
constexpr double epsilon = std::numeric_limits<Acc>::epsilon() / 2.0;

template <class Acc>
SoftmaxState<Acc> state_of(const std::vector<Acc>& logits) {
  SoftmaxState<Acc> state;
  for (const Acc t : logits) {
    const Acc rescale = state.raise(t);
    state.add(rescale, rove::simd::exp2_kernel(t - state.reference()));
  }
  return state;
}

/// ln Σ 2^t, two passes in double.
template <class Acc>
double lse_of(const std::vector<Acc>& logits) {
  double top = -infinity<double>, sum = 0;
  for (const Acc t : logits) top = std::max(top, static_cast<double>(t));
  for (const Acc t : logits) sum += std::exp2(static_cast<double>(t) - top);
  return (top + std::log2(sum)) * std::numbers::ln2;
}

template <class Acc>
std::vector<Acc> some_logits(unsigned seed, std::size_t count, double size) {
  std::mt19937 engine(seed);
  std::vector<Acc> logits(count);
  for (Acc& t : logits) t = static_cast<Acc>(size * (static_cast<double>(engine()) / 2147483648.0 - 1));
  return logits;
}

TYPED_TEST(Softmax, one_logit_at_a_time_is_the_sum) {
  using Acc = TypeParam;
  for (const double size : {0.1, 5.0, 60.0, 1e4}) {
    for (const std::size_t count : {1U, 2U, 40U, 500U}) {
      const std::vector<Acc> logits = some_logits<Acc>(static_cast<unsigned>(count), count, size);
      const SoftmaxState<Acc> state = state_of(logits);
      EXPECT_EQ(state.max, *std::max_element(logits.begin(), logits.end()));
      EXPECT_GE(state.sum, Acc(1));
      // Weights are within 3 ulp, a sum of n grows that by n/2 at most, and the logarithm is rounded.
      const double bound = epsilon<Acc> * (8 + static_cast<double>(count) + std::abs(lse_of(logits)));
      EXPECT_NEAR(static_cast<double>(state.lse()), lse_of(logits), bound) << size << ", " << count;
    }
  }
}

TYPED_TEST(Softmax, nothing_seen) {
  using Acc = TypeParam;
  const SoftmaxState<Acc> state;
  EXPECT_TRUE(state.empty());
  EXPECT_EQ(state.reference(), Acc(0));
  EXPECT_EQ(state.lse(), -infinity<Acc>);
  // Logits of −∞ are nothing either: no −∞ − −∞ = NaN on the way.
  const SoftmaxState<Acc> nothing = state_of<Acc>({-infinity<Acc>, -infinity<Acc>});
  EXPECT_TRUE(nothing.empty());
  EXPECT_EQ(nothing.lse(), -infinity<Acc>);
  EXPECT_EQ(nothing.reference(), Acc(0));
  // And they take no weight beside others.
  const SoftmaxState<Acc> one = state_of<Acc>({-infinity<Acc>, 3, -infinity<Acc>});
  EXPECT_EQ(one.max, Acc(3));
  EXPECT_EQ(one.sum, Acc(1));
}

TYPED_TEST(Softmax, nan_and_plus_infinity_show) {
  using Acc = TypeParam;
  for (const std::vector<Acc>& logits : {std::vector<Acc>{nan<Acc>},
                                         {1, nan<Acc>},
                                         {nan<Acc>, 1},
                                         {infinity<Acc>},
                                         {1, infinity<Acc>},
                                         {infinity<Acc>, 1},
                                         {nan<Acc>, infinity<Acc>},
                                         {-infinity<Acc>, nan<Acc>}}) {
    const SoftmaxState<Acc> state = state_of(logits);
    EXPECT_FALSE(state.empty());
    EXPECT_TRUE(std::isnan(state.sum));
    EXPECT_TRUE(std::isnan(state.lse()));
    EXPECT_FALSE(std::isnan(state.max)) << "a NaN never becomes the maximum";
  }
}

TYPED_TEST(Softmax, of_a_single_logit) {
  using Acc = TypeParam;
  const auto two = SoftmaxState<Acc>::of(Acc(2));
  EXPECT_EQ(two.max, Acc(2));
  EXPECT_EQ(two.sum, Acc(1));
  EXPECT_TRUE(SoftmaxState<Acc>::of(-infinity<Acc>).empty());
  EXPECT_TRUE(std::isnan(SoftmaxState<Acc>::of(infinity<Acc>).lse()));
  EXPECT_TRUE(std::isnan(SoftmaxState<Acc>::of(nan<Acc>).lse()));
}

TYPED_TEST(Softmax, raise_gives_the_factor_of_what_was_summed) {
  using Acc = TypeParam;
  SoftmaxState<Acc> state;
  EXPECT_EQ(state.raise(Acc(-3)), Acc(0)) << "nothing was summed yet, or only zeros";
  EXPECT_EQ(state.raise(Acc(-5)), Acc(1));
  EXPECT_EQ(state.raise(Acc(-3)), Acc(1));
  EXPECT_EQ(state.raise(nan<Acc>), Acc(1));
  EXPECT_EQ(state.raise(-infinity<Acc>), Acc(1));
  EXPECT_EQ(state.max, Acc(-3));
  EXPECT_EQ(state.raise(Acc(-1)), Acc(0.25));
  EXPECT_EQ(state.max, Acc(-1));
  // More than e^60 above: exactly nothing is left.
  EXPECT_EQ(state.raise(Acc(87)), Acc(0));
}

TYPED_TEST(Softmax, N03_weights_below_e_to_minus_60_are_exactly_zero) {
  using Acc = TypeParam;
  const Acc cut = static_cast<Acc>(60 * std::numbers::log2e);
  EXPECT_EQ(state_of<Acc>({0, -cut - Acc(0.01)}).sum, Acc(1));
  EXPECT_GT(rove::simd::exp2_kernel(-cut + Acc(0.01)), Acc(0));
}

// ---- Merging states -----------------------------------------------------------------------------

template <class Acc>
void expect_same(const SoftmaxState<Acc>& a, const SoftmaxState<Acc>& b) {
  EXPECT_EQ(0, std::memcmp(&a.max, &b.max, sizeof(Acc)));
  EXPECT_EQ(0, std::memcmp(&a.sum, &b.sum, sizeof(Acc)));
}

TYPED_TEST(Softmax, B58_two_empty_states_are_an_empty_one) {
  using Acc = TypeParam;
  const MergedSoftmax<Acc> merged = rove::merge(SoftmaxState<Acc>{}, SoftmaxState<Acc>{});
  EXPECT_TRUE(merged.state.empty());
  EXPECT_EQ(merged.state.lse(), -infinity<Acc>);
  EXPECT_EQ(merged.weight_a, Acc(1));
  EXPECT_EQ(merged.weight_b, Acc(1));
}

TYPED_TEST(Softmax, an_empty_state_changes_no_bit_of_the_other) {
  using Acc = TypeParam;
  for (const Acc t : {Acc(-1000), Acc(0), Acc(5)}) {
    const SoftmaxState<Acc> full = state_of<Acc>({t, t - Acc(0.3), t - 2}), none;
    const MergedSoftmax<Acc> right = rove::merge(full, none), left = rove::merge(none, full);
    expect_same(right.state, full);
    expect_same(left.state, full);
    EXPECT_EQ(right.weight_a, Acc(1));
    EXPECT_EQ(right.weight_b, Acc(0));
    EXPECT_EQ(left.weight_a, Acc(0));
    EXPECT_EQ(left.weight_b, Acc(1));
  }
}

TYPED_TEST(Softmax, merging_is_associative_and_commutative_within_rounding) {
  using Acc = TypeParam;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const double size = seed % 2 == 0 ? 4 : 200;
    std::vector<Acc> parts[3], all;
    for (unsigned i = 0; i < 3; ++i) {
      parts[i] = some_logits<Acc>(seed * 3 + i, 1 + seed % 7 * i, size);
      all.insert(all.end(), parts[i].begin(), parts[i].end());
    }
    const SoftmaxState<Acc> a = state_of(parts[0]), b = state_of(parts[1]), c = state_of(parts[2]);
    const SoftmaxState<Acc> left = rove::merge(rove::merge(a, b).state, c).state;
    const SoftmaxState<Acc> right = rove::merge(a, rove::merge(b, c).state).state;
    const SoftmaxState<Acc> other = rove::merge(c, rove::merge(b, a).state).state;
    EXPECT_EQ(left.max, right.max);
    EXPECT_EQ(left.max, other.max);
    // Two rescales of 3 ulp each and three roundings.
    EXPECT_NEAR(left.sum, right.sum, 20 * epsilon<Acc> * static_cast<double>(left.sum));
    EXPECT_NEAR(left.sum, other.sum, 20 * epsilon<Acc> * static_cast<double>(left.sum));
    EXPECT_NEAR(static_cast<double>(left.lse()), lse_of(all),
                epsilon<Acc> * (30 + static_cast<double>(all.size()) + std::abs(lse_of(all))));
  }
}

TYPED_TEST(Softmax, merge_weights_are_the_factors_of_the_outputs) {
  using Acc = TypeParam;
  const SoftmaxState<Acc> low = state_of<Acc>({1, 1}), high = state_of<Acc>({3});
  const MergedSoftmax<Acc> merged = rove::merge(low, high);
  EXPECT_EQ(merged.weight_a, Acc(0.25));
  EXPECT_EQ(merged.weight_b, Acc(1));
  EXPECT_EQ(merged.state.sum, Acc(1.5));
  const MergedSoftmax<Acc> swapped = rove::merge(high, low);
  EXPECT_EQ(swapped.weight_a, Acc(1));
  EXPECT_EQ(swapped.weight_b, Acc(0.25));
}

TYPED_TEST(Softmax, a_state_that_is_nan_poisons_the_merged_one) {
  using Acc = TypeParam;
  for (const SoftmaxState<Acc>& bad :
       {SoftmaxState<Acc>::of(nan<Acc>), SoftmaxState<Acc>::of(infinity<Acc>)}) {
    for (const SoftmaxState<Acc>& good : {SoftmaxState<Acc>{}, state_of<Acc>({2, 3}), bad}) {
      EXPECT_TRUE(std::isnan(rove::merge(bad, good).state.lse()));
      EXPECT_TRUE(std::isnan(rove::merge(good, bad).state.lse()));
    }
  }
}

// ---- Merging finished rows ----------------------------------------------------------------------

TYPED_TEST(Softmax, rows_join_by_their_log_sum_exps) {
  using Acc = TypeParam;
  std::vector<Acc> a = {4, 8};
  const std::vector<Acc> b = {0, 16};
  // Weights ¾ and ¼.
  const Acc lse = rove::merge_rows<Acc>(a, static_cast<Acc>(std::log(3.0)), b, Acc(0));
  EXPECT_NEAR(a[0], Acc(3), 16 * epsilon<Acc>);
  EXPECT_NEAR(a[1], Acc(10), 32 * epsilon<Acc>);
  EXPECT_NEAR(lse, std::log(4.0), 4 * epsilon<Acc>);
  // Far from 0, where exp alone would overflow or vanish.
  for (const Acc far : {Acc(741455), Acc(-741455)}) {
    a = {4, 8};
    EXPECT_NEAR(rove::merge_rows<Acc>(a, far, b, far), far + std::log(2.0), 741455 * 2 * epsilon<Acc>);
    EXPECT_EQ(a, (std::vector<Acc>{2, 12}));
  }
}

TYPED_TEST(Softmax, B58_rows_without_keys_take_no_part_whatever_they_hold) {
  using Acc = TypeParam;
  const std::vector<Acc> full = {1, 2}, junk = {nan<Acc>, infinity<Acc>};
  std::vector<Acc> a = full;
  EXPECT_EQ(rove::merge_rows<Acc>(a, Acc(0.7), junk, -infinity<Acc>), Acc(0.7));
  EXPECT_EQ(a, full);
  a = junk;
  EXPECT_EQ(rove::merge_rows<Acc>(a, -infinity<Acc>, full, Acc(0.7)), Acc(0.7));
  EXPECT_EQ(a, full);
  a = junk;
  EXPECT_EQ(rove::merge_rows<Acc>(a, -infinity<Acc>, junk, -infinity<Acc>), -infinity<Acc>);
  EXPECT_EQ(a, (std::vector<Acc>{0, 0}));
}

TYPED_TEST(Softmax, rows_that_are_nan_stay_nan) {
  using Acc = TypeParam;
  for (const Acc bad : {nan<Acc>, infinity<Acc>}) {
    std::vector<Acc> a = {1};
    const std::vector<Acc> b = {2};
    EXPECT_TRUE(std::isnan(rove::merge_rows<Acc>(a, bad, b, Acc(0))));
    EXPECT_TRUE(std::isnan(a[0]));
    a = {1};
    EXPECT_TRUE(std::isnan(rove::merge_rows<Acc>(a, Acc(0), b, bad)));
    EXPECT_TRUE(std::isnan(a[0]));
  }
}

/// One attention in parts of its keys, merged, against the whole.
template <class Acc>
void expect_parts_are_the_whole(const std::vector<Index>& cuts, Index offset) {
  Operands<Acc> x(2, 4, 2, 7, 30, 16, 12, 71);
  const auto whole = x.problem().with_mask(rove::causal()).with_query_offset(offset);
  std::vector<Acc> partial(x.out.size()), partial_lse(x.lse.size());
  const auto part_out = rove::bhtd(partial.data(), x.batch, x.heads, x.q_len, x.value_channels);
  const auto part_lse = rove::bht(partial_lse.data(), x.batch, x.heads, x.q_len);
  Index first = 0;
  for (const Index last : cuts) {
    const auto k =
        rove::bhtd(x.k.data(), x.batch, x.kv_heads, x.kv_len, x.channels).slice(2, first, last - first);
    const auto v =
        rove::bhtd(x.v.data(), x.batch, x.kv_heads, x.kv_len, x.value_channels).slice(2, first, last - first);
    auto problem = rove::attention_problem(whole.q, k, v, first == 0 ? whole.out : part_out)
                       .with_lse(first == 0 ? whole.lse : part_lse)
                       .with_mask(rove::causal())
                       .with_query_offset(offset - first);
    rove::NaiveKernel{}(problem);
    if (first > 0) rove::merge_partials(whole.out, whole.lse, part_out, part_lse);
    first = last;
  }
  judge(whole);
}

TYPED_TEST(Softmax, parts_of_the_keys_merge_to_the_whole) {
  using Acc = TypeParam;
  expect_parts_are_the_whole<Acc>({15, 30}, 23);
  expect_parts_are_the_whole<Acc>({1, 29, 30}, 23);
  // Rows that see nothing of the first, of the last or of any part.
  expect_parts_are_the_whole<Acc>({10, 20, 30}, 8);
  expect_parts_are_the_whole<Acc>({10, 20, 30}, -3);
  // One row at a time gives the same bits as all of them.
  Operands<Acc> a(1, 1, 1, 3, 5, 4, 4, 1), b(1, 1, 1, 3, 5, 4, 4, 2);
  rove::NaiveKernel{}(a.problem());
  rove::NaiveKernel{}(b.problem());
  std::vector<Acc> rows = a.out, lses = a.lse;
  for (std::size_t i = 0; i < 3; ++i) {
    lses[i] = rove::merge_rows<Acc>(std::span<Acc>(rows).subspan(4 * i, 4), lses[i],
                                    std::span<const Acc>(b.out).subspan(4 * i, 4), b.lse[i]);
  }
  rove::merge_partials(a.problem().out, a.problem().lse, b.problem().out, b.problem().lse);
  EXPECT_EQ(a.out, rows);
  EXPECT_EQ(a.lse, lses);
}

TYPED_TEST(Softmax, partials_of_any_strides) {
  using Acc = TypeParam;
  Operands<Acc> a(2, 3, 3, 4, 4, 8, 5, 3), b(2, 3, 3, 4, 4, 8, 5, 4);
  rove::NaiveKernel{}(a.problem());
  rove::NaiveKernel{}(b.problem());
  std::vector<Acc> other(b.out.size()), other_lse(b.lse.size());
  const auto transposed = rove::bthd(other.data(), 2, 4, 3, 5);
  const rove::RowView<Acc> lse{other_lse.data(), {2, 3, 4}, {1, 2, 6}};
  for (Index i = 0; i < 2; ++i) {
    for (Index h = 0; h < 3; ++h) {
      for (Index t = 0; t < 4; ++t) {
        lse(i, h, t) = b.problem().lse(i, h, t);
        for (Index c = 0; c < 5; ++c) transposed(i, h, t, c) = b.problem().out(i, h, t, c);
      }
    }
  }
  Operands<Acc> c = a;
  rove::merge_partials(a.problem().out, a.problem().lse, b.problem().out, b.problem().lse);
  rove::merge_partials(c.problem().out, c.problem().lse, transposed, lse);
  EXPECT_EQ(a.out, c.out);
  EXPECT_EQ(a.lse, c.lse);
}

TEST(SoftmaxMessages, parts_that_do_not_fit_are_refused_before_anything_is_written) {
  std::vector<float> a(96, 1), b(96, 2), lse_a(32, 1), lse_b(32, 2);
  const auto refused = [&](Index batch, Index heads, Index tokens, Index channels, Index lse_tokens) {
    const std::string message = error_of([&] {
      rove::merge_partials(rove::bhtd(a.data(), 2, 2, 4, 3), rove::bht(lse_a.data(), 2, 2, 4),
                           rove::bhtd(b.data(), batch, heads, tokens, channels),
                           rove::bht(lse_b.data(), 2, 2, lse_tokens));
    });
    EXPECT_EQ(a, std::vector<float>(96, 1));
    EXPECT_EQ(lse_a, std::vector<float>(32, 1));
    return message;
  };
  EXPECT_EQ(refused(1, 2, 4, 3, 4), "the partial outputs have batch 2 and 1");
  EXPECT_EQ(refused(2, 1, 4, 3, 4), "the partial outputs have heads 2 and 1");
  EXPECT_EQ(refused(2, 2, 3, 3, 4), "the partial outputs have tokens 4 and 3");
  EXPECT_EQ(refused(2, 2, 4, 2, 4), "the partial outputs have channels 3 and 2");
  EXPECT_EQ(refused(2, 2, 4, 3, 5), "the partial log-sum-exps have tokens 4 and 5, the outputs 4");
  EXPECT_EQ(error_of([&] {
              rove::merge_partials(rove::bhtd(a.data(), 2, 2, 4, 3), rove::bht(lse_a.data(), 2, 3, 4),
                                   rove::bhtd(b.data(), 2, 2, 4, 3), rove::bht(lse_b.data(), 2, 2, 4));
            }),
            "the partial log-sum-exps have heads 3 and 2, the outputs 2");
  EXPECT_EQ(error_of([&] {
              rove::merge_rows<float>(std::span<float>(a).first(3), 0.0F, std::span<const float>(b).first(4),
                                      0.0F);
            }),
            "the rows to merge have 3 and 4 channels");
  EXPECT_EQ(a, std::vector<float>(96, 1));
}

}  // namespace
}  // namespace rove_test

// The statistics and the order of play of rove_compare.

#include "bench/compare/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/compare/race.hpp"

namespace {

using bench::median;
using bench::median_interval;
using bench::paired_ratio;

TEST(Median, is_the_middle_value_whatever_the_order) {
  EXPECT_EQ(median(std::vector<double>{5}), 5);
  EXPECT_EQ(median(std::vector<double>{9, 1, 4}), 4);
  EXPECT_EQ(median(std::vector<double>{9, 1, 4, 6}), 5);
  EXPECT_THROW(median(std::vector<double>{}), std::invalid_argument);
}

std::vector<double> shuffled_upto(int n) {
  std::vector<double> values;
  for (int i = 1; i <= n; ++i) values.push_back(i);
  std::shuffle(values.begin(), values.end(), std::mt19937(7));
  return values;
}

// Ranks and coverages from sums of binomial coefficients in exact arithmetic.
TEST(MedianInterval, has_the_ranks_of_the_sign_test) {
  struct Row {
    int n, k;
    double coverage;
  };
  for (const Row& row : {Row{6, 1, 0.96875}, Row{10, 2, 0.978515625}, Row{20, 6, 0.958610534667969},
                         Row{101, 41, 0.953955933}, Row{1001, 470, 0.950015476}}) {
    const auto interval = median_interval(shuffled_upto(row.n));
    EXPECT_EQ(interval.low, row.k) << row.n;
    EXPECT_EQ(interval.high, row.n + 1 - row.k) << row.n;
    EXPECT_NEAR(interval.coverage, row.coverage, 1e-9) << row.n;
  }
}

TEST(MedianInterval, of_too_few_values_is_their_range_and_says_what_it_covers) {
  const auto five = median_interval(shuffled_upto(5));
  EXPECT_EQ(five.low, 1);
  EXPECT_EQ(five.high, 5);
  EXPECT_DOUBLE_EQ(five.coverage, 1 - 2.0 / 32);
  const auto one = median_interval(shuffled_upto(1));
  EXPECT_EQ(one.low, 1);
  EXPECT_EQ(one.high, 1);
  EXPECT_EQ(one.coverage, 0);
}

// Exponential draws are as lopsided as times of a busy machine; their median is ln 2.
TEST(MedianInterval, holds_the_median_as_often_as_it_says) {
  std::mt19937_64 random(3);
  std::exponential_distribution<double> exponential;
  const int trials = 4000;
  int held = 0;
  double claimed = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> values(101);
    for (double& x : values) x = exponential(random);
    const auto interval = median_interval(values);
    held += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high ? 1 : 0;
    claimed = interval.coverage;
  }
  EXPECT_NEAR(static_cast<double>(held) / trials, claimed, 4 * std::sqrt(claimed * (1 - claimed) / trials));
}

TEST(PairedRatio, compares_neighbours_so_that_drift_cancels) {
  std::vector<double> a, b;
  for (int i = 0; i < 101; ++i) {
    const double drift = 1 + 0.1 * i;
    a.push_back(1.25 * drift);
    b.push_back(drift);
  }
  a[50] = 1000;  // an interruption
  const auto ratio = paired_ratio(a, b);
  EXPECT_DOUBLE_EQ(ratio.median, 1.25);
  EXPECT_DOUBLE_EQ(ratio.interval.low, 1.25);
  EXPECT_DOUBLE_EQ(ratio.interval.high, 1.25);
  EXPECT_DOUBLE_EQ(ratio.of_bests, 1.25);
  b.pop_back();
  EXPECT_THROW(paired_ratio(a, b), std::invalid_argument);
}

TEST(SpeedRatio, is_that_of_work_in_a_second) {
  // 6 in 2 s and 8 in 2 s or 1 s.
  const std::vector<double> a{2, 2, 2}, b{2, 1, 1};
  const auto ratio = bench::speed_ratio(6, a, 8, b);
  EXPECT_DOUBLE_EQ(ratio.median, 0.375);
  EXPECT_DOUBLE_EQ(ratio.interval.low, 0.375);
  EXPECT_DOUBLE_EQ(ratio.interval.high, 0.75);
  EXPECT_DOUBLE_EQ(ratio.of_bests, 0.375);
}

/// Time that passes only when a rival says so.
struct StoppedClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<StoppedClock>;
  static constexpr bool is_steady = true;
  static inline time_point present{};
  static time_point now() { return present; }
};

TEST(Race, rivals_take_turns_after_one_round_that_is_not_timed_and_short_ones_warm_up) {
  std::string order;
  int calls = 0;
  const auto rival = [&](char letter, int milliseconds) {
    return bench::Rival{std::string(1, letter), [&order, &calls, letter, milliseconds] {
                          order += letter;
                          StoppedClock::present +=
                              std::chrono::milliseconds(milliseconds) + std::chrono::microseconds(calls++);
                        }};
  };
  const std::vector<bench::Rival> rivals{rival('A', 200), rival('B', 3), rival('C', 500)};
  const auto taken = bench::race<StoppedClock>(rivals, 3);
  EXPECT_EQ(order, "ABCABBCABBCABBC");
  ASSERT_EQ(taken.size(), 3u);
  for (const auto& draws : taken) ASSERT_EQ(draws.seconds.size(), 3u);
  EXPECT_DOUBLE_EQ(taken[0].seconds[0], 0.200003);  // calls 0, 1 and 2 were the first round
  EXPECT_DOUBLE_EQ(taken[1].seconds[0], 0.003005);  // call 4 was not timed
  EXPECT_DOUBLE_EQ(taken[2].seconds[2], 0.500014);
  EXPECT_DOUBLE_EQ(taken[2].best(), 0.500006);
  EXPECT_DOUBLE_EQ(taken[2].median(), 0.500010);
}

}  // namespace

// When a speed counts as reached.

#include "bench/compare/target.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace {

using bench::Ratio;
using bench::Side;
using bench::Target;
using bench::Verdict;

Target at_least(double measured, double bar) {
  return {.row = "speed", .shape = "a", .measured = measured, .side = Side::at_least, .bar = bar};
}

Target at_most(double measured, double bar) {
  return {.row = "time", .shape = "a", .measured = measured, .side = Side::at_most, .bar = bar};
}

TEST(Target, is_met_at_its_bar) {
  EXPECT_EQ(at_least(0.80, 0.80).verdict(), Verdict::met);
  EXPECT_EQ(at_least(0.79, 0.80).verdict(), Verdict::missed);
  EXPECT_EQ(at_most(1.05, 1.05).verdict(), Verdict::met);
  EXPECT_EQ(at_most(1.06, 1.05).verdict(), Verdict::missed);
}

TEST(Target, that_is_not_a_number_is_missed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(at_least(nan, 0.8).verdict(), Verdict::missed);
  EXPECT_EQ(at_most(nan, 1.02).verdict(), Verdict::missed);
}

TEST(Target, by_interval_is_missed_where_all_of_it_is_beyond_the_bar) {
  Target target = at_most(1.03, 1.02);
  target.ratio = Ratio{.median = 1.03, .interval = {1.01, 1.04, 0.95}, .of_bests = 1.03};
  EXPECT_EQ(target.verdict(), Verdict::missed);  // an interval that is only shown
  target.by_interval = true;
  EXPECT_EQ(target.verdict(), Verdict::met);
  target.ratio->interval.low = 1.021;
  EXPECT_EQ(target.verdict(), Verdict::missed);
}

TEST(Target, behind_an_obstacle_is_neither_met_nor_missed) {
  Target target = at_least(0.5, 0.8);
  target.obstacle = "one CPU";
  EXPECT_EQ(target.verdict(), Verdict::not_comparable);
}

TEST(TargetRows, show_the_shape_that_comes_off_worst_in_the_order_of_first_shapes) {
  std::vector<Target> targets{at_most(1.0, 1.1), at_least(0.9, 0.8), at_least(0.7, 0.6), at_least(0.75, 0.7)};
  auto rows = bench::target_rows(targets);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].worst, &targets[0]);
  EXPECT_EQ(rows[1].worst, &targets[3]);  // 1.07 of its bar; the others 1.125 and 1.17
  EXPECT_EQ(rows[1].shapes, 3u);
  EXPECT_EQ(rows[1].verdict(), Verdict::met);

  targets[1].measured = 0.4;
  rows = bench::target_rows(targets);
  EXPECT_EQ(rows[1].worst, &targets[1]);
  EXPECT_EQ(rows[1].missed, 1u);
  EXPECT_EQ(rows[1].verdict(), Verdict::missed);
}

TEST(TargetRows, leave_out_what_cannot_be_judged_unless_nothing_can) {
  std::vector<Target> targets{at_least(0.1, 0.8), at_least(0.9, 0.8)};
  targets[0].obstacle = "sgemm is slow";
  auto rows = bench::target_rows(targets);
  EXPECT_EQ(rows[0].worst, &targets[1]);
  EXPECT_EQ(rows[0].verdict(), Verdict::met);
  EXPECT_EQ(rows[0].not_comparable, 1u);
  targets[1].obstacle = "sgemm is slow";
  rows = bench::target_rows(targets);
  EXPECT_EQ(rows[0].verdict(), Verdict::not_comparable);
  EXPECT_EQ(rows[0].worst, &targets[0]);
}

TEST(TargetRows, of_a_wide_interval_go_by_its_better_end) {
  std::vector<Target> targets{at_most(1.05, 1.02), at_most(1.01, 1.02)};
  targets[0].ratio = Ratio{.median = 1.05, .interval = {0.90, 1.2, 0.95}, .of_bests = 1.0};
  targets[1].ratio = Ratio{.median = 1.01, .interval = {1.00, 1.02, 0.95}, .of_bests = 1.0};
  for (Target& target : targets) target.by_interval = true;
  EXPECT_EQ(bench::target_rows(targets)[0].worst, &targets[1]);
}

}  // namespace

#include "rove/attention/naive.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::causal;
using rove::Index;
using rove::NaiveKernel;
using rove::window;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

// Sizes round the key block (256) and the chunk (4096), primes, and grouped heads of unequal widths.
TEST(NaiveKernel, EverySizeAgainstTheOracle) {
  double largest = 0;
  unsigned seed = 1;
  for (const Index n : {1, 2, 7, 16, 17, 63, 255, 256, 257, 521}) {
    for (const Index d : {1, 16, 19, 64}) {
      Operands<float> x(1, 2, 1, n > 64 ? 5 : n, n, d, d == 16 ? 24 : d, seed++);
      const auto problem = x.problem();
      NaiveKernel{}(problem);
      largest = std::max(largest, judge(problem).out);
      if (HasFailure()) FAIL() << "n " << n << " d " << d;
    }
  }
  // Far below the bound would mean that something was compared with itself.
  EXPECT_GT(largest, 0.02);
}

TEST(NaiveKernel, ChunksMergeInOrder) {
  Operands<float> x(1, 1, 1, 3, 4096 * 2 + 13, 8, 8, 5);
  const auto problem = x.problem().with_query_offset(4096 * 2 + 10).with_mask(causal());
  NaiveKernel{}(problem);
  judge(problem);
}

TEST(NaiveKernel, EveryScalarCombinationThatIsUsed) {
  {
    Operands<double> x(1, 2, 2, 9, 9, 16, 16, 11);
    const auto problem = x.problem().with_mask(causal());
    NaiveKernel{}(problem);
    judge(problem);
  }
  {
    Operands<Eigen::bfloat16> x(1, 2, 1, 9, 9, 16, 16, 12);
    const auto problem = x.problem().with_mask(causal());
    NaiveKernel{}(problem);
    judge(problem);
  }
  {
    Operands<Eigen::half, Eigen::bfloat16, float, Eigen::half> x(2, 2, 1, 9, 9, 16, 8, 13);
    const auto problem = x.problem().with_mask(causal());
    NaiveKernel{}(problem);
    judge(problem);
  }
  {
    Operands<float, Eigen::half, double, Eigen::bfloat16> x(1, 2, 1, 5, 9, 16, 8, 14);
    const auto problem = x.problem();
    static_assert(std::is_same_v<decltype(problem)::accumulator, double>);
    NaiveKernel{}(problem);
    judge(problem);
  }
}

TEST(NaiveKernel, MasksScoresOffsetsLengthsAndSinks) {
  Operands<float> x(2, 4, 2, 7, 300, 16, 8, 21);
  const std::vector<std::int32_t> lengths = {300, 260};
  const std::vector<std::int64_t> offsets = {290, 200};
  const std::vector<float> sinks = {0.5F, -1, 3, 0};
  std::vector<float> bias = normal_numbers<float>(4 * 300, 22);
  const auto base = x.problem().with_key_lengths(lengths).with_query_offsets(offsets).with_sinks(sinks);
  const auto check = [](const auto& problem) {
    NaiveKernel{}(problem);
    judge(problem);
  };
  check(base);
  check(base.with_mask(causal()));
  check(base.with_mask(window(17)).with_score(rove::alibi(4)));
  check(base.with_mask(causal()).and_mask(!window(3)).with_score(rove::soft_cap(2.0)));
  check(base.with_score(rove::soft_cap(2.0) | rove::additive_bias(rove::bhtd(bias.data(), 1, 4, 1, 300))));
  check(base.with_query_offset(rove::align_last()).with_mask(causal()));
  check(base.with_query_offset(rove::align_first()).with_mask(causal()).with_scale(0.7));
}

// Order goes by index where spans of keys were moved, by whole tiles and slot by slot.
TEST(NaiveKernel, DisplacedKeysMoveMasksAndScores) {
  Operands<float> x(1, 4, 2, 7, 300, 16, 8, 23);
  const std::vector<rove::IndexShift> shifts = {{0, -300}, {37, -20}, {260, 5}};
  const auto check = [](const auto& problem) {
    NaiveKernel{}(problem);
    judge(problem);
  };
  for (const Index offset : {-120, 2, 297}) {
    const auto here = x.problem().with_query_offset(offset).with_mask(causal());
    // Without the displacement the first rows would see nothing.
    const auto moved = here.with_key_values(rove::displaced(here.kv, -200));
    check(moved);
    check(moved.with_score(rove::alibi(4)));
    check(here.with_key_values(rove::displaced(here.kv, std::span<const rove::IndexShift>(shifts)))
              .with_score(rove::alibi(4))
              .and_mask(window(150, 0)));
  }
}

// So wide that key blocks are shorter than a word of visibility bits.
TEST(NaiveKernel, BlocksOfHalfAWord) {
  Operands<float> x(1, 1, 1, 3, 130, 1100, 8, 24, 0.3);
  const auto problem = x.problem().with_query_offset(120).with_mask(causal()).and_mask(!window(40));
  NaiveKernel{}(problem);
  judge(problem);
}

TEST(NaiveKernel, StridesOfEveryKind) {
  Operands<float> plain(2, 3, 3, 6, 6, 8, 8, 31);
  const auto expected = plain.problem().with_mask(causal());
  NaiveKernel{}(expected);
  // Channel stride 2, tokens backwards in k, one v shared by the batch, and out in [tokens, heads] order.
  std::vector<float> q(plain.q.size() * 2, nan), k(plain.k.size());
  for (std::size_t i = 0; i < plain.q.size(); ++i) q[2 * i] = plain.q[i];
  const auto source = rove::bhtd(plain.k.data(), 2, 3, 6, 8);
  rove::TensorView<float> backwards = rove::bhtd(k.data(), 2, 3, 6, 8);
  backwards.data += 5 * backwards.stride[2];
  backwards.stride[2] = -backwards.stride[2];
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 3; ++h) {
      for (Index t = 0; t < 6; ++t) {
        for (Index c = 0; c < 8; ++c) backwards(b, h, t, c) = source(b, h, t, c);
      }
    }
  }
  std::vector<float> out(plain.out.size());
  const rove::TensorView<const float> strided{q.data(), {2, 3, 6, 8}, {288, 96, 16, 2}};
  const auto problem = rove::attention_problem(strided, backwards, rove::bhtd(plain.v.data(), 2, 3, 6, 8),
                                               rove::bthd(out.data(), 2, 6, 3, 8))
                           .with_mask(causal());
  NaiveKernel{}(problem);
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 3; ++h) {
      for (Index t = 0; t < 6; ++t) {
        for (Index c = 0; c < 8; ++c) EXPECT_EQ(problem.out(b, h, t, c), expected.out(b, h, t, c));
      }
    }
  }
}

TEST(NaiveKernel, OutMayBeTheQueries) {
  Operands<float> apart(1, 2, 2, 9, 9, 16, 16, 41);
  const auto expected = apart.problem();
  NaiveKernel{}(expected);
  Operands<float> x(1, 2, 2, 9, 9, 16, 16, 41);
  auto problem = x.problem();
  problem.out = rove::bhtd(x.q.data(), 1, 2, 9, 16);
  NaiveKernel{}(problem);
  EXPECT_EQ(x.q, apart.out);
}

TEST(NaiveKernel, B01_B02_RowsWithoutVisibleKeysAreZero) {
  Operands<float> x(1, 1, 1, 4, 4, 8, 8, 51);
  const auto none = x.problem().with_mask(rove::mask([](Index, Index, Index q, Index) { return q != 2; }));
  NaiveKernel{}(none);
  judge(none);
  for (Index c = 0; c < 8; ++c) EXPECT_EQ(none.out(0, 0, 2, c), 0.0F);
  EXPECT_EQ(none.lse(0, 0, 2), -infinity);
  // Causal and "key after query" together leave nothing.
  const auto both = x.problem().with_mask(causal()).and_mask(
      rove::mask([](Index, Index, Index q, Index k) { return k > q; }));
  NaiveKernel{}(both);
  for (const float y : x.out) EXPECT_EQ(y, 0.0F);
}

TEST(NaiveKernel, B05_AFullyMaskedRowIsNotTheMeanOfTheValues) {
  Operands<float> x(1, 1, 1, 2, 3, 4, 4, 52);
  const auto problem = x.problem()
                           .with_mask(rove::mask([](const rove::Site& site) { return site.row == 0; }))
                           .with_query_offset(0);
  NaiveKernel{}(problem);
  for (Index c = 0; c < 4; ++c) EXPECT_EQ(problem.out(0, 0, 1, c), 0.0F);
  EXPECT_EQ(problem.lse(0, 0, 1), -infinity);
}

TEST(NaiveKernel, B06_B07_UnusedSlotsAndMaskedKeysNeverReachTheOutput) {
  const std::vector<std::int64_t> lengths = {32, 64, 96, 48};
  Operands<float> clean(4, 2, 1, 3, 128, 16, 16, 53);
  for (Index b = 0; b < 4; ++b) {
    for (Index j = lengths[static_cast<std::size_t>(b)]; j < 128; ++j) {
      for (Index c = 0; c < 16; ++c) {
        clean.k[static_cast<std::size_t>((b * 128 + j) * 16 + c)] = 0;
        clean.v[static_cast<std::size_t>((b * 128 + j) * 16 + c)] = 0;
      }
    }
  }
  Operands<float> dirty = clean;
  for (Index b = 0; b < 4; ++b) {
    for (Index j = lengths[static_cast<std::size_t>(b)]; j < 128; ++j) {
      for (Index c = 0; c < 16; ++c) {
        dirty.k[static_cast<std::size_t>((b * 128 + j) * 16 + c)] = nan;
        dirty.v[static_cast<std::size_t>((b * 128 + j) * 16 + c)] = c % 2 ? nan : infinity;
      }
    }
  }
  NaiveKernel{}(clean.problem().with_key_lengths(lengths));
  NaiveKernel{}(dirty.problem().with_key_lengths(lengths));
  EXPECT_EQ(clean.out, dirty.out);
  EXPECT_EQ(clean.lse, dirty.lse);
  // The same by a mask, key 40 of row 1 among those that rows see.
  std::vector<unsigned char> seen(128, 1);
  seen[40] = 0;
  for (Index b = 0; b < 4; ++b) {
    for (Index c = 0; c < 16; ++c) {
      const auto at = static_cast<std::size_t>((b * 128 + 40) * 16 + c);
      clean.k[at] = clean.v[at] = 0;
      dirty.k[at] = dirty.v[at] = nan;
    }
  }
  const auto mask = rove::boolean_mask(rove::bhtd(seen.data(), 1, 1, 1, 128));
  NaiveKernel{}(clean.problem().with_key_lengths(lengths).with_mask(mask));
  NaiveKernel{}(dirty.problem().with_key_lengths(lengths).with_mask(mask));
  EXPECT_EQ(clean.out, dirty.out);
}

TEST(NaiveKernel, B08_CausalBottomRight) {
  Operands<float> x(1, 1, 1, 2, 5, 4, 1, 54);
  for (float& k : x.k) k = 0;
  for (std::size_t j = 0; j < 5; ++j) x.v[j] = static_cast<float>(1 << j);
  const auto wide = x.problem().with_mask(causal()).with_query_offset(rove::align_last());
  NaiveKernel{}(wide);
  EXPECT_FLOAT_EQ(x.out[0], (1 + 2 + 4 + 8) / 4.0F);
  EXPECT_FLOAT_EQ(x.out[1], 31 / 5.0F);
  Operands<float> y(1, 1, 1, 5, 2, 4, 1, 55);
  for (float& k : y.k) k = 0;
  y.v = {1, 2};
  const auto tall = y.problem().with_mask(causal()).with_query_offset(rove::align_last());
  NaiveKernel{}(tall);
  EXPECT_EQ(y.out, (std::vector<float>{0, 0, 0, 1, 1.5F}));
  EXPECT_EQ(y.lse[2], -infinity);
}

TEST(NaiveKernel, B11_SoftCapBeforeTheMask) {
  Operands<float> x(1, 1, 1, 1, 2, 4, 1, 56);
  for (float& k : x.k) k = 0;
  x.v = {0, 1};
  const auto problem = x.problem()
                           .with_query_offset(0)
                           .with_score(rove::soft_cap(1.0))
                           .with_mask(rove::mask([](const rove::Site& s) { return s.slot == 0; }));
  NaiveKernel{}(problem);
  EXPECT_EQ(x.out[0], 0.0F);
}

TEST(NaiveKernel, B13_GroupedHeadsAreGroupedNotTiled) {
  Operands<float> x(1, 4, 2, 1, 1, 4, 1, 57);
  x.v = {10, 20};
  const auto problem = x.problem();
  NaiveKernel{}(problem);
  EXPECT_EQ(x.out, (std::vector<float>{10, 10, 20, 20}));
}

TEST(NaiveKernel, N02_ANanBehindTheCausalEdgeLeavesEarlierRowsAlone) {
  for (const Index key : {0, 1, 15, 16, 100, 255, 256}) {
    Operands<float> clean(1, 1, 1, 300, 300, 8, 8, 58), dirty = clean;
    for (Index c = 0; c < 8; ++c) {
      dirty.k[static_cast<std::size_t>(key * 8 + c)] = c == 0 ? infinity : nan;
      dirty.v[static_cast<std::size_t>(key * 8 + c)] = nan;
    }
    NaiveKernel{}(clean.problem().with_mask(causal()));
    NaiveKernel{}(dirty.problem().with_mask(causal()));
    for (Index i = 0; i < 300; ++i) {
      for (Index c = 0; c < 8; ++c) {
        const auto at = static_cast<std::size_t>(i * 8 + c);
        if (i < key) {
          EXPECT_EQ(dirty.out[at], clean.out[at]) << "key " << key << " row " << i;
        } else {
          EXPECT_TRUE(std::isnan(dirty.out[at])) << "key " << key << " row " << i;
        }
      }
    }
  }
}

TEST(NaiveKernel, VisibleInfinitiesGiveIeeesResult) {
  Operands<float> x(1, 1, 1, 3, 3, 2, 1, 59);
  x.q = {1, 0, 1, 0, 1, 0};
  x.k = {0, 0, infinity, 0, 0, 0};
  const auto problem = x.problem().with_mask(causal());
  NaiveKernel{}(problem);
  EXPECT_EQ(x.out[0], x.v[0]);
  EXPECT_TRUE(std::isnan(x.out[1]));
  EXPECT_TRUE(std::isnan(x.lse[2]));
  // A logit of -inf: weight 0, but its value is multiplied, so a bias does not shield a NaN.
  std::vector<float> bias = {0, -infinity, 0};
  Operands<float> y(1, 1, 1, 1, 3, 2, 1, 60);
  const auto biased = y.problem().with_score(rove::additive_bias(rove::bhtd(bias.data(), 1, 1, 1, 3)));
  NaiveKernel{}(biased);
  judge(biased);
  y.v[1] = nan;
  NaiveKernel{}(biased);
  EXPECT_TRUE(std::isnan(y.out[0]));
  // Only logits of -inf: empty.
  bias = {-infinity, -infinity, -infinity};
  y.v[1] = 1;
  NaiveKernel{}(biased);
  EXPECT_EQ(y.out[0], 0.0F);
  EXPECT_EQ(y.lse[0], -infinity);
}

TEST(NaiveKernel, N03_WideLogitsAreCutToZeroWithinTheBound) {
  Operands<float> x(1, 1, 1, 8, 64, 16, 16, 61, 12);
  const auto problem = x.problem();
  NaiveKernel{}(problem);
  judge(problem);
  // e^-61 of the maximum: its value must not be seen, NaN apart.
  Operands<float> y(1, 1, 1, 1, 2, 1, 1, 62);
  y.q = {1};
  y.k = {0, -61};
  y.v = {1, 1e30F};
  NaiveKernel{}(y.problem().with_scale(1));
  EXPECT_EQ(y.out[0], 1.0F);
  y.k = {0, -59};
  NaiveKernel{}(y.problem().with_scale(1));
  EXPECT_GT(y.out[0], 1e4F);
}

TEST(NaiveKernel, B55_SinksTakeWeightOncePerHead) {
  Operands<float> x(1, 2, 2, 3, 4, 4, 1, 63);
  for (float& k : x.k) k = 0;
  for (float& v : x.v) v = 1;
  const std::vector<float> sinks = {2, -infinity};
  const auto problem = x.problem().with_sinks(sinks);
  NaiveKernel{}(problem);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(x.out[i], 0.351214, 1e-6);
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(x.out[i], 1.0F);
  EXPECT_NEAR(x.lse[0], std::log(4 + std::exp(2.0)), 1e-6);
  // No visible key: the sink alone is the sum.
  const auto empty =
      problem.with_query_offset(0).with_mask(rove::mask([](const rove::Site&) { return false; }));
  NaiveKernel{}(empty);
  EXPECT_EQ(x.lse[0], 2.0F);
  EXPECT_EQ(x.lse[5], -infinity);
  EXPECT_EQ(x.out[0], 0.0F);
}

TEST(NaiveKernel, B23_B24_ShapesOfNothing) {
  std::vector<float> data(64, 1), out(64, -77), lse(8, -77);
  const auto make = [&](Index b, Index hq, Index hkv, Index n, Index m) {
    return rove::attention_problem(rove::bhtd(data.data(), b, hq, n, 4),
                                   rove::bhtd(data.data(), b, hkv, m, 4),
                                   rove::bhtd(data.data(), b, hkv, m, 4), rove::bhtd(out.data(), b, hq, n, 4))
        .with_lse(rove::bht(lse.data(), b, hq, n));
  };
  NaiveKernel{}(make(1, 1, 1, 0, 3));
  NaiveKernel{}(make(0, 1, 1, 2, 3));
  NaiveKernel{}(make(1, 0, 0, 2, 3));
  NaiveKernel{}(make(1, 0, 2, 2, 3));
  for (const float y : out) EXPECT_EQ(y, -77.0F);
  NaiveKernel{}(make(1, 2, 1, 3, 0));
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(out[i], 0.0F);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(lse[i], -infinity);
  EXPECT_EQ(out[24], -77.0F);
  const std::vector<std::int64_t> lengths = {0};
  NaiveKernel{}(make(1, 1, 1, 2, 3).with_key_lengths(lengths));
  EXPECT_EQ(lse[0], -infinity);
}

TEST(NaiveKernel, B66_B67_HalfPrecisionSumsAreFloat) {
  // 128 products of 256 · 256 overflow half at the first; 741455.2 after the scale is far above half's 65504.
  Operands<Eigen::half> x(1, 1, 1, 1, 1, 128, 4, 64);
  for (auto& q : x.q) q = Eigen::half(256);
  for (auto& k : x.k) k = Eigen::half(256);
  NaiveKernel{}(x.problem());
  // Equal terms round the same way each time, so that 128 half ulps may add up.
  EXPECT_NEAR(x.lse[0], 741455.2F, 128 * 0x1p-24 * 741455.2);
  for (std::size_t c = 0; c < 4; ++c) EXPECT_EQ(static_cast<float>(x.out[c]), static_cast<float>(x.v[c]));
  // 40000 keys whose weights sum to 40000 in half would stop at 2048.
  Operands<Eigen::half> y(1, 1, 1, 1, 40000, 1, 1, 65);
  for (auto& k : y.k) k = Eigen::half(0);
  for (auto& v : y.v) v = Eigen::half(1);
  NaiveKernel{}(y.problem());
  EXPECT_EQ(static_cast<float>(y.out[0]), 1.0F);
  EXPECT_NEAR(y.lse[0], std::log(40000.0), 1e-6);
}

TEST(NaiveKernel, B76_TheScaleComesFromTheTrueWidth) {
  Operands<float> x(1, 1, 1, 1, 1, 80, 1, 66);
  double dot = 0;
  for (std::size_t c = 0; c < 80; ++c) dot += static_cast<double>(x.q[c]) * static_cast<double>(x.k[c]);
  NaiveKernel{}(x.problem());
  EXPECT_NEAR(x.lse[0], dot / std::sqrt(80.0), 1e-5);
}

}  // namespace
}  // namespace rove_test

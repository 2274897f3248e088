#include "rove/attention/score.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/attention/any_score.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_lambda.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"
#include "support/error_of.hpp"

namespace outside {

// A score of somebody else's, with no more than it must have.
struct Halve {
  template <class Acc>
  Acc operator()(Acc s, const rove::Site&) const {
    return s / 2;
  }
};

struct FloatOnly {
  float operator()(float s, const rove::Site&) const { return s; }
};

template <class T>
concept Pipes = requires(const T& t) {
  t | t;
};

static_assert(rove::Score<Halve> && !rove::DifferentiableScore<Halve>);
static_assert(!Pipes<Halve>, "operators need one operand of rove's own");
static_assert(!Pipes<FloatOnly> && !Pipes<rove::Site>);

}  // namespace outside

namespace {

using rove::AnyScore;
using rove::AttentionShape;
using rove::DifferentiableScore;
using rove::Index;
using rove::Score;
using rove::Site;
using test::error_of;

constexpr AttentionShape shape{.batch = 2, .heads = 3, .kv_heads = 1, .q_len = 5, .kv_len = 7};
constexpr double infinity = std::numeric_limits<double>::infinity();

static_assert(Score<rove::NoScore> && Score<rove::SoftCap> && Score<rove::Alibi>);
static_assert(Score<rove::AdditiveBias<float>> && Score<rove::AdditiveBias<Eigen::half>>);
static_assert(Score<AnyScore> && Score<rove::ScoreChain<AnyScore, outside::Halve>>);
static_assert(!Score<int> && !Score<outside::FloatOnly>);
static_assert(DifferentiableScore<rove::NoScore> && DifferentiableScore<rove::SoftCap> &&
              DifferentiableScore<rove::Alibi> && DifferentiableScore<rove::AdditiveBias<double>>);
static_assert(DifferentiableScore<rove::ScoreChain<rove::SoftCap, rove::Alibi>>);
static_assert(!DifferentiableScore<rove::ScoreChain<rove::SoftCap, outside::Halve>>);
static_assert(!DifferentiableScore<rove::ScoreChain<outside::Halve, rove::SoftCap>>);
static_assert(std::is_trivially_copyable_v<rove::SoftCap> &&
              std::is_trivially_copyable_v<rove::AdditiveBias<float>>);
static_assert(rove::detail::is_no_score<const rove::NoScore&> && !rove::detail::is_no_score<AnyScore>);

template <Score S>
std::string check_error(const S& score) {
  return error_of([&] { rove::score_check(score, shape); });
}

constexpr Site at(Index head, Index query, Index key) {
  return {.head = head, .query = query, .key = key};
}

// ---- Soft cap -----------------------------------------------------------------------------------

TEST(Score, B12_soft_cap_is_c_tanh_of_s_over_c) {
  for (const double cap : {1.0, 30.0, 50.0}) {
    for (const double s : {-400.0, -51.0, -3.0, -0.25, 0.0, 1e-6, 0.5, 7.0, 50.0, 1000.0}) {
      const double expected =
          static_cast<double>(static_cast<long double>(cap) *
                              std::tanh(static_cast<long double>(s) / static_cast<long double>(cap)));
      EXPECT_NEAR(rove::soft_cap(cap)(s, Site{}), expected, 9e-16 * std::abs(expected)) << cap << ", " << s;
      EXPECT_NEAR(static_cast<double>(rove::soft_cap(cap)(static_cast<float>(s), Site{})), expected,
                  5e-7 * std::abs(expected))
          << cap << ", " << s;
    }
  }
}

TEST(Score, soft_cap_of_a_packet_has_the_bits_of_its_lanes) {
  const auto check = [](auto zero) {
    using Acc = decltype(zero);
    using P = rove::simd::packet_t<Acc>;
    const auto score = rove::soft_cap(3);
    for (Acc s = -20; s < 20; s += Acc(0.37)) {
      Acc lanes[rove::simd::width<P>];
      for (int i = 0; i < rove::simd::width<P>; ++i) lanes[i] = s * static_cast<Acc>(i + 1);
      const P capped = score.packet(rove::simd::load<P>(lanes), Site{});
      for (int i = 0; i < rove::simd::width<P>; ++i) {
        EXPECT_EQ(rove::simd::lane(capped, i), score(lanes[i], Site{})) << lanes[i];
      }
    }
  };
  check(0.0F);
  check(0.0);
}

TEST(Score, B12_soft_cap_derivative) {
  const auto score = rove::soft_cap(30);
  for (const double s : {-80.0, -30.0, -2.0, 0.0, 0.7, 12.0, 45.0}) {
    const double cosh = std::cosh(s / 30);
    EXPECT_NEAR(score.dscore(s, score(s, Site{}), Site{}), 1 / (cosh * cosh), 1e-15) << s;
  }
  EXPECT_EQ(score.dscore(0.0, 15.0, Site{}), 0.75);  // 1 - (s'/c)^2, by what comes out
}

TEST(Score, B11_soft_cap_lifts_minus_infinity_so_it_must_come_before_the_mask) {
  EXPECT_EQ(rove::soft_cap(1)(-infinity, Site{}), -1.0);
  EXPECT_EQ(rove::soft_cap(1)(infinity, Site{}), 1.0);
  EXPECT_TRUE(std::isnan(rove::soft_cap(1)(std::numeric_limits<double>::quiet_NaN(), Site{})));
  // Two logits of zero, cap 1, the second hidden: a cap after the mask gives it e^-1/(1 + e^-1) = 0.2689.
  const double after = std::exp(rove::soft_cap(1)(-infinity, Site{}));
  EXPECT_NEAR(after / (1 + after), 0.2689414213699951, 1e-15);
}

TEST(Score, soft_cap_refuses_what_is_no_cap) {
  const auto error = [](double cap) { return error_of([&] { rove::soft_cap(cap); }); };
  const std::string text = "soft_cap: cap must lie between 2^-126 and 2^126, got ";
  EXPECT_EQ(error(0), text + "0");
  EXPECT_EQ(error(-30), text + "-30");
  EXPECT_EQ(error(infinity), text + "inf");
  EXPECT_EQ(error(1e-300).substr(0, text.size()), text);
  EXPECT_EQ(error(0x1p127), text + "1.7014118346046923e+38");
  EXPECT_EQ(error(std::numeric_limits<double>::quiet_NaN()).substr(0, text.size()), text);
  EXPECT_EQ(error(30), "(no error)");
  EXPECT_EQ(rove::soft_cap(30).cap(), 30.0);
}

// ---- ALiBi --------------------------------------------------------------------------------------

TEST(Score, B52_B53_alibi_slopes_golden) {
  std::ifstream file(ROVE_TEST_DATA "/rope/alibi.json");
  const auto records = nlohmann::json::parse(file);
  ASSERT_EQ(records.size(), 19U);
  for (const auto& record : records) {
    const Index heads = record.at("heads").get<Index>();
    const auto expected = record.at("slopes").get<std::vector<double>>();
    const auto slopes = rove::alibi_slopes(heads);
    ASSERT_EQ(slopes.size(), expected.size());
    for (std::size_t h = 0; h < slopes.size(); ++h) {
      EXPECT_NEAR(slopes[h], expected[h], 3e-16 * expected[h]) << heads << " heads, head " << h;
    }
  }
}

TEST(Score, B52_alibi_slopes_of_6_and_12_heads) {
  EXPECT_EQ(rove::alibi_slopes(6), (std::vector<double>{0.25, 1 / 16.0, 1 / 64.0, 1 / 256.0, 0.5, 0.125}));
  const auto twelve = rove::alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12U);
  for (int h = 0; h < 8; ++h) EXPECT_EQ(twelve[static_cast<std::size_t>(h)], std::ldexp(1.0, -h - 1));
  const double rest[4] = {0.70710678, 0.35355339, 0.1767767, 0.08838835};
  for (std::size_t h = 0; h < 4; ++h) EXPECT_NEAR(twelve[8 + h], rest[h], 5e-9);
}

TEST(Score, B53_alibi_slopes_of_8_heads) {
  const auto slopes = rove::alibi_slopes(8);
  ASSERT_EQ(slopes.size(), 8U);
  EXPECT_EQ(slopes.front(), 0.5);
  EXPECT_EQ(slopes.back(), 0.00390625);
}

TEST(Score, alibi_takes_slope_times_distance_off) {
  const auto score = rove::alibi(8);
  EXPECT_EQ(score(1.0, at(0, 7, 3)), 1.0 - 0.5 * 4);
  EXPECT_EQ(score(1.0f, at(0, 7, 3)), -1.0f);
  EXPECT_EQ(score(1.0, at(0, 3, 7)), -1.0);  // ahead is as far as behind
  EXPECT_EQ(score(1.0, at(7, 1003, 3)), 1.0 - 3.90625);
  EXPECT_EQ(score(1.0, at(3, 5, 5)), 1.0);
  EXPECT_EQ(score(-infinity, at(0, 7, 3)), -infinity);
  // By index, not by row and slot.
  EXPECT_EQ(score(0.0, (Site{.row = 0, .slot = 2, .query = 10, .key = 8})), -1.0);
  EXPECT_EQ(score.dscore(1.0, -1.0, at(0, 7, 3)), 1.0);
  // Exactly one multiply-add: the product is not rounded where there is a fused one.
  const auto thirds = rove::alibi(std::vector<double>{1.0 / 3});
  EXPECT_EQ(thirds(1.0f, at(0, 3, 0)), rove::mul_add(-(1.0f / 3), 3.0f, 1.0f));
}

TEST(Score, alibi_with_slopes_of_ones_own) {
  const std::vector<float> slopes{0.5f, -0.25f, 0.0f};
  const auto score = rove::alibi(slopes);
  EXPECT_EQ(score(0.0, at(1, 4, 0)), 1.0);
  EXPECT_EQ(score(0.0, at(2, 4, 0)), 0.0);
  EXPECT_EQ(score.slopes().size(), 3U);
  EXPECT_EQ(check_error(score), "(no error)");
  // Copied: the list may go.
  const auto kept = [] { return rove::alibi(std::vector<double>{2.0}); }();
  EXPECT_EQ(kept(0.0, at(0, 1, 0)), -2.0);
}

TEST(Score, alibi_mistakes_are_named_with_their_numbers) {
  EXPECT_EQ(check_error(rove::alibi(8)), "alibi: there are 8 slopes for 3 query heads");
  EXPECT_EQ(error_of([] { rove::alibi(-1); }), "alibi: heads must not be negative, got -1");
  EXPECT_EQ(error_of([] {
              rove::alibi(std::vector<double>{1, infinity});
            }),
            "alibi: the slope of head 1 must be finite in float, got inf");
  EXPECT_TRUE(rove::alibi_slopes(0).empty());
}

// ---- Additive bias ------------------------------------------------------------------------------

template <class T>
class BiasOf : public testing::Test {};
using Scalars = testing::Types<float, double, Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(BiasOf, Scalars);

TYPED_TEST(BiasOf, adds_its_element_by_local_row_and_slot) {
  using T = TypeParam;
  // Halves up to 105 are exact in every type. Every pattern of broadcasting.
  for (int pattern = 0; pattern < 16; ++pattern) {
    Index extent[4] = {2, 3, 5, 7};
    for (int i = 0; i < 4; ++i) {
      if ((pattern >> i & 1) != 0) extent[i] = 1;
    }
    std::vector<T> values;
    for (Index i = 0; i < extent[0] * extent[1] * extent[2] * extent[3]; ++i) {
      values.push_back(static_cast<T>(static_cast<float>(i) / 2));
    }
    const auto score =
        rove::additive_bias(rove::bhtd(values.data(), extent[0], extent[1], extent[2], extent[3]));
    EXPECT_EQ(check_error(score), "(no error)");
    for (Site s{.query = 1000, .key = 2000}; s.batch < 2; ++s.batch) {
      for (s.head = 0; s.head < 3; ++s.head) {
        for (s.row = 0; s.row < 5; ++s.row) {
          for (s.slot = 0; s.slot < 7; ++s.slot) {
            const Index index[4] = {s.batch, s.head, s.row, s.slot};
            Index element = 0;
            for (int i = 0; i < 4; ++i) element = element * extent[i] + (extent[i] == 1 ? 0 : index[i]);
            ASSERT_EQ(score(0.25, s), 0.25 + static_cast<double>(element) / 2);
            ASSERT_EQ(score(0.25f, s), 0.25f + static_cast<float>(element) / 2);
          }
        }
      }
    }
    EXPECT_EQ(score.dscore(1.0, 2.0, Site{}), 1.0);
  }
}

TEST(Score, additive_bias_honours_any_strides_and_infinities) {
  float storage[12];
  for (int i = 0; i < 12; ++i) storage[i] = static_cast<float>(i);
  storage[0] = -std::numeric_limits<float>::infinity();
  // Backwards in slots, rows innermost.
  const auto score = rove::additive_bias(rove::TensorView<float>{storage + 9, {1, 1, 3, 4}, {0, 0, 1, -3}});
  EXPECT_EQ(score(1.0f, (Site{.row = 2, .slot = 1})), 1.0f + 8.0f);
  EXPECT_EQ(score(1.0f, (Site{.row = 0, .slot = 3})), -std::numeric_limits<float>::infinity());
}

TEST(Score, additive_bias_of_double_on_float_logits_is_rounded_first) {
  const double bias = 1 + 0x1p-24 + 0x1p-40;  // rounds up to 1 + 2^-23
  const auto score = rove::additive_bias(rove::bhtd(&bias, 1, 1, 1, 1));
  EXPECT_EQ(score(0.0f, Site{}), 1 + 0x1p-23f);
  EXPECT_EQ(score(0.0, Site{}), bias);
}

TEST(Score, N06_a_bias_goes_by_local_row_and_slot) {
  const float row[3] = {1, 2, 3};
  const auto score = rove::additive_bias(rove::bhtd(row, 1, 1, 1, 3));
  EXPECT_EQ(score(0.0f, (Site{.row = 0, .slot = 2, .query = 1 << 20, .key = 1 << 21})), 3.0f);
}

TEST(Score, additive_bias_mistakes_are_named_with_their_numbers) {
  const std::vector<float> values(210);
  const auto error = [&](Index b, Index h, Index q, Index k) {
    return check_error(rove::additive_bias(rove::bhtd(values.data(), b, h, q, k)));
  };
  EXPECT_EQ(error(1, 2, 5, 7), "additive_bias: extent 1 (heads) is 2, must be 3 or 1");
  EXPECT_EQ(error(2, 3, 7, 5), "additive_bias: extent 2 (q_len) is 7, must be 5 or 1");
  EXPECT_EQ(check_error(rove::additive_bias(rove::bhtd<const float>(nullptr, 1, 1, 1, 7))),
            "additive_bias: data is null");
}

// ---- Lambdas ------------------------------------------------------------------------------------

TEST(Score, lambdas_of_each_arity) {
  const Site site{1, 2, 3, 4, 50, 60};
  const auto plain = rove::score([](auto s) { return s * s; });
  EXPECT_EQ(plain(3.0, site), 9.0);
  EXPECT_EQ(plain(3.0f, site), 9.0f);
  EXPECT_FALSE(rove::score_order_aware(plain));
  const auto by_site =
      rove::score([](auto s, const Site& at) { return s + static_cast<decltype(s)>(at.slot); });
  EXPECT_EQ(by_site(0.5, site), 4.5);
  EXPECT_TRUE(rove::score_order_aware(by_site));
  const auto by_index = rove::score([](auto s, Index b, Index h, Index query, Index key) {
    return s + static_cast<decltype(s)>(b + 10 * h + 100 * query + 10000 * key);
  });
  EXPECT_EQ(by_index(0.5, site), 605021.5);
  EXPECT_TRUE(rove::score_order_aware(by_index));
  // Takes and returns double: float logits are widened for it, its result is rounded.
  const auto in_double = rove::score([](double s) { return s + 0x1p-30; });
  EXPECT_EQ(in_double(1.0f, site), 1.0f);
  EXPECT_EQ(in_double(1.0, site), 1 + 0x1p-30);
  static_assert(std::is_same_v<decltype(in_double(1.0f, site)), float>);
}

TEST(Score, lambdas_with_derivatives_of_each_arity) {
  const Site site{1, 2, 3, 4, 50, 60};
  const auto f = [](auto s) { return s * s; };
  const auto expect = [&](const auto& score, double derivative) {
    static_assert(DifferentiableScore<std::remove_cvref_t<decltype(score)>>);
    EXPECT_TRUE(rove::score_differentiable(score));
    EXPECT_EQ(score.dscore(3.0, 9.0, site), derivative);
    EXPECT_EQ(score.dscore(3.0f, 9.0f, site), static_cast<float>(derivative));
  };
  expect(rove::score(f, [](auto s) { return 2 * s; }), 6);
  expect(rove::score(f, [](auto s, auto out) { return out / s; }), 3);
  expect(rove::score(f, [](double s, const Site& at) { return s + static_cast<double>(at.row); }), 6);
  expect(rove::score(
             f, [](double s, double out, const Site& at) { return s + out + static_cast<double>(at.key); }),
         72);
  expect(rove::score(f, [](double s, Index b, Index h, Index query,
                           Index key) { return s + static_cast<double>(b + h + query + key); }),
         116);
  expect(rove::score(f, [](double, double out, Index, Index, Index query,
                           Index) { return out - static_cast<double>(query); }),
         -41);
  EXPECT_FALSE(rove::score_differentiable(rove::score(f)));
}

// ---- Chains -------------------------------------------------------------------------------------

TEST(Score, chains_go_from_left_to_right) {
  const Site site = at(0, 7, 3);
  const auto capped = [](double s) { return rove::soft_cap(30)(s, Site{}); };
  EXPECT_EQ((rove::soft_cap(30) | rove::alibi(8))(60.0, site), capped(60) - 2);
  EXPECT_EQ((rove::alibi(8) | rove::soft_cap(30))(60.0, site), capped(58));
  EXPECT_EQ((outside::Halve{} | rove::alibi(8))(60.0, site), 28.0);
  EXPECT_EQ((rove::alibi(8) | outside::Halve{})(60.0, site), 29.0);
  EXPECT_EQ((rove::alibi(8) | outside::Halve{} | rove::score([](auto s) { return s + 1; }))(60.0f, site),
            30.0f);
}

TEST(Score, chaining_with_no_score_leaves_the_other) {
  static_assert(std::is_same_v<decltype(rove::NoScore{} | rove::soft_cap(3)), rove::SoftCap>);
  static_assert(std::is_same_v<decltype(rove::soft_cap(3) | rove::NoScore{}), rove::SoftCap>);
  static_assert(std::is_same_v<decltype(rove::NoScore{} | outside::Halve{}), outside::Halve>);
  EXPECT_EQ(rove::NoScore{}(0.1f, Site{}), 0.1f);
  EXPECT_EQ(rove::NoScore{}.dscore(0.1f, 0.1f, Site{}), 1.0f);
}

TEST(Score, chains_differentiate_by_the_chain_rule) {
  const auto square = rove::score([](auto s) { return s * s / 40; }, [](auto s) { return s / 20; });
  const auto chain = rove::alibi(8) | rove::soft_cap(30) | square | rove::soft_cap(20);
  EXPECT_TRUE(rove::score_differentiable(chain));
  for (const double s : {-70.0, -12.0, 0.3, 5.0, 33.0, 90.0}) {
    for (Index head = 0; head < 8; ++head) {
      const Site site = at(head, 40, 3);
      const double h = 1e-4;
      const double differences = (8 * (chain(s + h, site) - chain(s - h, site)) -
                                  (chain(s + 2 * h, site) - chain(s - 2 * h, site))) /
                                 (12 * h);
      EXPECT_NEAR(chain.dscore(s, chain(s, site), site), differences, 1e-9) << s << ", head " << head;
    }
  }
}

TEST(Score, order_aware_where_any_part_is) {
  const float zero = 0;
  const auto bias = rove::additive_bias(rove::bhtd(&zero, 1, 1, 1, 1));
  EXPECT_FALSE(rove::score_order_aware(rove::NoScore{}));
  EXPECT_FALSE(rove::score_order_aware(rove::soft_cap(30)));
  EXPECT_FALSE(rove::score_order_aware(bias));
  EXPECT_FALSE(rove::score_order_aware(rove::soft_cap(30) | bias));
  EXPECT_TRUE(rove::score_order_aware(rove::alibi(8)));
  EXPECT_TRUE(rove::score_order_aware(rove::soft_cap(30) | rove::alibi(8)));
  EXPECT_TRUE(rove::score_order_aware(rove::alibi(8) | bias));
  EXPECT_TRUE(rove::score_order_aware(outside::Halve{}));
  EXPECT_FALSE(AnyScore().order_aware());
  EXPECT_TRUE(AnyScore(rove::alibi(8)).order_aware());
}

TEST(Score, chains_and_any_score_pass_checks_on) {
  const auto bad = rove::alibi(8);
  const std::string text = "alibi: there are 8 slopes for 3 query heads";
  EXPECT_EQ(check_error(bad | rove::soft_cap(3)), text);
  EXPECT_EQ(check_error(rove::soft_cap(3) | bad), text);
  EXPECT_EQ(check_error(AnyScore(bad)), text);
  EXPECT_EQ(check_error(AnyScore()), "(no error)");
  EXPECT_EQ(check_error(outside::Halve{}), "(no error)");
}

// ---- Run-time choice ----------------------------------------------------------------------------

TEST(Score, any_score_answers_as_the_one_inside) {
  const auto chain = rove::soft_cap(30) | rove::alibi(8);
  const AnyScore any = chain;
  std::mt19937 random(3);
  std::uniform_real_distribution<double> logits(-100, 100);
  for (int trial = 0; trial < 200; ++trial) {
    const Site site = at(trial % 8, trial, 50);
    const double s = logits(random);
    const float f = static_cast<float>(s);
    ASSERT_EQ(any(s, site), chain(s, site));
    ASSERT_EQ(any(f, site), chain(f, site));
    ASSERT_EQ(any.dscore(s, chain(s, site), site), chain.dscore(s, chain(s, site), site));
    ASSERT_EQ(any.dscore(f, chain(f, site), site), chain.dscore(f, chain(f, site), site));
  }
}

TEST(Score, any_score_is_chosen_at_run_time_and_shared) {
  AnyScore score;
  EXPECT_EQ(score(0.1, Site{}), 0.1);
  EXPECT_TRUE(score.differentiable());
  score = rove::soft_cap(1);
  const AnyScore copy = score;
  score = score | outside::Halve{};
  EXPECT_EQ(copy(-infinity, Site{}), -1.0);
  EXPECT_EQ(score(-infinity, Site{}), -0.5);
}

TEST(Score, any_score_says_that_it_has_no_derivative) {
  const AnyScore score = rove::soft_cap(1) | outside::Halve{};
  EXPECT_FALSE(rove::score_differentiable(score));
  EXPECT_EQ(error_of([&] { score.dscore(1.0, 0.5, Site{}); }),
            "AnyScore: the score inside has no derivative");
  EXPECT_FALSE(rove::score_differentiable(rove::soft_cap(1) | score));
  EXPECT_TRUE(rove::score_differentiable(rove::soft_cap(1) | AnyScore(rove::alibi(2))));
}

}  // namespace

// What counts as a score, and what is made of scores: from lambdas, in chains, chosen at run time.
#include "rove/attention/score.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <type_traits>

#include "rove/attention/any_score.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_lambda.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"
#include "support/error_of.hpp"
#include "support/scores.hpp"

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
using rove::DifferentiableScore;
using rove::Index;
using rove::Score;
using rove::Site;
using test::at;
using test::check_error;
using test::error_of;

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

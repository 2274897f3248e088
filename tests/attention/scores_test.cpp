// The values of the library's scores: soft cap, ALiBi, additive bias.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/tensor_view.hpp"
#include "support/error_of.hpp"
#include "support/scores.hpp"

namespace {

using rove::Index;
using rove::Site;
using test::at;
using test::check_error;
using test::error_of;

constexpr double infinity = std::numeric_limits<double>::infinity();

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

}  // namespace

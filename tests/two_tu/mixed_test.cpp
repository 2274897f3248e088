// Objects compiled with different flags in one program: B78, B79, B84.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "per_flags.hpp"
#include "rove/rove.hpp"

namespace two_tu {

int version_of_the_other_file();

#define X(variant) extern const Variant variant_##variant;
TWO_TU_VARIANTS
#undef X

namespace {

using rove::Index;

/// The objects whose instructions this CPU has.
std::vector<Variant> runnable() {
  std::vector<Variant> variants;
#define X(variant) \
  if (variant_##variant.runs_here()) variants.push_back(variant_##variant);
  TWO_TU_VARIANTS
#undef X
  return variants;
}

TEST(TwoTranslationUnits, B78_same_flags_link) {
  EXPECT_EQ(version_of_the_other_file(), ROVE_VERSION);
}

TEST(TwoTranslationUnits, B79_every_set_of_flags_has_its_types) {
  const std::vector<Variant> variants = runnable();
  for (const Variant& a : variants) {
    for (const Variant& b : variants) {
      if (a.name != b.name) {
        EXPECT_STRNE(a.type, b.type) << a.name << " and " << b.name;
      }
    }
  }
}

TEST(TwoTranslationUnits, B79_an_exception_crosses) {
  for (const Variant& variant : runnable()) {
    try {
      variant.refuse(3);
      ADD_FAILURE() << variant.name << " did not throw";
    } catch (const rove::Error& error) {
      EXPECT_STREQ(error.what(), "q has 3 heads, not 0") << variant.name;
    }
  }
}

/// [1, heads, tokens, channels], owned.
template <class T>
struct Rows {
  Index heads, tokens, channels;
  std::vector<T> data = std::vector<T>(static_cast<std::size_t>(heads * tokens * channels));

  rove::TensorView<T> view() { return rove::bhtd(data.data(), 1, heads, tokens, channels); }
  rove::TensorView<const T> view() const { return rove::bhtd(data.data(), 1, heads, tokens, channels); }
};

TEST(TwoTranslationUnits, B79_views_cross_and_results_agree) {
  // Odd sizes, so that tails run everywhere.
  const Index tokens = 37;
  Rows<float> q{4, tokens, 26}, k{2, tokens, 26}, v{2, tokens, 26};
  Rows<double> q_exact{4, tokens, 26}, k_exact{2, tokens, 26}, v_exact{2, tokens, 26},
      expected{4, tokens, 26};
  std::mt19937 random(20260611);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto fill = [&](Rows<float>& rows, Rows<double>& exact) {
    for (std::size_t i = 0; i < rows.data.size(); ++i) exact.data[i] = rows.data[i] = uniform(random);
  };
  fill(q, q_exact);
  fill(k, k_exact);
  fill(v, v_exact);
  variant_plain.attend_in_double(std::as_const(q_exact).view(), std::as_const(k_exact).view(),
                                 std::as_const(v_exact).view(), expected.view());

  // |s_ij| <= sqrt(26) and |v| <= 1 bound the logits and a rotated value: c·ε·(1 + L + √n)·√2 with c = 3.
  const double bound =
      3 * 0x1p-24 * (1 + std::sqrt(26.0) + std::sqrt(37.0)) * std::sqrt(2.0) * std::sqrt(2.0);
  for (const Variant& variant : runnable()) {
    Rows<float> out{4, tokens, 26};
    variant.attend(std::as_const(q).view(), std::as_const(k).view(), std::as_const(v).view(), out.view());
    double worst = 0;
    for (std::size_t i = 0; i < out.data.size(); ++i) {
      worst = std::max(worst, std::abs(double{out.data[i]} - expected.data[i]));
    }
    EXPECT_LE(worst, bound) << variant.name;
    EXPECT_GT(worst, 0) << variant.name;
  }
}

TEST(TwoTranslationUnits, B79_an_operator_of_another_object_refuses) {
  Rows<float> q{3, 4, 8}, k{2, 4, 8}, out{3, 4, 8};
  for (const Variant& variant : runnable()) {
    try {
      variant.attend(std::as_const(q).view(), std::as_const(k).view(), std::as_const(k).view(), out.view());
      ADD_FAILURE() << variant.name << " did not throw";
    } catch (const rove::Error& error) {
      EXPECT_NE(std::string(error.what()).find("multiple of the key/value heads (2)"), std::string::npos)
          << variant.name << ": " << error.what();
    }
  }
}

TEST(TwoTranslationUnits, B84_public_structs_are_laid_out_alike) {
  const std::vector<Layout> expected = variant_plain.layouts();
  for (const Variant& variant : runnable()) {
    const std::vector<Layout> layouts = variant.layouts();
    ASSERT_EQ(layouts.size(), expected.size());
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      EXPECT_EQ(layouts[i].size, expected[i].size) << layouts[i].type << " in " << variant.name;
      EXPECT_EQ(layouts[i].alignment, expected[i].alignment) << layouts[i].type << " in " << variant.name;
      EXPECT_LE(layouts[i].alignment, alignof(std::max_align_t)) << layouts[i].type << " in " << variant.name;
    }
  }
}

}  // namespace
}  // namespace two_tu

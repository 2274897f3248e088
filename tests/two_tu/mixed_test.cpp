// Objects compiled with different flags in one program: B78, B79, B84.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "per_flags.hpp"
#include "rove/rove.hpp"

namespace two_tu {

int version_of_the_other_file();

#define X(variant) extern const Variant variant_##variant;
TWO_TU_VARIANTS
#undef X

namespace {

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

TEST(TwoTranslationUnits, B79_every_set_of_flags_has_its_tag) {
  const std::vector<Variant> variants = runnable();
  for (const Variant& a : variants) {
    for (const Variant& b : variants) {
      if (a.name != b.name) {
        EXPECT_STRNE(a.tag, b.tag) << a.name << " and " << b.name;
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

// Which kernels OpenBLAS is asked for.

#include "bench/compare/openblas_core.hpp"

#include <gtest/gtest.h>

namespace {

using bench::core_to_ask_for;
using bench::CpuFeatures;

constexpr CpuFeatures sandy_bridge{.avx = true};
constexpr CpuFeatures haswell{.avx = true, .avx2_fma = true};
constexpr CpuFeatures zen{.amd = true, .avx = true, .avx2_fma = true};
constexpr CpuFeatures skylake{.avx = true, .avx2_fma = true, .avx512 = true};
constexpr CpuFeatures zen4{.amd = true, .avx = true, .avx2_fma = true, .avx512 = true, .avx512_bf16 = true};

TEST(OpenBlasCore, one_too_old_for_the_cpu_is_replaced) {
  EXPECT_EQ(core_to_ask_for(sandy_bridge, "Prescott"), "Sandybridge");
  EXPECT_EQ(core_to_ask_for(haswell, "Prescott"), "Haswell");
  EXPECT_EQ(core_to_ask_for(zen, "Barcelona"), "Zen");
  EXPECT_EQ(core_to_ask_for(skylake, "Haswell"), "SkylakeX");
  EXPECT_EQ(core_to_ask_for(zen4, "Zen"), "Cooperlake");
  EXPECT_EQ(core_to_ask_for(zen4, ""), "Cooperlake");
}

TEST(OpenBlasCore, one_that_uses_the_whole_cpu_stands) {
  EXPECT_EQ(core_to_ask_for(zen, "Zen"), "");
  EXPECT_EQ(core_to_ask_for(zen, "Haswell"), "");
  EXPECT_EQ(core_to_ask_for(zen4, "SkylakeX"), "");
  EXPECT_EQ(core_to_ask_for(zen4, "SAPPHIRERAPIDS"), "");
  EXPECT_EQ(core_to_ask_for(skylake, "SKYLAKEX"), "");
}

TEST(OpenBlasCore, what_is_asked_for_is_found_suitable_the_next_time) {
  for (const auto& cpu : {sandy_bridge, haswell, zen, skylake, zen4}) {
    EXPECT_EQ(core_to_ask_for(cpu, core_to_ask_for(cpu, "Prescott")), "");
  }
}

TEST(OpenBlasCore, a_cpu_that_is_not_known_is_left_to_openblas) {
  EXPECT_EQ(core_to_ask_for({}, "neoversen1"), "");
}

TEST(OpenBlasCore, features_of_this_cpu_imply_each_other) {
  const CpuFeatures cpu = bench::this_cpu();
  EXPECT_TRUE(cpu.avx || !cpu.avx2_fma);
  EXPECT_TRUE(cpu.avx2_fma || !cpu.avx512);
#if defined(__AVX512F__) && defined(__AVX512BW__)
  EXPECT_TRUE(cpu.avx512);
#endif
}

}  // namespace

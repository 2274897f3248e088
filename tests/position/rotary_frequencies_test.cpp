// Golden values of every scaling, and the faults that other libraries had with them.

#include "rove/position/rotary_frequencies.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "position/golden.hpp"

namespace {

using rove::DynamicNtk;
using rove::FrequencyDivisors;
using rove::Index;
using rove::InverseFrequencies;
using rove::Llama3;
using rove::LongRope;
using rove::Proportional;
using rove::rotary_frequencies;
using rove::RotaryFrequencies;
using rove::RotaryOptions;
using rove::Wavelengths;
using rove::Yarn;
using rove::YarnLogits;
using rove_test::frequencies_of;
using rove_test::golden;
using rove_test::Json;
using rove_test::message_of;
using rove_test::options_of;

constexpr double infinity = std::numeric_limits<double>::infinity();

void expect_close(double actual, double expected, double tolerance = 1e-13) {
  EXPECT_LE(std::abs(actual - expected), tolerance * std::abs(expected)) << actual << " for " << expected;
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t k = 0; k < expected.size(); ++k) {
    SCOPED_TRACE("pair " + std::to_string(k));
    expect_close(actual[k], expected[k]);
  }
}

// ---- Golden cases
// -------------------------------------------------------------------------------------------

class Golden : public testing::TestWithParam<std::size_t> {
 protected:
  const Json& data() const { return rove_test::cases()[GetParam()]; }
};

TEST_P(Golden, B42_frequencies_and_attention_factor) {
  const RotaryOptions options = options_of(data());
  EXPECT_EQ(options.rotary_dim, data()["rotary_dim"].get<Index>());
  const RotaryFrequencies frequencies = rotary_frequencies(options);
  expect_close(frequencies.inv_freq, data()["inv_freq"].get<std::vector<double>>());
  expect_close(frequencies.attention_factor, data()["attention_factor"].get<double>());
  EXPECT_EQ(frequencies.logit_factor, 1.0);
  EXPECT_EQ(frequencies.rotary_dim(), options.rotary_dim);
}

TEST_P(Golden, steps_on_the_way) {
  const RotaryOptions options = options_of(data());
  const Json& c = data();
  if (c.contains("correction_low")) {
    const auto range =
        rove::correction_range(std::get<Yarn>(options.scaling), options.rotary_dim, options.rope_theta);
    expect_close(range.low, c["correction_low"].get<double>());
    expect_close(range.high, c["correction_high"].get<double>());
  }
  if (c.contains("effective_base")) {
    expect_close(rove::effective_theta(std::get<DynamicNtk>(options.scaling), options.rotary_dim,
                                       options.rope_theta, options.seq_len),
                 c["effective_base"].get<double>());
  }
  if (c.contains("uses_long_factor")) {
    EXPECT_EQ(rove::uses_long_factor(std::get<LongRope>(options.scaling), options.seq_len),
              c["uses_long_factor"].get<bool>());
  }
  if (c.contains("live_pairs")) {
    EXPECT_EQ(rove::live_pairs(std::get<Proportional>(options.scaling), options.rotary_dim),
              c["live_pairs"].get<Index>());
  }
  if (c.contains("pairs_kept_smoothed_divided")) {
    std::vector<int> counts(3);
    for (const double f : rove::base_frequencies(options.rotary_dim, options.rope_theta)) {
      const double kept = rove::kept_share(std::get<Llama3>(options.scaling), f);
      ++counts[kept == 1 ? 0 : kept == 0 ? 2 : 1];
    }
    EXPECT_EQ(counts, c["pairs_kept_smoothed_divided"].get<std::vector<int>>());
  }
  if (c.contains("deepseek_softmax_scale")) {
    RotaryOptions asked = options;
    std::get<Yarn>(asked.scaling).logits = YarnLogits::deepseek;
    expect_close(rotary_frequencies(asked).logit_factor, c["deepseek_softmax_scale"].get<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::Range(std::size_t{0}, rove_test::cases().size()),
                         [](const testing::TestParamInfo<std::size_t>& i) {
                           return rove_test::cases()[i.param]["name"].get<std::string>();
                         });

TEST(GoldenData, holds_every_case) {
  EXPECT_EQ(rove_test::cases().size(), 55U);
}

// ---- Faults by name
// -----------------------------------------------------------------------------------------

TEST(RotaryFrequencies, B14_partial_rotation_runs_over_rotary_dim) {
  const Index rotary_dim = rove::partial_rotary_dim(256, 0.25);
  EXPECT_EQ(rotary_dim, 64);
  const auto frequencies = rotary_frequencies({.rotary_dim = rotary_dim});
  ASSERT_EQ(frequencies.inv_freq.size(), 32U);
  for (std::size_t i = 0; i < 32; ++i) {
    expect_close(frequencies.inv_freq[i], std::exp(-std::log(10000.0) * static_cast<double>(i) / 32));
  }
}

TEST(RotaryFrequencies, B15_proportional_runs_over_the_head) {
  const auto frequencies = rotary_frequencies(
      {.rotary_dim = 512, .rope_theta = 1e6, .scaling = Proportional{.partial_rotary_factor = 0.25}});
  ASSERT_EQ(frequencies.inv_freq.size(), 256U);
  for (std::size_t i = 0; i < 256; ++i) {
    expect_close(frequencies.inv_freq[i],
                 i < 64 ? std::exp(-std::log(1e6) * static_cast<double>(i) / 256) : 0.0);
  }
}

Yarn gpt_oss() {
  return {.factor = 32,
          .original_max_position_embeddings = 4096,
          .beta_fast = 32,
          .beta_slow = 1,
          .truncate = false};
}

TEST(RotaryFrequencies, B29_yarn_bounds_not_truncated) {
  const auto range = rove::correction_range(gpt_oss(), 64, 150000);
  expect_close(range.low, 8.092779115512402);
  expect_close(range.high, 17.39802450158856);
  Yarn truncated = gpt_oss();
  truncated.truncate = true;
  const auto rounded = rove::correction_range(truncated, 64, 150000);
  EXPECT_EQ(rounded.low, 8);
  EXPECT_EQ(rounded.high, 18);
}

TEST(RotaryFrequencies, B31_yarn_ramps_by_pair_and_divides_once) {
  // Low 23, high 40: pairs before 23 whole, from 40 on a quarter, 17 steps of 1/17 between.
  const auto frequencies = frequencies_of("qwen25_yarn");
  for (std::size_t k = 0; k < 64; ++k) {
    SCOPED_TRACE(k);
    const double plain = std::exp(-std::log(1e6) * static_cast<double>(k) / 64);
    const double step = k < 23 ? 0 : k > 40 ? 17 : static_cast<double>(k) - 23;
    expect_close(frequencies.inv_freq[k], plain * (1 - 0.75 * step / 17));
  }
}

TEST(RotaryFrequencies, B32_yarn_low_comes_from_beta_fast) {
  const auto range = rove::correction_range(gpt_oss(), 64, 150000);
  EXPECT_LT(range.low, range.high);
  Yarn faster = gpt_oss();
  faster.beta_fast = 64;
  EXPECT_LT(rove::correction_range(faster, 64, 150000).low, range.low);
  EXPECT_EQ(rove::correction_range(faster, 64, 150000).high, range.high);
  Yarn swapped = gpt_oss();
  std::swap(swapped.beta_fast, swapped.beta_slow);
  EXPECT_EQ(message_of([&] { rotary_frequencies({.rotary_dim = 64, .scaling = swapped}); }),
            "Yarn.beta_fast is 1 and Yarn.beta_slow 32; fast pairs turn more often, not less");
}

RotaryFrequencies yarn(Yarn scaling) {
  scaling.original_max_position_embeddings = 4096;
  return rotary_frequencies({.rotary_dim = 64, .scaling = scaling});
}

TEST(RotaryFrequencies, B33_mscale_and_mscale_all_dim_cancel) {
  EXPECT_EQ(yarn({.factor = 16, .mscale = 1, .mscale_all_dim = 1}).attention_factor, 1.0);
  expect_close(yarn({.factor = 16}).attention_factor, 1.2773, 1e-4);
}

TEST(RotaryFrequencies, B34_explicit_attention_factor_wins) {
  EXPECT_EQ(yarn({.factor = 64, .attention_factor = 1}).attention_factor, 1.0);
  expect_close(yarn({.factor = 64}).attention_factor, 1.4158883, 1e-7);
}

TEST(RotaryFrequencies, B35_attention_factor_applied_once) {
  const auto frequencies = yarn({.factor = 128});
  expect_close(frequencies.attention_factor, 1.4852, 1e-5);
  // Neither the frequencies nor the logits carry it a second time.
  EXPECT_EQ(frequencies.inv_freq, yarn({.factor = 128, .attention_factor = 1}).inv_freq);
  EXPECT_EQ(frequencies.logit_factor, 1.0);
}

TEST(RotaryFrequencies, B36_deepseek_logit_factor_where_asked_for) {
  const auto logit_factor = [](double all_dim, YarnLogits logits) {
    return yarn({.factor = 40, .mscale = all_dim, .mscale_all_dim = all_dim, .logits = logits}).logit_factor;
  };
  expect_close(logit_factor(0.707, YarnLogits::deepseek), 1.589626, 1e-6);
  expect_close(logit_factor(1, YarnLogits::deepseek), 1.873854, 1e-6);
  EXPECT_EQ(logit_factor(0, YarnLogits::deepseek), 1.0);
  EXPECT_EQ(logit_factor(1, YarnLogits::unscaled), 1.0);
}

LongRope phi3(std::optional<double> factor) {
  const Json& c = golden("phi3_no_length");
  return {.short_factor = c["short_factor"].get<std::vector<double>>(),
          .long_factor = c["long_factor"].get<std::vector<double>>(),
          .original_max_position_embeddings = 4096,
          .factor = factor};
}

TEST(RotaryFrequencies, B39_longrope_divides_by_the_short_list) {
  const LongRope scaling = phi3(1.0);
  const auto frequencies = rotary_frequencies({.rotary_dim = 96, .scaling = scaling, .seq_len = 100});
  for (std::size_t k = 0; k < 48; ++k) {
    const double plain = std::exp(-std::log(1e4) * static_cast<double>(k) / 48);
    expect_close(frequencies.inv_freq[k], plain / scaling.short_factor[k]);
  }
  EXPECT_EQ(frequencies.attention_factor, 1.0);
  EXPECT_EQ(rotary_frequencies({.rotary_dim = 96, .scaling = phi3(0.5)}).attention_factor, 1.0);
}

TEST(RotaryFrequencies, B40_dynamic_base_comes_back_after_a_long_input) {
  const auto at = [](std::optional<Index> seq_len) {
    return rotary_frequencies({.rotary_dim = 128,
                               .scaling = DynamicNtk{.factor = 2, .max_position_embeddings = 2048},
                               .seq_len = seq_len})
        .inv_freq;
  };
  const auto plain = rotary_frequencies({.rotary_dim = 128}).inv_freq;
  EXPECT_NE(at(16384), plain);
  EXPECT_EQ(at(2048), plain);
  EXPECT_EQ(at(0), plain);
  EXPECT_EQ(at(std::nullopt), plain);
  expect_close(at(4096), golden("dynamic_4096")["inv_freq"].get<std::vector<double>>());
}

TEST(RotaryFrequencies, B41_llama3_smoothing) {
  const auto plain = rotary_frequencies({.rotary_dim = 64, .rope_theta = 5e5}).inv_freq;
  const auto scaled = rotary_frequencies({.rotary_dim = 64,
                                          .rope_theta = 5e5,
                                          .scaling = Llama3{.factor = 32,
                                                            .low_freq_factor = 1,
                                                            .high_freq_factor = 4,
                                                            .original_max_position_embeddings = 8192}})
                          .inv_freq;
  const std::vector<double> divisors{1, 1.651329, 3.292262, 9.666729, 32};
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    expect_close(plain[14 + i] / scaled[14 + i], divisors[i], 5e-7);
  }
}

TEST(RotaryFrequencies, B42_every_scaling_changes_the_plain_array) {
  for (const char* name : {"gemma3_global", "llama31_8b", "qwen25_yarn", "phi3_one_past", "dynamic_4096",
                           "proportional_factor"}) {
    const RotaryOptions options = options_of(golden(name));
    EXPECT_NE(
        rotary_frequencies(options).inv_freq,
        rotary_frequencies({.rotary_dim = options.rotary_dim, .rope_theta = options.rope_theta}).inv_freq)
        << name;
  }
}

// ---- Frequencies from files
// ---------------------------------------------------------------------------------

template <class Array>
constexpr bool taken_with_theta = requires(const Array& array) {
  rove::frequencies_from(array, 1e4);
};
template <class Array>
constexpr bool taken_alone = requires(const Array& array) {
  rove::frequencies_from(array);
};

TEST(FrequenciesFrom, B43_arrays_of_different_meaning_are_different_types) {
  static_assert(!std::is_convertible_v<InverseFrequencies, Wavelengths>);
  static_assert(!std::is_convertible_v<Wavelengths, InverseFrequencies>);
  static_assert(!std::is_convertible_v<FrequencyDivisors, InverseFrequencies>);
  static_assert(!std::is_constructible_v<Wavelengths, InverseFrequencies>);
  static_assert(!std::is_constructible_v<InverseFrequencies, Wavelengths>);
  static_assert(!std::is_constructible_v<FrequencyDivisors, Wavelengths>);
  static_assert(!taken_alone<std::vector<double>> && !taken_with_theta<std::vector<double>>);
  static_assert(taken_alone<InverseFrequencies> && taken_alone<Wavelengths> &&
                !taken_alone<FrequencyDivisors>);
  static_assert(taken_with_theta<FrequencyDivisors> && !taken_with_theta<InverseFrequencies>);

  const std::vector<double> array{1.0, 0.25};
  EXPECT_EQ(rove::frequencies_from(InverseFrequencies(array)).inv_freq, array);
  const double two_pi = 2 * std::acos(-1.0);
  expect_close(rove::frequencies_from(Wavelengths(array)).inv_freq, {two_pi, 4 * two_pi});
  expect_close(rove::frequencies_from(FrequencyDivisors(array), 10000).inv_freq, {1.0, 0.04});
}

TEST(FrequenciesFrom, floats_mean_the_double_they_are) {
  const std::vector<float> array{1.0F, 0.1F};
  const auto frequencies = rove::frequencies_from(InverseFrequencies(array));
  EXPECT_EQ(frequencies.inv_freq[1], static_cast<double>(0.1F));
  EXPECT_EQ(frequencies.attention_factor, 1.0);
  EXPECT_EQ(frequencies.logit_factor, 1.0);
}

TEST(FrequenciesFrom, infinite_wavelengths_and_divisors_stand_still) {
  const std::vector<double> array{2.0, infinity};
  EXPECT_EQ(rove::frequencies_from(Wavelengths(array)).inv_freq[1], 0.0);
  EXPECT_EQ(rove::frequencies_from(FrequencyDivisors(array), 10000).inv_freq[1], 0.0);
}

TEST(FrequenciesFrom, divisors_reproduce_llama3) {
  // What llama.cpp's converter writes for Llama 3.1: the quotients, which give the scaled frequencies back.
  const auto scaled = frequencies_of("llama31_8b").inv_freq;
  auto divisors = rove::base_frequencies(128, 5e5);
  for (std::size_t k = 0; k < divisors.size(); ++k) divisors[k] /= scaled[k];
  expect_close(rove::frequencies_from(FrequencyDivisors(divisors), 5e5).inv_freq, scaled);
}

}  // namespace

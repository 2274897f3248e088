// What the scalings and the arrays of frequencies refuse, with which message.

#include "rove/position/rotary_frequencies.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "position/golden.hpp"

namespace {

using rove::DynamicNtk;
using rove::FrequencyDivisors;
using rove::InverseFrequencies;
using rove::Linear;
using rove::Llama3;
using rove::LongRope;
using rove::Proportional;
using rove::rotary_frequencies;
using rove::RotaryOptions;
using rove::Wavelengths;
using rove::Yarn;
using rove::YarnLogits;
using rove_test::message_of;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::string refused(const RotaryOptions& options) {
  return message_of([&] { rotary_frequencies(options); });
}

TEST(RotaryFrequenciesRefuse, B47_odd_rotary_dim) {
  EXPECT_EQ(refused({.rotary_dim = 33}),
            "rotary_dim is 33; it must be positive and even: channels turn in pairs");
  EXPECT_EQ(refused({}), "rotary_dim is 0; it must be positive and even: channels turn in pairs");
  EXPECT_EQ(refused({.rotary_dim = -2}),
            "rotary_dim is -2; it must be positive and even: channels turn in pairs");
  EXPECT_EQ(message_of([] { rove::partial_rotary_dim(66, 0.5); }),
            "rotary_dim is 33; it must be positive and even: channels turn in pairs");
}

TEST(RotaryFrequenciesRefuse, theta_and_length) {
  EXPECT_EQ(refused({.rotary_dim = 4, .rope_theta = 0}), "rope_theta is 0; it must be positive and finite");
  EXPECT_EQ(refused({.rotary_dim = 4, .rope_theta = infinity}),
            "rope_theta is inf; it must be positive and finite");
  EXPECT_EQ(refused({.rotary_dim = 4, .rope_theta = nan}),
            "rope_theta is nan; it must be positive and finite");
  EXPECT_EQ(refused({.rotary_dim = 4, .seq_len = -1}), "seq_len is -1; it must not be negative");
}

TEST(RotaryFrequenciesRefuse, partial_rotary_factor) {
  EXPECT_EQ(message_of([] { rove::partial_rotary_dim(0, 0.5); }), "head_dim is 0; it must be positive");
  EXPECT_EQ(message_of([] { rove::partial_rotary_dim(64, 1.5); }),
            "partial_rotary_factor is 1.5; it must be above 0 and at most 1");
  EXPECT_EQ(message_of([] { rove::partial_rotary_dim(64, 0); }),
            "partial_rotary_factor is 0; it must be above 0 and at most 1");
}

TEST(RotaryFrequenciesRefuse, linear) {
  EXPECT_EQ(refused({.rotary_dim = 4, .scaling = Linear{}}),
            "Linear.factor is 0; it must be positive and finite");
  EXPECT_EQ(refused({.rotary_dim = 4, .scaling = Linear{.factor = -1}}),
            "Linear.factor is -1; it must be positive and finite");
  EXPECT_EQ(
      refused({.rotary_dim = 4, .scaling = Linear{.factor = 0x1p-1000}}),
      "inv_freq[0] is 1.0715086071862673e+301; it must be finite, and so must the phases of positions up "
      "to 2^53");
}

TEST(RotaryFrequenciesRefuse, dynamic) {
  EXPECT_EQ(refused({.rotary_dim = 4, .scaling = DynamicNtk{.max_position_embeddings = 8}}),
            "DynamicNtk.factor is 0; it must be positive and finite");
  EXPECT_EQ(refused({.rotary_dim = 4, .scaling = DynamicNtk{.factor = 2}}),
            "DynamicNtk.max_position_embeddings is 0; it must be positive");
  EXPECT_EQ(refused({.rotary_dim = 2, .scaling = DynamicNtk{.factor = 2, .max_position_embeddings = 8}}),
            "rotary_dim is 2; dynamic NTK needs more than 2: its exponent is r / (r - 2)");
}

TEST(RotaryFrequenciesRefuse, yarn) {
  const auto yarn_refused = [](const Yarn& scaling, double theta = 10000) {
    return refused({.rotary_dim = 64, .rope_theta = theta, .scaling = scaling});
  };
  EXPECT_EQ(yarn_refused({.factor = 4}), "Yarn.original_max_position_embeddings is 0; it must be positive");
  EXPECT_EQ(yarn_refused({.original_max_position_embeddings = 8}),
            "Yarn.factor is left out, and so is the max_position_embeddings that gives it");
  EXPECT_EQ(yarn_refused({.original_max_position_embeddings = 8, .max_position_embeddings = 0}),
            "max_position_embeddings is 0; it must be positive");
  EXPECT_EQ(yarn_refused({.factor = 0, .original_max_position_embeddings = 8}),
            "Yarn.factor is 0; it must be positive and finite");
  EXPECT_EQ(yarn_refused({.factor = 2, .original_max_position_embeddings = 8, .beta_fast = 0}),
            "Yarn.beta_fast is 0; it must be positive and finite");
  EXPECT_EQ(yarn_refused({.factor = 2, .original_max_position_embeddings = 8, .beta_slow = -1}),
            "Yarn.beta_slow is -1; it must be positive and finite");
  EXPECT_EQ(yarn_refused({.factor = 2, .original_max_position_embeddings = 8}, 1),
            "rope_theta is 1; YaRN needs more than 1: it divides by its logarithm");
  EXPECT_EQ(yarn_refused({.factor = 2, .original_max_position_embeddings = 8, .attention_factor = 0}),
            "attention_factor is 0; it must be positive and finite");
  EXPECT_EQ(
      yarn_refused({.factor = 2, .original_max_position_embeddings = 8, .logits = YarnLogits::deepseek}),
      "YarnLogits::deepseek needs Yarn.mscale_all_dim, which is left out");
  EXPECT_EQ(yarn_refused({.factor = 2,
                          .original_max_position_embeddings = 8,
                          .mscale_all_dim = infinity,
                          .logits = YarnLogits::deepseek}),
            "logit_factor is inf; it must be positive and finite");
}

TEST(RotaryFrequenciesRefuse, longrope) {
  const auto longrope_refused = [](const LongRope& scaling) {
    return refused({.rotary_dim = 4, .scaling = scaling});
  };
  EXPECT_EQ(
      longrope_refused({.short_factor = {1}, .long_factor = {1, 2}, .original_max_position_embeddings = 8}),
      "LongRope.short_factor has 1 entries; rotary_dim 4 needs 2, one for each pair");
  EXPECT_EQ(longrope_refused({.short_factor = {1, 2}, .original_max_position_embeddings = 8, .factor = 2}),
            "LongRope.long_factor has 0 entries; rotary_dim 4 needs 2, one for each pair");
  EXPECT_EQ(longrope_refused(
                {.short_factor = {1, 2}, .long_factor = {1, 0}, .original_max_position_embeddings = 8}),
            "LongRope.long_factor[1] is 0; it must be positive and finite");
  EXPECT_EQ(longrope_refused({.short_factor = {1, 2}, .long_factor = {1, 2}, .factor = 2}),
            "LongRope.original_max_position_embeddings is 0; it must be positive");
  EXPECT_EQ(longrope_refused(
                {.short_factor = {1, 2}, .long_factor = {1, 2}, .original_max_position_embeddings = 8}),
            "LongRope.factor is left out, and so is the max_position_embeddings that gives it");
  EXPECT_EQ(longrope_refused({.short_factor = {1, 2},
                              .long_factor = {1, 2},
                              .original_max_position_embeddings = 8,
                              .factor = -2}),
            "LongRope.factor is -2; it must be positive and finite");
  EXPECT_EQ(longrope_refused({.short_factor = {1, 2},
                              .long_factor = {1, 2},
                              .original_max_position_embeddings = 1,
                              .factor = 2}),
            "LongRope.original_max_position_embeddings is 1; the attention factor divides by its logarithm");
}

TEST(RotaryFrequenciesRefuse, llama3) {
  const auto llama3_refused = [](const Llama3& scaling) {
    return refused({.rotary_dim = 4, .scaling = scaling});
  };
  EXPECT_EQ(llama3_refused({}), "Llama3.factor is 0; it must be positive and finite");
  EXPECT_EQ(llama3_refused({.factor = 8}), "Llama3.low_freq_factor is 0; it must be positive and finite");
  EXPECT_EQ(llama3_refused({.factor = 8, .low_freq_factor = 1}),
            "Llama3.high_freq_factor is 0; it must be positive and finite");
  EXPECT_EQ(llama3_refused({.factor = 8, .low_freq_factor = 4, .high_freq_factor = 1}),
            "Llama3.high_freq_factor is 1; it must be above low_freq_factor, which is 4");
  EXPECT_EQ(llama3_refused({.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4}),
            "Llama3.original_max_position_embeddings is 0; it must be positive");
}

TEST(RotaryFrequenciesRefuse, proportional) {
  EXPECT_EQ(refused({.rotary_dim = 4, .scaling = Proportional{.factor = 0}}),
            "Proportional.factor is 0; it must be positive and finite");
  EXPECT_EQ(refused({.rotary_dim = 4, .scaling = Proportional{.partial_rotary_factor = 1.25}}),
            "Proportional.partial_rotary_factor is 1.25; it must lie between 0 and 1");
}

TEST(RotaryFrequenciesRefuse, arrays) {
  const std::vector<double> empty;
  const std::vector<double> bad{1, nan};
  const std::vector<double> zero{1, 0};
  EXPECT_EQ(message_of([&] { rove::frequencies_from(InverseFrequencies(empty)); }),
            "inv_freq is empty; there must be at least 1 pair of channels");
  EXPECT_EQ(message_of([&] { rove::frequencies_from(InverseFrequencies(bad)); }),
            "inv_freq[1] is nan; it must be finite, and so must the phases of positions up to 2^53");
  EXPECT_EQ(message_of([&] { rove::frequencies_from(Wavelengths(zero)); }),
            "wavelength 1 is 0; it must be positive");
  EXPECT_EQ(message_of([&] { rove::frequencies_from(FrequencyDivisors(empty), 1e4); }),
            "the array of divisors is empty; there must be at least 1 pair of channels");
  EXPECT_EQ(message_of([&] { rove::frequencies_from(FrequencyDivisors(zero), 1e4); }),
            "divisor 1 is 0; it must be positive");
}

}  // namespace

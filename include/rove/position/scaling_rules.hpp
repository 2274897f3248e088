/// \file
/// The formulas of the scalings, step by step. `rotary_frequencies` puts them together; the steps are public
/// because a model that comes out wrong is most quickly understood by looking at them.
///
/// Throughout r = rotary_dim, f_k = θ^(−2k/r), L = original_max_position_embeddings.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/position/frequencies.hpp"
#include "rove/position/rope_scaling.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

inline void check_positive(double value, const char* name) {
  ROVE_EXPECT(value > 0 && std::isfinite(value), name, " is ", value, "; it must be positive and finite");
}

inline void check_positive(Index value, const char* name) {
  ROVE_EXPECT(value > 0, name, " is ", value, "; it must be positive");
}

inline void check_seq_len(std::optional<Index> seq_len) {
  if (seq_len) ROVE_EXPECT(*seq_len >= 0, "seq_len is ", *seq_len, "; it must not be negative");
}

/// A factor, or the ratio of the lengths that a configuration without one means.
inline double factor_or_ratio(std::optional<double> factor, std::optional<Index> extended, Index original,
                              const char* name) {
  if (factor) return *factor;
  ROVE_EXPECT(extended.has_value(), name,
              " is left out, and so is the max_position_embeddings that gives it");
  check_positive(*extended, "max_position_embeddings");
  return static_cast<double>(*extended) / static_cast<double>(original);
}

/// share·x + (1 − share)·y.
inline double blend(double share, double x, double y) {
  return mul_add(share, x, (1 - share) * y);
}

}  // namespace detail

/// Dynamic NTK's θ·(factor·S/max − (factor − 1))^(r/(r−2)) with S = max(seq_len, max): θ itself up to the
/// trained length, or while the length is not known, and again after any longer sequence.
inline double effective_theta(const DynamicNtk& scaling, Index rotary_dim, double rope_theta,
                              std::optional<Index> seq_len) {
  detail::check_rotary_dim(rotary_dim);
  detail::check_rope_theta(rope_theta);
  detail::check_positive(scaling.factor, "DynamicNtk.factor");
  detail::check_positive(scaling.max_position_embeddings, "DynamicNtk.max_position_embeddings");
  detail::check_seq_len(seq_len);
  ROVE_EXPECT(rotary_dim > 2, "rotary_dim is ", rotary_dim,
              "; dynamic NTK needs more than 2: its exponent is r / (r - 2)");
  const auto trained = static_cast<double>(scaling.max_position_embeddings);
  const double length = (std::max)(static_cast<double>(seq_len.value_or(0)), trained);
  if (length == trained) return rope_theta;
  const auto r = static_cast<double>(rotary_dim);
  // factor·S/max − (factor − 1), with less cancellation
  return rope_theta * std::pow(mul_add(scaling.factor, (length - trained) / trained, 1.0), r / (r - 2));
}

/// YaRN's m(mscale) = 0.1·mscale·ln(factor) + 1, and 1 where nothing is stretched (factor ≤ 1).
inline double yarn_magnitude(double factor, double mscale = 1) {
  return factor <= 1 ? 1.0 : mul_add(0.1 * mscale, std::log(factor), 1.0);
}

/// Two pairs (fractional where a `Yarn` does not truncate): up to `low` frequencies are kept, from `high` on
/// they are divided. Not necessarily in order: extreme lengths clamp one end past the other.
struct CorrectionRange {
  double low = 0;
  double high = 0;
};

/// YaRN's range: r·ln(L/(2πβ)) / (2·ln θ), the pair that makes β turns over the original length, for
/// β_fast (low) and β_slow (high), rounded outwards if `truncate`, low at least 0, high at most r − 1.
inline CorrectionRange correction_range(const Yarn& scaling, Index rotary_dim, double rope_theta) {
  detail::check_rotary_dim(rotary_dim);
  detail::check_rope_theta(rope_theta);
  ROVE_EXPECT(rope_theta > 1, "rope_theta is ", rope_theta,
              "; YaRN needs more than 1: it divides by its logarithm");
  detail::check_positive(scaling.original_max_position_embeddings, "Yarn.original_max_position_embeddings");
  detail::check_positive(scaling.beta_fast, "Yarn.beta_fast");
  detail::check_positive(scaling.beta_slow, "Yarn.beta_slow");
  ROVE_EXPECT(scaling.beta_fast >= scaling.beta_slow, "Yarn.beta_fast is ", scaling.beta_fast,
              " and Yarn.beta_slow ", scaling.beta_slow, "; fast pairs turn more often, not less");
  const auto r = static_cast<double>(rotary_dim);
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const auto pair_that_turns = [&](double beta) {
    return r * std::log(original / (detail::two_pi * beta)) / (2 * std::log(rope_theta));
  };
  CorrectionRange range{pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)};
  if (scaling.truncate) range = {std::floor(range.low), std::ceil(range.high)};
  return {(std::max)(range.low, 0.0), (std::min)(range.high, r - 1)};
}

/// Whether a sequence of this length is past the original one. A length that is not known counts as short.
inline bool uses_long_factor(const LongRope& scaling, std::optional<Index> seq_len) {
  detail::check_positive(scaling.original_max_position_embeddings,
                         "LongRope.original_max_position_embeddings");
  detail::check_seq_len(seq_len);
  return seq_len.value_or(0) > scaling.original_max_position_embeddings;
}

/// The share of its own frequency that a pair keeps under Llama 3's scaling: 1 kept, 0 divided, between them
/// (t − low)/(high − low) with t = L·f/(2π), its turns over the original length.
inline double kept_share(const Llama3& scaling, double frequency) {
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double turns = original * frequency / detail::two_pi;
  if (turns > scaling.high_freq_factor) return 1;
  if (turns < scaling.low_freq_factor) return 0;
  return (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
}

/// How many pairs of a head turn: its share in doubles, rounded down (0.29 of 200 channels is 28 pairs).
inline Index live_pairs(const Proportional& scaling, Index head_dim) {
  detail::check_rotary_dim(head_dim);
  const double share = scaling.partial_rotary_factor;
  ROVE_EXPECT(share >= 0 && share <= 1, "Proportional.partial_rotary_factor is ", share,
              "; it must lie between 0 and 1");
  return static_cast<Index>(std::floor(share * static_cast<double>(head_dim) / 2));
}

namespace detail {

// scale(scaling, base, theta, seq_len): the frequencies of one scaling from the unscaled ones.

inline RotaryFrequencies scale(const DefaultRope&, std::vector<double> base, double, std::optional<Index>) {
  return {.inv_freq = std::move(base)};
}

inline RotaryFrequencies scale(const Linear& scaling, std::vector<double> base, double,
                               std::optional<Index>) {
  check_positive(scaling.factor, "Linear.factor");
  for (double& frequency : base) frequency /= scaling.factor;
  return {.inv_freq = std::move(base)};
}

inline RotaryFrequencies scale(const DynamicNtk& scaling, const std::vector<double>& base, double theta,
                               std::optional<Index> seq_len) {
  const auto rotary_dim = 2 * static_cast<Index>(base.size());
  return {.inv_freq = base_frequencies(rotary_dim, effective_theta(scaling, rotary_dim, theta, seq_len))};
}

inline double attention_factor(const Yarn& scaling, double factor) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  const double mscale = scaling.mscale.value_or(0);
  const double mscale_all_dim = scaling.mscale_all_dim.value_or(0);
  if (mscale == 0 || mscale_all_dim == 0) return yarn_magnitude(factor);
  return yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all_dim);
}

inline double logit_factor(const Yarn& scaling, double factor) {
  if (scaling.logits == YarnLogits::unscaled) return 1;
  ROVE_EXPECT(scaling.mscale_all_dim.has_value(),
              "YarnLogits::deepseek needs Yarn.mscale_all_dim, which is left out");
  const double magnitude = yarn_magnitude(factor, *scaling.mscale_all_dim);
  return magnitude * magnitude;
}

inline RotaryFrequencies scale(const Yarn& scaling, std::vector<double> base, double theta,
                               std::optional<Index>) {
  auto [low, high] = correction_range(scaling, 2 * static_cast<Index>(base.size()), theta);
  const double factor = factor_or_ratio(scaling.factor, scaling.max_position_embeddings,
                                        scaling.original_max_position_embeddings, "Yarn.factor");
  check_positive(factor, "Yarn.factor");
  if (low == high) high += 0.001;
  for (std::size_t k = 0; k < base.size(); ++k) {
    const double ramp = (std::clamp)((static_cast<double>(k) - low) / (high - low), 0.0, 1.0);
    base[k] = blend(ramp, base[k] / factor, base[k]);
  }
  return {.inv_freq = std::move(base),
          .attention_factor = attention_factor(scaling, factor),
          .logit_factor = logit_factor(scaling, factor)};
}

inline double attention_factor(const LongRope& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  const Index original = scaling.original_max_position_embeddings;
  const double factor =
      factor_or_ratio(scaling.factor, scaling.max_position_embeddings, original, "LongRope.factor");
  check_positive(factor, "LongRope.factor");
  if (factor <= 1) return 1;
  ROVE_EXPECT(original > 1, "LongRope.original_max_position_embeddings is ", original,
              "; the attention factor divides by its logarithm");
  return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
}

inline RotaryFrequencies scale(const LongRope& scaling, std::vector<double> base, double,
                               std::optional<Index> seq_len) {
  // Both lists, so that a fault in the long one shows before a sequence is long.
  const auto check_list = [&](const std::vector<double>& list, const char* name) {
    ROVE_EXPECT(list.size() == base.size(), name, " has ", list.size(), " entries; rotary_dim ",
                2 * base.size(), " needs ", base.size(), ", one for each pair");
    for (std::size_t k = 0; k < list.size(); ++k) {
      ROVE_EXPECT(list[k] > 0 && std::isfinite(list[k]), name, "[", k, "] is ", list[k],
                  "; it must be positive and finite");
    }
  };
  check_list(scaling.short_factor, "LongRope.short_factor");
  check_list(scaling.long_factor, "LongRope.long_factor");
  const std::vector<double>& divisors =
      uses_long_factor(scaling, seq_len) ? scaling.long_factor : scaling.short_factor;
  for (std::size_t k = 0; k < base.size(); ++k) base[k] /= divisors[k];
  return {.inv_freq = std::move(base), .attention_factor = attention_factor(scaling)};
}

inline RotaryFrequencies scale(const Llama3& scaling, std::vector<double> base, double,
                               std::optional<Index>) {
  check_positive(scaling.factor, "Llama3.factor");
  check_positive(scaling.low_freq_factor, "Llama3.low_freq_factor");
  check_positive(scaling.high_freq_factor, "Llama3.high_freq_factor");
  ROVE_EXPECT(scaling.high_freq_factor > scaling.low_freq_factor, "Llama3.high_freq_factor is ",
              scaling.high_freq_factor, "; it must be above low_freq_factor, which is ",
              scaling.low_freq_factor);
  check_positive(scaling.original_max_position_embeddings, "Llama3.original_max_position_embeddings");
  for (double& frequency : base) {
    frequency = blend(kept_share(scaling, frequency), frequency, frequency / scaling.factor);
  }
  return {.inv_freq = std::move(base)};
}

inline RotaryFrequencies scale(const Proportional& scaling, std::vector<double> base, double,
                               std::optional<Index>) {
  check_positive(scaling.factor, "Proportional.factor");
  const auto live = static_cast<std::size_t>(live_pairs(scaling, 2 * static_cast<Index>(base.size())));
  for (std::size_t k = 0; k < base.size(); ++k) base[k] = k < live ? base[k] / scaling.factor : 0.0;
  return {.inv_freq = std::move(base)};
}

}  // namespace detail

ROVE_END_TAGGED

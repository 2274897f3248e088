/// \file
/// The numbers a rotation is made of: how fast every pair of channels turns, as a scaling computes it
/// (rotary_frequencies.hpp) or as a file stores it (here).
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/position/positions.hpp"

namespace rove {

/// What a table is built from. Pair k at position p turns by p · inv_freq[k].
struct RotaryFrequencies {
  /// [rotary_dim / 2], in radians per position; 0 where a pair does not turn.
  std::vector<double> inv_freq = {};
  /// m: the model multiplies cos and sin by it, in queries and in keys, so that a logit's rotated part grows
  /// by m². Tables here are pure rotations; the factor travels beside them and reaches the queries alone.
  double attention_factor = 1;
  /// Multiplies the default scale of the logits, all channels of them. 1 unless asked for.
  double logit_factor = 1;

  /// Channels that turn or could: two for each pair.
  ROVE_ALWAYS_INLINE Index rotary_dim() const { return 2 * static_cast<Index>(inv_freq.size()); }
};

namespace untagged {

/// One number for each pair of channels, copied from float or double.
struct PerPair {
  explicit PerPair(std::span<const double> v) : values(v.begin(), v.end()) {}
  explicit PerPair(std::span<const float> v) : values(v.begin(), v.end()) {}
  std::vector<double> values;
};

}  // namespace untagged

// Three arrays of the same length and quite different meaning, told apart by the compiler.

/// ω, radians per position: Hugging Face's `inv_freq`. Zero is a pair that stands still.
struct InverseFrequencies : untagged::PerPair {
  using PerPair::PerPair;
};

/// λ = 2π/ω, positions per turn. Infinity is a pair that stands still.
struct Wavelengths : untagged::PerPair {
  using PerPair::PerPair;
};

/// What the default frequencies of a theta are divided by: GGUF's `rope_freqs.weight`, Phi-3's factor lists.
/// Infinity is a pair that stands still.
struct FrequencyDivisors : untagged::PerPair {
  using PerPair::PerPair;
};

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

inline constexpr double two_pi = 6.283185307179586;

inline void check_rotary_dim(Index rotary_dim) {
  ROVE_EXPECT(rotary_dim > 0 && rotary_dim % 2 == 0, "rotary_dim is ", rotary_dim,
              "; it must be positive and even: channels turn in pairs");
}

inline void check_rope_theta(double rope_theta) {
  ROVE_EXPECT(rope_theta > 0 && std::isfinite(rope_theta), "rope_theta is ", rope_theta,
              "; it must be positive and finite");
}

inline void check_factors(double attention_factor, double logit_factor) {
  ROVE_EXPECT(attention_factor > 0 && std::isfinite(attention_factor), "attention_factor is ",
              attention_factor, "; it must be positive and finite");
  ROVE_EXPECT(logit_factor > 0 && std::isfinite(logit_factor), "logit_factor is ", logit_factor,
              "; it must be positive and finite");
}

/// What every table demands, wherever its frequencies come from.
inline void check_frequencies(const RotaryFrequencies& frequencies) {
  const auto& [inv_freq, attention_factor, logit_factor] = frequencies;
  ROVE_EXPECT(!inv_freq.empty(), "inv_freq is empty; there must be at least 1 pair of channels");
  for (std::size_t k = 0; k < inv_freq.size(); ++k) {
    ROVE_EXPECT(std::isfinite(inv_freq[k] * largest_position), "inv_freq[", k, "] is ", inv_freq[k],
                "; it must be finite, and so must the phases of positions up to 2^53");
  }
  check_factors(attention_factor, logit_factor);
}

}  // namespace detail

/// θ^(−2k/r) for k = 0 … r/2 − 1 (Su et al., arXiv 2104.09864, eq. 15): what every scaling starts from.
///
/// r is the number of channels that turn, not the width of the head.
inline std::vector<double> base_frequencies(Index rotary_dim, double rope_theta) {
  detail::check_rotary_dim(rotary_dim);
  detail::check_rope_theta(rope_theta);
  std::vector<double> inv_freq;
  inv_freq.reserve(static_cast<std::size_t>(rotary_dim / 2));
  for (Index k = 0; k < rotary_dim / 2; ++k) {
    inv_freq.push_back(std::pow(rope_theta, -static_cast<double>(2 * k) / static_cast<double>(rotary_dim)));
  }
  return inv_freq;
}

/// Frequencies as they stand in an array. Set `attention_factor` in the result if the model has one.
inline RotaryFrequencies frequencies_from(const InverseFrequencies& array) {
  RotaryFrequencies frequencies{.inv_freq = array.values};
  detail::check_frequencies(frequencies);
  return frequencies;
}

/// ω = 2π/λ.
inline RotaryFrequencies frequencies_from(const Wavelengths& array) {
  RotaryFrequencies frequencies;
  for (std::size_t k = 0; k < array.values.size(); ++k) {
    const double wavelength = array.values[k];
    ROVE_EXPECT(wavelength > 0, "wavelength ", k, " is ", wavelength, "; it must be positive");
    frequencies.inv_freq.push_back(detail::two_pi / wavelength);
  }
  detail::check_frequencies(frequencies);
  return frequencies;
}

/// ω_k = θ^(−2k/r) / divisor_k, with r twice the number of divisors.
inline RotaryFrequencies frequencies_from(const FrequencyDivisors& array, double rope_theta) {
  const auto pairs = static_cast<Index>(array.values.size());
  ROVE_EXPECT(pairs > 0, "the array of divisors is empty; there must be at least 1 pair of channels");
  RotaryFrequencies frequencies{.inv_freq = base_frequencies(2 * pairs, rope_theta)};
  for (std::size_t k = 0; k < array.values.size(); ++k) {
    const double divisor = array.values[k];
    ROVE_EXPECT(divisor > 0, "divisor ", k, " is ", divisor, "; it must be positive");
    frequencies.inv_freq[k] /= divisor;
  }
  detail::check_frequencies(frequencies);
  return frequencies;
}

ROVE_END_TAGGED

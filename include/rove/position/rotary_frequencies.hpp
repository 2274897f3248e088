/// \file
/// From a model's configuration to the frequencies of its rotations.
#pragma once

#include <optional>
#include <variant>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/position/frequencies.hpp"
#include "rove/position/rope_scaling.hpp"
#include "rove/position/scaling_rules.hpp"

namespace rove {

/// What a configuration says about its rotary embeddings, by the names Hugging Face gives it.
struct RotaryOptions {
  /// Channels of a head that turn; see `partial_rotary_dim`. For `Proportional` the width of the head.
  Index rotary_dim = 0;
  double rope_theta = 10000;
  RopeScaling scaling = DefaultRope{};
  /// The length of the sequence the frequencies are for, i.e. its largest position + 1, through to its end.
  /// Read by `DynamicNtk` and `LongRope` alone; left out, a sequence counts as short.
  std::optional<Index> seq_len = std::nullopt;
};

}  // namespace rove

ROVE_BEGIN_TAGGED

/// How many channels of a head turn: int(head_dim · partial_rotary_factor), the product in doubles, as
/// GPT-NeoX, GPT-J, StableLM and Phi mean it. (`Proportional` means something else.)
inline Index partial_rotary_dim(Index head_dim, double partial_rotary_factor) {
  ROVE_EXPECT(head_dim > 0, "head_dim is ", head_dim, "; it must be positive");
  ROVE_EXPECT(partial_rotary_factor > 0 && partial_rotary_factor <= 1, "partial_rotary_factor is ",
              partial_rotary_factor, "; it must be above 0 and at most 1");
  const auto rotary_dim = static_cast<Index>(static_cast<double>(head_dim) * partial_rotary_factor);
  detail::check_rotary_dim(rotary_dim);
  return rotary_dim;
}

/// The frequencies of a model's rotations and what it multiplies its logits by, in double.
///
///     rove::rotary_frequencies({.rotary_dim = 64, .rope_theta = 1e5});
///     rove::rotary_frequencies({.rotary_dim = 128, .rope_theta = 1e6,
///                               .scaling = rove::Yarn{.factor = 4, .original_max_position_embeddings =
///                               32768}});
///
/// A pure function of its argument: nothing remembers the sequence before. With `DynamicNtk` and `LongRope`
/// the result depends on `seq_len`, and one sequence needs one table: choose its final length before its
/// first token, for keys that were turned by one set of frequencies do not match queries turned by another.
///
/// \throws Error for parameters that are missing or make no sense, naming them.
inline RotaryFrequencies rotary_frequencies(const RotaryOptions& options) {
  detail::check_seq_len(options.seq_len);
  const auto frequencies = std::visit(
      [&](const auto& scaling) {
        return detail::scale(scaling, base_frequencies(options.rotary_dim, options.rope_theta),
                             options.rope_theta, options.seq_len);
      },
      options.scaling);
  detail::check_frequencies(frequencies);
  return frequencies;
}

ROVE_END_TAGGED

/// \file
/// The scalings that carry rotary embeddings past the length a model was trained at: their parameters, named
/// as in Hugging Face configurations (`rope_scaling`, `rope_parameters`). scaling_rules.hpp has the formulas.
///
/// A parameter that a configuration must give is 0 or empty here until it is set, and 0 is refused.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "rove/core/config.hpp"

namespace rove {

/// `"default"`: the frequencies θ^(−2k/r) as they are.
struct DefaultRope {};

/// `"linear"`: positions interpolated, that is, frequencies divided by `factor` (Chen et al., arXiv
/// 2306.15595). A factor below 1 speeds up.
struct Linear {
  double factor = 0;
};

/// `"dynamic"`: θ grows with the sequence once it is longer than `max_position_embeddings`, the trained
/// length. The frequencies depend on `RotaryOptions::seq_len`, so that a sequence needs one table for all
/// of its tokens: keys cached at one length do not match queries turned at another.
struct DynamicNtk {
  double factor = 0;
  Index max_position_embeddings = 0;
};

/// What a YaRN model does to the scale of its logits beyond its attention factor.
enum class YarnLogits {
  /// Nothing: Hugging Face's and llama.cpp's reading of a configuration.
  unscaled,
  /// DeepSeek-V2 and V3 multiply 1/√d by m(mscale_all_dim)², for their attention factor is 1.
  deepseek,
};

/// `"yarn"`: fast pairs are kept, slow ones divided by `factor`, a ramp over the pairs between (Peng et al.,
/// arXiv 2309.00071, as in Hugging Face's code: the ramp is linear in the pair's number).
struct Yarn {
  /// Left out: max_position_embeddings / original_max_position_embeddings.
  std::optional<double> factor = std::nullopt;
  Index original_max_position_embeddings = 0;
  /// The extended length; only read where `factor` is left out.
  std::optional<Index> max_position_embeddings = std::nullopt;
  /// Pairs that turn more often than this over the original length are kept.
  double beta_fast = 32;
  /// Pairs that turn less often than this over the original length are divided.
  double beta_slow = 1;
  /// Round the ramp's ends outwards to whole pairs (gpt-oss does not).
  bool truncate = true;
  /// Both given and not 0: the attention factor is m(mscale) / m(mscale_all_dim). Otherwise it is m(1).
  std::optional<double> mscale = std::nullopt;
  std::optional<double> mscale_all_dim = std::nullopt;
  /// Given: taken as it is, whatever the formula says.
  std::optional<double> attention_factor = std::nullopt;
  YarnLogits logits = YarnLogits::unscaled;
};

/// `"longrope"`: each pair has a divisor of its own, from one list up to the original length and from another
/// beyond (Ding et al., arXiv 2402.13753; Phi-3). The list depends on `RotaryOptions::seq_len`, so that a
/// sequence needs one table for all of its tokens: keys turned by the short list do not match queries turned
/// by the long one.
struct LongRope {
  std::vector<double> short_factor = {};  ///< [rotary_dim / 2]
  std::vector<double> long_factor = {};   ///< [rotary_dim / 2]
  Index original_max_position_embeddings = 0;
  /// Only the attention factor depends on it. Left out: max_position_embeddings /
  /// original_max_position_embeddings.
  std::optional<double> factor = std::nullopt;
  std::optional<Index> max_position_embeddings = std::nullopt;
  /// Given: taken as it is, whatever the formula says.
  std::optional<double> attention_factor = std::nullopt;
};

/// `"llama3"`: kept where a pair turns more than `high_freq_factor` times over the original length, divided
/// by `factor` where it turns less than `low_freq_factor` times, blended between (Llama 3.1).
struct Llama3 {
  double factor = 0;
  double low_freq_factor = 0;
  double high_freq_factor = 0;
  Index original_max_position_embeddings = 0;
};

/// `"proportional"`: frequencies over the whole head, of which only the fastest share turns (Gemma 4).
///
/// The opposite of partial rotation: `rotary_dim` is the head's width here, the exponent runs over it, and
/// the pairs that stand still are the last ones, of frequency 0.
struct Proportional {
  double factor = 1;
  double partial_rotary_factor = 1;
};

/// One scaling with its parameters.
using RopeScaling = std::variant<DefaultRope, Linear, DynamicNtk, Yarn, LongRope, Llama3, Proportional>;

}  // namespace rove

/// \file
/// Rotary frames as plain matrices.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <utility>

#include "rove/core/config.hpp"
#include "rove/dense/require.hpp"

ROVE_BEGIN_TAGGED
namespace dense {

/// Which two of r = 2 · pairs rotary channels turn together.
enum class Pairing {
  half_split,   ///< channels i and i + r/2 (Llama, GPT-NeoX)
  interleaved,  ///< channels 2i and 2i + 1 (GPT-J, ggml's NORM)
};

/// The two channels of pair `pair` out of `pairs`, where the rotary channels begin at `offset`.
inline std::pair<Index, Index> pair_channels(Index pair, Index pairs, Pairing pairing, Index offset = 0) {
  return pairing == Pairing::half_split ? std::pair{offset + pair, offset + pair + pairs}
                                        : std::pair{offset + 2 * pair, offset + 2 * pair + 1};
}

/// The frame R of a token at `position` (tokens; any real number): channels × channels, the pair (x, y) of
/// frequency ω goes to (x cos pω − y sin pω, x sin pω + y cos pω), all other channels stay.
///
/// \param channels   width of the head
/// \param inv_freq   ω of each pair, radians a token
/// \param position   p
/// \param pairing    where the pairs lie
/// \param offset     first rotary channel
/// \throws std::invalid_argument if offset + 2 · pairs > channels
inline Eigen::MatrixXd rotation_matrix(Index channels, const Eigen::VectorXd& inv_freq, double position,
                                       Pairing pairing, Index offset = 0) {
  const Index pairs = inv_freq.size();
  detail::require(offset >= 0 && offset + 2 * pairs <= channels, "rotary channels ", offset, "..",
                  offset + 2 * pairs, " do not fit into ", channels, " channels");
  Eigen::MatrixXd r = Eigen::MatrixXd::Identity(channels, channels);
  for (Index pair = 0; pair < pairs; ++pair) {
    const auto [x, y] = pair_channels(pair, pairs, pairing, offset);
    const double phase = position * inv_freq(pair);
    r(x, x) = r(y, y) = std::cos(phase);
    r(y, x) = std::sin(phase);
    r(x, y) = -r(y, x);
  }
  return r;
}

/// The usual frequencies: ω_i = base^(−2i / rotary_dim), i = 0 .. rotary_dim/2 − 1.
inline Eigen::VectorXd inverse_frequencies(Index rotary_dim, double base) {
  detail::require(rotary_dim >= 0 && rotary_dim % 2 == 0, "rotary_dim ", rotary_dim, " is not even");
  Eigen::VectorXd inv_freq(rotary_dim / 2);
  for (Index i = 0; i < rotary_dim / 2; ++i) {
    inv_freq(i) = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
  }
  return inv_freq;
}

}  // namespace dense
ROVE_END_TAGGED

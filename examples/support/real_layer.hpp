/// \file
/// Real operands for examples: layer 14 of SmolLM2-135M-Instruct on 128 tokens (see data/README.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <rove/rove.hpp>
#include <string>
#include <vector>

#include "support/npy.hpp"

namespace support {

/// A .npy array of four dimensions as a view: batch, heads, tokens, channels.
inline rove::TensorView<const float> view(const npy::Array<float>& array) {
  const auto& n = array.shape;
  return rove::bhtd(array.values.data(), n[0], n[1], n[2], n[3]);
}

/// An array by the last part of its name: "q", "k", "v", "attention".
inline npy::Array<float> read_layer14(const char* part) {
  return npy::read<float>(std::string(ROVE_EXAMPLE_DATA "/layer14_") + part + ".npy");
}

struct RealLayer {
  npy::Array<float> q = read_layer14("q");                  ///< 1, 9, 128, 64
  npy::Array<float> k = read_layer14("k");                  ///< 1, 3, 128, 64
  npy::Array<float> v = read_layer14("v");                  ///< 1, 3, 128, 64
  npy::Array<float> attention = read_layer14("attention");  ///< 1, 9, 128, 64: what the model computed

  rove::Index heads() const { return q.shape[1]; }
  rove::Index kv_heads() const { return k.shape[1]; }
  rove::Index tokens() const { return q.shape[2]; }
  rove::Index channels() const { return q.shape[3]; }

  /// The model's rotations, for positions 0 … tokens − 1.
  rove::RotaryFrame<rove::RotationTable<float>> frame(
      rove::Pairing pairing = rove::Pairing::half_split) const {
    const auto frequencies = rove::rotary_frequencies({.rotary_dim = channels(), .rope_theta = 1e5});
    return {rove::RotationTable<float>(frequencies, rove::consecutive_positions(tokens())), pairing};
  }
};

/// max |a − b|; NaN where either has one, infinity where their sizes differ.
inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(largest)) break;
  }
  return largest;
}

}  // namespace support

/// \file
/// The operands of one attention call, out of files, and what they are judged by.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attend/options.hpp"
#include "support/npy.hpp"

namespace attend {

struct Layer {
  npy::Array<float> q;                         ///< [batch, heads, q_len, channels]
  npy::Array<float> k;                         ///< [batch, kv_heads, kv_len, channels]
  npy::Array<float> v;                         ///< [batch, kv_heads, kv_len, value_channels]
  std::optional<npy::Array<float>> reference;  ///< [batch, heads, q_len, value_channels]

  Index batch, heads, kv_heads, q_len, kv_len, channels, value_channels;

  Index kv_head(Index head) const { return head / (heads / kv_heads); }
  /// Queries are the last of the keys' tokens.
  Index first_query() const { return kv_len - q_len; }
  std::vector<Index> out_shape() const { return {batch, heads, q_len, value_channels}; }
};

/// Throws `npy::FileError` where a file cannot be read or its shape does not fit the others.
Layer load(const Options& options);

}  // namespace attend

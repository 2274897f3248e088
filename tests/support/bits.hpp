/// \file
/// Results as bits, and one call whose bits every way of making it must have.
#pragma once

#include <cstring>
#include <stdexcept>
#include <vector>

#include "rove/attention/masks_order.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/op/attention.hpp"
#include "support/frames.hpp"
#include "support/judge.hpp"

namespace rove_test {

/// Channels of every row.
inline constexpr rove::Index width = 16;

/// The frames of the interleaved rotary case, one type for all calls.
inline AnyFrame<float> frame_at(rove::Index first, rove::Index tokens) {
  static const FrameCase interleaved = [] {
    for (FrameCase& c : frame_cases()) {
      if (c.name == "interleaved_partial") return c;
    }
    throw std::logic_error("no such case");
  }();
  return interleaved.at(positions_from(first, tokens));
}

/// The bytes of every element, dimension by dimension, whatever the strides.
template <class T>
std::vector<unsigned char> bits_of(const rove::TensorView<T>& view) {
  std::vector<unsigned char> bits;
  for (rove::Index b = 0; b < view.batch(); ++b) {
    for (rove::Index h = 0; h < view.heads(); ++h) {
      for (rove::Index t = 0; t < view.tokens(); ++t) {
        for (rove::Index c = 0; c < view.channels(); ++c) {
          unsigned char bytes[sizeof(T)];
          std::memcpy(bytes, static_cast<const void*>(&view(b, h, t, c)), sizeof(T));
          bits.insert(bits.end(), bytes, bytes + sizeof(T));
        }
      }
    }
  }
  return bits;
}

/// One number a row, as a tensor of one channel.
template <class T>
rove::TensorView<T> as_tensor(const rove::RowView<T>& rows) {
  return {rows.data,
          {rows.extent[0], rows.extent[1], rows.extent[2], 1},
          {rows.stride[0], rows.stride[1], rows.stride[2], 1}};
}

/// One call over 300 keys, more than a key block, and 33 queries at their end: causal, from position 100 on.
struct Call {
  static constexpr rove::Index batch = 3, heads = 4, kv_heads = 2, q_len = 33, kv_len = 300;
  Operands<float> x{batch, heads, kv_heads, q_len, kv_len, width, width, 1};

  auto problem() {
    return x.problem().with_query_offset(kv_len - q_len).with_mask(rove::window(rove::unbounded, 0));
  }
  static auto frames() {
    return rove::rove_frames(frame_at(100 + kv_len - q_len, q_len), frame_at(100, kv_len));
  }

  /// The bits of out and of the LSE, as they are now.
  std::vector<unsigned char> bits() {
    std::vector<unsigned char> all = bits_of(problem().out);
    const auto lse = bits_of(as_tensor(problem().lse));
    all.insert(all.end(), lse.begin(), lse.end());
    return all;
  }
};

/// The bits of the call as it is by default.
inline const std::vector<unsigned char>& expected() {
  static const std::vector<unsigned char> bits = [] {
    Call call;
    rove::attention(call.problem(), Call::frames());
    return call.bits();
  }();
  return bits;
}

}  // namespace rove_test

/// \file
/// One attention problem to time: its shape, what it costs, its operands.
#pragma once

#include "bench/support/buffer.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/problem.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"

namespace bench {

struct AttentionShape {
  Index head_dim;
  Index q_len;
  Index kv_len;
  Index heads;
  Index kv_heads;
  bool causal;
};

/// Pairs of a query and a key that see each other, in one head; causal rows end at the last key.
inline double visible_pairs(const AttentionShape& shape) {
  double pairs = 0;
  for (Index i = 0; i < shape.q_len; ++i) {
    const Index seen = shape.causal ? shape.kv_len - shape.q_len + i + 1 : shape.kv_len;
    pairs += static_cast<double>(seen < 0 ? 0 : seen);
  }
  return pairs;
}

/// A multiply and an add for each channel of ⟨q, k⟩ and of A v, for visible pairs only. Softmax and rotations
/// are not counted: they are what costs, not what is asked for.
inline double attention_flops(const AttentionShape& shape) {
  return 4.0 * static_cast<double>(shape.head_dim) * visible_pairs(shape) * static_cast<double>(shape.heads);
}

/// Operands of one sequence over itself (q_len = kv_len), contiguous `[1, heads, tokens, channels]`.
template <rove::Scalar T>
class AttentionOperands {
 public:
  explicit AttentionOperands(const AttentionShape& shape)
      : shape_(shape),
        q_(shape.heads * shape.q_len * shape.head_dim, 1),
        k_(shape.kv_heads * shape.kv_len * shape.head_dim, 2),
        v_(shape.kv_heads * shape.kv_len * shape.head_dim, 3),
        out_(shape.heads * shape.q_len * shape.head_dim, 4),
        frame_(rove::RotationTable<float>(rove::rotary_frequencies({.rotary_dim = shape.head_dim}),
                                          rove::consecutive_positions(shape.kv_len)),
               rove::Pairing::half_split) {}

  auto problem() {
    const auto& s = shape_;
    return rove::attention_problem(rove::bhtd(q_.data(), 1, s.heads, s.q_len, s.head_dim),
                                   rove::bhtd(k_.data(), 1, s.kv_heads, s.kv_len, s.head_dim),
                                   rove::bhtd(v_.data(), 1, s.kv_heads, s.kv_len, s.head_dim),
                                   rove::bhtd(out_.data(), 1, s.heads, s.q_len, s.head_dim));
  }

  const rove::RotaryFrame<rove::RotationTable<float>>& frame() const { return frame_; }

 private:
  AttentionShape shape_;
  Buffer<T> q_, k_, v_, out_;
  rove::RotaryFrame<rove::RotationTable<float>> frame_;
};

}  // namespace bench

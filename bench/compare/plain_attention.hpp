/// \file
/// Plain attention in float by TiledKernel, the subject of most races.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/compare/race.hpp"
#include "bench/support/attention_case.hpp"
#include "bench/support/workers.hpp"

namespace bench {

/// "d=128 n=4096 causal, 8 heads"
std::string shape_name(const AttentionShape& shape);

/// As many keys as queries, as many heads of both.
inline AttentionShape self_attention(Index head_dim, Index tokens, bool causal, Index heads = 8) {
  return {.head_dim = head_dim,
          .q_len = tokens,
          .kv_len = tokens,
          .heads = heads,
          .kv_heads = heads,
          .causal = causal};
}

/// 64 and 128 channels, all pairs and causal.
std::vector<AttentionShape> usual_shapes(Index tokens, Index heads = 8);

/// One call, with its operands.
class PlainAttention {
 public:
  explicit PlainAttention(const AttentionShape& shape);
  PlainAttention(const PlainAttention&) = delete;
  PlainAttention& operator=(const PlainAttention&) = delete;

  const AttentionShape& shape() const { return shape_; }
  void operator()(const Workers& workers);

 private:
  AttentionShape shape_;
  AttentionOperands<float> operands_;
};

}  // namespace bench

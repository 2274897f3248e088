#include "bench/compare/plain_attention.hpp"

#include "rove/attention/tiled.hpp"
#include "rove/op/attention.hpp"

namespace bench {

std::string shape_name(const AttentionShape& shape) {
  std::string name = "d=" + std::to_string(shape.head_dim) + " n=" + std::to_string(shape.q_len);
  if (shape.causal) name += " causal";
  name += ", " + std::to_string(shape.heads);
  if (shape.kv_heads != shape.heads) name += "/" + std::to_string(shape.kv_heads);
  return name + (shape.heads == 1 ? " head" : " heads");
}

std::vector<AttentionShape> usual_shapes(Index tokens, Index heads) {
  std::vector<AttentionShape> shapes;
  for (const bool causal : {false, true}) {
    for (const Index head_dim : {128, 64}) shapes.push_back(self_attention(head_dim, tokens, causal, heads));
  }
  return shapes;
}

PlainAttention::PlainAttention(const AttentionShape& shape) : shape_(shape), operands_(shape) {}

void PlainAttention::operator()(const Workers& workers) {
  const rove::TiledKernel kernel;
  if (shape_.causal) {
    rove::attention(operands_.problem().with_mask(rove::causal()), workers.context(), kernel);
  } else {
    rove::attention(operands_.problem(), workers.context(), kernel);
  }
}

}  // namespace bench

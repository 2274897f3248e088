#include "bench/compare/plain_attention.hpp"

#include <sstream>

#include "rove/attention/tiled.hpp"
#include "rove/op/attention.hpp"

namespace bench {

std::string shape_name(const AttentionShape& shape) {
  std::ostringstream name;
  name << "d=" << shape.head_dim << " n=" << shape.q_len << (shape.causal ? " causal" : "") << ", "
       << shape.heads;
  if (shape.kv_heads != shape.heads) name << '/' << shape.kv_heads;
  name << (shape.heads == 1 ? " head" : " heads");
  return name.str();
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

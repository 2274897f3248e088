// One attention call whose instructions count_instructions.py has counted.
//
// usage: count_instructions plain|rope|rove TOKENS HEAD_DIM HEADS all|causal

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/support/attention_case.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/op/attention.hpp"

namespace {

template <class Problem, class F>
void call(const std::string& what, const Problem& problem, const F& frame) {
  const rove::TiledKernel kernel;
  if (what == "plain") {
    rove::attention(problem, {}, kernel);
  } else if (what == "rope") {
    rove::rope_attention(problem, frame, {}, kernel);
  } else {
    rove::rove_attention(problem, frame, {}, kernel);
  }
}

}  // namespace

/// Counting goes on while this runs: it is found by its name.
extern "C" __attribute__((noinline)) void rove_counted(const char* what, const bench::AttentionShape& shape,
                                                       bench::AttentionOperands<float>& operands) {
  if (shape.causal) {
    call(what, operands.problem().with_mask(rove::causal()), operands.frame());
  } else {
    call(what, operands.problem(), operands.frame());
  }
}

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("usage: count_instructions plain|rope|rove TOKENS HEAD_DIM HEADS all|causal\n", stderr);
    return 2;
  }
  const rove::Index tokens = std::atol(argv[2]), head_dim = std::atol(argv[3]), heads = std::atol(argv[4]);
  const bench::AttentionShape shape{.head_dim = head_dim,
                                    .q_len = tokens,
                                    .kv_len = tokens,
                                    .heads = heads,
                                    .kv_heads = heads,
                                    .causal = std::string(argv[5]) == "causal"};
  bench::AttentionOperands<float> operands(shape);
  rove_counted(argv[1], shape, operands);
  return 0;
}

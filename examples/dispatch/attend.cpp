// Compiled once for each instruction set, with DISPATCH_ATTEND the name that this object's function gets.
#include "dispatch/attend.hpp"

#include <rove/rove.hpp>

void dispatch::DISPATCH_ATTEND(const Operands& operands) {
  const auto& [q, k, v, out, rope_theta] = operands;
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = q.channels(), .rope_theta = rope_theta});
  const rove::RotationTable<float> table(frequencies, rove::consecutive_positions(q.tokens()));
  const rove::RotaryFrame frame(table, rove::Pairing::half_split);
  const auto problem = rove::attention_problem(q, k, v, out).with_mask(rove::causal());
  rove::rope_attention(problem, frame);  // rove_attention for models that were trained with it
}

// What one file costs that includes the whole library and calls it once; time_compile.py compiles it.
#include <rove/rove.hpp>

void attend(const float* q_data, const float* k_data, const float* v_data, float* out_data, rove::Index n) {
  const auto q = rove::bhtd(q_data, 1, 9, n, 64);
  const auto k = rove::bhtd(k_data, 1, 3, n, 64);
  const auto v = rove::bhtd(v_data, 1, 3, n, 64);
  const auto out = rove::bhtd(out_data, 1, 9, n, 64);

  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 64, .rope_theta = 1e5});
  const auto frame = rove::RotaryFrame(
      rove::RotationTable<float>(frequencies, rove::consecutive_positions(n)), rove::Pairing::half_split);
  rove::rove_attention(rove::attention_problem(q, k, v, out).with_mask(rove::causal()), frame);
}

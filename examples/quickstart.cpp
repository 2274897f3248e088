// The README's first program.
// [readme:quickstart]
#include <cstdio>
#include <rove/rove.hpp>
#include <vector>

int main() {
  constexpr int heads = 9, kv_heads = 3, tokens = 128, channels = 64;
  std::vector<float> q_data(heads * tokens * channels, 1);
  std::vector<float> k_data(kv_heads * tokens * channels, 1), v_data(k_data);
  std::vector<float> out_data(q_data.size());

  // Views of memory that is yours: batch, heads, tokens, channels.
  const auto q = rove::bhtd(q_data.data(), 1, heads, tokens, channels);
  const auto k = rove::bhtd(k_data.data(), 1, kv_heads, tokens, channels);
  const auto v = rove::bhtd(v_data.data(), 1, kv_heads, tokens, channels);
  const auto out = rove::bhtd(out_data.data(), 1, heads, tokens, channels);

  // Where tokens stand: as in a Llama, channels i and i + 32 turn together.
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = channels, .rope_theta = 1e4});
  const rove::RotationTable<float> table(frequencies, rove::consecutive_positions(tokens));
  const rove::RotaryFrame frame(table, rove::Pairing::half_split);

  const auto problem = rove::attention_problem(q, k, v, out).with_mask(rove::causal());
  rove::rove_attention(problem, frame);  // rope_attention(problem, frame) leaves the values as they are

  // All values are 1, so RoPE's output is 1; RoVE's tells how far away its keys stand.
  std::printf("last token, channel 0: %.5f\n", out(0, 0, tokens - 1, 0));
}
// [/readme:quickstart]

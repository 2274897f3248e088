// The smallest program that uses the library from another project: one head, two tokens that see themselves.
#include <rove/rove.hpp>

#include <cstdio>

int main() {
  const float x[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  float y[2][4] = {};
  const auto rows = rove::bhtd(&x[0][0], 1, 1, 2, 4);
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = 4, .rope_theta = 1e4});
  const auto frame = rove::RotaryFrame(
      rove::RotationTable<float>(frequencies, rove::consecutive_positions(2)), rove::Pairing::half_split);
  rove::rove_attention(
      rove::attention_problem(rows, rows, rows, rove::bhtd(&y[0][0], 1, 1, 2, 4)).with_mask(rove::causal()),
      frame);
  std::printf("rove %d.%d.%d: %g %g %g %g\n", ROVE_VERSION_MAJOR, ROVE_VERSION_MINOR, ROVE_VERSION_PATCH,
              static_cast<double>(y[0][0]), static_cast<double>(y[0][1]), static_cast<double>(y[0][2]),
              static_cast<double>(y[0][3]));
  return y[0][0] == 1 && y[0][3] == 4 ? 0 : 1;  // token 0 sees itself alone
}

// Queries, keys and values as a GGUF file's weights give them. The converter reorders the rows of W_Q and
// W_K, so that the channels that turn together lie side by side (interleaved pairs), and leaves those of W_V
// where they were (half-split pairs). RoPE never turns values and does not care; RoVE needs a frame for each.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <rove/rove.hpp>
#include <vector>

#include "support/real_layer.hpp"

namespace {

using rove::Index;

// As convert_hf_to_gguf.py permutes the rows of W_Q and W_K, and with them each head's channels:
// the pair (i, i + d/2) goes to (2i, 2i + 1).
npy::Array<float> as_in_gguf(const npy::Array<float>& array) {
  npy::Array<float> permuted = array;
  const auto from = support::view(array);
  const auto to =
      rove::bhtd(permuted.values.data(), from.batch(), from.heads(), from.tokens(), from.channels());
  const Index half = from.channels() / 2;
  for (Index h = 0; h < from.heads(); ++h) {
    for (Index t = 0; t < from.tokens(); ++t) {
      for (Index i = 0; i < half; ++i) {
        to(0, h, t, 2 * i) = from(0, h, t, i);
        to(0, h, t, 2 * i + 1) = from(0, h, t, i + half);
      }
    }
  }
  return permuted;
}

// ‖out − expected‖ / ‖expected‖ over all heads and tokens.
double relative_error(const std::vector<float>& out, const std::vector<float>& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    difference += std::pow(double{out[i]} - double{expected[i]}, 2);
    size += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace

int main() {
  // The layer as its authors store it: half-split pairs throughout. What RoVE makes of it is the truth here.
  const support::RealLayer layer;
  std::vector<float> rove_expected(layer.q.values.size()), out(rove_expected.size());
  const auto into = [&](std::vector<float>& result) {
    return rove::bhtd(result.data(), 1, layer.heads(), layer.tokens(), layer.channels());
  };
  const auto half_split = layer.frame(rove::Pairing::half_split);
  rove::rove_attention(rove::attention_problem(support::view(layer.q), support::view(layer.k),
                                               support::view(layer.v), into(rove_expected))
                           .with_mask(rove::causal()),
                       half_split);

  // The same layer out of a GGUF file.
  const npy::Array<float> q = as_in_gguf(layer.q), k = as_in_gguf(layer.k);
  const auto interleaved = layer.frame(rove::Pairing::interleaved);
  const auto problem =
      rove::attention_problem(support::view(q), support::view(k), support::view(layer.v), into(out))
          .with_mask(rove::causal());

  rove::rope_attention(problem, interleaved);
  const double rope = relative_error(out, layer.attention.values);
  std::printf("RoPE, interleaved                                error %.1e\n", rope);

  rove::rove_attention(problem, interleaved);
  const double one_frame = relative_error(out, rove_expected);
  std::printf("RoVE, interleaved for all                        error %.0f %%, wrong\n", 100 * one_frame);

  // Frames of queries, of keys, and of values; outputs turn back in the values' one.
  rove::attention(problem, rove::rove_frames(interleaved, interleaved, half_split));
  const double two_frames = relative_error(out, rove_expected);
  std::printf("RoVE, interleaved q and k, half-split v and out  error %.1e\n", two_frames);

  return rope < 1e-6 && one_frame > 0.5 && two_frames < 1e-6 ? 0 : 1;
}

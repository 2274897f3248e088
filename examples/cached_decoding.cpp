// Decoding with a cache: the prompt in one piece, then token by token, keys and values in a ring that keeps
// the last
// 48. To the bit what one pass over all tokens gives under a window of 48.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <rove/rove.hpp>
#include <vector>

#include "support/real_layer.hpp"

namespace {

using rove::Index;

constexpr Index ring_size = 48, prompt = 32;
constexpr int token_dimension = 2;  // of batch, heads, tokens, channels

// A call that leaves out where its queries stand is refused, before anything is written.
template <class Call>
bool refused(const char* what, const Call& call) {
  try {
    call();
  } catch (const rove::Error& error) {
    std::printf("%s: %s\n", what, error.what());
    return true;
  }
  std::printf("%s was not refused\n", what);
  return false;
}

}  // namespace

int main() {
  const support::RealLayer layer;
  const auto q = support::view(layer.q), k = support::view(layer.k), v = support::view(layer.v);
  const Index heads = layer.heads(), kv_heads = layer.kv_heads(), channels = layer.channels();
  const Index tokens = layer.tokens();
  // Frames for all positions there will be: row t is token t's.
  const auto frame = layer.frame();

  // All at once, to compare with.
  std::vector<float> at_once(layer.q.values.size());
  rove::rove_attention(
      rove::attention_problem(q, k, v, rove::bhtd(at_once.data(), 1, heads, tokens, channels))
          .with_mask(rove::window(ring_size)),
      frame);

  // The cache takes keys and values as they come; nothing in it is turned. Token t is slot t for good, and
  // lies in place t mod 48.
  std::vector<float> k_data(static_cast<std::size_t>(kv_heads * ring_size * channels)), v_data(k_data.size());
  const auto k_ring = rove::bhtd(k_data.data(), 1, kv_heads, ring_size, channels);
  const auto v_ring = rove::bhtd(v_data.data(), 1, kv_heads, ring_size, channels);
  const auto append = [&](Index t) {
    for (Index h = 0; h < kv_heads; ++h) {
      std::copy_n(k.row(0, h, t), channels, k_ring.row(0, h, t % ring_size));
      std::copy_n(v.row(0, h, t), channels, v_ring.row(0, h, t % ring_size));
    }
  };

  std::vector<float> out(at_once.size());
  const auto all_out = rove::bhtd(out.data(), 1, heads, tokens, channels);
  // The call for the queries of tokens [past, past + n), when theirs are the last keys in the ring.
  const auto step = [&](Index past, Index n) {
    return rove::attention_problem(q.slice(token_dimension, past, n),
                                   rove::ring_key_values(k_ring, v_ring, past + n),
                                   all_out.slice(token_dimension, past, n))
        .with_mask(rove::window(ring_size))
        .with_query_offset(rove::align_last());  // for the mask: the last query is the last key
  };
  const rove::Context context;  // memory that every step uses again

  for (Index t = 0; t < prompt; ++t) append(t);
  rove::rove_attention(step(0, prompt), rove::rows(frame, 0, prompt), frame, context);
  for (Index t = prompt; t < tokens; ++t) {
    append(t);
    // Two frames: the one row that the query stands at; and by slot, for keys and values, as many as there
    // are.
    rove::rove_attention(step(t, 1), rove::rows(frame, t, 1), frame, context);
  }
  const double difference = support::largest_difference(out, at_once);
  std::printf("%lld tokens at once, then %lld one by one: off one pass over all by %g\n",
              static_cast<long long>(prompt), static_cast<long long>(tokens - prompt), difference);

  // Where the queries stand is never guessed.
  bool good = difference == 0;
  good &= refused("one frame for both", [&] { rove::rove_attention(step(tokens - 1, 1), frame); });
  good &= refused("no alignment", [&] {
    const auto unaligned = step(tokens - 1, 1).with_query_offset(rove::QueryOffset{});
    rove::rove_attention(unaligned, rove::rows(frame, tokens - 1, 1), frame);
  });
  return good ? 0 : 1;
}

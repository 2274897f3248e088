#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/compare/cases.hpp"
#include "bench/support/buffer.hpp"
#include "rove/frame/rotate.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"

namespace bench {
namespace {

constexpr Index heads = 32, tokens = 4096, head_dim = 128;

template <class T>
void compare(Bench& bench, const char* scalar, int threads) {
  const Workers& workers = bench.workers(threads);
  const auto frame = [](rove::Pairing pairing) {
    return rove::RotaryFrame(
        rove::RotationTable<float>(rove::rotary_frequencies({.rotary_dim = head_dim, .rope_theta = 5e5}),
                                   rove::consecutive_positions(tokens)),
        pairing);
  };
  const auto half_split = frame(rove::Pairing::half_split), interleaved = frame(rove::Pairing::interleaved);
  Buffer<T> a(heads * tokens * head_dim, 1), b(heads * tokens * head_dim, 2);
  const auto view = [](Buffer<T>& x) { return rove::bhtd(x.data(), 1, heads, tokens, head_dim); };

  const auto copy = [&] {
    workers.split(a.size(), [&](Index first, Index last) {
      std::memcpy(b.data() + first, a.data() + first, static_cast<std::size_t>(last - first) * sizeof(T));
    });
    clobber_memory();
  };
  const auto rotate = [&](const auto& by, Buffer<T>& from, Buffer<T>& to) {
    return [&by, &from, &to, &workers, view] {
      rove::rotate(by, view(from), view(to), rove::Action::apply, workers.context());
    };
  };
  const std::vector<Rival> rivals{{"rotate/in-place/half-split", rotate(half_split, a, a)},
                                  {"rotate/in-place/interleaved", rotate(interleaved, a, a)},
                                  {"rotate/out-of-place/half-split", rotate(half_split, a, b)},
                                  {"rotate/out-of-place/interleaved", rotate(interleaved, a, b)}};
  for (const Rival& rival : rivals) {
    if (!bench.wants({&rival, 1})) continue;
    const std::vector<Rival> pair{{"rotate/memcpy", copy}, rival};
    const auto taken = race(pair, bench.options().draws);
    for (std::size_t i = &rival == &rivals.front() ? 0 : 1; i < 2; ++i) {
      Record record{.name = pair[i].name, .scalar = scalar, .threads = threads, .draws = taken[i]};
      record.head_dim = head_dim;
      record.q_len = tokens;
      record.heads = heads;
      record.set_bytes(2.0 * static_cast<double>(a.bytes()));
      if (i == 1) record.vs_stream = paired_ratio(taken[0].seconds, taken[1].seconds);
      bench.add(record);
    }
  }
}

}  // namespace

void compare_rotations(Bench& bench) {
  bench.section("Rotation: bytes of the tensor read and written", [&] {
    for (const int threads : bench.options().threads) {
      compare<float>(bench, "float", threads);
      compare<Eigen::bfloat16>(bench, "bfloat16", threads);
    }
  });
}

}  // namespace bench

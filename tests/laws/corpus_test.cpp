// The same bits everywhere: a corpus of small problems, the SHA-256 of whose results is on file. Every build
// with a fused multiply-add, by any compiler for any CPU, must find those hashes, from either kernel. A
// change of arithmetic therefore shows as a change of tests/data/corpus_hashes.txt.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/attention/any_mask.hpp"
#include "rove/attention/any_score.hpp"
#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/key_values/int8.hpp"
#include "rove/attention/key_values/paged.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/masks_documents.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/op/attention.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_arrays.hpp"
#include "rove/position/rotation_table.hpp"
#include "support/sha256.hpp"

namespace rove_test {
namespace {

using rove::AnyMask;
using rove::AnyScore;
using rove::Context;
using rove::Index;
using rove::Pairing;
using test::hash_of;

// ---- Inputs -------------------------------------------------------------------------------------

/// Integers that are the same on every machine: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
/// number generators", 2014).
class Integers {
 public:
  explicit Integers(std::uint64_t seed) : state_(seed) {}

  /// Of `bits` bits, all equally likely.
  std::int64_t next(int bits) {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return static_cast<std::int64_t>((z ^ z >> 31) >> (64 - bits));
  }
  /// Four of them, less the mean: a bell, and with a scale of 2^(1 − bits) one with a deviation of 1.15.
  std::int64_t bell(int bits) {
    const std::int64_t sum = next(bits) + next(bits) + next(bits) + next(bits);
    return sum - 2 * ((std::int64_t{1} << bits) - 1);
  }

 private:
  std::uint64_t state_;
};

/// Numbers with so few bits that every step to T is exact.
template <class T>
std::vector<T> numbers(Index count, std::uint64_t seed, double size = 1) {
  constexpr int bits = std::is_same_v<T, double>        ? 30
                       : std::is_same_v<T, float>       ? 20
                       : std::is_same_v<T, Eigen::half> ? 8
                                                        : 5;
  Integers integers(seed);
  std::vector<T> list(static_cast<std::size_t>(count));
  for (T& x : list) {
    const double value = size * std::ldexp(static_cast<double>(integers.bell(bits)), 1 - bits);
    if constexpr (std::is_same_v<T, double>) {
      x = value;
    } else {
      x = static_cast<T>(static_cast<float>(value));
    }
  }
  return list;
}

struct Shape {
  Index q_len, kv_len, channels;
  Index value_channels = channels;
  Index heads = 2, kv_heads = 1, batch = 1;
};

/// Operands of one call, with memory of their own.
template <class TQ, class TK = TQ, class TV = TK, class TOut = TQ>
struct Inputs {
  using Acc = rove::accumulator_t<TQ, TK, TV, TOut>;
  Shape shape;
  std::vector<TQ> q;
  std::vector<TK> k;
  std::vector<TV> v;
  std::vector<TOut> out;
  std::vector<Acc> lse;

  /// `size`, a power of two, makes logits wide.
  explicit Inputs(Shape s, double size = 1)
      : shape(s),
        q(numbers<TQ>(s.batch * s.heads * s.q_len * s.channels, seed(1), size)),
        k(numbers<TK>(s.batch * s.kv_heads * s.kv_len * s.channels, seed(2), size)),
        v(numbers<TV>(s.batch * s.kv_heads * s.kv_len * s.value_channels, seed(3))),
        out(static_cast<std::size_t>(s.batch * s.heads * s.q_len * s.value_channels)),
        lse(static_cast<std::size_t>(s.batch * s.heads * s.q_len)) {}

  auto keys() const {
    return rove::bhtd(k.data(), shape.batch, shape.kv_heads, shape.kv_len, shape.channels);
  }
  auto values() const {
    return rove::bhtd(v.data(), shape.batch, shape.kv_heads, shape.kv_len, shape.value_channels);
  }
  /// The queries stand at the end.
  template <class KV>
  auto problem_over(const KV& kv, const AnyMask& mask) {
    return rove::attention_problem(
               rove::bhtd(q.data(), shape.batch, shape.heads, shape.q_len, shape.channels), kv,
               rove::bhtd(out.data(), shape.batch, shape.heads, shape.q_len, shape.value_channels))
        .with_lse(rove::bht(lse.data(), shape.batch, shape.heads, shape.q_len))
        .with_query_offset(rove::align_last())
        .with_mask(mask);
  }
  auto problem(const AnyMask& mask) { return problem_over(rove::key_values(keys(), values()), mask); }

 private:
  std::uint64_t seed(std::uint64_t operand) const {
    return operand +
           8 * static_cast<std::uint64_t>(shape.q_len + 1000 * (shape.kv_len + 10000 * shape.channels));
  }
};

// ---- The corpus ---------------------------------------------------------------------------------

struct Hashes {
  std::string out, lse;
  bool operator==(const Hashes&) const = default;
};

class Corpus {
 public:
  /// Runs `attend(inputs, kernel)` with both kernels, which must agree, and notes the hashes.
  template <class In, class Attend>
  void add(const std::string& name, const In& inputs, const Attend& attend) {
    In naive = inputs, tiled = inputs;
    attend(naive, rove::NaiveKernel{});
    attend(tiled, rove::TiledKernel{});
    const Hashes found{hash_of(naive.out), hash_of(naive.lse)};
    EXPECT_EQ(hash_of(tiled.out), found.out) << name << ": the kernels' outputs differ";
    EXPECT_EQ(hash_of(tiled.lse), found.lse) << name << ": the kernels' log-sum-exps differ";
    note(name, found);
  }

  void note(const std::string& name, const Hashes& hashes) {
    EXPECT_TRUE(found_.emplace(name, hashes).second) << name << " is there twice";
  }

  const std::map<std::string, Hashes>& found() const { return found_; }

 private:
  std::map<std::string, Hashes> found_;
};

std::string name_of(const std::string& what, const Shape& s) {
  std::ostringstream name;
  name << what << "/" << s.q_len << "x" << s.kv_len << "/d" << s.channels;
  if (s.value_channels != s.channels) name << "," << s.value_channels;
  return name.str();
}

template <class... T>
void plain(Corpus& corpus, const std::string& what, const Shape& shape, const AnyMask& mask = {},
           double size = 1) {
  corpus.add(name_of(what, shape), Inputs<T...>(shape, size),
             [&](auto& in, const auto& kernel) { rove::attention(in.problem(mask), Context{}, kernel); });
}

template <class... T>
void scored(Corpus& corpus, const std::string& what, const Shape& shape, const AnyMask& mask,
            const AnyScore& score) {
  corpus.add(name_of(what, shape), Inputs<T...>(shape), [&](auto& in, const auto& kernel) {
    rove::attention(in.problem(mask).with_score(score), Context{}, kernel);
  });
}

/// Frames at positions first, first + 1, …
rove::RotaryFrame<rove::RotationTable<float>> rotary(const rove::RotaryFrequencies& frequencies, Index first,
                                                     Index count, Pairing pairing, Index first_channel = 0) {
  return {rove::RotationTable<float>(frequencies, rove::consecutive_positions(count, first)), pairing,
          first_channel};
}

enum class Values { stay, ride_along };

/// RoPE or RoVE: keys from position 0 on, queries at the end.
template <Values values, class... T>
void framed(Corpus& corpus, const std::string& what, const Shape& shape, const AnyMask& mask,
            const rove::RotaryFrequencies& frequencies, Pairing pairing, Index first_channel = 0) {
  const auto at_keys = rotary(frequencies, 0, shape.kv_len, pairing, first_channel);
  const auto at_queries =
      rotary(frequencies, shape.kv_len - shape.q_len, shape.q_len, pairing, first_channel);
  corpus.add(name_of(what, shape), Inputs<T...>(shape), [&](auto& in, const auto& kernel) {
    if constexpr (values == Values::ride_along) {
      rove::rove_attention(in.problem(mask), at_queries, at_keys, Context{}, kernel);
    } else {
      rove::rope_attention(in.problem(mask), at_queries, at_keys, Context{}, kernel);
    }
  });
}

rove::RotaryFrequencies frequencies(Index rotary_dim) {
  return rove::rotary_frequencies({.rotary_dim = rotary_dim, .rope_theta = 10000});
}

// Sizes round the edges of register tiles (6, 14), panels (16), key blocks (256) and chunks (4096).
void sizes_and_masks(Corpus& corpus) {
  using rove::causal;
  plain<float>(corpus, "float", {1, 1, 4});
  plain<float>(corpus, "float-causal", {5, 5, 16}, causal());
  plain<float>(corpus, "float-causal", {13, 13, 64}, causal());
  plain<float>(corpus, "float-causal", {14, 14, 80}, causal());
  plain<float>(corpus, "float", {15, 28, 96});
  plain<float>(corpus, "float-causal", {28, 100, 112}, causal());
  plain<float>(corpus, "float-causal", {100, 100, 128}, causal());
  plain<float>(corpus, "float-causal", {255, 255, 19}, causal());
  plain<float>(corpus, "float-causal", {256, 256, 8}, causal());
  plain<float>(corpus, "float-window100", {257, 257, 64}, rove::window(100));
  plain<float>(corpus, "float", {14, 600, 256});
  plain<float>(corpus, "float-causal", {600, 600, 32}, causal());
  plain<float>(corpus, "float", {1, 255, 40});
  plain<float>(corpus, "float-chunks", {3, 4200, 4}, causal());
  plain<float>(corpus, "float-mla", {13, 100, 192, 128}, causal());
  plain<float>(corpus, "float-narrow-values", {28, 257, 64, 5}, causal());
  plain<float>(corpus, "float-wide-logits", {15, 300, 64}, causal(), 4);
  plain<float>(corpus, "float-grouped", {15, 100, 64, 64, 6, 2, 2}, causal());
  plain<float>(corpus, "float-prefix", {100, 100, 24}, causal() | rove::prefix(37));
  plain<float>(corpus, "float-first-rows-see-nothing", {28, 28, 8}, !rove::window(5, rove::unbounded));
  const std::array<std::int32_t, 5> documents{0, 1, 90, 90, 257};
  plain<float>(corpus, "float-documents", {257, 257, 16}, rove::documents(documents) & causal());

  std::vector<unsigned char> seen(std::size_t{100 * 257});
  Integers integers(4);
  for (unsigned char& one : seen) one = integers.next(2) != 0;
  plain<float>(corpus, "float-boolean", {100, 257, 48},
               rove::boolean_mask(rove::bhtd(seen.data(), 1, 1, 100, 257)));

  const Shape uneven{14, 300, 64, 64, 4, 2, 3};
  const std::array<std::int32_t, 3> lengths{300, 0, 17};
  const std::array<float, 4> sinks{0.7F, -3.1F, 20.3F, -std::numeric_limits<float>::infinity()};
  corpus.add("float-key-lengths", Inputs<float>(uneven), [&](auto& in, const auto& kernel) {
    rove::attention(in.problem(causal()).with_key_lengths(lengths), Context{}, kernel);
  });
  corpus.add("float-sinks", Inputs<float>(uneven), [&](auto& in, const auto& kernel) {
    rove::attention(in.problem(causal()).with_key_lengths(lengths).with_sinks(sinks), Context{}, kernel);
  });
}

void scores(Corpus& corpus) {
  using rove::causal;
  const auto bias = numbers<float>(2 * 100 * 257, 5);
  const AnyScore biased = rove::additive_bias(rove::bhtd(bias.data(), 1, 2, 100, 257));
  scored<float>(corpus, "float-soft-cap", {100, 257, 64}, causal(), rove::soft_cap(1.5));
  scored<float>(corpus, "float-soft-cap-50", {15, 100, 128}, {}, rove::soft_cap(50));
  scored<float>(corpus, "float-alibi", {100, 257, 64}, causal(), rove::alibi(2));
  scored<float>(corpus, "float-alibi-12-heads", {14, 28, 16, 16, 12, 4}, causal(), rove::alibi(12));
  scored<float>(corpus, "float-bias", {100, 257, 64}, {}, biased);
  scored<float>(corpus, "float-all-scores", {100, 257, 64}, causal(),
                rove::soft_cap(5) | rove::alibi(2) | biased);
}

void frames(Corpus& corpus) {
  using rove::causal;
  constexpr auto half_split = Pairing::half_split, interleaved = Pairing::interleaved;
  constexpr auto stay = Values::stay, ride_along = Values::ride_along;
  framed<stay, float>(corpus, "rope-half-split", {100, 100, 64}, causal(), frequencies(64), half_split);
  framed<stay, float>(corpus, "rope-interleaved", {28, 257, 80}, causal(), frequencies(80), interleaved);
  framed<stay, float>(corpus, "rope-yarn", {28, 600, 64}, causal(),
                      rove::rotary_frequencies(
                          {.rotary_dim = 64,
                           .rope_theta = 1e6,
                           .scaling = rove::Yarn{.factor = 4, .original_max_position_embeddings = 32768}}),
                      half_split);
  framed<ride_along, float>(corpus, "rove-half-split", {257, 257, 64}, causal(), frequencies(64), half_split);
  framed<ride_along, float>(corpus, "rove-interleaved", {100, 600, 32}, causal(), frequencies(32),
                            interleaved);
  framed<ride_along, float>(corpus, "rove-not-causal", {15, 255, 96}, {}, frequencies(96), half_split);
  framed<ride_along, float>(corpus, "rove-partial", {28, 100, 80}, causal(), frequencies(20), half_split, 7);
  framed<ride_along, float>(corpus, "rove-partial-interleaved", {28, 100, 80}, causal(), frequencies(20),
                            interleaved, 7);
  framed<ride_along, float>(corpus, "rove-mla", {13, 100, 192, 128}, causal(), frequencies(64), interleaved,
                            64);
}

/// Rotations by 2·atan(t), t an exact fraction: divisions are all that is rounded.
rove::RotaryFrame<rove::RotationTable<double>> exact_rotary(Index first, Index count, Index rotary_dim) {
  std::vector<double> cos, sin;
  for (Index i = 0; i < count; ++i) {
    for (Index pair = 0; pair < rotary_dim / 2; ++pair) {
      const double t = static_cast<double>((first + i) % (64 + pair)) / 64, square = t * t;
      cos.push_back((1 - square) / (1 + square));
      sin.push_back(2 * t / (1 + square));
    }
  }
  return {
      rove::RotationTable<double>(rove::RotationArrays<double>{.cos = cos,
                                                               .sin = sin,
                                                               .rows = count,
                                                               .rotary_dim = rotary_dim,
                                                               .layout = rove::TableLayout::one_per_pair}),
      Pairing::half_split};
}

void storages(Corpus& corpus) {
  using Eigen::bfloat16;
  using Eigen::half;
  using rove::causal;
  plain<double>(corpus, "double", {15, 300, 64}, causal());
  const Shape exact{28, 257, 16};
  corpus.add(name_of("double-rove", exact), Inputs<double>(exact), [&](auto& in, const auto& kernel) {
    rove::rove_attention(in.problem(causal()), exact_rotary(exact.kv_len - exact.q_len, exact.q_len, 12),
                         exact_rotary(0, exact.kv_len, 12), Context{}, kernel);
  });
  plain<float, bfloat16, bfloat16, half>(corpus, "mixed", {14, 257, 128}, causal());
  framed<Values::ride_along, bfloat16>(corpus, "bfloat16-rove", {100, 257, 64}, causal(), frequencies(64),
                                       Pairing::half_split);
  framed<Values::ride_along, half>(corpus, "half-rove", {28, 257, 80}, causal(), frequencies(80),
                                   Pairing::interleaved);
}

void caches(Corpus& corpus) {
  using rove::causal;
  // Of 400 keys appended the last 257 are there, some of them moved.
  const Shape ring{28, 257, 32};
  const std::array<rove::IndexShift, 2> shifts{{{200, 3}, {380, 500}}};
  corpus.add(name_of("ring-displaced", ring), Inputs<float>(ring), [&](auto& in, const auto& kernel) {
    const auto kv = rove::displaced(rove::ring_key_values(in.keys(), in.values(), Index{400}),
                                    std::span<const rove::IndexShift>(shifts));
    rove::attention(in.problem_over(kv, rove::window(600)), Context{}, kernel);
  });
  // Pages of 7 in disorder; the tensor's batch is the pool.
  const Shape pool{14, 7, 64, 64, 2, 1, 40};
  const Shape paged{14, 250, 64};
  std::vector<std::int32_t> table;
  for (std::int32_t page = 0; page < 40; ++page) table.push_back(page * 11 % 40);
  const std::array<Index, 1> lengths{250};
  const Inputs<float> pages(pool);
  corpus.add(name_of("paged", paged), Inputs<float>(paged), [&](auto& in, const auto& kernel) {
    const auto kv = rove::paged_key_values(pages.keys(), pages.values(), rove::page_table(table, 1), lengths);
    rove::attention(in.problem_over(kv, causal()), Context{}, kernel);
  });
  const Shape small{28, 257, 64};
  std::vector<std::int8_t> integers;
  Integers source(6);
  for (Index i = 0; i < small.kv_len * small.channels; ++i) {
    integers.push_back(static_cast<std::int8_t>(source.next(8) - 128));
  }
  std::vector<float> scales;
  for (Index i = 0; i < small.kv_len; ++i) scales.push_back(std::ldexp(static_cast<float>(500 + i), -15));
  corpus.add(name_of("int8-rove", small), Inputs<float>(small), [&](auto& in, const auto& kernel) {
    const auto rows = rove::bhtd(std::as_const(integers).data(), 1, 1, small.kv_len, small.channels);
    const auto factors = rove::bht(std::as_const(scales).data(), 1, 1, small.kv_len);
    rove::rove_attention(
        in.problem_over(rove::int8_key_values(rows, factors, rows, factors), causal()),
        rotary(frequencies(64), small.kv_len - small.q_len, small.q_len, Pairing::half_split),
        rotary(frequencies(64), 0, small.kv_len, Pairing::half_split), Context{}, kernel);
  });
}

// ---- The file -----------------------------------------------------------------------------------

constexpr const char* heading =
    "# SHA-256 of output and log-sum-exp for every case of tests/laws/corpus_test.cpp, on all builds with a\n"
    "# fused multiply-add. Written by that test under ROVE_WRITE_CORPUS=<this file>: only after a change of\n"
    "# arithmetic that is meant, and recorded in docs/decisions.md.\n";

std::map<std::string, Hashes> on_file(const std::string& path) {
  std::map<std::string, Hashes> hashes;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " cannot be read";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name;
    Hashes of;
    EXPECT_TRUE(words >> name >> of.out >> of.lse) << path << ": " << line;
    hashes[name] = of;
  }
  return hashes;
}

TEST(Corpus, has_the_hashes_on_file) {
  Corpus corpus;
  sizes_and_masks(corpus);
  scores(corpus);
  frames(corpus);
  storages(corpus);
  caches(corpus);

  if (const char* path = std::getenv("ROVE_WRITE_CORPUS")) {
    std::ofstream file(path);
    file << heading;
    for (const auto& [name, of] : corpus.found()) file << name << ' ' << of.out << ' ' << of.lse << '\n';
    ASSERT_TRUE(file.flush()) << path << " cannot be written";
    return;
  }
  if (!ROVE_HAS_FMA) return;  // such builds promise their own bits only
  const auto expected = on_file(ROVE_TEST_DATA "/corpus_hashes.txt");
  std::ostringstream differences;
  for (const auto& [name, of] : corpus.found()) {
    const auto place = expected.find(name);
    if (place == expected.end()) {
      differences << "  " << name << ": not on file\n";
    } else if (of != place->second) {
      differences << "  " << name << ":" << (of.out != place->second.out ? " output" : "")
                  << (of.lse != place->second.lse ? " log-sum-exp" : "") << '\n';
    }
  }
  for (const auto& [name, of] : expected) {
    if (!corpus.found().contains(name)) differences << "  " << name << ": on file, but no case any more\n";
  }
  if (differences.str().empty()) return;
  ADD_FAILURE()
      << "These bits are not those on file:\n"
      << differences.str()
      << "If the arithmetic was changed on purpose, say so in docs/decisions.md and write the file anew:\n"
         "ROVE_WRITE_CORPUS=tests/data/corpus_hashes.txt <this test>";
}

}  // namespace
}  // namespace rove_test

// Scores by packets, and tensors over the logits, in the tiled kernel: the bits of the plain kernel, which
// asks about one logit at a time, and no question about a slot or a row that is not there.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/attention/any_mask.hpp"
#include "rove/attention/any_score.hpp"
#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/key_values/paged.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/core/simd.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

namespace simd = rove::simd;
using rove::AnyMask;
using rove::causal;
using rove::Index;
using rove::Site;
using rove::SlotRange;

/// What a kernel asked, and what it may ask.
struct Watch {
  Index q_len = 0;
  std::vector<SlotRange> used;  ///< by batch row
  long packets = 0, singles = 0, prefetched = 0, wrong = 0;

  void see(const Site& first, Index count) {
    const SlotRange slots = used[static_cast<std::size_t>(first.batch)];
    const bool right = first.row >= 0 && first.row < q_len && count >= 1 && first.slot >= slots.first &&
                       first.slot + count <= slots.last;
    wrong += right ? 0 : 1;
  }
};

enum class Kind { soft_cap, alibi, chain, bias, strided, half, bfloat16, wide };
constexpr Kind kinds[] = {Kind::soft_cap, Kind::alibi, Kind::chain,    Kind::bias,
                          Kind::strided,  Kind::half,  Kind::bfloat16, Kind::wide};

/// Biases over the logits of a call. Each ends where its memory does.
struct Biases {
  std::vector<float> plain, strided;
  std::vector<Eigen::half> half;
  std::vector<Eigen::bfloat16> bfloat16;
  std::vector<double> wide;
  Index heads, q_len, kv_len;

  Biases(Index heads_, Index q_len_, Index kv_len_)
      : plain(normal_numbers<float>(count(heads_, q_len_, kv_len_), 31)),
        strided(normal_numbers<float>(2 * count(1, q_len_, kv_len_) - 1, 32)),
        half(normal_numbers<Eigen::half>(count(heads_, 1, kv_len_), 33)),
        bfloat16(normal_numbers<Eigen::bfloat16>(count(1, q_len_, kv_len_), 34)),
        wide(normal_numbers<double>(count(1, q_len_, kv_len_), 35)),
        heads(heads_),
        q_len(q_len_),
        kv_len(kv_len_) {
    for (double& x : wide) x *= 1.0 / 3;
  }

  static std::size_t count(Index a, Index b, Index c) { return static_cast<std::size_t>(a * b * c); }
};

/// Any of the library's scores by number, so that one instance of a kernel serves for all.
struct Chosen {
  Kind kind;
  Watch* watch;
  rove::SoftCap cap = rove::soft_cap(3);
  rove::Alibi alibi;
  rove::ScoreChain<rove::SoftCap, rove::Alibi> chain;
  rove::AdditiveBias<float> plain, strided;
  rove::AdditiveBias<Eigen::half> half;
  rove::AdditiveBias<Eigen::bfloat16> bfloat16;
  rove::AdditiveBias<double> wide;

  Chosen(Kind kind_, const Biases& of, Watch& watch_)
      : kind(kind_),
        watch(&watch_),
        alibi(rove::alibi(of.heads)),
        chain(rove::soft_cap(3) | rove::alibi(of.heads)),
        plain(rove::additive_bias(rove::bhtd(of.plain.data(), 1, of.heads, of.q_len, of.kv_len))),
        strided(rove::additive_bias(rove::TensorView<const float>{
            of.strided.data(), {1, 1, of.q_len, of.kv_len}, {0, 0, 2 * of.kv_len, 2}})),
        half(rove::additive_bias(rove::bhtd(of.half.data(), 1, of.heads, 1, of.kv_len))),
        bfloat16(rove::additive_bias(rove::bhtd(of.bfloat16.data(), 1, 1, of.q_len, of.kv_len))),
        wide(rove::additive_bias(rove::bhtd(of.wide.data(), 1, 1, of.q_len, of.kv_len))) {}

  template <class F>
  auto with(const F& f) const {
    switch (kind) {
      case Kind::soft_cap:
        return f(cap);
      case Kind::alibi:
        return f(alibi);
      case Kind::chain:
        return f(chain);
      case Kind::bias:
        return f(plain);
      case Kind::strided:
        return f(strided);
      case Kind::half:
        return f(half);
      case Kind::bfloat16:
        return f(bfloat16);
      case Kind::wide:
        break;
    }
    return f(wide);
  }

  template <rove::Accumulator Acc>
  Acc operator()(Acc s, const Site& site) const {
    watch->singles += 1;
    watch->see(site, 1);
    return with([&](const auto& score) { return score(s, site); });
  }
  template <simd::PacketLike P>
  P packet(P s, const Site& first) const {
    watch->packets += 1;
    watch->see(first, simd::width<P>);
    return with([&](const auto& score) { return score.packet(s, first); });
  }
  void prefetch(const Site& first, Index count) const {
    watch->prefetched += 1;
    watch->see(first, count);
    with([&](const auto& score) {
      if constexpr (rove::detail::HasPrefetch<std::remove_cvref_t<decltype(score)>>)
        score.prefetch(first, count);
    });
  }
};
static_assert(rove::score_takes_packets<Chosen, simd::packet_t<float>> && rove::score_prefetches<Chosen>());

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Runs both kernels on `make(operands)`, a problem without a score, under every score. `packets` is whether
/// the tiled one should ask by packets, `whole` whether by nothing else.
template <class T, class Make>
void expect_naive_bits(const Operands<T>& x, const Make& make, bool packets, std::optional<bool> whole = {}) {
  Operands<T> tiled = x, naive = x;
  const auto unscored = make(tiled), other = make(naive);
  Watch watch{x.q_len, {}};
  for (Index b = 0; b < x.batch; ++b) watch.used.push_back(unscored.slots(b));
  const Biases biases(x.heads, x.q_len, unscored.kv_len());
  for (const Kind kind : kinds) {
    SCOPED_TRACE("score " + std::to_string(static_cast<int>(kind)));
    const Chosen score(kind, biases, watch);
    rove::NaiveKernel{}(other.with_score(score));
    watch.packets = watch.singles = watch.prefetched = 0;
    rove::TiledKernel{}(unscored.with_score(score));
    ASSERT_TRUE(same_bits(tiled.out, naive.out));
    ASSERT_TRUE(same_bits(tiled.lse, naive.lse));
    ASSERT_EQ(watch.wrong, 0);
    EXPECT_EQ(watch.packets > 0, packets);
    if (whole) {
      EXPECT_EQ(watch.singles == 0, *whole);
    }
  }
}

/// Whole blocks, parts of them, and blocks with holes.
std::vector<AnyMask> masks() {
  const auto holes = rove::mask([](Index, Index, Index q, Index k) { return (q * 7 + k) % 5 == 0; });
  return {AnyMask(), causal(), rove::window(20), holes, causal() & holes};
}

template <class T>
void key_lengths_round_packets() {
  for (const auto& lengths : {std::vector<Index>{300, 17}, {257, 1}, {64, 271}, {0, 300}}) {
    SCOPED_TRACE("keys " + std::to_string(lengths[0]) + " and " + std::to_string(lengths[1]));
    const Operands<T> x(2, 4, 2, 17, 300, 8, 8, 41);
    const Index width = simd::native_width<T>;
    std::optional<bool> whole = lengths[0] % width == 0 && lengths[1] % width == 0;
    for (const AnyMask& mask : masks()) {
      const auto make = [&](Operands<T>& of) {
        return of.problem().with_key_lengths(lengths).with_mask(mask).with_query_offset(5);
      };
      expect_naive_bits(x, make, true, whole);
      whole.reset();  // masks may hide all slots at the ends
    }
  }
}

TEST(TiledScores, key_lengths_round_packets_in_float) {
  key_lengths_round_packets<float>();
}
TEST(TiledScores, key_lengths_round_packets_in_double) {
  key_lengths_round_packets<double>();
}

TEST(TiledScores, one_query_at_the_end_of_a_cache) {
  for (const Index keys : {1, 15, 16, 31, 256, 300}) {
    SCOPED_TRACE(keys);
    const Operands<float> x(1, 4, 2, 1, keys, 8, 8, 42);
    expect_naive_bits(
        x,
        [](Operands<float>& of) {
          return of.problem().with_mask(AnyMask(causal())).with_query_offset(rove::align_last());
        },
        keys >= simd::native_width<float>, keys % simd::native_width<float> == 0);
  }
}

/// `x` with other keys and values, which the problem keeps.
template <class KV>
auto on(const KV& kv, const AnyMask& mask) {
  return [&kv, &mask](Operands<float>& of) {
    const auto problem =
        rove::attention_problem(rove::bhtd(of.q.data(), of.batch, of.heads, of.q_len, of.channels), kv,
                                rove::bhtd(of.out.data(), of.batch, of.heads, of.q_len, of.channels));
    return problem.with_lse(rove::bht(of.lse.data(), of.batch, of.heads, of.q_len))
        .with_mask(mask)
        .with_query_offset(rove::align_last());
  };
}

TEST(TiledScores, rings_that_wrapped_and_keys_that_moved) {
  constexpr Index capacity = 90, appended = 401, d = 8;
  const Operands<float> x(1, 4, 2, 9, capacity, d, d, 43);
  const auto ring = rove::ring_key_values(rove::bhtd(x.k.data(), 1, 2, capacity, d),
                                          rove::bhtd(x.v.data(), 1, 2, capacity, d), appended);
  // Slots 311 to 400: in one block of 256, no multiple of a packet at either end. The second list leaves a
  // whole block straight and breaks the other, the third breaks none.
  const std::vector<std::vector<rove::IndexShift>> moves{
      {}, {{350, 40}}, {{0, -300}, {390, -290}}, {{311, 7}}};
  for (const auto& shifts : moves) {
    SCOPED_TRACE(shifts.empty() ? 0 : shifts.back().first_slot);
    const auto moved = rove::displaced(ring, std::span<const rove::IndexShift>(shifts));
    const bool straight = shifts.empty() || shifts.back().first_slot <= 311;
    for (const AnyMask& mask : masks()) expect_naive_bits(x, on(moved, mask), straight);
  }
}

TEST(TiledScores, pages_and_keys_that_moved) {
  constexpr Index page = 24, pages = 16, d = 8;
  const Operands<float> x(1, 4, 2, 9, page * pages, d, d, 44);
  const std::vector<std::int32_t> table{3, 7, 1, 15, 0, 8, 2, 14, 5, 9, 4, 13, 6, 10};
  const std::vector<std::int32_t> lengths{301};
  const auto paged =
      rove::paged_key_values(rove::bhtd(x.k.data(), pages, 2, page, d),
                             rove::bhtd(x.v.data(), pages, 2, page, d), rove::page_table(table, 1), lengths);
  // The second breaks the first block alone.
  const std::vector<std::vector<rove::IndexShift>> moves{{{0, 13}}, {{100, 5}}, {{100, 5}, {290, 8}}};
  for (const auto& shifts : moves) {
    SCOPED_TRACE(shifts.back().first_slot);
    const auto moved = rove::displaced(paged, std::span<const rove::IndexShift>(shifts));
    for (const AnyMask& mask : masks()) expect_naive_bits(x, on(moved, mask), shifts.size() == 1);
  }
}

/// A score without packets, which must not be asked about keys that are hidden.
struct Singly {
  Watch* watch;

  template <rove::Accumulator Acc>
  Acc operator()(Acc s, const Site& site) const {
    watch->singles += 1;
    watch->wrong += site.key <= site.query ? 0 : 1;
    return s + static_cast<Acc>(site.key % 3);
  }
};

TEST(TiledScores, any_score_goes_by_packets_where_the_one_inside_does) {
  constexpr Index q_len = 29, keys = 64, heads = 2;
  Operands<float> tiled(1, heads, 1, q_len, keys, 8, 8, 47), naive = tiled;
  const auto causal_problem = [](Operands<float>& of) {
    return of.problem().with_mask(causal()).with_query_offset(rove::align_last());
  };
  Watch watch{q_len, {SlotRange{0, keys}}};
  const Biases biases(heads, q_len, keys);
  const Chosen chosen(Kind::chain, biases, watch);
  rove::NaiveKernel{}(causal_problem(naive).with_score(chosen));
  watch.singles = 0;
  rove::TiledKernel{}(causal_problem(tiled).with_score(rove::AnyScore(chosen)));
  EXPECT_TRUE(same_bits(tiled.out, naive.out) && same_bits(tiled.lse, naive.lse));
  if constexpr (simd::native_width < float >> 1) {
    EXPECT_GT(watch.packets, 0);
    EXPECT_EQ(watch.singles, 0);
  }
  EXPECT_EQ(watch.wrong, 0);

  rove::NaiveKernel{}(causal_problem(naive).with_score(Singly{&watch}));
  watch.singles = 0;
  rove::TiledKernel{}(causal_problem(tiled).with_score(rove::AnyScore(Singly{&watch})));
  EXPECT_TRUE(same_bits(tiled.out, naive.out) && same_bits(tiled.lse, naive.lse));
  Index visible = 0;
  for (Index row = 0; row < q_len; ++row) visible += keys - q_len + row + 1;
  EXPECT_EQ(watch.singles, heads * visible);
  EXPECT_EQ(watch.wrong, 0);
}

// ---- Boolean masks --------------------------------------------------------------------------------------

/// A mask that notes what is prefetched.
struct Noting {
  rove::BooleanMask<unsigned char> mask;
  Watch* watch;

  bool visible(const Site& site) const { return mask.visible(site); }
  std::uint64_t bits(const Site& first, int count) const {
    if (count > 0) watch->see(first, count);
    return mask.bits(first, count);
  }
  rove::TileVisibility tile(const rove::TileRange& range) const { return mask.tile(range); }
  void check(const rove::AttentionShape& shape) const { mask.check(shape); }
  static bool order_aware() { return false; }
  void prefetch(const Site& first, Index count) const {
    watch->prefetched += 1;
    watch->see(first, count);
    mask.prefetch(first, count);
  }
};

TEST(TiledScores, boolean_masks_of_every_value_stride_and_length) {
  for (const Index keys : {1, 7, 63, 100, 256, 301}) {
    for (const Index q_len : {1, 5, 29}) {
      for (const Index stride : {1, 2, -1}) {
        SCOPED_TRACE("keys " + std::to_string(keys) + ", rows " + std::to_string(q_len) + ", stride " +
                     std::to_string(stride));
        const Index row = keys * std::abs(stride);
        // Ends where its memory does; values from 0 to 255, true where they are not 0.
        std::vector<unsigned char> seen(static_cast<std::size_t>(q_len * row - (std::abs(stride) - 1)));
        std::mt19937 random(static_cast<unsigned>(keys * 100 + q_len));
        for (auto& value : seen)
          value = static_cast<unsigned char>(random() % 3 == 0 ? 0 : random() % 254 + 2);
        const rove::TensorView<const unsigned char> tensor{
            seen.data() + (stride < 0 ? keys - 1 : 0), {1, 1, q_len, keys}, {0, 0, row, stride}};
        Operands<float> tiled(1, 2, 1, q_len, keys, 8, 8, 45), naive = tiled;
        Watch watch{q_len, {SlotRange{0, keys}}};
        const Noting mask{rove::boolean_mask(tensor), &watch};
        rove::NaiveKernel{}(naive.problem().with_mask(mask));
        EXPECT_EQ(watch.prefetched, 0);
        rove::TiledKernel{}(tiled.problem().with_mask(mask));
        ASSERT_TRUE(same_bits(tiled.out, naive.out));
        ASSERT_TRUE(same_bits(tiled.lse, naive.lse));
        ASSERT_EQ(watch.wrong, 0);
        // All but the first tile and block are asked for ahead.
        EXPECT_EQ(watch.prefetched > 0, keys > 256 || q_len > rove::detail::TileShape<float>::rows);
      }
    }
  }
}

TEST(TiledScores, every_row_of_every_block_is_asked_for_once) {
  constexpr Index q_len = 100, keys = 600;
  const std::vector<unsigned char> seen(q_len * keys, 200);
  Operands<float> x(1, 1, 1, q_len, keys, 8, 8, 46);
  Watch watch{q_len, {SlotRange{0, keys}}};
  const Noting mask{rove::boolean_mask(rove::bhtd(seen.data(), 1, 1, q_len, keys)), &watch};
  rove::TiledKernel{}(x.problem().with_mask(mask));
  // Three blocks for each row, but for the first tile's first.
  EXPECT_EQ(watch.prefetched, 3 * q_len - rove::detail::TileShape<float>::rows);
  EXPECT_EQ(watch.wrong, 0);
}

}  // namespace
}  // namespace rove_test

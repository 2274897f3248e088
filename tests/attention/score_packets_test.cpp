// The packet forms of scores: lane by lane the bits of the scalar form.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/attention/any_score.hpp"
#include "rove/attention/score.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_lambda.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/tensor_view.hpp"
#include "support/error_of.hpp"

namespace outside {

/// A score of somebody else's in both forms.
struct Cooling {
  template <rove::Accumulator Acc>
  Acc operator()(Acc s, const rove::Site& site) const {
    return s / static_cast<Acc>(1 + site.head);
  }
  template <rove::simd::PacketLike P>
  P packet(P s, const rove::Site& first) const {
    using Acc = rove::simd::lane_t<P>;
    return s / rove::simd::broadcast<P>(static_cast<Acc>(1 + first.head));
  }
};

/// And one without.
struct Halve {
  template <class Acc>
  Acc operator()(Acc s, const rove::Site&) const {
    return s / 2;
  }
};

/// A final class cannot be asked what it names, only what it can do.
struct Final final {
  template <class Acc>
  Acc operator()(Acc s, const rove::Site&) const {
    return s;
  }
};

}  // namespace outside

namespace {

namespace simd = rove::simd;
using rove::Index;
using rove::Site;
using test::error_of;

// ---- Which scores have the form ---------------------------------------------------------------------

template <class S>
constexpr bool takes_packets =
    rove::score_takes_packets<S, float>&& rove::score_takes_packets<S, double>&& rove::score_takes_packets<
        S, simd::packet_t<float>>&& rove::score_takes_packets<S, simd::packet_t<double>>;
template <class S>
constexpr bool takes_none = !rove::score_takes_packets<S, float> && !rove::score_takes_packets<S, double> &&
                            !rove::score_takes_packets<S, simd::packet_t<float>> &&
                            !rove::score_takes_packets<S, simd::packet_t<double>>;

static_assert(takes_packets<rove::NoScore> && takes_packets<rove::SoftCap> && takes_packets<rove::Alibi>);
static_assert(takes_packets<rove::AdditiveBias<float>> && takes_packets<rove::AdditiveBias<double>> &&
              takes_packets<rove::AdditiveBias<Eigen::half>> &&
              takes_packets<rove::AdditiveBias<Eigen::bfloat16>>);
static_assert(takes_packets<outside::Cooling> && takes_none<outside::Halve> && takes_none<outside::Final>);
static_assert(takes_packets<rove::AnyScore> && takes_packets<rove::ScoreChain<rove::AnyScore, rove::Alibi>> &&
              takes_none<rove::ScoreChain<rove::AnyScore, outside::Halve>>);
static_assert(takes_none<decltype(rove::score([](auto s) { return s; }))>);
// A chain where both do.
static_assert(takes_packets<rove::ScoreChain<rove::SoftCap, rove::Alibi>>);
static_assert(takes_none<rove::ScoreChain<rove::SoftCap, outside::Halve>> &&
              takes_none<rove::ScoreChain<outside::Halve, rove::SoftCap>>);
static_assert(takes_none<rove::ScoreChain<rove::ScoreChain<rove::SoftCap, outside::Halve>, rove::Alibi>>);

static_assert(rove::score_prefetches<rove::AdditiveBias<float>>() && !rove::score_prefetches<rove::Alibi>());
static_assert(rove::score_prefetches<rove::ScoreChain<rove::SoftCap, rove::AdditiveBias<float>>>() &&
              rove::score_prefetches<rove::ScoreChain<rove::AdditiveBias<float>, outside::Halve>>() &&
              !rove::score_prefetches<rove::ScoreChain<rove::SoftCap, rove::Alibi>>());

// ---- Bits -------------------------------------------------------------------------------------------

template <class Acc>
bool same(Acc a, Acc b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0;
}

/// Logits of every size, some of them none.
template <class Acc>
Acc logit(std::mt19937& random) {
  constexpr Acc infinity = std::numeric_limits<Acc>::infinity();
  switch (random() % 24) {
    case 0:
      return infinity;
    case 1:
      return -infinity;
    case 2:
      return std::numeric_limits<Acc>::quiet_NaN();
    case 3:
      return Acc(-0.0);
    case 4:
      return Acc(1e30);
    default:
      return static_cast<Acc>(static_cast<int>(random() % 20001) - 10000) / 97;
  }
}

/// Compares one packet that starts at `first`.
template <class P, class S>
bool packet_is_its_lanes(const S& score, const Site& first, std::mt19937& random) {
  using Acc = simd::lane_t<P>;
  Acc lanes[std::size_t{simd::width<P>}];
  for (Acc& lane : lanes) lane = logit<Acc>(random);
  const P scored = score.packet(simd::load<P>(lanes), first);
  Site site = first;
  for (int i = 0; i < simd::width<P>; ++i, ++site.slot, ++site.key) {
    const Acc is = simd::lane(scored, i), right = score(lanes[i], site);
    if (same(is, right)) continue;
    ADD_FAILURE() << "lane " << i << " of " << simd::width<P> << ", logit " << lanes[i] << ", query "
                  << site.query << ", key " << site.key << ", slot " << site.slot << ": " << is
                  << ", should be " << right;
    return false;
  }
  return true;
}

/// The same for packets of width 1 and the target's, of float and double.
template <class S>
bool packets_are_their_lanes(const S& score, const Site& first, std::mt19937& random) {
  return packet_is_its_lanes<float>(score, first, random) &&
         packet_is_its_lanes<double>(score, first, random) &&
         packet_is_its_lanes<simd::packet_t<float>>(score, first, random) &&
         packet_is_its_lanes<simd::packet_t<double>>(score, first, random);
}

TEST(ScorePackets, soft_caps) {
  std::mt19937 random(1);
  for (const double cap : {1e-3, 1.0, 30.0, 50.0, 1e30}) {
    for (int trial = 0; trial < 500; ++trial) {
      ASSERT_TRUE(packets_are_their_lanes(rove::soft_cap(cap), Site{}, random)) << cap;
    }
  }
}

TEST(ScorePackets, alibi_round_the_query_and_far_from_it) {
  // Slopes whose products are exact and some whose are not.
  const std::vector<double> slopes{0.5, 1.0 / 3, -0.7, 0, 1e-9};
  const auto score = rove::alibi(slopes);
  std::mt19937 random(2);
  std::vector<Index> distances;
  for (Index near = -40; near <= 40; ++near) distances.push_back(near);
  // Where whole numbers stop being exact, in float (2^24) and double (2^53), and where the packet's short way
  // ends.
  for (const int power : {22, 23, 24, 25, 31, 32, 51, 52, 53, 54, 60}) {
    for (Index near = -40; near <= 40; ++near) {
      distances.push_back((Index{1} << power) + near);
      distances.push_back(-(Index{1} << power) + near);
    }
  }
  for (const Index distance : distances) {
    for (const Index query : {Index{0}, Index{12345}, Index{-77}}) {
      for (Index head = 0; head < 5; ++head) {
        const Site first{.head = head, .query = query, .key = query + distance};
        ASSERT_TRUE(packets_are_their_lanes(score, first, random)) << "distance " << distance;
      }
    }
  }
}

template <class T>
class BiasPackets : public testing::Test {};
using Scalars = testing::Types<float, double, Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(BiasPackets, Scalars);

TYPED_TEST(BiasPackets, read_the_elements_of_their_slots) {
  using T = TypeParam;
  std::mt19937 random(3);
  constexpr Index rows = 3;
  const Index slots = 2 * simd::native_width<float> + 3;
  for (const Index stride : {1, 2, 3, -1, -2}) {
    // Rows end to end, and no element more: the sanitizer sees what is read beyond.
    const Index row_size = slots * std::abs(stride);
    std::vector<T> values(static_cast<std::size_t>(rows * row_size));
    for (T& value : values) {
      // More bits than a float has: a double is rounded before it is added.
      value = static_cast<T>(static_cast<double>(static_cast<int>(random() % 2000001) - 1000000) / 70001);
    }
    values[static_cast<std::size_t>(row_size)] = static_cast<T>(-std::numeric_limits<float>::infinity());
    T* const data = values.data() + (stride < 0 ? (slots - 1) * -stride : 0);
    const auto score =
        rove::additive_bias(rove::TensorView<T>{data, {1, 1, rows, slots}, {0, 0, row_size, stride}});
    for (Index row = 0; row < rows; ++row) {
      for (Index slot = 0; slot < slots; ++slot) {
        const Site first{.row = row, .slot = slot, .query = 100, .key = 200};
        if (slot + simd::native_width<float> <= slots) {
          ASSERT_TRUE(packet_is_its_lanes<simd::packet_t<float>>(score, first, random)) << stride;
        }
        if (slot + simd::native_width<double> <= slots) {
          ASSERT_TRUE(packet_is_its_lanes<simd::packet_t<double>>(score, first, random)) << stride;
        }
        ASSERT_TRUE(packet_is_its_lanes<float>(score, first, random));
        ASSERT_TRUE(packet_is_its_lanes<double>(score, first, random));
      }
    }
  }
}

TYPED_TEST(BiasPackets, one_element_for_all_slots) {
  std::mt19937 random(4);
  const std::vector<TypeParam> values{static_cast<TypeParam>(0.25F), static_cast<TypeParam>(-3.0F)};
  const auto score = rove::additive_bias(rove::bhtd(values.data(), 1, 2, 1, 1));
  for (Index head = 0; head < 2; ++head) {
    ASSERT_TRUE(packets_are_their_lanes(score, Site{.head = head, .row = 5, .slot = 1000}, random));
  }
}

TEST(ScorePackets, chains_and_scores_of_ones_own) {
  std::mt19937 random(5);
  const std::vector<Eigen::half> bias(100, Eigen::half(0.3F));
  const auto added = rove::additive_bias(rove::bhtd(bias.data(), 1, 1, 1, 100));
  for (int trial = 0; trial < 200; ++trial) {
    const Site first{.head = trial % 8, .slot = trial % 80, .query = 50, .key = trial};
    ASSERT_TRUE(packets_are_their_lanes(rove::soft_cap(30) | rove::alibi(8), first, random));
    ASSERT_TRUE(packets_are_their_lanes(rove::alibi(8) | rove::soft_cap(30), first, random));
    ASSERT_TRUE(packets_are_their_lanes(outside::Cooling{}, first, random));
    ASSERT_TRUE(packets_are_their_lanes(added | outside::Cooling{} | rove::alibi(8), first, random));
    ASSERT_TRUE(packets_are_their_lanes(rove::NoScore{}, first, random));
    const rove::AnyScore any = rove::soft_cap(30) | rove::alibi(8);
    ASSERT_TRUE(packets_are_their_lanes(any, first, random));
    ASSERT_TRUE(packets_are_their_lanes(any | outside::Cooling{}, first, random));
  }
}

TEST(ScorePackets, only_run_time_knows_whether_any_score_takes_them) {
  using rove::AnyScore;
  EXPECT_TRUE(rove::score_packets_ready(AnyScore()));
  EXPECT_TRUE(rove::score_packets_ready(AnyScore(rove::alibi(8))));
  EXPECT_TRUE(rove::score_packets_ready(rove::alibi(8)));
  const AnyScore none = outside::Halve{};
  EXPECT_FALSE(rove::score_packets_ready(none));
  EXPECT_FALSE(rove::score_packets_ready(none | rove::alibi(8)));
  EXPECT_FALSE(rove::score_packets_ready(rove::alibi(8) | none));
  EXPECT_TRUE(rove::score_packets_ready(AnyScore(rove::alibi(8)) | rove::soft_cap(3)));
  EXPECT_FALSE(rove::score_packets_ready(AnyScore(rove::alibi(8) | none)));
  if constexpr (simd::native_width < float >> 1) {
    EXPECT_EQ(error_of([&] { none.packet(simd::broadcast<simd::packet_t<float>>(1), Site{}); }),
              "AnyScore: the score inside has no packet form");
  }
}

// ---- Prefetching ------------------------------------------------------------------------------------

TEST(ScorePackets, prefetch_stays_within_a_tensor_that_ends_where_its_memory_does) {
  // Addresses past the end are undefined even where nothing is read: -fsanitize=pointer-overflow sees some, a
  // view of one row at the top of its memory the rest.
  for (const Index slots : {1, 2, 15, 16, 17, 64, 65, 300}) {
    const std::vector<float> bias(static_cast<std::size_t>(slots));
    const auto score = rove::additive_bias(rove::bhtd(bias.data(), 1, 1, 1, slots));
    for (Index first = 0; first < slots; first += 7) score.prefetch(Site{.slot = first}, slots - first);
    (rove::soft_cap(3) | score | outside::Halve{}).prefetch(Site{}, slots);
  }
}

/// Keeps what it was asked for.
struct Noting {
  std::vector<std::pair<Index, Index>>* asked;
  template <class Acc>
  Acc operator()(Acc s, const Site&) const {
    return s;
  }
  void prefetch(const Site& first, Index count) const { asked->emplace_back(first.slot, count); }
};

TEST(ScorePackets, chains_pass_prefetches_on_to_both) {
  std::vector<std::pair<Index, Index>> first, second;
  const auto chain = Noting{&first} | rove::soft_cap(30) | Noting{&second};
  chain.prefetch(Site{.slot = 7}, 20);
  EXPECT_EQ(first, (std::vector<std::pair<Index, Index>>{{7, 20}}));
  EXPECT_EQ(second, first);
}

}  // namespace

// A hook with a slip in its signature is an error, not a hook that is silently left out.
#include "rove/attention/mask.hpp"
#include "rove/attention/score.hpp"

namespace {

struct Half {
  bool visible(const rove::Site& site) const { return site.key % 2 == 0; }
#if ROVE_PROBE == 1
  void check(int) const {}
#else
  void check(const rove::AttentionShape&) const {}
#endif
#if ROVE_PROBE == 2
  bool order_aware(int) const {
    return false;
  }
#else
  bool order_aware() const {
    return false;
  }
#endif
#if ROVE_PROBE == 3
  bool tile(const rove::TileRange&) const {
    return true;
  }
#else
  rove::TileVisibility tile(const rove::TileRange&) const {
    return rove::TileVisibility::some;
  }
#endif
#if ROVE_PROBE == 6
  void prefetch(rove::Site&, rove::Index) const {}
#else
  void prefetch(const rove::Site&, rove::Index) const {}
#endif
};

struct Steep {
  template <class Acc>
  Acc operator()(Acc s, const rove::Site&) const {
    return s + s;
  }
#if ROVE_PROBE == 4
  void check(int) const {}
#else
  void check(const rove::AttentionShape&) const {}
#endif
#if ROVE_PROBE == 5
  bool order_aware(int) const {
    return false;
  }
#else
  bool order_aware() const {
    return false;
  }
#endif
  template <rove::simd::PacketLike P>
#if ROVE_PROBE == 7
  P packet(P s, const rove::Site&) {
#else
  P packet(P s, const rove::Site&) const {
#endif
    return s + s;
  }
#if ROVE_PROBE == 8
  void prefetch(const rove::Site&) const {}
#else
  void prefetch(const rove::Site&, rove::Index) const {}
#endif
};

/// In a chain, too: one that takes no packets, because its second score has no such form, and asks its first.
struct Plain {
  template <class Acc>
  Acc operator()(Acc s, const rove::Site&) const {
    return s;
  }
};
using Chain = rove::ScoreChain<Steep, Plain>;
static_assert(!rove::score_takes_packets<Chain, rove::simd::packet_t<float>>);
static_assert(rove::score_takes_packets<Steep, rove::simd::packet_t<float>> &&
              rove::score_takes_packets<Steep, double> && !rove::score_takes_packets<Plain, double>);
static_assert(rove::mask_prefetches<Half>() && rove::mask_prefetches<rove::And<rove::AllVisible, Half>>());
static_assert(!rove::mask_prefetches<rove::And<rove::AllVisible, rove::AllVisible>>());
static_assert(rove::score_prefetches<Chain>() && !rove::score_prefetches<rove::ScoreChain<Plain, Plain>>());

}  // namespace

int use() {
  const Half mask;
  const Steep score;
  rove::mask_check(mask, {});
  rove::score_check(score, {});
  return rove::mask_order_aware(mask) + rove::score_order_aware(score) +
         static_cast<int>(rove::mask_tile(mask, {}));
}

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
};

}  // namespace

int use() {
  const Half mask;
  const Steep score;
  rove::mask_check(mask, {});
  rove::score_check(score, {});
  return rove::mask_order_aware(mask) + rove::score_order_aware(score) +
         static_cast<int>(rove::mask_tile(mask, {}));
}

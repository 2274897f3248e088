/// \file
/// What the products ask for on their way.
#pragma once

#include <algorithm>
#include <cstddef>

#include "rove/attention/key_values.hpp"
#include "rove/attention/tiled/pack.hpp"
#include "rove/attention/tiled/tile.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Memory that is asked for while tiles of rows go through one key block: the block that comes next, or what
/// follows the last one. Packed keys and values of a long sequence are beyond the core's own cache, and so
/// are the operands of the next head; without this whoever reads them first waits for them.
class MemoryAhead {
 public:
  /// `tiles` go through the block that is at hand, which lies at `here`.
  template <Accumulator Acc>
  MemoryAhead(const PackedLayout<Acc>& layout, Index tiles, const Acc* here)
      : here_(reinterpret_cast<const char*>(here)),
        tiles_(tiles),
        requests_(layout.block / layout.panel * pairs_of(layout.channels)) {}  // of score_tiles

  void add(const void* from, Index bytes) {
    if (count_ == most || bytes <= 0) return;
    stretches_[count_++] = {static_cast<const char*>(from), bytes};
    bytes_ += bytes;
  }
  /// The first `count` rows of a run, if they lie one after the other.
  template <class Storage>
  void add(const RowRun<Storage>& run, Index count, Index channels) {
    const Index row = channels / channels_per_element<Storage>;
    if (run.channel_stride != 1 || run.row_stride != row) return;
    add(run.data, (std::min)(count, run.count) * row * static_cast<Index>(sizeof(Storage)));
  }

  /// What to ask for with tile t: where the tiles before have asked for all, what is at hand, over and over.
  Ahead part(Index t) const {
    const Index step =
        std::clamp(bytes_ / (std::max)(Index{1}, tiles_ * requests_), Index{1}, simd::cache_line);
    Index at = t * requests_ * step;
    for (std::size_t i = 0; i < count_; ++i) {
      if (at < stretches_[i].bytes) return {stretches_[i].from + at, step};
      at -= stretches_[i].bytes;
    }
    return {here_, 0};
  }

 private:
  struct Stretch {
    const char* from;
    Index bytes;
  };
  static constexpr std::size_t most = 5;
  const char* here_;
  Index tiles_;
  Index requests_;  ///< of a tile
  Stretch stretches_[most] = {};
  std::size_t count_ = 0;
  Index bytes_ = 0;
};

}  // namespace detail

ROVE_END_TAGGED

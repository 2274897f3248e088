/// \file
/// How keys are cut into blocks, and blocks into chunks.
#pragma once

#include <algorithm>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/key_values.hpp"
#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// The key blocks of a problem: block i holds the slots [i · length, (i + 1) · length).
template <class Problem>
class KeyBlocks {
 public:
  explicit KeyBlocks(const Problem& problem)
      : problem_(&problem),
        length_(
            key_block_length<typename Problem::accumulator>(problem.channels(), problem.value_channels())) {
    for (Index b = 0; b < problem.batch(); ++b) most_ = (std::max)(most_, of(b).count());
  }

  Index length() const { return length_; }
  Index to_a_chunk() const { return chunk_length / length_; }
  /// The most blocks that a batch row touches.
  Index most() const { return most_; }

  /// Blocks that batch row b touches, [first, last).
  SlotRange of(Index b) const {
    const SlotRange slots = problem_->slots(b);
    if (slots.empty()) return {0, 0};
    return {slots.first / length_, (slots.last + length_ - 1) / length_};
  }

  /// The used slots of one block.
  SlotRange slots(Index b, Index block) const {
    const SlotRange used = problem_->slots(b);
    return {(std::max)(used.first, block * length_), (std::min)(used.last, (block + 1) * length_)};
  }

 private:
  const Problem* problem_;
  Index length_;
  Index most_ = 0;
};

}  // namespace detail

ROVE_END_TAGGED

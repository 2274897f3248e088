/// \file
/// Where a logit stands: what masks and scores are asked about.
#pragma once

#include <type_traits>

#include "rove/core/config.hpp"

namespace rove {

/// One (query, key) pair.
///
/// A key has two numbers. Its *slot* is its place in order of appending; boolean masks, additive biases and
/// the columns of A go by (row, slot), both local. Its absolute *index* rises with the slot but may be
/// displaced; masks and scores that know order (causal, window, ALiBi, …) go by (query, key).
struct Site {
  Index batch = 0;
  Index head = 0;   ///< query head
  Index row = 0;    ///< query's place in this call, [0, q_len)
  Index slot = 0;   ///< key's place in order of appending
  Index query = 0;  ///< query's absolute index, query_offset[batch] + row
  Index key = 0;    ///< key's absolute index
};

/// The extents that a mask or a score checks itself against, once a call.
struct AttentionShape {
  Index batch = 0;
  Index heads = 0;  ///< query heads
  Index kv_heads = 0;
  Index q_len = 0;
  Index kv_len = 0;  ///< one past the last slot of any batch row
};

/// A rectangle of logits of one (batch, head): all bounds half-open, `first < last`.
struct TileRange {
  Index batch = 0;
  Index head = 0;
  Index row_first = 0, row_last = 0;      ///< local rows
  Index slot_first = 0, slot_last = 0;    ///< slots
  Index query_first = 0, query_last = 0;  ///< absolute indices of the rows
  Index key_first = 0, key_last = 0;      ///< smallest absolute index of the keys, one past the largest
};

/// What a mask says of a whole tile. `some` is always a right answer.
enum class TileVisibility { none, some, all };

}  // namespace rove

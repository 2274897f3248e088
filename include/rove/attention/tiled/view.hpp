/// \file
/// What a tile of query rows sees of a key block.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/key_values.hpp"
#include "rove/attention/mask.hpp"
#include "rove/attention/site.hpp"
#include "rove/attention/softmax_rows.hpp"
#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// For up to `rows` rows; empty where first >= last.
template <int rows>
struct BlockView {
  static constexpr int words = static_cast<int>(longest_key_block / 64);

  bool all = false;           ///< every key of [first, last) by every row; otherwise `bits` say it
  Index first = 0, last = 0;  ///< places in the block that some row sees
  std::uint64_t bits[std::size_t{rows}][std::size_t{words}];

  bool sees(int r, Index j) const { return all || (bits[r][j / 64] >> (j % 64) & 1U) != 0; }
};

/// What the mask says of the rows [row, row + count) of a head and the slots `part`; `some` where the indices
/// of the used slots are not consecutive.
template <class Problem>
TileVisibility visibility(const Problem& problem, Index b, Index head, Index row, Index count, SlotRange used,
                          SlotRange part) {
  const IndexRun run = problem.kv.indices(b, used.first);
  if (run.count < used.count()) return TileVisibility::some;
  const Index query = problem.first_query(b) + row;
  const Index key = run.first + (part.first - used.first);
  return mask_tile(problem.mask, TileRange{b, head, row, row + count, part.first, part.last, query,
                                           query + count, key, key + part.count()});
}

/// Looks at the rows [row, row + count) of a head over the used slots of the block that starts at `origin`.
template <int rows, class Problem>
void look(const Problem& problem, Index b, Index head, Index row, int count, Index origin, SlotRange used,
          BlockView<rows>& view) {
  constexpr int words = BlockView<rows>::words;
  switch (visibility(problem, b, head, row, count, used, used)) {
    case TileVisibility::none:
      return;
    case TileVisibility::all:
      view.all = true;
      view.first = used.first - origin;
      view.last = used.last - origin;
      return;
    case TileVisibility::some:
      break;
  }
  const Index query = problem.first_query(b) + row;
  const IndexRun run = problem.kv.indices(b, used.first);
  const bool straight = run.count >= used.count();
  for (int r = 0; r < count; ++r) {
    for (std::uint64_t& word : view.bits[r]) word = 0;
  }
  std::uint64_t any[std::size_t{words}] = {};
  // By 64 places: under a causal mask most of them are seen by all rows or by none.
  for (int w = 0; w < words; ++w) {
    const SlotRange part{(std::max)(used.first, origin + 64 * w),
                         (std::min)(used.last, origin + 64 * w + 64)};
    if (part.empty()) continue;
    const Index start = origin + 64 * w;
    const Index key = run.first + (part.first - used.first);
    const TileVisibility seen = visibility(problem, b, head, row, count, used, part);
    if (seen == TileVisibility::none) continue;
    for (int r = 0; r < count; ++r) {
      const Site site{b, head, row + r, part.first, query + r, key};
      std::uint64_t& bits = view.bits[r][w];
      if (seen == TileVisibility::all) {
        bits = bit_range(part.first - start, part.last - start, 64);
      } else if (straight) {
        bits = mask_bits(problem.mask, site, static_cast<int>(part.count())) << (part.first - start);
      } else {
        visible_slots(problem, site, origin, part, view.bits[r]);
      }
      any[w] |= bits;
    }
  }
  view.first = longest_key_block;
  for (int w = 0; w < words; ++w) {
    if (any[w] == 0) continue;
    view.first = (std::min)(view.first, Index{64} * w + std::countr_zero(any[w]));
    view.last = Index{64} * w + 64 - std::countl_zero(any[w]);
  }
}

}  // namespace detail

ROVE_END_TAGGED

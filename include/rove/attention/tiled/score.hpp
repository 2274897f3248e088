/// \file
/// A tile's logits through the score.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numbers>
#include <type_traits>

#include "rove/attention/key_values.hpp"
#include "rove/attention/score.hpp"
#include "rove/attention/site.hpp"
#include "rove/attention/tiled/tile.hpp"
#include "rove/attention/tiled/view.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Natural logits of the rows from `first_row` on against a block that starts at slot `origin`, through the
/// score and to units of log 2, in place: by packets where the score has that form and all slots of the
/// packet are used, otherwise one by one, those that are seen. Rows are `weights_stride` apart.
template <class Problem, int tile_rows, Accumulator Acc>
void score_logits(const Problem& problem, Index b, Index head, Index first_row, int rows, Index origin,
                  SlotRange used, const BlockView<tile_rows>& view, Acc* weights) {
  using P = simd::packet_t<Acc>;
  constexpr int width = simd::width<P>;
  const IndexRun run = problem.kv.indices(b, used.first);
  const bool straight = run.count >= used.count();
  const Index query = problem.first_query(b) + first_row;
  // Places to score by packets: whole ones of used slots.
  Index from = view.last, to = view.last;
  if constexpr (score_takes_packets<typename Problem::score_type, P>) {
    const Index first = (std::max)(view.first, used.first - origin + width - 1) / width * width;
    const Index last = (std::min)(view.last + width - 1, used.last - origin) / width * width;
    if (straight && first < last && score_packets_ready(problem.score)) from = first, to = last;
  }
  for (int r = 0; r < rows; ++r) {
    Site site{b, head, first_row + r, 0, query + r, 0};
    Acc* const logits = weights + r * weights_stride;
    const auto one_by_one = [&](Index first, Index last) {
      for (Index j = first; j < last; ++j) {
        if (!view.sees(r, j)) continue;
        site.slot = origin + j;
        site.key = problem.kv.indices(b, site.slot).first;
        logits[j] = problem.score(logits[j], site) * std::numbers::log2e_v<Acc>;
      }
    };
    one_by_one(view.first, from);
    if constexpr (score_takes_packets<typename Problem::score_type, P>) {
      // Several at a time: what they share is worked out once.
      const auto packets = [&](auto count, Index j) ROVE_INLINE_LAMBDA {
        P x[std::size_t{count}];
        unrolled<count>([&](auto i) ROVE_INLINE_LAMBDA {
          site.slot = origin + j + i * width;
          site.key = run.first + (site.slot - used.first);
          x[i] = problem.score.packet(simd::load<P>(logits + j + i * width), site) *
                 simd::broadcast<P>(std::numbers::log2e_v<Acc>);
        });
        unrolled<count>([&](auto i) ROVE_INLINE_LAMBDA { simd::store<P>(logits + j + i * width, x[i]); });
      };
      Index j = from;
      for (; j + 4 * width <= to; j += 4 * width) packets(std::integral_constant<int, 4>{}, j);
      for (; j < to; j += width) packets(std::integral_constant<int, 1>{}, j);
    }
    one_by_one(to, view.last);
  }
}

}  // namespace detail

ROVE_END_TAGGED

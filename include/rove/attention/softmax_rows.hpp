/// \file
/// What every kernel does to a row: find which keys it sees, and finish its sums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>

#include "rove/attention/key_values.hpp"
#include "rove/attention/mask.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/row_io.hpp"
#include "rove/attention/site.hpp"
#include "rove/attention/softmax_state.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Sets bit j % 64 of visible[j / 64] where the row sees slot origin + j, for the slots in `used`; false
/// where it sees none. `site` names batch, head, row and query; the words must be zero.
template <class Problem>
bool visible_slots(const Problem& problem, Site site, Index origin, SlotRange used, std::uint64_t* visible) {
  std::uint64_t any = 0;
  for (Index slot = used.first; slot < used.last;) {
    const IndexRun run = problem.kv.indices(site.batch, slot);
    const Index run_last = (std::min)(used.last, slot + run.count);
    const Index run_first = slot;
    while (slot < run_last) {
      const Index j = slot - origin;
      const int count = static_cast<int>((std::min)(64 - j % 64, run_last - slot));
      site.slot = slot;
      site.key = run.first + (slot - run_first);
      const std::uint64_t bits = mask_bits(problem.mask, site, count);
      visible[j / 64] |= bits << (j % 64);
      any |= bits;
      slot += count;
    }
  }
  return any != 0;
}

/// to[c] = from[c] · share, and +0 for a zero of either sign: a block that contributes −0 and one that is
/// skipped come out alike.
template <Accumulator Acc>
void share_row(const Acc* from, Acc share, std::span<Acc> to) {
  const auto shared = [share](auto x) ROVE_INLINE_LAMBDA {
    using P = decltype(x);
    const P zero = simd::broadcast<P>(0);
    x = x * simd::broadcast<P>(share);
    return simd::select<P>(x == zero, zero, x);
  };
  using P = simd::packet_t<Acc>;
  constexpr Index width = simd::width<P>;
  const Index count = static_cast<Index>(to.size());
  Index c = 0;
  for (; c + width <= count; c += width) simd::store<P>(to.data() + c, shared(simd::load<P>(from + c)));
  for (; c < count; ++c) to[static_cast<std::size_t>(c)] = shared(from[c]);
}

/// Sink, log-sum-exp, division: what is left of a row but its transform. `finished` is memory for it.
template <class Problem, class Acc>
ROVE_ALWAYS_INLINE void settle_row(const Problem& problem, Index b, Index head, Index row, const Acc* sums,
                                   SoftmaxState<Acc> state, std::span<Acc> finished) {
  Acc weight = 1;
  const bool empty = state.empty();
  const bool has_sink = problem.sinks.data() != nullptr;
  const Acc sink = has_sink ? problem.sinks[static_cast<std::size_t>(head)] : Acc(0);
  if (has_sink && !empty) {
    const auto merged = merge(state, SoftmaxState<Acc>::of(sink * std::numbers::log2e_v<Acc>));
    weight = merged.weight_a;
    state = merged.state;
  }
  if (problem.lse) problem.lse(b, head, row) = empty && has_sink ? sink : state.lse();
  if (empty) {  // by selection: what was summed is not looked at
    std::fill(finished.begin(), finished.end(), Acc(0));
  } else {
    share_row(sums, weight / state.sum, finished);
  }
}

/// Finishes a row: settles, transforms, rounds it.
template <class Problem, class Transform, class Acc>
void finish_row(const Problem& problem, const Transform& transform, Index b, Index head, Index row,
                const Acc* sums, SoftmaxState<Acc> state, std::span<Acc> finished) {
  settle_row(problem, b, head, row, sums, state, finished);
  write_output(problem, transform, b, head, row, finished);
}

}  // namespace detail

ROVE_END_TAGGED

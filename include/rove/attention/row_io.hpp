/// \file
/// Rows on their way in and out of a kernel: widened and transformed, transformed and rounded. Every path
/// uses these, so that all paths agree by bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include "rove/attention/key_values.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/row_transform.hpp"
#include "rove/core/config.hpp"
#include "rove/core/row_block.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_convert.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// rows[r] ← row `first` + r, widened and transformed, where run_of(i) is the run that begins with row i.
/// Rows that lie in memory as they are to be read are transformed on the way, without a pass of their own.
template <class Storage, class Transform, Accumulator Acc, class RunOf>
ROVE_ALWAYS_INLINE void read_rows(const Transform& transform, Index b, Index first, RowBlock<Acc> rows,
                                  const RunOf& run_of) {
  for (Index done = 0; done < rows.count;) {
    const RowRun<Storage> run = run_of(first + done);
    const RowBlock<Acc> to = rows.part(done, (std::min)(run.count, rows.count - done));
    if constexpr (std::is_same_v<Storage, Acc> && !Transform::is_identity && ForwardsRows<Transform, Acc>) {
      if (run.channel_stride == 1 && run.scale == nullptr) {
        transform.forward_rows(b, first + done,
                               RowBlock<const Acc>{run.data, to.count, to.channels, run.row_stride}, to);
        done += to.count;
        continue;
      }
    }
    for (Index r = 0; r < to.count; ++r) RowCodec<Storage>::read(run, r, to.row(r));
    transform_rows(transform, b, first + done, to);
    done += to.count;
  }
}

/// Rows from `first` on, transformed, to be read by whole packets: in `rows`, or where they are if they lie
/// as they are to be read.
template <class Storage, class Transform, Accumulator Acc, class RunOf>
ROVE_ALWAYS_INLINE RowBlock<const Acc> view_rows(const Transform& transform, Index b, Index first,
                                                 RowBlock<Acc> rows, const RunOf& run_of) {
  if constexpr (std::is_same_v<Storage, Acc> && Transform::is_identity) {
    if (rows.channels % simd::native_width<Acc> == 0) {
      const RowRun<Storage> run = run_of(first);
      if (run.count >= rows.count && run.channel_stride == 1 && run.scale == nullptr) {
        return {run.data, rows.count, rows.channels, run.row_stride};
      }
    }
  }
  read_rows<Storage>(transform, b, first, rows, run_of);
  return rows;
}

/// The queries of a head, from `row` on.
template <class Problem>
ROVE_ALWAYS_INLINE RowRun<typename Problem::query_storage> query_run(const Problem& problem, Index b,
                                                                     Index head, Index row) {
  return {problem.q.row(b, head, row), problem.q_len() - row, problem.q.stride[2], problem.q.stride[3]};
}

/// The outputs of a head, from `row` on.
template <class Problem>
ROVE_ALWAYS_INLINE RowRun<typename Problem::output_storage> output_run(const Problem& problem, Index b,
                                                                       Index head, Index row) {
  return {problem.out.row(b, head, row), problem.q_len() - row, problem.out.stride[2], problem.out.stride[3]};
}

/// The queries of a head from `first` on, transformed: see view_rows.
template <class Problem, class Transform, class Acc>
ROVE_ALWAYS_INLINE RowBlock<const Acc> read_queries(const Problem& problem, const Transform& transform,
                                                    Index b, Index head, Index first, RowBlock<Acc> rows) {
  return view_rows<typename Problem::query_storage>(
      transform, b, first, rows,
      [&](Index row) ROVE_INLINE_LAMBDA { return query_run(problem, b, head, row); });
}

/// The keys in the slots from `first` on, likewise.
template <class Problem, class Transform, class Acc>
ROVE_ALWAYS_INLINE RowBlock<const Acc> read_keys(const Problem& problem, const Transform& transform, Index b,
                                                 Index kv_head, Index first, RowBlock<Acc> rows) {
  return view_rows<typename Problem::key_storage>(
      transform, b, first, rows,
      [&](Index slot) ROVE_INLINE_LAMBDA { return problem.kv.keys(b, kv_head, slot); });
}

/// The values in the slots from `first` on, likewise.
template <class Problem, class Transform, class Acc>
ROVE_ALWAYS_INLINE RowBlock<const Acc> read_values(const Problem& problem, const Transform& transform,
                                                   Index b, Index kv_head, Index first, RowBlock<Acc> rows) {
  return view_rows<typename Problem::value_storage>(
      transform, b, first, rows,
      [&](Index slot) ROVE_INLINE_LAMBDA { return problem.kv.values(b, kv_head, slot); });
}

/// into ← one row.
template <class Problem, class Transform, class Acc>
void read_query(const Problem& problem, const Transform& transform, Index b, Index head, Index row,
                std::span<Acc> into) {
  const auto to = RowBlock<Acc>::of(into);
  copy_rows(read_queries(problem, transform, b, head, row, to), to);
}
template <class Problem, class Transform, class Acc>
void read_key(const Problem& problem, const Transform& transform, Index b, Index kv_head, Index slot,
              std::span<Acc> into) {
  const auto to = RowBlock<Acc>::of(into);
  copy_rows(read_keys(problem, transform, b, kv_head, slot, to), to);
}
template <class Problem, class Transform, class Acc>
void read_value(const Problem& problem, const Transform& transform, Index b, Index kv_head, Index slot,
                std::span<Acc> into) {
  const auto to = RowBlock<Acc>::of(into);
  copy_rows(read_values(problem, transform, b, kv_head, slot, to), to);
}

/// Rounds a row to elements of any type, `stride` apart.
template <Scalar T, Accumulator Acc>
void store_row(T* to, Index stride, std::span<const Acc> row) {
  using P = simd::packet_t<Acc>;
  constexpr Index width = simd::width<P>;
  const Index count = static_cast<Index>(row.size());
  Index c = 0;
  if (stride == 1) {
    for (; c + width <= count; c += width) simd::store(to + c, simd::load<P>(row.data() + c));
  }
  for (; c < count; ++c) store_rounded(to + c * stride, row[static_cast<std::size_t>(c)]);
}

/// is_zero_row by every number.
template <Accumulator Acc>
ROVE_NO_INLINE bool is_zero_throughout(std::span<const Acc> row) {
  using P = simd::packet_t<Acc>;
  constexpr Index width = simd::width<P>;
  const Index count = static_cast<Index>(row.size());
  Index c = 0;
  for (; c + width <= count; c += width) {
    if (simd::any(!(simd::load<P>(row.data() + c) == simd::broadcast<P>(0)))) return false;
  }
  for (; c < count; ++c) {
    if (!(row[static_cast<std::size_t>(c)] == Acc(0))) return false;
  }
  return true;
}

/// Whether all of a row are zeros, of either sign.
template <Accumulator Acc>
ROVE_ALWAYS_INLINE bool is_zero_row(std::span<const Acc> row) {
  if (!row.empty() && row.front() != Acc(0)) return false;  // most rows: without a call
  return is_zero_throughout(row);
}

/// Memory for outputs from row `first` on before they are transformed and rounded: `rows`, or the problem's
/// own rows where these are as they will stay and `write_outputs` has nothing to do.
template <class Transform, class Problem, Accumulator Acc>
ROVE_ALWAYS_INLINE RowBlock<Acc> place_of_outputs(const Problem& problem, Index b, Index head, Index first,
                                                  RowBlock<Acc> rows) {
  if constexpr (std::is_same_v<typename Problem::output_storage, Acc> && Transform::is_identity) {
    if (problem.out.channel_stride() == 1) {
      return {problem.out.row(b, head, first), rows.count, rows.channels, problem.out.stride[2]};
    }
  }
  return rows;
}

/// Transforms `rows` and rounds them into the problem's output from row `first` on; what is left in `rows` is
/// not said. A row of zeros stays one whatever its transform, so that a row without keys is +0 on every path.
template <class Problem, class Transform, class Acc>
void write_outputs(const Problem& problem, const Transform& transform, Index b, Index head, Index first,
                   RowBlock<Acc> rows) {
  const auto is_zero = [&](Index r) { return is_zero_row(std::span<const Acc>(rows.row(r))); };
  const auto store = [&](Index from, Index to) {
    for (Index r = from; r < to; ++r) {
      store_row(problem.out.row(b, head, first + r), problem.out.channel_stride(),
                std::span<const Acc>(rows.row(r)));
    }
  };
  if constexpr (Transform::is_identity) {
    store(0, rows.count);
  } else {
    for (Index r = 0; r < rows.count; ++r) {
      if (is_zero(r)) {
        store(r, r + 1);
        continue;
      }
      Index end = r + 1;
      while (end < rows.count && !is_zero(end)) ++end;
      const RowBlock<Acc> some = rows.part(r, end - r);
      bool written = false;
      if constexpr (std::is_same_v<typename Problem::output_storage, Acc> && ForwardsRows<Transform, Acc>) {
        written = problem.out.channel_stride() == 1;
        if (written) {
          transform.forward_rows(b, first + r, RowBlock<const Acc>(some),
                                 RowBlock<Acc>{problem.out.row(b, head, first + r), some.count, some.channels,
                                               problem.out.stride[2]});
        }
      }
      if (!written) {
        transform_rows(transform, b, first + r, some);
        store(r, end);
      }
      r = end - 1;
    }
  }
}

/// One row.
template <class Problem, class Transform, class Acc>
void write_output(const Problem& problem, const Transform& transform, Index b, Index head, Index row,
                  std::span<Acc> values) {
  write_outputs(problem, transform, b, head, row, RowBlock<Acc>::of(values));
}

}  // namespace detail

ROVE_END_TAGGED

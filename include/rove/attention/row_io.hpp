/// \file
/// Rows on their way in and out of a kernel: widened and transformed, transformed and rounded. Every path
/// uses these, so that all paths agree by bits.
#pragma once

#include <span>

#include "rove/attention/key_values.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/row_transform.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

template <class Problem, class Transform, class Acc>
void read_query(const Problem& problem, const Transform& transform, Index b, Index head, Index row,
                std::span<Acc> into) {
  RowCodec<typename Problem::query_storage>::read(
      {problem.q.row(b, head, row), 1, 0, problem.q.channel_stride()}, 0, into);
  if constexpr (!Transform::is_identity) transform.forward(b, row, into);
}

template <class Problem, class Transform, class Acc>
void read_key(const Problem& problem, const Transform& transform, Index b, Index kv_head, Index slot,
              std::span<Acc> into) {
  rove::read_key(problem.kv, b, kv_head, slot, into);
  if constexpr (!Transform::is_identity) transform.forward(b, slot, into);
}

template <class Problem, class Transform, class Acc>
void read_value(const Problem& problem, const Transform& transform, Index b, Index kv_head, Index slot,
                std::span<Acc> into) {
  rove::read_value(problem.kv, b, kv_head, slot, into);
  if constexpr (!Transform::is_identity) transform.forward(b, slot, into);
}

/// Transforms `row` in place, then rounds it into the problem's output. A row of zeros stays one whatever its
/// transform, so that a row without keys is +0 on every path.
template <class Problem, class Transform, class Acc>
void write_output(const Problem& problem, const Transform& transform, Index b, Index head, Index row,
                  std::span<Acc> values) {
  if constexpr (!Transform::is_identity) {
    bool zero = true;
    for (const Acc x : values) zero = zero && x == Acc(0);
    if (!zero) transform.forward(b, row, values);
  }
  auto* out = problem.out.row(b, head, row);
  for (const Acc x : values) {
    store_rounded(out, x);
    out += problem.out.channel_stride();
  }
}

}  // namespace detail

ROVE_END_TAGGED

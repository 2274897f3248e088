/// \file
/// What a kernel does to a row when it reads or writes it, without knowing why.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>

#include "rove/core/ambiguous.hpp"
#include "rove/core/config.hpp"
#include "rove/core/row_block.hpp"
#include "rove/core/scalar.hpp"

ROVE_BEGIN_TAGGED

/// A linear map per token, applied in place to one row in the accumulator type.
///
///     forward(batch, token, row)    row ← M_t row
///     adjoint(batch, token, row)    row ← M_tᵀ row
///
/// `token` counts local rows for queries and outputs, slots for keys and values. The span is the whole row,
/// unit stride. A transform that `is_identity` is never called.
///
/// Optional, for transforms that do many rows faster than one by one:
///
///     forward_rows(batch, token, from, to)    row r of `to` ← M_{t+r} · row r of `from`
///
/// a RowBlock<const Acc> and a RowBlock<Acc> of at least one row that are the same rows or lie apart, with
/// the bits of `forward`, which is then not called. Who inherits a transform and replaces `forward` must
/// replace it too.
template <class T, class Acc>
concept RowTransform = std::copy_constructible<T> &&
    requires(const T& transform, Index batch, Index token, std::span<Acc> row) {
  { T::is_identity } -> std::convertible_to<bool>;
  transform.forward(batch, token, row);
  transform.adjoint(batch, token, row);
};

/// Leaves rows as they are.
struct IdentityTransform {
  static constexpr bool is_identity = true;
  template <Accumulator Acc>
  void forward(Index, Index, std::span<Acc>) const {}
  template <Accumulator Acc>
  void adjoint(Index, Index, std::span<Acc>) const {}
};

namespace detail {

template <class Transform, class Acc>
concept ForwardsRows = requires(const Transform& transform, Index i, RowBlock<const Acc> from,
                                RowBlock<Acc> to) {
  transform.forward_rows(i, i, from, to);
};

struct NamesForwardRows {
  int forward_rows;
};
template <class Transform>
concept NamesForwardRowsMember = std::is_class_v<Transform> && !std::is_final_v<Transform> && !requires {
  &Ambiguous<Transform, NamesForwardRows>::forward_rows;
};

/// Transforms the rows of the tokens from `token` on, in place.
template <class Transform, Accumulator Acc>
ROVE_ALWAYS_INLINE void transform_rows(const Transform& transform, Index b, Index token, RowBlock<Acc> rows) {
  static_assert(
      ForwardsRows<Transform, Acc> || !NamesForwardRowsMember<Transform>,
      "the transform's forward_rows cannot be called as forward_rows(b, token, RowBlock<const Acc>, "
      "RowBlock<Acc>) const");
  if constexpr (Transform::is_identity) {
    return;
  } else if constexpr (ForwardsRows<Transform, Acc>) {
    transform.forward_rows(b, token, RowBlock<const Acc>(rows), rows);
  } else {
    for (Index r = 0; r < rows.count; ++r) transform.forward(b, token + r, rows.row(r));
  }
}

}  // namespace detail

/// The four places of one attention call where rows pass: queries, keys and values are read through
/// `forward`, the output is written through `forward`; a backward pass reads and writes gradients through
/// `adjoint`.
template <class Query = IdentityTransform, class Key = IdentityTransform, class Value = IdentityTransform,
          class Output = IdentityTransform>
struct RowTransforms {
  Query query;
  Key key;
  Value value;
  Output output;
};

ROVE_END_TAGGED

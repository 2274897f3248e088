/// \file
/// Where a rotary frame takes its cosines and sines from: the concept that both tables model.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"

ROVE_BEGIN_TAGGED

/// The rotation of one token: pair k turns by the angle whose cosine is cos[k] and whose sine is sin[k].
/// [pairs] each, contiguous; valid as long as the table, or the scratch it was read into, lives unchanged.
template <class T>
struct RotationRow {
  const T* cos;
  const T* sin;
};

/// The rotations of one batch row that lie in memory at equal distances: token t's are run[t]. Valid as a row
/// of the table is.
template <class T>
struct RotationRun {
  const T* cos;  ///< of token 0
  const T* sin;
  Index stride;  ///< numbers from one token to the next

  ROVE_ALWAYS_INLINE constexpr RotationRow<T> operator[](Index t) const {
    return {cos + t * stride, sin + t * stride};
  }
};

/// A table of pure rotations, one for each token of each batch row.
///
/// `scalar_type` is float or double. `row(b, t, scratch)` gives the rotation of token t of batch row b, any b
/// where `batch()` is 1; it may compute it into `scratch`, which holds at least `scratch_size()` numbers (0
/// for a table that points into itself). Optional, for a table whose rows lie in memory: `run(b)`, a
/// `RotationRun<scalar_type>`, by which many rows are turned faster. Indices are asserted, not checked: see
/// `checked_row`. The factors that a model multiplies its logits by are carried beside the rotations, never
/// in them.
template <class S>
concept RotationSource = std::copyable<S> && Accumulator<typename S::scalar_type> &&
    requires(const S& source, Index i, std::span<typename S::scalar_type> scratch) {
  { source.batch() } -> std::same_as<Index>;
  { source.rows() } -> std::same_as<Index>;
  { source.pairs() } -> std::same_as<Index>;
  { source.rotary_dim() } -> std::same_as<Index>;
  { source.attention_factor() } -> std::same_as<double>;
  { source.logit_factor() } -> std::same_as<double>;
  { source.scratch_size() } -> std::same_as<Index>;
  { source.row(i, i, scratch) } -> std::same_as<RotationRow<typename S::scalar_type>>;
};

/// A source with `run(b)`.
template <class S>
concept StoredRotationSource = RotationSource<S> && requires(const S& source, Index i) {
  { source.run(i) } -> std::same_as<RotationRun<typename S::scalar_type>>;
};

/// `source.row(b, t, scratch)`, refused with both numbers where there is no such row: for looking inside.
template <RotationSource S>
RotationRow<typename S::scalar_type> checked_row(const S& source, Index b, Index t,
                                                 std::span<typename S::scalar_type> scratch) {
  ROVE_EXPECT(t >= 0 && t < source.rows(), "row ", t, " was asked of a rotation table with ", source.rows(),
              " rows");
  ROVE_EXPECT(b >= 0 && (b < source.batch() || source.batch() == 1), "batch row ", b,
              " was asked of a rotation table with ", source.batch());
  ROVE_EXPECT(static_cast<Index>(scratch.size()) >= source.scratch_size(), "scratch holds ", scratch.size(),
              " numbers; a row of this table needs ", source.scratch_size());
  return source.row(b, t, scratch);
}

ROVE_END_TAGGED

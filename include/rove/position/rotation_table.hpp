/// \file
/// cos and sin of every token's angles, computed once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/huge_pages.hpp"
#include "rove/position/frequencies.hpp"
#include "rove/position/positions.hpp"
#include "rove/position/rotation_arrays.hpp"
#include "rove/position/rotation_source.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Rows of cosines followed by sines, each half a multiple of 64 bytes and aligned to 64; what fills a half
/// up turns nothing (1 and 0). Written once, then shared.
template <class T>
class RotationRows {
 public:
  RotationRows(Index batch, Index rows, Index pairs) : batch_(batch), rows_(rows), half_(padded(pairs)) {
    // In double, which cannot overflow: the extents come from the caller.
    const double size =
        2.0 * static_cast<double>(batch) * static_cast<double>(rows) * static_cast<double>(half_);
    ROVE_EXPECT(size * sizeof(T) < 0x1p62, "a rotation table of ", batch, " batch rows, ", rows,
                " tokens and ", pairs, " pairs does not fit into memory");
    const std::size_t bytes =
        whole_pages((std::max)(static_cast<std::size_t>(size), std::size_t{1}) * sizeof(T));
    const std::align_val_t start = page_alignment(bytes, alignment);
    data_ = std::shared_ptr<T>(static_cast<T*>(::operator new(bytes, start)),
                               [start](T* data) { ::operator delete(data, start); });
    advise_huge_pages(data_.get(), bytes);
    for (Index r = 0; r < batch * rows; ++r) {
      T* const row = data_.get() + r * row_stride();
      std::fill(row + pairs, row + half_, T{1});
      std::fill(row + half_ + pairs, row + 2 * half_, T{0});
    }
  }

  Index rows() const { return rows_; }
  Index half() const { return half_; }
  Index row_stride() const { return 2 * half_; }
  /// From a batch row to the next; 0 where they share one.
  Index batch_stride() const { return batch_ == 1 ? 0 : rows_ * row_stride(); }
  T* row(Index b, Index t) const {
    ROVE_ASSERT(b >= 0 && b < batch_ && t >= 0 && t < rows_);
    return data_.get() + b * batch_stride() + t * row_stride();
  }
  const std::shared_ptr<T>& data() const { return data_; }

 private:
  static constexpr std::size_t alignment = 64;

  static Index padded(Index pairs) {
    constexpr auto step = static_cast<Index>(alignment / sizeof(T));
    return (pairs + step - 1) / step * step;
  }

  Index batch_;
  Index rows_;
  Index half_;
  std::shared_ptr<T> data_;
};

}  // namespace detail

/// The rotations of a span of tokens: pair k of the token at position p turns by p·ω_k.
///
/// T is float or double. Phases, cosines and sines are computed in double and rounded to T once: cos and sin
/// are within |p·ω|·2⁻⁵³ + 2⁻⁵² of the truth (for float, 2⁻²⁵ more). A pure rotation: `attention_factor` and
/// `logit_factor` of the frequencies travel beside it. 2·pairs numbers a token; a `FactoredRotationTable`
/// needs O(√max|p|) numbers and puts a row together when it is read.
///
/// Copies share the numbers, which are never written again, so that copies may be read from any thread.
template <class T>
class RotationTable {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                "RotationTable<float> or RotationTable<double>: a table rounded to 16 bits is no rotation");

 public:
  using scalar_type = T;

  /// \throws Error where the frequencies are empty, not finite, or carry a factor that is not positive.
  RotationTable(const RotaryFrequencies& frequencies, const Positions& positions)
      : frequencies_(std::make_shared<const RotaryFrequencies>(checked(frequencies))),
        start_(std::make_shared<const Positions>(
            positions.is_consecutive() ? positions.extended(0) : Positions(std::span<const Index>{}))),
        batch_(positions.batch()),
        rows_(positions.tokens()),
        pairs_(static_cast<Index>(frequencies.inv_freq.size())) {
    detail::RotationRows<T> storage(batch_, rows_, pairs_);
    compute(storage, positions, 0);
    adopt(storage);
  }

  /// From cosines and sines that were computed elsewhere; see `RotationArrays`.
  /// \throws Error where they are not rotations: two numbers for one pair, or cos² + sin² ≠ 1.
  explicit RotationTable(const RotationArrays<T>& arrays)
      : frequencies_(std::make_shared<const RotaryFrequencies>(RotaryFrequencies{
            .attention_factor = arrays.attention_factor, .logit_factor = arrays.logit_factor})),
        start_(std::make_shared<const Positions>(std::span<const Index>{})),
        batch_(arrays.batch),
        rows_(arrays.rows),
        pairs_(arrays.rotary_dim / 2) {
    detail::check_rotations(arrays);
    detail::check_factors(arrays.attention_factor, arrays.logit_factor);
    detail::RotationRows<T> storage(batch_, rows_, pairs_);
    const Index width = detail::table_width(arrays.layout, arrays.rotary_dim);
    const auto divided = [&](T value) {
      return static_cast<T>(static_cast<double>(value) / arrays.array_factor);
    };
    for (Index r = 0; r < batch_ * rows_; ++r) {
      T* const row = storage.data().get() + r * storage.row_stride();
      for (Index k = 0; k < pairs_; ++k) {
        const auto place = static_cast<std::size_t>(
            r * width + detail::pair_places(arrays.layout, arrays.rotary_dim, k).first);
        row[k] = divided(arrays.cos[place]);
        row[storage.half() + k] = divided(arrays.sin[place]);
      }
    }
    adopt(storage);
  }

  /// Batch rows; 1 where all share their rotations, and then any b will do below.
  Index batch() const { return batch_; }
  /// Tokens of a batch row.
  Index rows() const { return rows_; }
  /// Pairs of channels that turn.
  Index pairs() const { return pairs_; }
  /// 2 · pairs().
  Index rotary_dim() const { return 2 * pairs_; }
  double attention_factor() const { return frequencies_->attention_factor; }
  double logit_factor() const { return frequencies_->logit_factor; }

  /// The cosines of token t of batch row b: [pairs], contiguous, aligned to 64 bytes and followed by ones up
  /// to the next multiple of 64 bytes. Valid until this table is extended or dies, and beyond that as long as
  /// a copy made before lives. Indices are asserted, not checked (see `checked_row`).
  ROVE_ALWAYS_INLINE const T* cos(Index b, Index t) const {
    ROVE_ASSERT(t >= 0 && t < rows_ && b >= 0 && (batch_ == 1 || b < batch_));
    return data_.get() + b * batch_stride_ + t * row_stride_;
  }
  /// The sines, likewise, followed by zeros.
  ROVE_ALWAYS_INLINE const T* sin(Index b, Index t) const { return cos(b, t) + row_stride_ / 2; }

  /// Pointers into the table: the scratch stays untouched.
  ROVE_ALWAYS_INLINE RotationRow<T> row(Index b, Index t, std::span<T> = {}) const {
    const T* const cosines = cos(b, t);
    return {cosines, cosines + row_stride_ / 2};
  }
  /// All rows of batch row b.
  ROVE_ALWAYS_INLINE RotationRun<T> run(Index b) const {
    ROVE_ASSERT(b >= 0 && (batch_ == 1 || b < batch_));
    const T* const cosines = data_.get() + b * batch_stride_;
    return {cosines, cosines + row_stride_ / 2, row_stride_};
  }
  /// What `row` needs of its scratch: nothing.
  static constexpr Index scratch_size() { return 0; }

  /// Makes this table `rows` tokens long if it is shorter: the positions go on from where they start, and the
  /// rows there are keep their bits. Storage doubles, so that one row at a time costs no more than all at
  /// once. Copies made before keep their length and their pointers.
  ///
  /// The frequencies stay what they are: those of a longer sequence (`DynamicNtk`, `LongRope`) are another
  /// table. \throws Error unless the table was made from `consecutive_positions`.
  void extend(Index rows) {
    ROVE_EXPECT(start_->is_consecutive(), "a table of ", rows_, " rows cannot be extended to ", rows,
                ": only one made from consecutive positions says what comes next");
    if (rows <= rows_) return;
    const Positions positions = start_->extended(rows);  // checks that they exist
    if (rows > capacity_) {
      const Index capacity = (std::min)((std::max)(rows, 2 * capacity_), start_->longest());
      detail::RotationRows<T> storage(batch_, capacity, pairs_);
      for (Index b = 0; b < batch_; ++b) {
        std::copy(data_.get() + b * batch_stride_, data_.get() + b * batch_stride_ + capacity_ * row_stride_,
                  storage.row(b, 0));
      }
      compute(storage, start_->extended(capacity), capacity_);
      adopt(storage);
    }
    rows_ = rows;
  }

 private:
  static const RotaryFrequencies& checked(const RotaryFrequencies& frequencies) {
    detail::check_frequencies(frequencies);
    return frequencies;
  }

  /// Fills rows [first, storage.rows()) of each batch row.
  void compute(const detail::RotationRows<T>& storage, const Positions& positions, Index first) const {
    const double* const inv_freq = frequencies_->inv_freq.data();
    for (Index b = 0; b < batch_; ++b) {
      for (Index t = first; t < storage.rows(); ++t) {
        const double position = positions(b, t);
        T* const cosines = storage.row(b, t);
        T* const sines = cosines + storage.half();
        for (Index k = 0; k < pairs_; ++k) {
          const double phase = position * inv_freq[k];
          cosines[k] = static_cast<T>(std::cos(phase));
          sines[k] = static_cast<T>(std::sin(phase));
        }
      }
    }
  }

  void adopt(const detail::RotationRows<T>& storage) {
    data_ = storage.data();
    capacity_ = storage.rows();
    row_stride_ = storage.row_stride();
    batch_stride_ = storage.batch_stride();
  }

  std::shared_ptr<const RotaryFrequencies> frequencies_;  // no inv_freq where the rows came from outside
  std::shared_ptr<const Positions> start_;                // consecutive if the table can grow
  std::shared_ptr<const T> data_;                         // [batch, capacity, cosines and sines]
  Index batch_ = 1;
  Index rows_ = 0;
  Index pairs_ = 0;
  Index capacity_ = 0;
  Index row_stride_ = 0;
  Index batch_stride_ = 0;
};

ROVE_END_TAGGED

/// \file
/// Cosines and sines that were computed elsewhere, and the check that they are rotations.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/position/frequencies.hpp"

namespace rove {

/// How wide a row of a cos or sin array is, and which of its numbers belong to one pair.
enum class TableLayout {
  /// [rotary_dim / 2]: one number for each pair (FlashAttention, ggml, the paper).
  one_per_pair,
  /// [rotary_dim]: the first half again as the second (Hugging Face's Llama, `cat((freqs, freqs))`).
  halves_repeated,
  /// [rotary_dim]: each number twice, side by side (GPT-J, Cohere, `repeat_interleave(2)`).
  neighbours_repeated,
};

/// cos and sin of every token, from outside. Borrowed; the table copies them.
template <class T>
struct RotationArrays {
  std::span<const T> cos = {};  ///< [batch, rows, width of the layout], dense
  std::span<const T> sin = {};  ///< the same shape
  Index rows = 0;               ///< tokens of a batch row
  Index rotary_dim = 0;
  TableLayout layout = TableLayout::one_per_pair;
  Index batch = 1;  ///< 1: every batch row shares the rows
  /// What both arrays were multiplied by, and are divided by here. Hugging Face's YaRN and LongRoPE modules
  /// return m·cos and m·sin, which turn *and* stretch: m is their `attention_scaling`.
  double array_factor = 1;
  double attention_factor = 1;  ///< m for the logits, as in `RotaryFrequencies`
  double logit_factor = 1;
};

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

/// Numbers in a row of the layout.
inline Index table_width(TableLayout layout, Index rotary_dim) {
  return layout == TableLayout::one_per_pair ? rotary_dim / 2 : rotary_dim;
}

/// Where pair k stands in a row, first and (the same if it stands there once) second time.
struct PairPlaces {
  Index first;
  Index second;
};

inline PairPlaces pair_places(TableLayout layout, Index rotary_dim, Index k) {
  switch (layout) {
    case TableLayout::halves_repeated:
      return {k, k + rotary_dim / 2};
    case TableLayout::neighbours_repeated:
      return {2 * k, 2 * k + 1};
    case TableLayout::one_per_pair:
      break;
  }
  return {k, k};
}

/// Shapes fit, both copies of a pair are equal, and cos² + sin² = 1 within 4 ε of T (correctly rounded
/// numbers are within 0.71 ε; a table in bfloat16 is some 2¹³ ε off, one that carries a factor m is off by
/// m² − 1).
template <class T>
void check_rotations(const RotationArrays<T>& arrays) {
  check_rotary_dim(arrays.rotary_dim);
  ROVE_EXPECT(arrays.rows >= 0, "rows is ", arrays.rows, "; it must not be negative");
  ROVE_EXPECT(arrays.batch > 0, "batch is ", arrays.batch, "; it must be positive");
  ROVE_EXPECT(arrays.array_factor > 0 && std::isfinite(arrays.array_factor), "array_factor is ",
              arrays.array_factor, "; it must be positive and finite");
  const Index width = table_width(arrays.layout, arrays.rotary_dim);
  const auto check_size = [&](std::span<const T> array, const char* name) {
    const auto size = static_cast<Index>(array.size());
    // By division: the product of three extents need not fit.
    const bool fits = arrays.rows == 0 ? size == 0
                                       : size % width == 0 && size / width % arrays.rows == 0 &&
                                             size / width / arrays.rows == arrays.batch;
    ROVE_EXPECT(fits, name, " has ", size, " numbers; ", arrays.batch, " batch rows of ", arrays.rows,
                " tokens with ", width, " numbers each were announced");
  };
  check_size(arrays.cos, "cos");
  check_size(arrays.sin, "sin");

  constexpr double tolerance = 4.0 * std::numeric_limits<T>::epsilon();
  const auto rows = static_cast<std::size_t>(arrays.batch * arrays.rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const T* const cos = arrays.cos.data() + row * static_cast<std::size_t>(width);
    const T* const sin = arrays.sin.data() + row * static_cast<std::size_t>(width);
    for (Index k = 0; k < arrays.rotary_dim / 2; ++k) {
      const auto [first, second] = pair_places(arrays.layout, arrays.rotary_dim, k);
      ROVE_EXPECT(first == second || (cos[first] == cos[second] && sin[first] == sin[second]),
                  "cos and sin of pair ", k, " in row ", row, " are (", cos[first], ", ", sin[first], ") at ",
                  first, " but (", cos[second], ", ", sin[second], ") at ", second,
                  ": no rotation, or another layout");
      const double c = static_cast<double>(cos[first]) / arrays.array_factor;
      const double s = static_cast<double>(sin[first]) / arrays.array_factor;
      ROVE_EXPECT(std::abs(c * c + s * s - 1) <= tolerance, "cos^2 + sin^2 of pair ", k, " in row ", row,
                  " is ", c * c + s * s,
                  ", not 1: the arrays carry a factor (array_factor) or were rounded to ", "16 bits");
    }
  }
}

}  // namespace detail

ROVE_END_TAGGED

/// \file
/// Where tokens stand: whole, negative or fractional positions, shared by all batch rows or one set for each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

/// Up to here, in either direction, every whole number is a double: 2^53.
inline constexpr double largest_position = 9007199254740992.0;

/// The position of every token, as a double; whole numbers are exact up to ±2^53, and larger ones are
/// refused.
///
/// With `batch() == 1` the positions hold for every batch row. Copies what it is given.
///
///     rove::consecutive_positions(n)                            0, 1, …, n−1
///     rove::consecutive_positions(n, past)                      past, past+1, …
///     rove::consecutive_positions(n, first_of_row)              one start per batch row: left padding
///     rove::Positions(position_ids)                             [tokens]
///     rove::Positions(position_ids, batch)                      [batch, tokens]
class Positions {
 public:
  /// \param positions [batch, tokens], rows after one another.
  explicit Positions(std::span<const std::int32_t> positions, Index batch = 1)
      : Positions(convert(positions), batch) {}
  /// \copydoc Positions(std::span<const std::int32_t>, Index)
  explicit Positions(std::span<const std::int64_t> positions, Index batch = 1)
      : Positions(convert(positions), batch) {}
  /// \copydoc Positions(std::span<const std::int32_t>, Index)
  /// Fractions are kept: positions on a refined or rescaled grid.
  explicit Positions(std::span<const double> positions, Index batch = 1)
      : Positions(std::vector<double>(positions.begin(), positions.end()), batch) {}

  /// Rows of positions; 1 where all batch rows share them.
  Index batch() const { return batch_; }
  /// Positions in a row.
  Index tokens() const { return tokens_; }

  /// The position of token t of batch row b (any b where the row is shared). Indices are not checked.
  double operator()(Index b, Index t) const {
    ROVE_ASSERT(t >= 0 && t < tokens_ && b >= 0 && (batch_ == 1 || b < batch_));
    const auto row = static_cast<std::size_t>(batch_ == 1 ? 0 : b);
    if (is_consecutive()) return first_[row] + static_cast<double>(t);
    return values_[row * static_cast<std::size_t>(tokens_) + static_cast<std::size_t>(t)];
  }

  /// Made by `consecutive_positions`, so that it is known what comes next.
  bool is_consecutive() const { return !first_.empty(); }

  /// The same starts, but `tokens` positions from there.
  /// \throws Error unless `is_consecutive()`.
  Positions extended(Index tokens) const;

  /// How many tokens `extended` can reach before a position passes 2^53; 0 unless `is_consecutive()`.
  Index longest() const {
    if (!is_consecutive()) return 0;
    return static_cast<Index>(largest_position - *std::max_element(first_.begin(), first_.end())) + 1;
  }

 private:
  friend Positions consecutive_positions(Index count, std::span<const Index> first_of_row);

  Positions() = default;

  Positions(std::vector<double> values, Index batch) : batch_(batch), values_(std::move(values)) {
    const auto size = static_cast<Index>(values_.size());
    ROVE_EXPECT(batch > 0, "positions are given for ", batch, " batch rows; there must be at least 1");
    ROVE_EXPECT(size % batch == 0, "positions hold ", size, " numbers, which ", batch,
                " batch rows cannot share equally");
    tokens_ = size / batch;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      ROVE_EXPECT(std::abs(values_[i]) <= largest_position, "positions[", i, "] is ", values_[i],
                  "; it must be finite and no further from 0 than 2^53");
    }
  }

  template <class Integer>
  static std::vector<double> convert(std::span<const Integer> positions) {
    constexpr auto limit = static_cast<std::int64_t>(largest_position);
    std::vector<double> values(positions.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      // Before the conversion: 2^53 + 1 would be rounded to 2^53.
      const auto position = static_cast<std::int64_t>(positions[i]);
      ROVE_EXPECT(position >= -limit && position <= limit, "positions[", i, "] is ", position,
                  "; it must be no further from 0 than 2^53");
      values[i] = static_cast<double>(position);
    }
    return values;
  }

  Index batch_ = 1;
  Index tokens_ = 0;
  std::vector<double> first_;   // one per row where consecutive, otherwise empty
  std::vector<double> values_;  // [batch, tokens] where not consecutive
};

/// Positions `first_of_row[b]`, `first_of_row[b] + 1`, …, `count` of them in each batch row.
///
/// A left-padded row whose first p tokens are padding starts at −p, so that its first real token stands at 0.
inline Positions consecutive_positions(Index count, std::span<const Index> first_of_row) {
  constexpr auto limit = static_cast<Index>(largest_position);
  ROVE_EXPECT(count >= 0, "consecutive_positions was asked for ", count, " positions");
  ROVE_EXPECT(!first_of_row.empty(), "first_of_row is empty; there must be at least 1 batch row");
  Positions positions;
  positions.batch_ = static_cast<Index>(first_of_row.size());
  positions.tokens_ = count;
  for (const Index first : first_of_row) {
    ROVE_EXPECT(first >= -limit && first <= limit && count <= limit && first + count <= limit + 1,
                "positions run from ", first, " for ", count,
                " tokens; none may be further from 0 than 2^53");
    positions.first_.push_back(static_cast<double>(first));
  }
  return positions;
}

/// Positions `first`, `first + 1`, …, `first + count − 1`, for every batch row.
inline Positions consecutive_positions(Index count, Index first = 0) {
  return consecutive_positions(count, std::span<const Index>(&first, 1));
}

inline Positions Positions::extended(Index tokens) const {
  ROVE_EXPECT(is_consecutive(), "positions that were given one by one cannot be extended to ", tokens,
              " tokens: only consecutive ones say what comes next");
  std::vector<Index> first;
  for (const double value : first_) first.push_back(static_cast<Index>(value));
  return consecutive_positions(tokens, first);
}

ROVE_END_TAGGED

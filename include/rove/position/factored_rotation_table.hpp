/// \file
/// Rotations of millions of positions from two short tables.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/position/frequencies.hpp"
#include "rove/position/positions.hpp"
#include "rove/position/rotation_source.hpp"
#include "rove/position/rotation_table.hpp"

ROVE_BEGIN_TAGGED

/// The rotations of a `RotationTable` over whole positions, with O(√max|p|) numbers instead of O(tokens).
///
/// A position is split as p = c·B + f, truncated toward zero, and its rotation put together when it is read:
///
///     cos(p·ω) = cos(c·B·ω)·cos(f·ω) − sin(c·B·ω)·sin(f·ω)
///     sin(p·ω) = sin(c·B·ω)·cos(f·ω) + cos(c·B·ω)·sin(f·ω)
///
/// c·B and f have the sign of p, so that no phase is larger than that of p; both tables and the products are
/// in double, and the sum is rounded to T once. Within |p·ω|·2⁻⁵³ + 2⁻⁵¹ of the truth (for float, 2⁻²⁵ more).
/// The rotation at −p is exactly the transpose of the one at p.
///
/// Positions that are not consecutive are kept, 8 bytes each. Copies share everything.
template <class T>
class FactoredRotationTable {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                "FactoredRotationTable<float> or <double>: a rotation rounded to 16 bits is none");

 public:
  using scalar_type = T;

  /// \throws Error where `RotationTable` does, and where a position is not a whole number.
  FactoredRotationTable(const RotaryFrequencies& frequencies, Positions positions)
      : positions_(std::make_shared<const Positions>(std::move(positions))),
        angles_(std::make_shared<const Angles>(frequencies, reach(*positions_))) {}

  /// Batch rows; 1 where all share their rotations.
  Index batch() const { return positions_->batch(); }
  /// Tokens of a batch row.
  Index rows() const { return positions_->tokens(); }
  /// Pairs of channels that turn.
  Index pairs() const { return angles_->pairs; }
  /// 2 · pairs().
  Index rotary_dim() const { return 2 * pairs(); }
  double attention_factor() const { return angles_->frequencies.attention_factor; }
  double logit_factor() const { return angles_->frequencies.logit_factor; }

  /// Memory of the two tables.
  Index table_bytes() const { return 4 * angles_->block * angles_->pairs * Index{sizeof(double)}; }

  /// Computes the rotation of token t of batch row b into cos and sin, [pairs] each; they must not overlap.
  /// Indices are asserted, not checked (see `checked_row`).
  void read(Index b, Index t, T* ROVE_RESTRICT cos, T* ROVE_RESTRICT sin) const {
    const double position = (*positions_)(b, t);
    const auto distance = static_cast<Index>(std::abs(position));
    const Index count = angles_->pairs;
    const double* const coarse = angles_->coarse.row(0, distance >> angles_->shift);
    const double* const fine = angles_->fine.row(0, distance & (angles_->block - 1));
    const double* const coarse_sin = coarse + angles_->coarse.half();
    const double* const fine_sin = fine + angles_->fine.half();
    const double sign = position < 0 ? -1.0 : 1.0;
    for (Index k = 0; k < count; ++k) {
      cos[k] = static_cast<T>(mul_add(coarse[k], fine[k], -(coarse_sin[k] * fine_sin[k])));
      sin[k] = static_cast<T>(sign * mul_add(coarse_sin[k], fine[k], coarse[k] * fine_sin[k]));
    }
  }

  /// `read` into the scratch, which holds at least `scratch_size()` numbers.
  RotationRow<T> row(Index b, Index t, std::span<T> scratch) const {
    ROVE_ASSERT(static_cast<Index>(scratch.size()) >= scratch_size());
    T* const cos = scratch.data();
    T* const sin = cos + pairs();
    read(b, t, cos, sin);
    return {cos, sin};
  }
  /// 2 · pairs().
  Index scratch_size() const { return 2 * pairs(); }

  /// Makes this table `rows` tokens long if it is shorter; see `RotationTable::extend`. The tables are only
  /// computed anew when the positions outgrow them, and then reach four times as far at least.
  /// \throws Error unless the table was made from `consecutive_positions`.
  void extend(Index rows) {
    ROVE_EXPECT(positions_->is_consecutive(), "a table of ", this->rows(), " rows cannot be extended to ",
                rows, ": only one made from consecutive positions says what comes next");
    if (rows <= this->rows()) return;
    auto positions = std::make_shared<const Positions>(positions_->extended(rows));
    const double farthest = reach(*positions);
    if (farthest >= angles_->limit())
      angles_ = std::make_shared<const Angles>(angles_->frequencies, farthest);
    positions_ = std::move(positions);
  }

 private:
  /// Rotations by 0, 1, …, B−1 positions and by 0, B, 2B, …, (B−1)·B, with B² above every distance from 0.
  struct Angles {
    Angles(const RotaryFrequencies& given, double farthest)
        : frequencies((detail::check_frequencies(given), given)),
          pairs(static_cast<Index>(given.inv_freq.size())),
          shift(shift_for(farthest)),
          block(Index{1} << shift),
          fine(1, block, pairs),
          coarse(1, block, pairs) {
      fill(fine, 1);
      fill(coarse, static_cast<double>(block));
    }

    double limit() const { return static_cast<double>(block) * static_cast<double>(block); }

    RotaryFrequencies frequencies;
    Index pairs;
    int shift;
    Index block;  // B = 2^shift
    detail::RotationRows<double> fine;
    detail::RotationRows<double> coarse;

   private:
    static int shift_for(double farthest) {
      int shift = 0;
      while (std::ldexp(1.0, 2 * shift) <= farthest) ++shift;
      return shift;
    }

    void fill(const detail::RotationRows<double>& table, double step) const {
      for (Index r = 0; r < table.rows(); ++r) {
        double* const cosines = table.row(0, r);
        double* const sines = cosines + table.half();
        for (Index k = 0; k < pairs; ++k) {
          const double phase =
              static_cast<double>(r) * step * frequencies.inv_freq[static_cast<std::size_t>(k)];
          cosines[k] = std::cos(phase);
          sines[k] = std::sin(phase);
        }
      }
    }
  };

  /// The largest |p|; every position must be whole.
  static double reach(const Positions& positions) {
    double farthest = 0;
    for (Index b = 0; b < positions.batch(); ++b) {
      // Consecutive positions are whole, and their ends are the farthest.
      const Index step = positions.is_consecutive() ? (std::max)(positions.tokens() - 1, Index{1}) : 1;
      for (Index t = 0; t < positions.tokens(); t += step) {
        const double position = positions(b, t);
        ROVE_EXPECT(std::trunc(position) == position, "positions[", b, "][", t, "] is ", position,
                    "; a factored table needs whole positions (RotationTable takes any)");
        farthest = (std::max)(farthest, std::abs(position));
      }
    }
    return farthest;
  }

  std::shared_ptr<const Positions> positions_;
  std::shared_ptr<const Angles> angles_;
};

ROVE_END_TAGGED

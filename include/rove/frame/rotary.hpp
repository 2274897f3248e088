/// \file
/// Rotary position embeddings as a frame.
#pragma once

#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/pairing.hpp"
#include "rove/core/rotate_row.hpp"
#include "rove/core/row_block.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/frame/adaptors.hpp"
#include "rove/frame/frame.hpp"
#include "rove/position/rotation_source.hpp"

ROVE_BEGIN_TAGGED

/// R_t turns each pair (x, y) of channels by its angle at token t's position p:
///
///     (x, y) ← (x cos pω − y sin pω, x sin pω + y cos pω)
///
/// Rotary channels are [first_channel, first_channel + rotary_dim); all others pass. A pure rotation,
/// whatever attention factor the table carries: `rope_frames` and `rove_frames` attach that to the queries.
/// Copies share the table. Su et al., RoFormer (arXiv 2104.09864), equation 34.
///
/// Rows are turned in the accumulator type, with x·cos rounded first and y's share added by one multiply-add.
///
/// \tparam Source `RotationTable<T>` or `FactoredRotationTable<T>`; a float table serves float rows only.
template <RotationSource Source>
class RotaryFrame {
 public:
  using scalar_type = typename Source::scalar_type;
  static constexpr bool is_orthogonal = true;
  static constexpr bool is_one_parameter = true;

  /// Token t takes row t of the table. There is no default pairing: which one a model uses is not to be
  /// guessed.
  RotaryFrame(Source table, Pairing pairing, Index first_channel = 0)
      : table_(std::move(table)), pairing_(pairing), first_channel_(first_channel) {
    check();
  }

  /// Token t of batch row b takes row position_ids[b · tokens + t] of the table, with tokens = size / batch;
  /// the ids are copied. Throws `Error` for one outside of the table.
  RotaryFrame(Source table, IntegerSpan position_ids, Pairing pairing, Index first_channel = 0,
              Index batch = 1)
      : table_(std::move(table)), pairing_(pairing), first_channel_(first_channel), id_batch_(batch) {
    check();
    ROVE_EXPECT(batch >= 1 && position_ids.size() % batch == 0, position_ids.size(),
                " position ids cannot be shared out to ", batch, " batch rows");
    ROVE_EXPECT(table_.batch() == 1 || batch == 1 || table_.batch() == batch, "the position ids have batch ",
                batch, ", the table has ", table_.batch());
    std::vector<Index> ids;
    ids.reserve(static_cast<std::size_t>(position_ids.size()));
    for (Index i = 0; i < position_ids.size(); ++i) {
      ROVE_EXPECT(position_ids[i] >= 0 && position_ids[i] < table_.rows(), "position id ", position_ids[i],
                  " (number ", i, ") is outside the table's ", table_.rows(), " rows");
      ids.push_back(position_ids[i]);
    }
    id_tokens_ = position_ids.size() / batch;
    ids_ = std::make_shared<const std::vector<Index>>(std::move(ids));
  }

  Index batch() const { return ids_ && id_batch_ > 1 ? id_batch_ : table_.batch(); }
  Index tokens() const { return ids_ ? id_tokens_ : table_.rows(); }
  /// Width that the frame needs: channels past it pass unchanged, as do those before `first_channel()`.
  Index channels() const { return first_channel_ + table_.rotary_dim(); }
  Index first_channel() const { return first_channel_; }
  Index rotary_dim() const { return table_.rotary_dim(); }
  Pairing pairing() const { return pairing_; }
  const Source& table() const { return table_; }
  double attention_factor() const { return table_.attention_factor(); }
  double logit_factor() const { return table_.logit_factor(); }

  template <Accumulator Acc>
  void apply(Index b, Index t, std::span<Acc> row) const {
    turn<Direction::forward>(b, t, row);
  }
  template <Accumulator Acc>
  void inverse(Index b, Index t, std::span<Acc> row) const {
    turn<Direction::inverse>(b, t, row);
  }
  template <Accumulator Acc>
  void transpose(Index b, Index t, std::span<Acc> row) const {
    turn<Direction::inverse>(b, t, row);
  }
  template <Accumulator Acc>
  void inverse_transpose(Index b, Index t, std::span<Acc> row) const {
    turn<Direction::forward>(b, t, row);
  }

  /// `action` of the tokens t, t + 1, … on a row each.
  template <Action action, Accumulator Acc>
  ROVE_ALWAYS_INLINE void act_rows(Index b, Index t, RowBlock<const Acc> from, RowBlock<Acc> to) const {
    check_rows<Acc>();
    ROVE_ASSERT(to.channels >= channels());
    ROVE_ASSERT(b >= 0 && (batch() == 1 || b < batch()) && t >= 0 && t + to.count <= tokens());
    constexpr bool forward = action == Action::apply || action == Action::inverse_transpose;
    copy_rows(from, to, 0, first_channel_);
    copy_rows(from, to, channels(), to.channels);
    from.data += first_channel_;
    to.data += first_channel_;
    const auto rotate = [&](const auto& with_angles) ROVE_INLINE_LAMBDA {
      rotate_rows<forward ? Direction::forward : Direction::inverse>(pairing_, table_.pairs(), from, to,
                                                                     with_angles);
    };
    if constexpr (StoredRotationSource<Source>) {
      // By value: members might change, for all the compiler knows, with each row that is written.
      rotate([run = table_.run(table_row(b)), ids = row_ids(b), t](Index r, const auto& use)
                 ROVE_INLINE_LAMBDA {
                   const auto row = run[ids == nullptr ? t + r : ids[t + r]];
                   use(row.cos, row.sin);
                 });
    } else {
      rotate([&](Index r, const auto& use) ROVE_INLINE_LAMBDA { with_row(b, t + r, use); });
    }
  }

  /// Calls use(cos, sin) with the rotation of token t of batch row b, `rotary_dim() / 2` of each.
  template <class Use>
  ROVE_ALWAYS_INLINE void with_row(Index b, Index t, Use&& use) const {
    const Index* const ids = row_ids(b);
    const Index token = ids == nullptr ? t : ids[t];
    if constexpr (needs_no_scratch) {
      const auto row = table_.row(table_row(b), token, {});
      use(row.cos, row.sin);
    } else {
      alignas(64) scalar_type scratch[scratch_limit];
      const auto row = table_.row(table_row(b), token, std::span<scalar_type>(scratch));
      use(row.cos, row.sin);
    }
  }

 private:
  // Rows that have to be computed are put on the stack.
  static constexpr Index scratch_limit = 2048;
  static constexpr bool needs_no_scratch = requires {
    requires std::bool_constant<(Source::scratch_size() == 0)>::value;
  };

  Index table_row(Index b) const { return table_.batch() == 1 ? 0 : b; }
  /// Position ids of a batch row; null where tokens take rows in their order.
  const Index* row_ids(Index b) const {
    return ids_ ? ids_->data() + (id_batch_ == 1 ? 0 : b) * id_tokens_ : nullptr;
  }

  void check() const {
    ROVE_EXPECT(first_channel_ >= 0, "the first rotary channel must not be negative, got ", first_channel_);
    ROVE_EXPECT(table_.scratch_size() <= scratch_limit,
                "a table that computes its rows serves rotary widths up to ", scratch_limit, ", got ",
                table_.rotary_dim());
  }

  template <Accumulator Acc>
  static constexpr void check_rows() {
    static_assert(
        !(std::is_same_v<Acc, double> && std::is_same_v<scalar_type, float>),
        "rows in double need a RotationTable<double>: a float table would be the least accurate part");
  }

  template <Direction direction, Accumulator Acc>
  void turn(Index b, Index t, std::span<Acc> row) const {
    check_rows<Acc>();
    ROVE_ASSERT(static_cast<Index>(row.size()) >= channels());
    with_row(b, t, [&](const scalar_type* cos, const scalar_type* sin) {
      rotate_row<direction>(pairing_, cos, sin, table_.pairs(), row.data() + first_channel_);
    });
  }

  Source table_;
  Pairing pairing_;
  Index first_channel_ = 0;
  Index id_batch_ = 1;
  Index id_tokens_ = 0;
  std::shared_ptr<const std::vector<Index>> ids_;
};

/// R_t / s on the rotary channels: what queries use where a model multiplies its logits by s through the
/// rotation. As queries turn by R⁻ᵀ and their gradients by R⁻¹, both carry the factor s. Channels that do not
/// turn are not scaled.
template <RotationSource Source>
class ScaledRotaryFrame {
 public:
  static constexpr bool is_orthogonal = false;
  static constexpr bool is_one_parameter = false;

  ScaledRotaryFrame(RotaryFrame<Source> frame, double scale) : frame_(std::move(frame)), scale_(scale) {
    ROVE_EXPECT(scale > 0, "the factor on rotated queries must be positive, got ", scale);
  }

  Index batch() const { return frame_.batch(); }
  Index tokens() const { return frame_.tokens(); }
  Index channels() const { return frame_.channels(); }
  double scale() const { return scale_; }
  double logit_factor() const { return frame_.logit_factor(); }
  const RotaryFrame<Source>& rotation() const { return frame_; }

  template <Accumulator Acc>
  void apply(Index b, Index t, std::span<Acc> row) const {
    frame_.apply(b, t, row);
    multiply(1 / scale_, row);
  }
  template <Accumulator Acc>
  void inverse(Index b, Index t, std::span<Acc> row) const {
    frame_.inverse(b, t, row);
    multiply(scale_, row);
  }
  template <Accumulator Acc>
  void transpose(Index b, Index t, std::span<Acc> row) const {
    frame_.transpose(b, t, row);
    multiply(1 / scale_, row);
  }
  template <Accumulator Acc>
  void inverse_transpose(Index b, Index t, std::span<Acc> row) const {
    frame_.inverse_transpose(b, t, row);
    multiply(scale_, row);
  }
  template <Action action, Accumulator Acc>
  void act_rows(Index b, Index t, RowBlock<const Acc> from, RowBlock<Acc> to) const {
    constexpr bool divides = action == Action::apply || action == Action::transpose;
    frame_.template act_rows<action>(b, t, from, to);
    for (Index r = 0; r < to.count; ++r) multiply(divides ? 1 / scale_ : scale_, to.row(r));
  }

 private:
  template <Accumulator Acc>
  void multiply(double factor, std::span<Acc> row) const {
    if (factor == 1) return;
    const auto rotary = row.subspan(static_cast<std::size_t>(frame_.first_channel()),
                                    static_cast<std::size_t>(frame_.rotary_dim()));
    for (Acc& x : rotary) x *= static_cast<Acc>(factor);
  }

  RotaryFrame<Source> frame_;
  double scale_;
};

/// The frame with the table's attention factor m on it: m² where the keys carry none, m where they have
/// theirs.
template <RotationSource Source>
ScaledRotaryFrame<Source> query_frame(const RotaryFrame<Source>& frame, KeyFactor keys) {
  const double m = frame.attention_factor();
  return {frame, keys == KeyFactor::in_queries ? m * m : m};
}

/// The same where tokens turn the other way: the factor on queries stays what it is.
template <RotationSource Source>
InverseFrame<ScaledRotaryFrame<Source>> query_frame(const InverseFrame<RotaryFrame<Source>>& frame,
                                                    KeyFactor keys) {
  const double m = frame.base().attention_factor();
  return inverse_frame(
      ScaledRotaryFrame<Source>(frame.base(), keys == KeyFactor::in_queries ? 1 / (m * m) : 1 / m));
}

ROVE_END_TAGGED

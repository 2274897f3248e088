/// \file
/// Frames made from frames: a run of rows, a common factor from the left, the inverse.
#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/row_block.hpp"
#include "rove/core/scalar.hpp"
#include "rove/frame/frame.hpp"

ROVE_BEGIN_TAGGED

/// Tokens [first, first + count) of a frame, renumbered from 0.
template <Frame F>
class FrameRows {
 public:
  static constexpr bool is_identity = is_identity_v<F>;
  static constexpr bool is_orthogonal = is_orthogonal_v<F>;
  static constexpr bool is_one_parameter = is_one_parameter_v<F>;

  FrameRows(F frame, Index first, Index count) : frame_(std::move(frame)), first_(first), count_(count) {
    ROVE_EXPECT(first >= 0 && count >= 0 && first <= frame_.tokens() - count, "rows [", first, ", ", first,
                " + ", count, ") are outside the frame's ", frame_.tokens(), " tokens");
  }

  Index batch() const { return frame_.batch(); }
  Index tokens() const { return count_; }
  Index channels() const { return frame_.channels(); }
  double logit_factor() const { return frame_logit_factor(frame_); }
  template <Accumulator Acc>
  void apply(Index b, Index t, std::span<Acc> row) const {
    frame_.apply(b, first_ + t, row);
  }
  template <Accumulator Acc>
  void inverse(Index b, Index t, std::span<Acc> row) const {
    frame_.inverse(b, first_ + t, row);
  }
  template <Accumulator Acc>
  void transpose(Index b, Index t, std::span<Acc> row) const {
    frame_.transpose(b, first_ + t, row);
  }
  template <Accumulator Acc>
  void inverse_transpose(Index b, Index t, std::span<Acc> row) const {
    frame_.inverse_transpose(b, first_ + t, row);
  }
  template <Action action, Accumulator Acc>
  void act_rows(Index b, Index t, RowBlock<const Acc> from, RowBlock<Acc> to) const {
    detail::act_rows<action>(frame_, b, first_ + t, from, to);
  }

  /// The same rows of the frame that queries use.
  friend auto query_frame(const FrameRows& rows, KeyFactor keys) {
    auto inner = query_frame(rows.frame_, keys);
    return FrameRows<decltype(inner)>(std::move(inner), rows.first_, rows.count_);
  }

 private:
  F frame_;
  Index first_;
  Index count_;
};

/// Tokens [first, first + count) of `frame` as a frame: the last rows of a cache for its queries, say.
template <Frame F>
FrameRows<F> rows(F frame, Index first, Index count) {
  return FrameRows<F>(std::move(frame), first, count);
}

/// G R_t: one more map, the same for all tokens of a batch row, after the frame's own. A common left factor
/// of key, value and (by inverse-transpose) query frames changes no result of attention.
template <Frame G, Frame F>
class LeftFactor {
 public:
  static constexpr bool is_identity = is_identity_v<G> && is_identity_v<F>;
  static constexpr bool is_orthogonal = is_orthogonal_v<G> && is_orthogonal_v<F>;
  static constexpr bool is_one_parameter = false;

  /// `factor` has one token per batch row.
  LeftFactor(G factor, F frame) : factor_(std::move(factor)), frame_(std::move(frame)) {
    ROVE_EXPECT(factor_.tokens() >= 1, "a left factor has one token, got ", factor_.tokens());
    ROVE_EXPECT(factor_.batch() == 1 || frame_.batch() == 1 || factor_.batch() == frame_.batch(),
                "the left factor has batch ", factor_.batch(), ", the frame has ", frame_.batch());
  }

  Index batch() const { return factor_.batch() == 1 ? frame_.batch() : factor_.batch(); }
  Index tokens() const { return frame_.tokens(); }
  Index channels() const {
    return factor_.channels() > frame_.channels() ? factor_.channels() : frame_.channels();
  }
  double logit_factor() const { return frame_logit_factor(frame_); }
  template <Accumulator Acc>
  void apply(Index b, Index t, std::span<Acc> row) const {
    frame_.apply(frame_row(b), t, row);
    factor_.apply(factor_row(b), 0, row);
  }
  template <Accumulator Acc>
  void inverse(Index b, Index t, std::span<Acc> row) const {
    factor_.inverse(factor_row(b), 0, row);
    frame_.inverse(frame_row(b), t, row);
  }
  template <Accumulator Acc>
  void transpose(Index b, Index t, std::span<Acc> row) const {
    factor_.transpose(factor_row(b), 0, row);
    frame_.transpose(frame_row(b), t, row);
  }
  template <Accumulator Acc>
  void inverse_transpose(Index b, Index t, std::span<Acc> row) const {
    frame_.inverse_transpose(frame_row(b), t, row);
    factor_.inverse_transpose(factor_row(b), 0, row);
  }
  template <Action action, Accumulator Acc>
  void act_rows(Index b, Index t, RowBlock<const Acc> from, RowBlock<Acc> to) const {
    if constexpr (action == Action::apply || action == Action::inverse_transpose) {
      detail::act_rows<action>(frame_, frame_row(b), t, from, to);
      factor_rows<action>(b, to);
    } else {
      copy_rows(from, to);
      factor_rows<action>(b, to);
      detail::act_rows<action>(frame_, frame_row(b), t, RowBlock<const Acc>(to), to);
    }
  }

  /// The factor leaves the frame's logit scaling to the frame.
  friend auto query_frame(const LeftFactor& both, KeyFactor keys) {
    auto inner = query_frame(both.frame_, keys);
    return LeftFactor<G, decltype(inner)>(both.factor_, std::move(inner));
  }

 private:
  template <Action action, class Acc>
  void factor_rows(Index b, RowBlock<Acc> rows) const {
    for (Index r = 0; r < rows.count; ++r) detail::act_row<action>(factor_, factor_row(b), 0, rows.row(r));
  }
  Index factor_row(Index b) const { return factor_.batch() == 1 ? 0 : b; }
  Index frame_row(Index b) const { return frame_.batch() == 1 ? 0 : b; }

  G factor_;
  F frame_;
};

/// G R_t for every token t, with G the first token of `factor`.
template <Frame G, Frame F>
LeftFactor<G, F> left_factor(G factor, F frame) {
  return LeftFactor<G, F>(std::move(factor), std::move(frame));
}

/// R_t⁻¹ as a frame.
template <Frame F>
class InverseFrame {
 public:
  static constexpr bool is_identity = is_identity_v<F>;
  static constexpr bool is_orthogonal = is_orthogonal_v<F>;
  static constexpr bool is_one_parameter = is_one_parameter_v<F>;

  explicit InverseFrame(F frame) : frame_(std::move(frame)) {}

  Index batch() const { return frame_.batch(); }
  Index tokens() const { return frame_.tokens(); }
  Index channels() const { return frame_.channels(); }
  double logit_factor() const { return frame_logit_factor(frame_); }
  template <Accumulator Acc>
  void apply(Index b, Index t, std::span<Acc> row) const {
    frame_.inverse(b, t, row);
  }
  template <Accumulator Acc>
  void inverse(Index b, Index t, std::span<Acc> row) const {
    frame_.apply(b, t, row);
  }
  template <Accumulator Acc>
  void transpose(Index b, Index t, std::span<Acc> row) const {
    frame_.inverse_transpose(b, t, row);
  }
  template <Accumulator Acc>
  void inverse_transpose(Index b, Index t, std::span<Acc> row) const {
    frame_.transpose(b, t, row);
  }
  template <Action action, Accumulator Acc>
  void act_rows(Index b, Index t, RowBlock<const Acc> from, RowBlock<Acc> to) const {
    detail::act_rows<detail::opposite(action)>(frame_, b, t, from, to);
  }

  /// R_t.
  const F& base() const { return frame_; }

 private:
  F frame_;
};

/// A factor on queries does not pass through an inverse as it is: a frame that puts one there overloads
/// `query_frame` for its inverse too.
template <Frame F>
InverseFrame<F> query_frame(const InverseFrame<F>& frame, KeyFactor keys) {
  static_assert(std::is_same_v<decltype(query_frame(frame.base(), keys)), F>,
                "the frame puts a factor on queries, and its inverse does not say how: take the inverse "
                "inside of the other adaptors, rows(inverse_frame(frame), ...)");
  return frame;
}

/// R_t⁻¹ for every token t.
template <Frame F>
InverseFrame<F> inverse_frame(F frame) {
  return InverseFrame<F>(std::move(frame));
}

ROVE_END_TAGGED

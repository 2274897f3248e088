/// \file
/// Frames: an invertible linear map R_t on a head's channels for each token t, and the four actions of it.
///
/// For rotations R⁻ᵀ = R and R⁻¹ = Rᵀ, so libraries that know rotary embeddings alone get by with two. A
/// frame in general has all four, and attention needs each in its own place: queries turn by R⁻ᵀ, keys and
/// values by R, outputs by R⁻¹, and gradients by the transposes of these.
#pragma once

#include <concepts>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "rove/core/ambiguous.hpp"
#include "rove/core/config.hpp"
#include "rove/core/row_block.hpp"
#include "rove/core/scalar.hpp"

namespace rove {

/// Which of a frame's four maps.
enum class Action {
  apply,             ///< R_t
  inverse,           ///< R_t⁻¹
  transpose,         ///< R_tᵀ
  inverse_transpose  ///< R_t⁻ᵀ
};

}  // namespace rove

ROVE_BEGIN_TAGGED

/// The four actions of a frame on one row in the accumulator type, in place:
///
///     apply(b, t, row)              row ← R_t row
///     inverse(b, t, row)            row ← R_t⁻¹ row
///     transpose(b, t, row)          row ← R_tᵀ row
///     inverse_transpose(b, t, row)  row ← R_t⁻ᵀ row
///
/// `batch()` is 1 (all batch rows share the frame) or the batch; `tokens()` frames follow, token t by local
/// row for queries and outputs, by slot for keys and values. The row is the whole head, at least `channels()`
/// wide; channels past `channels()` pass unchanged.
///
/// Optional, for frames that do many rows faster than one by one:
///
///     act_rows<action>(b, t, from, to)  row r of `to` ← the `Action` of token t + r on row r of `from`
///
/// a template of a constant `Action` on a RowBlock<const Acc> and a RowBlock<Acc> of at least one row that
/// are the same rows or lie apart, with the bits of the action's own member; channels past `channels()` are
/// copied. A frame that inherits it is asked row by row: it may have replaced the maps that it stands for.
///
/// Frames go into calls, adaptors and `Frames` by copy, several of one frame at times: a copy must be cheap,
/// so a frame that owns a table shares it between its copies, which must not change it.
template <class F, class Acc>
concept FrameOn = std::copy_constructible<F> &&
    requires(const F& frame, Index b, Index t, std::span<Acc> row) {
  { frame.batch() } -> std::convertible_to<Index>;
  { frame.tokens() } -> std::convertible_to<Index>;
  { frame.channels() } -> std::convertible_to<Index>;
  frame.apply(b, t, row);
  frame.inverse(b, t, row);
  frame.transpose(b, t, row);
  frame.inverse_transpose(b, t, row);
};

/// A frame on float rows, double rows or both.
template <class F>
concept Frame = FrameOn<F, float> || FrameOn<F, double>;

/// True where every R_t is the identity: `F::is_identity`, otherwise false. Such frames are never called.
template <class F>
inline constexpr bool is_identity_v = [] {
  if constexpr (requires { F::is_identity; }) return static_cast<bool>(F::is_identity);
  return false;
}();

/// True where R_tᵀ R_t = I for every token: `F::is_orthogonal`, otherwise false.
template <class F>
inline constexpr bool is_orthogonal_v = [] {
  if constexpr (requires { F::is_orthogonal; }) return static_cast<bool>(F::is_orthogonal);
  return false;
}();

/// True where R_a R_b = R_{a+b}, so that R_i⁻¹ R_j depends on j − i alone: `F::is_one_parameter`, otherwise
/// false.
template <class F>
inline constexpr bool is_one_parameter_v = [] {
  if constexpr (requires { F::is_one_parameter; }) return static_cast<bool>(F::is_one_parameter);
  return false;
}();

/// R_t = I for every token.
struct IdentityFrame {
  static constexpr bool is_identity = true;
  static constexpr bool is_orthogonal = true;
  static constexpr bool is_one_parameter = true;
  constexpr Index batch() const { return 1; }
  constexpr Index tokens() const { return (std::numeric_limits<Index>::max)(); }
  constexpr Index channels() const { return 0; }
  template <Accumulator Acc>
  void apply(Index, Index, std::span<Acc>) const {}
  template <Accumulator Acc>
  void inverse(Index, Index, std::span<Acc>) const {}
  template <Accumulator Acc>
  void transpose(Index, Index, std::span<Acc>) const {}
  template <Accumulator Acc>
  void inverse_transpose(Index, Index, std::span<Acc>) const {}
};

/// Where the keys carry a model's rotary scaling factor m (YaRN's and LongRoPE's attention factor, which
/// multiplies both cos and sin, so that a logit grows by m²).
enum class KeyFactor {
  in_queries,      ///< keys are purely rotated: queries take m²
  already_in_keys  ///< keys were written with m on them, as other libraries cache them: queries take m
};

namespace detail {

template <Action action, class F, class Acc>
concept CallableOnRows = requires(const F& frame, Index b, Index t, RowBlock<const Acc> from,
                                  RowBlock<Acc> to) {
  frame.template act_rows<action>(b, t, from, to);
};

/// The class that declares a member function.
template <class Member>
struct ClassOf;
template <class Result, class Class>
struct ClassOf<Result Class::*> {
  using type = Class;
};
/// F's own member, not one that it inherits: whoever inherits may have replaced the maps that it stands for.
template <Action action, class F, class Acc>
concept OwnActRows = requires {
  requires std::is_same_v<typename ClassOf<decltype(&F::template act_rows<action, Acc>)>::type, F>;
}
|| requires {
  requires std::is_same_v<typename ClassOf<decltype(&F::template act_rows<action>)>::type, F>;
};
template <Action action, class F, class Acc>
concept ActsOnRows = CallableOnRows<action, F, Acc> && OwnActRows<action, F, Acc>;

struct NamesActRows {
  int act_rows;
};
template <class F>
concept NamesActRowsMember = std::is_class_v<F> && !std::is_final_v<F> && !requires {
  &Ambiguous<F, NamesActRows>::act_rows;
};

/// One action on one row.
template <Action action, class F, class Acc>
ROVE_ALWAYS_INLINE void act_row(const F& frame, Index b, Index t, std::span<Acc> row) {
  if constexpr (action == Action::apply) frame.apply(b, t, row);
  if constexpr (action == Action::inverse) frame.inverse(b, t, row);
  if constexpr (action == Action::transpose) frame.transpose(b, t, row);
  if constexpr (action == Action::inverse_transpose) frame.inverse_transpose(b, t, row);
}

/// One action of the tokens t, t + 1, … on a row each.
template <Action action, class F, class Acc>
ROVE_ALWAYS_INLINE void act_rows(const F& frame, Index b, Index t, RowBlock<const Acc> from,
                                 RowBlock<Acc> to) {
  static_assert(CallableOnRows<action, F, Acc> || !NamesActRowsMember<F>,
                "the frame's act_rows cannot be called as act_rows<action>(b, t, RowBlock<const Acc>, "
                "RowBlock<Acc>) const");
  if constexpr (ActsOnRows<action, F, Acc>) {
    frame.template act_rows<action>(b, t, from, to);
  } else {
    copy_rows(from, to);
    for (Index r = 0; r < to.count; ++r) act_row<action>(frame, b, t + r, to.row(r));
  }
}

/// The action that undoes one.
constexpr Action opposite(Action action) {
  switch (action) {
    case Action::apply:
      return Action::inverse;
    case Action::inverse:
      return Action::apply;
    case Action::transpose:
      return Action::inverse_transpose;
    case Action::inverse_transpose:
      break;
  }
  return Action::transpose;
}

}  // namespace detail

/// The frame that queries use where keys use `frame`. A frame whose model scales logits through its rotation
/// overloads it, found by argument-dependent look-up; all others are used as they are.
template <Frame F>
F query_frame(const F& frame, KeyFactor) {
  return frame;
}

/// The factor on the default logit scale that comes with a frame (DeepSeek's correction beside YaRN):
/// `logit_factor()` where the frame has one, otherwise 1.
template <Frame F>
double frame_logit_factor(const F& frame) {
  if constexpr (requires {
                  { frame.logit_factor() } -> std::convertible_to<double>;
                }) {
    return frame.logit_factor();
  } else {
    return 1;
  }
}

ROVE_END_TAGGED

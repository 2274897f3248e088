/// \file
/// A frame over a whole tensor: what a cache does to its keys, and an engine to its queries, outside of
/// attention.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"
#include "rove/core/pairing.hpp"
#include "rove/core/rotate_row.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/core/view_checks.hpp"
#include "rove/frame/frame.hpp"
#include "rove/frame/rotary.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Tokens to a task: their angles stay in the first-level cache while every head of theirs is turned.
inline constexpr Index rotate_tokens = 32;

/// An action that is chosen at run time, on one row.
template <Frame F, class Acc>
void act(const F& frame, Action action, Index b, Index t, std::span<Acc> row) {
  switch (action) {
    case Action::apply:
      return act_row<Action::apply>(frame, b, t, row);
    case Action::inverse:
      return act_row<Action::inverse>(frame, b, t, row);
    case Action::transpose:
      return act_row<Action::transpose>(frame, b, t, row);
    case Action::inverse_transpose:
      return act_row<Action::inverse_transpose>(frame, b, t, row);
  }
}

template <class From, class To>
void check_rotate(Index frame_batch, Index frame_tokens, Index frame_channels,
                  const TensorView<const From>& from, const TensorView<To>& to) {
  const char* const names[4] = {"batch", "heads", "tokens", "channels"};
  for (int i = 0; i < 4; ++i) {
    ROVE_EXPECT(from.extent[i] == to.extent[i], "the tensors have ", names[i], " ", from.extent[i], " and ",
                to.extent[i]);
  }
  check_view(from, "the input");
  check_view(to, "the output");
  ROVE_EXPECT(frame_batch == 1 || frame_batch == from.batch(), "the frame has batch ", frame_batch,
              ", the tensor has ", from.batch());
  ROVE_EXPECT(frame_tokens >= from.tokens(), "the frame has ", frame_tokens, " tokens, the tensor has ",
              from.tokens());
  ROVE_EXPECT(frame_channels <= from.channels(), "the frame turns ", frame_channels,
              " channels of rows that have ", from.channels());
  ROVE_EXPECT(!overlaps_itself(to), "the output overlaps itself: two of its elements share one place");
  ROVE_EXPECT(
      !overlaps(from, to) || same_storage(from, to),
      "the output may share the input's memory only with its element type, data, extents and strides");
}

/// Calls f(b, t) for every token, in slices that workers share out; f turns all heads of one.
template <class F>
void for_each_slice(const Context& context, Index batch, Index tokens, const F& f) {
  const Index slices = (tokens + rotate_tokens - 1) / rotate_tokens;
  context.for_each(batch * slices, [&](Index task, int worker) {
    const Index first = task % slices * rotate_tokens;
    f(task / slices, first, (std::min)(first + rotate_tokens, tokens), worker);
  });
}

template <class T>
void copy_channels(const T* from, Index from_stride, T* to, Index to_stride, Index first, Index last) {
  if (from == to) return;
  for (Index c = first; c < last; ++c) to[c * to_stride] = from[c * from_stride];
}

}  // namespace detail

/// to(b, h, t) ← M_t from(b, h, t), with M_t the frame's `action` at token t:  R_t, R_t⁻¹, R_tᵀ or R_t⁻ᵀ.
///
/// Tensors `[batch, heads, tokens, channels]` of any strides and any scalars; the frame has at least that
/// many tokens, and a batch of 1 or theirs. `to` may be `from` itself (same data, extents and strides),
/// otherwise they must not overlap. Rows are turned in float, or double if either tensor is double, and each
/// element is rounded once. Throws `Error` where the shapes do not fit, before anything is written.
template <Frame F, class TFrom, Scalar TTo>
requires Scalar<std::remove_const_t<TFrom>>
void rotate(const F& frame, TensorView<TFrom> from, TensorView<TTo> to, Action action = Action::apply,
            const Context& context = {}) {
  using From = std::remove_const_t<TFrom>;
  using Acc = accumulator_t<From, TTo>;
  const TensorView<const From> source = from;
  static_assert(is_identity_v<F> || FrameOn<F, Acc>, "the frame cannot be applied to rows of this type");
  detail::check_rotate(is_identity_v<F> ? 1 : frame.batch(), frame.tokens(), frame.channels(), source, to);
  if (source.empty()) return;
  Context::Scope scope(context);
  const auto scratch = scope.template per_worker<Acc>(source.channels());
  const bool shared = frame.batch() == 1;
  detail::for_each_slice(context, source.batch(), source.tokens(),
                         [&](Index b, Index first, Index last, int worker) {
                           const std::span<Acc> row = scratch(worker);
                           for (Index h = 0; h < source.heads(); ++h) {
                             for (Index t = first; t < last; ++t) {
                               const From* in = source.row(b, h, t);
                               TTo* out = to.row(b, h, t);
                               for (Acc& x : row) {
                                 x = load_widened<Acc>(in);
                                 in += source.channel_stride();
                               }
                               if constexpr (!is_identity_v<F>)
                                 detail::act(frame, action, shared ? 0 : b, t, row);
                               for (const Acc x : row) {
                                 store_rounded(out, x);
                                 out += to.channel_stride();
                               }
                             }
                           }
                         });
}

/// The same for rotations between tensors of one scalar: straight from memory to memory, the angles of a few
/// tokens being read once for all heads. Bit for bit what the general form gives.
template <RotationSource Source, class TFrom, Scalar TTo>
requires std::same_as<std::remove_const_t<TFrom>, TTo>
void rotate(const RotaryFrame<Source>& frame, TensorView<TFrom> from, TensorView<TTo> to,
            Action action = Action::apply, const Context& context = {}) {
  const TensorView<const TTo> source = from;
  detail::check_rotate(frame.batch(), frame.tokens(), frame.channels(), source, to);
  if (source.empty()) return;
  const bool forward = action == Action::apply || action == Action::inverse_transpose;
  const Index in = source.channel_stride(), out = to.channel_stride();
  const bool in_place = same_storage(source, to);
  const bool shared = frame.batch() == 1;
  detail::for_each_slice(
      context, source.batch(), source.tokens(), [&](Index b, Index first, Index last, int) {
        for (Index h = 0; h < source.heads(); ++h) {
          for (Index t = first; t < last; ++t) {
            const TTo* x = source.row(b, h, t);
            TTo* y = to.row(b, h, t);
            frame.with_row(shared ? 0 : b, t, [&](const auto* cos, const auto* sin) {
              const Index from_channel = frame.first_channel();
              const Index pairs = frame.rotary_dim() / 2;
              if (forward) {
                rotate_row<Direction::forward>(frame.pairing(), cos, sin, pairs, x + from_channel * in, in,
                                               y + from_channel * out, out);
              } else {
                rotate_row<Direction::inverse>(frame.pairing(), cos, sin, pairs, x + from_channel * in, in,
                                               y + from_channel * out, out);
              }
            });
            if (!in_place) {
              detail::copy_channels(x, in, y, out, 0, frame.first_channel());
              detail::copy_channels(x, in, y, out, frame.channels(), source.channels());
            }
          }
        }
      });
}

/// x(b, h, t) ← M_t x(b, h, t) in place.
template <Frame F, Scalar T>
void rotate(const F& frame, TensorView<T> x, Action action = Action::apply, const Context& context = {}) {
  rotate(frame, x, x, action, context);
}

ROVE_END_TAGGED

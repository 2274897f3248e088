/// \file
/// Frames as a kernel sees them: each operand's row transform. The four actions are exactly forward and
/// backward.
///
/// | operand | forward | adjoint, for gradients |
/// |---|---|---|
/// | query  | R⁻ᵀ | R⁻¹ |
/// | key, value | R | Rᵀ |
/// | output | R⁻¹ | R⁻ᵀ |
#pragma once

#include <span>

#include "rove/attention/row_transform.hpp"
#include "rove/core/config.hpp"
#include "rove/core/row_block.hpp"
#include "rove/frame/frame.hpp"
#include "rove/op/frames.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// A frame by reference, with a batch of 1 spread over the problem's.
template <Frame F>
class FrameTransform {
 public:
  static constexpr bool is_identity = is_identity_v<F>;
  explicit FrameTransform(const F& frame) : frame_(&frame), shared_(frame.batch() == 1) {}

 protected:
  const F& frame() const { return *frame_; }
  Index row_of(Index b) const { return shared_ ? 0 : b; }

 private:
  const F* frame_;
  bool shared_;
};

template <Frame F>
struct QueryTransform : FrameTransform<F> {
  using FrameTransform<F>::FrameTransform;
  template <Accumulator Acc>
  void forward(Index b, Index t, std::span<Acc> row) const {
    this->frame().inverse_transpose(this->row_of(b), t, row);
  }
  template <Accumulator Acc>
  void forward_rows(Index b, Index t, RowBlock<const Acc> from, RowBlock<Acc> to) const {
    act_rows<Action::inverse_transpose>(this->frame(), this->row_of(b), t, from, to);
  }
  template <Accumulator Acc>
  void adjoint(Index b, Index t, std::span<Acc> row) const {
    this->frame().inverse(this->row_of(b), t, row);
  }
};

template <Frame F>
struct KeyTransform : FrameTransform<F> {
  using FrameTransform<F>::FrameTransform;
  template <Accumulator Acc>
  void forward(Index b, Index t, std::span<Acc> row) const {
    this->frame().apply(this->row_of(b), t, row);
  }
  template <Accumulator Acc>
  void forward_rows(Index b, Index t, RowBlock<const Acc> from, RowBlock<Acc> to) const {
    act_rows<Action::apply>(this->frame(), this->row_of(b), t, from, to);
  }
  template <Accumulator Acc>
  void adjoint(Index b, Index t, std::span<Acc> row) const {
    this->frame().transpose(this->row_of(b), t, row);
  }
};

template <Frame F>
struct OutputTransform : FrameTransform<F> {
  using FrameTransform<F>::FrameTransform;
  template <Accumulator Acc>
  void forward(Index b, Index t, std::span<Acc> row) const {
    this->frame().inverse(this->row_of(b), t, row);
  }
  template <Accumulator Acc>
  void forward_rows(Index b, Index t, RowBlock<const Acc> from, RowBlock<Acc> to) const {
    act_rows<Action::inverse>(this->frame(), this->row_of(b), t, from, to);
  }
  template <Accumulator Acc>
  void adjoint(Index b, Index t, std::span<Acc> row) const {
    this->frame().inverse_transpose(this->row_of(b), t, row);
  }
};

template <Frame Q, Frame K, Frame V, Frame O>
using FrameTransforms =
    RowTransforms<QueryTransform<Q>, KeyTransform<K>, KeyTransform<V>, OutputTransform<O>>;

/// The row transforms of `frames`, which must outlive them.
template <Frame Q, Frame K, Frame V, Frame O>
FrameTransforms<Q, K, V, O> frame_transforms(const Frames<Q, K, V, O>& frames) {
  return {QueryTransform<Q>(frames.query), KeyTransform<K>(frames.key), KeyTransform<V>(frames.value),
          OutputTransform<O>(frames.output)};
}

/// Without frames, those of a call that takes none.
inline RowTransforms<> frame_transforms(const Frames<>&) {
  return {};
}

}  // namespace detail

ROVE_END_TAGGED

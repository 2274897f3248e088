/// \file
/// A bias read from memory.
#pragma once

#include <cstddef>
#include <type_traits>

#include "rove/attention/logit_tensor.hpp"
#include "rove/attention/score.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_convert.hpp"
#include "rove/core/tensor_view.hpp"

ROVE_BEGIN_TAGGED

/// s + bias(batch, head, row, slot); see `additive_bias()`.
template <Scalar T>
class AdditiveBias {
 public:
  constexpr explicit AdditiveBias(TensorView<const T> tensor) : tensor_(tensor) {}

  template <Accumulator Acc>
  ROVE_ALWAYS_INLINE Acc operator()(Acc s, const Site& site) const {
    return s + static_cast<Acc>(load_widened<accumulator_t<T, Acc>>(tensor_.at(site)));
  }
  template <simd::PacketLike P>
  ROVE_ALWAYS_INLINE P packet(P s, const Site& first) const {
    using Acc = simd::lane_t<P>;
    const T* const from = tensor_.at(first);
    if constexpr (std::is_same_v<T, double> && std::is_same_v<Acc, float>) {
      Acc lanes[std::size_t{simd::width<P>}];
      for (int i = 0; i < simd::width<P>; ++i) lanes[i] = static_cast<Acc>(from[i * tensor_.slot_step()]);
      return s + simd::load<P>(lanes);
    } else {
      return s +
             (tensor_.slot_step() == 1 ? simd::load<P>(from) : simd::gather<P>(from, tensor_.slot_step()));
    }
  }
  template <Accumulator Acc>
  constexpr Acc dscore(Acc, Acc, const Site&) const {
    return Acc{1};
  }
  void prefetch(const Site& first, Index count) const { tensor_.prefetch(first, count); }
  constexpr void check(const AttentionShape& shape) const { tensor_.check("additive_bias", shape); }
  static constexpr bool order_aware() { return false; }

 private:
  detail::LogitTensor<T> tensor_;
};

/// s' = s + bias, the tensor `[batch, heads, q_len, kv_len]` of any scalar being added to the scaled logits.
/// Each extent is the call's or 1, which serves all (other extents are errors of the call). Rows and slots
/// are local: query_offset and displaced keys do not move it. Any strides; borrowed. A double bias on float
/// logits is rounded to float first.
///
/// A bias of −∞ gives the key weight 0, but the value is still multiplied by it: where values may be NaN or
/// infinite, or keys must not be read, hide them with a mask.
template <class T>
requires Scalar<std::remove_const_t<T>>
constexpr auto additive_bias(TensorView<T> tensor) {
  return AdditiveBias<std::remove_const_t<T>>(TensorView<const T>(tensor));
}

ROVE_END_TAGGED

/// \file
/// The kernel's two tile products alone: what they reach is the most that the kernel can.
#pragma once

#include <array>

#include "bench/support/buffer.hpp"
#include "rove/attention/tiled/pack.hpp"
#include "rove/attention/tiled/tile.hpp"

namespace bench {

/// On the packed operands of one key block, of the length that the kernel takes for this width, and of
/// sixteen tiles of query rows, which the kernel takes to a block as well. All fits in a level 2 cache.
class TileProducts {
  using Shape = rove::detail::TileShape<float>;
  static constexpr Index tiles = 16;

 public:
  TileProducts(Index head_dim, Index repeats)
      : layout_(head_dim, head_dim),
        repeats_(repeats),
        queries_(tiles * layout_.query_tile(), 1),
        keys_(layout_.key_block(), 2),
        values_(layout_.value_block(), 3),
        scores_(Shape::rows * rove::detail::weights_stride, 4),
        weights_(Shape::rows * rove::detail::weights_stride, 5),
        outputs_(tiles * Shape::rows * layout_.value_width, 6) {
    rescale_.fill(0.5F);
  }

  /// Of either product.
  double flops() const {
    return 2.0 * Shape::rows * static_cast<double>(tiles * layout_.block * layout_.channels * repeats_);
  }

  /// Queries times keys.
  void scores() {
    each_tile([this](Index tile) {
      rove::detail::score_tiles<Shape::rows>(queries_.data() + tile * layout_.query_tile(), keys_.data(),
                                             layout_.channels, 0, layout_.block, scores_.data(),
                                             {reinterpret_cast<const char*>(keys_.data()), 0});
    });
  }
  /// Weights times values, added to the output.
  void outputs() {
    each_tile([this](Index tile) {
      rove::detail::value_tiles<Shape::rows>(
          weights_.data(), values_.data(), layout_.block, 0, layout_.block, rescale_.data(),
          outputs_.data() + tile * Shape::rows * layout_.value_width, layout_.value_width);
    });
  }

 private:
  template <class F>
  void each_tile(const F& f) {
    for (Index repeat = 0; repeat < repeats_; ++repeat) {
      for (Index tile = 0; tile < tiles; ++tile) f(tile);
    }
    clobber_memory();
  }

  rove::detail::PackedLayout<float> layout_;
  Index repeats_;
  Buffer<float> queries_, keys_, values_, scores_, weights_, outputs_;
  std::array<float, 32> rescale_;
};

}  // namespace bench

/// \file
/// Tensors of any layout in memory that is exactly as long as they reach, with guards between their elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "rove/core/tensor_view.hpp"

namespace rove_fuzz {

/// The strides of a tensor and the memory that it needs.
struct Layout {
  std::array<Index, 4> stride{};
  Index first = 0;  ///< place of element (0, 0, 0, 0)
  Index size = 0;   ///< elements of memory

  /// Dimensions in any order, gaps between them, some backwards; inputs may repeat.
  Layout(Bytes& bytes, const std::array<Index, 4>& extent, bool may_repeat) {
    std::array<int, 4> order{3, 2, 1, 0};  // from the innermost
    const bool plain = !bytes.one_in(2);
    if (!plain) {
      std::array<int, 4> sorted{0, 1, 2, 3};
      for (Index n = bytes.below(24); n > 0; --n) std::next_permutation(sorted.begin(), sorted.end());
      order = sorted;
      first = bytes.below(4);  // misaligned
    }
    Index last = first, step = 1;
    for (const int d : order) {
      const auto at = static_cast<std::size_t>(d);
      const Index n = extent[at];
      if (!plain && may_repeat && bytes.one_in(8)) continue;  // stride 0
      if (!plain && bytes.one_in(4)) step += bytes.between(1, 3);
      stride[at] = step;
      const Index reach = (n > 0 ? n - 1 : 0) * step;
      last += reach;
      if (!plain && bytes.one_in(4)) {
        first += reach;
        stride[at] = -step;
      }
      step += reach;
    }
    const bool empty = std::find(extent.begin(), extent.end(), 0) != extent.end();
    size = empty ? 0 : last + 1;
  }
};

/// What a tensor is for: inputs may repeat themselves.
enum class Use { input, output };

/// A tensor with memory of its own. Whatever was not written holds a guard: NaN in an input, so that what
/// reads it is seen; in an output a number that no result is.
template <class T>
class Tensor {
 public:
  Tensor(Bytes& bytes, std::array<Index, 4> extent, Use use)
      : extent_(extent),
        layout_(bytes, extent, use == Use::input),
        guard_(use == Use::input ? 0xff : 0xfd),
        memory_(static_cast<std::size_t>(layout_.size)) {
    clear();
  }

  rove::TensorView<T> view() {
    // An empty tensor has no element to point at.
    return {memory_.data() + (memory_.empty() ? 0 : layout_.first),
            {extent_[0], extent_[1], extent_[2], extent_[3]},
            {layout_.stride[0], layout_.stride[1], layout_.stride[2], layout_.stride[3]}};
  }

  /// Guards everywhere.
  void clear() {
    if (!memory_.empty()) std::memset(static_cast<void*>(memory_.data()), guard_, memory_.size() * sizeof(T));
  }
  bool is_clear() const { return is_clear_but_for(std::vector<bool>(memory_.size())); }
  /// Nothing was written beside the elements.
  bool guards_stand() {
    std::vector<bool> is_element(memory_.size());
    for_each_element(
        [&](T* element) { is_element[static_cast<std::size_t>(element - memory_.data())] = true; });
    return is_clear_but_for(is_element);
  }

  template <class F>
  void for_each_element(const F& f) {
    const rove::TensorView<T> all = view();
    for (Index b = 0; b < extent_[0]; ++b) {
      for (Index h = 0; h < extent_[1]; ++h) {
        for (Index t = 0; t < extent_[2]; ++t) {
          for (Index c = 0; c < extent_[3]; ++c) f(&all(b, h, t, c));
        }
      }
    }
  }

  const std::vector<T>& memory() const { return memory_; }
  void restore(const std::vector<T>& memory) { memory_ = memory; }

 private:
  bool is_clear_but_for(const std::vector<bool>& is_element) const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (is_element[i]) continue;
      unsigned char raw[sizeof(T)];
      std::memcpy(raw, static_cast<const void*>(memory_.data() + i), sizeof(T));
      for (const unsigned char byte : raw) {
        if (byte != guard_) return false;
      }
    }
    return true;
  }

  std::array<Index, 4> extent_;
  Layout layout_;
  unsigned char guard_;
  std::vector<T> memory_;
};

/// Random numbers of one size, some of them zero.
class Numbers {
 public:
  Numbers(Bytes& bytes) : random_(bytes.seed()), size_(bytes.pick({1.0, 0.25, 4.0, 12.0})) {
    zeros_ = bytes.one_in(4) ? 4 : 0;
  }
  double operator()() {
    if (zeros_ > 0 && random_.below(zeros_) == 0) return 0;
    return size_ * random_.normal();
  }
  Random& random() { return random_; }

 private:
  Random random_;
  double size_;
  Index zeros_;
};

template <class T>
void fill(rove::TensorView<T> view, Numbers& numbers) {
  for (Index b = 0; b < view.batch(); ++b) {
    for (Index h = 0; h < view.heads(); ++h) {
      for (Index t = 0; t < view.tokens(); ++t) {
        for (Index c = 0; c < view.channels(); ++c) {
          view(b, h, t, c) = static_cast<T>(static_cast<float>(numbers()));
        }
      }
    }
  }
}

}  // namespace rove_fuzz

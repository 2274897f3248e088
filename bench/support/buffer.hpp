/// \file
/// Memory that the benchmarks work on: aligned alike in every run, touched before it is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"

namespace bench {

using rove::Index;

/// `count` elements from the start of a page, filled with numbers of mean 0 and variance 1 that depend on
/// `seed` alone. Alignment is part of what is timed: a packet that straddles two cache lines costs two.
template <rove::Scalar T>
class Buffer {
 public:
  explicit Buffer(Index count, std::uint64_t seed = 1) : count_(count) {
    data_.reset(static_cast<T*>(
        ::operator new (static_cast<std::size_t>(count) * sizeof(T), std::align_val_t{page})));
    std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
    for (Index i = 0; i < count; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const double uniform = static_cast<double>(state >> 11) * 0x1p-53;  // [0, 1)
      data_.get()[i] = T(static_cast<float>((2 * uniform - 1) * 1.7320508075688772));
    }
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  Index size() const { return count_; }
  Index bytes() const { return count_ * static_cast<Index>(sizeof(T)); }

 private:
  static constexpr std::size_t page = 4096;
  struct Free {
    void operator()(T* data) const { ::operator delete (data, std::align_val_t{page}); }
  };

  Index count_;
  std::unique_ptr<T, Free> data_;
};

/// The compiler must take all memory for read and written here, so that no timed work is left out.
inline void clobber_memory() {
  asm volatile("" ::: "memory");
}

}  // namespace bench

/// \file
/// Memory that the benchmarks work on: aligned alike in every run, touched before it is timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "rove/core/config.hpp"
#include "rove/core/huge_pages.hpp"
#include "rove/core/scalar.hpp"

namespace bench {

using rove::Index;

/// `count` elements, not initialised, from the start of a page; large memory lies on large pages where the
/// system has them, that of every rival alike. Alignment is part of what is timed: a packet that straddles
/// two cache lines costs two. So are pages: on those of 4 KiB a machine, a virtual one most of all, pays for
/// each anew that it has not touched for a while, and long calls are measures of that.
template <class T>
class Memory {
 public:
  explicit Memory(Index count)
      : count_(count),
        size_(rove::detail::whole_pages(static_cast<std::size_t>(count) * sizeof(T))),
        alignment_(rove::detail::page_alignment(size_, 4096)),
        data_(static_cast<T*>(::operator new(size_, alignment_))) {
    rove::detail::advise_huge_pages(data_, size_);
  }
  ~Memory() { ::operator delete(data_, alignment_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  Index size() const { return count_; }
  Index bytes() const { return count_ * static_cast<Index>(sizeof(T)); }

 private:
  Index count_;
  std::size_t size_;
  std::align_val_t alignment_;
  T* data_;
};

/// Filled with numbers of mean 0 and variance 1 that depend on `seed` alone.
template <rove::Scalar T>
class Buffer : public Memory<T> {
 public:
  explicit Buffer(Index count, std::uint64_t seed = 1) : Memory<T>(count) {
    std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
    for (Index i = 0; i < count; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const double uniform = static_cast<double>(state >> 11) * 0x1p-53;  // [0, 1)
      this->data()[i] = T(static_cast<float>((2 * uniform - 1) * 1.7320508075688772));
    }
  }
};

/// The compiler must take all memory for read and written here, so that no timed work is left out.
inline void clobber_memory() {
  asm volatile("" ::: "memory");
}

}  // namespace bench

/// \file
/// The fuzzer's bytes as choices, and random numbers that a few of them seed.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "rove/core/config.hpp"

namespace rove_fuzz {

using rove::Index;

/// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t word() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(word() >> 11) * 0x1p-53; }
  /// About normal, of standard deviation 1, within ±3.5.
  double normal() {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += uniform() - 0.5;
    return sum * std::sqrt(3.0);
  }
  Index below(Index n) { return static_cast<Index>(word() % static_cast<std::uint64_t>(n)); }

 private:
  std::uint64_t state_;
};

/// Reads choices from the front of an input. Past its end they follow from all of it by chance, so that short
/// inputs make whole problems.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {
    for (std::size_t i = 0; i < size; ++i) rest_ = Random(rest_.word() + data[i]);
  }

  unsigned byte() { return at_ < size_ ? data_[at_++] : static_cast<unsigned>(rest_.word() & 255); }

  /// In [0, n), n ≤ 65536.
  Index below(Index n) {
    if (n <= 1) return 0;
    const unsigned low = byte();
    return static_cast<Index>(n <= 256 ? low : low + 256 * byte()) % n;
  }
  /// In [first, last].
  Index between(Index first, Index last) { return first + below(last - first + 1); }
  /// True once in n.
  bool one_in(Index n) { return below(n) == n - 1; }
  /// One of the list.
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<Index>(list.size()))];
  }
  std::uint32_t seed() { return byte() + 256 * byte(); }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
  Random rest_{0};
};

}  // namespace rove_fuzz

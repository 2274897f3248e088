/// \file
/// How many flops this CPU does at the very best, measured: what a data sheet's clock says is not what it
/// runs at under vector load.
#pragma once

#include "bench/support/buffer.hpp"
#include "bench/support/workers.hpp"
#include "rove/core/config.hpp"
#include "rove/core/simd.hpp"

namespace bench {

/// Multiply-adds on registers alone, in float. A CPU finishes two a cycle, each 4 or 5 cycles after it began:
/// 10 that do not wait for one another keep it busy, 12 leave a margin and fit in 16 registers with both
/// factors.
class FmaBurst {
  using Packet = rove::simd::packet_t<float>;
  static constexpr int chains = 12;

 public:
  explicit FmaBurst(rove::Index steps) : steps_(steps) {}

  /// Of one call on each thread.
  double flops() const { return 2.0 * chains * rove::simd::width<Packet> * static_cast<double>(steps_); }

  /// Each thread of `workers` does the whole burst.
  void operator()(const Workers& workers) const {
    workers.split(workers.threads(), [this](rove::Index, rove::Index) { run(steps_); });
  }

 private:
  ROVE_NO_INLINE static void run(rove::Index steps) {
    namespace simd = rove::simd;
    // x ← 0.75 x + 0.25 stays near 1. The compiler must not know the numbers.
    float factors[2] = {0.75F, 0.25F};
    asm volatile("" : : "r"(factors) : "memory");
    const Packet a = simd::broadcast<Packet>(factors[0]), b = simd::broadcast<Packet>(factors[1]);
    Packet x[chains];
    for (int i = 0; i < chains; ++i) x[i] = simd::broadcast<Packet>(static_cast<float>(i) / chains);
    for (rove::Index step = 0; step < steps; ++step) {
      for (int i = 0; i < chains; ++i) x[i] = simd::mul_add(x[i], a, b);
    }
    float kept[simd::width<Packet>];
    for (int i = 0; i < chains; ++i) {
      simd::store(kept, x[i]);
      asm volatile("" : : "r"(kept) : "memory");
    }
  }

  rove::Index steps_;
};

}  // namespace bench

/// \file
/// Threads for one benchmark: the caller's and a pool of the others.
#pragma once

#if __has_include(<Eigen/ThreadPool>)
#include <Eigen/ThreadPool>
#else
#include <unsupported/Eigen/CXX11/ThreadPool>
#endif

#include <algorithm>
#include <memory>

#include "rove/core/context.hpp"
#include "rove/core/pool_executor.hpp"

namespace bench {

/// A context of `threads` workers, its memory kept from call to call. No thread is pinned to a CPU.
class Workers {
 public:
  explicit Workers(int threads) : threads_(threads) {
    if (threads == 1) return;
    pool_ = std::make_unique<Eigen::ThreadPool>(threads - 1);
    context_ = rove::Context(rove::on(*pool_));
  }

  int threads() const { return threads_; }
  const rove::Context& context() const { return context_; }

  /// part(first, last) for as many equal parts of [0, count) as there are threads.
  template <class Part>
  void split(rove::Index count, const Part& part) const {
    context_.for_each(threads_,
                      [&](rove::Index i, int) { part(count * i / threads_, count * (i + 1) / threads_); });
  }

 private:
  int threads_;
  std::unique_ptr<Eigen::ThreadPool> pool_;  // outlives the context
  rove::Context context_;
};

}  // namespace bench

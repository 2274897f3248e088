/// \file
/// Tasks on OpenMP's threads, where the translation unit is compiled with OpenMP.
#pragma once

#if defined(_OPENMP)

#include <omp.h>

#include <algorithm>
#include <atomic>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/executor.hpp"

ROVE_BEGIN_TAGGED

/// One parallel region a call; indices are claimed one at a time. Inside another parallel region OpenMP's
/// rules for nesting apply: by default the caller then works alone. Tasks must not throw (`Context` sees to
/// that).
class OpenMpExecutor {
 public:
  explicit OpenMpExecutor(int threads) : threads_(threads) {
    ROVE_EXPECT(threads >= 1, "threads is ", threads, ", at least 1 is needed");
  }

  int concurrency() const { return threads_; }

  void for_each(Index n, TaskRef task) const {
    if (n <= 0) return;
    const int team = static_cast<int>((std::min)(n, Index{threads_}));
    std::atomic<Index> next{0};
#pragma omp parallel num_threads(team)
    {
      const int worker = omp_get_thread_num();
      for (Index index; (index = next.fetch_add(1, std::memory_order_relaxed)) < n;) task(index, worker);
    }
  }

 private:
  int threads_;
};

inline OpenMpExecutor on_openmp(int threads) {
  return OpenMpExecutor(threads);
}

/// As many threads as OpenMP would use by itself (OMP_NUM_THREADS).
inline OpenMpExecutor on_openmp() {
  return OpenMpExecutor(omp_get_max_threads());
}

ROVE_END_TAGGED

#endif

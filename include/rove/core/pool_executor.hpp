/// \file
/// Tasks on a thread pool of the caller's: `Eigen::ThreadPool`, or anything with its two functions. No header
/// of the pool's is needed here.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/executor.hpp"

namespace rove {

/// `Schedule(std::function<void()>)` runs a closure some time later, once; `NumThreads()` tells how many
/// threads do so. Eigen::ThreadPoolInterface is one.
template <class P>
concept TaskPool = requires(P& pool, std::function<void()> closure) {
  pool.Schedule(std::move(closure));
  { pool.NumThreads() } -> std::convertible_to<int>;
};

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

/// Where a caller and its helpers meet. The caller opens a region, works through it, closes it and waits for
/// the helpers that are inside, never for one that has not come: so a region ends even when the pool has no
/// thread to spare, or is the very thread that called. A helper that comes late finds the region closed and
/// leaves, or finds the next one open and joins that. The executor and the helpers called share the crew: it
/// outlives them all.
class PoolCrew {
 public:
  struct Release {
    void operator()(PoolCrew* crew) const noexcept { crew->release(); }
  };

  /// Opens a region with the caller as worker 0; returns how many more helpers to call, -1 if one is under
  /// way.
  int open(Index n, const TaskRef& task, int helpers) {
    const std::lock_guard lock(mutex_);
    if (busy_) return -1;
    busy_ = true;
    n_ = n;
    task_ = &task;
    joined_ = 0;
    next_.store(0, std::memory_order_relaxed);
    // Helpers called for an earlier region that have not come yet serve this one: no more than `helpers`
    // closures are ever under way, and worker numbers stay below the executor's concurrency.
    const int missing = (std::max)(0, helpers - called_);
    called_ += missing;
    references_.fetch_add(missing, std::memory_order_relaxed);
    return missing;
  }

  /// Takes back helpers that could not be called.
  void dismiss(int helpers) noexcept {
    const std::lock_guard lock(mutex_);
    called_ -= helpers;
    references_.fetch_sub(helpers, std::memory_order_relaxed);
  }

  /// Ends the region: nobody enters any more, and those inside have left on return.
  void close() {
    std::unique_lock lock(mutex_);
    task_ = nullptr;
    // Whoever is inside is at its last task: look a few times before going to sleep.
    for (int look = 0; look < 64 && inside_ != 0; ++look) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    left_.wait(lock, [this] { return inside_ == 0; });
    busy_ = false;
  }

  /// What a helper does, once for each time it was called.
  void help() noexcept {
    std::unique_lock lock(mutex_);
    --called_;
    if (task_ != nullptr) {
      ROVE_ASSERT(busy_);  // the caller will wait
      ++inside_;
      const int worker = ++joined_;
      const TaskRef task = *task_;
      const Index n = n_;
      lock.unlock();
      work(n, task, worker);
      lock.lock();
      if (--inside_ == 0) left_.notify_one();
    }
    lock.unlock();
    release();
  }

  /// Takes the next index until none is left.
  void work(Index n, TaskRef task, int worker) noexcept {
    for (Index index; (index = next_.fetch_add(1, std::memory_order_relaxed)) < n;) task(index, worker);
  }

 private:
  void release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  std::mutex mutex_;
  std::condition_variable left_;
  bool busy_ = false;              // a caller is between open and the end of close
  const TaskRef* task_ = nullptr;  // of the open region; null while helpers may not enter
  Index n_ = 0;
  int joined_ = 0;                  // helpers that entered this region: the last one's worker number
  int inside_ = 0;                  // helpers at work
  int called_ = 0;                  // helpers scheduled that have not come yet
  std::atomic<int> references_{1};  // the executor and every helper called
  alignas(128) std::atomic<Index> next_{0};
};

}  // namespace detail

/// Tasks on a pool, the caller taking part: its thread is worker 0, so that even a pool without a free thread
/// gets the work done. Indices are claimed one at a time by one counter.
///
/// May be called from the pool's own threads and from inside a task; a call that meets another one of the
/// same executor runs serially. Allocates nothing after construction: a helper is a closure of one pointer,
/// which std::function stores in place (and Eigen's pool in its queue). A pool that drops closures unrun, as
/// Eigen's does after Cancel(), leaks the few hundred bytes they point to. Tasks must not throw (`Context`
/// sees to that).
template <TaskPool P>
class PoolExecutor {
 public:
  /// \param pool     outlives the executor
  /// \param workers  tasks at the same time, the caller's included; no more than NumThreads() + 1 are used
  PoolExecutor(P& pool, int workers)
      : pool_(&pool),
        workers_((std::min)(workers, static_cast<int>(pool.NumThreads()) + 1)),
        crew_(new detail::PoolCrew) {
    ROVE_EXPECT(workers >= 1, "workers is ", workers, ", at least 1 is needed");
  }

  PoolExecutor(const PoolExecutor& other) : PoolExecutor(*other.pool_, other.workers_) {}
  PoolExecutor(PoolExecutor&&) noexcept = default;
  PoolExecutor& operator=(PoolExecutor other) noexcept {
    pool_ = other.pool_;
    workers_ = other.workers_;
    crew_ = std::move(other.crew_);
    return *this;
  }
  ~PoolExecutor() = default;

  int concurrency() const { return workers_; }

  void for_each(Index n, TaskRef task) const {
    const int helpers = static_cast<int>((std::min)(n, Index{workers_})) - 1;
    const int missing = helpers > 0 ? crew_->open(n, task, helpers) : -1;
    if (missing < 0) return SerialExecutor().for_each(n, task);
    for (int called = 0; called < missing; ++called) {
      if (!call_helper()) {
        crew_->dismiss(missing - called);
        break;
      }
    }
    crew_->work(n, task, 0);
    crew_->close();
  }

 private:
  /// False if the pool has no room for one more closure; the work gets done without it.
  bool call_helper() const {
    auto closure = [crew = crew_.get()] { crew->help(); };
#if ROVE_HAS_EXCEPTIONS
    try {
      pool_->Schedule(closure);
    } catch (...) {
      return false;
    }
#else
    pool_->Schedule(closure);
#endif
    return true;
  }

  P* pool_;
  int workers_;
  std::unique_ptr<detail::PoolCrew, detail::PoolCrew::Release> crew_;
};

/// All threads of the pool and the caller's: `Context{on(pool)}`.
template <TaskPool P>
requires(!Executor<P>) PoolExecutor<P> on(P& pool) {
  return PoolExecutor<P>(pool, static_cast<int>(pool.NumThreads()) + 1);
}

/// At most `workers` tasks at the same time, the caller's included.
template <TaskPool P>
requires(!Executor<P>) PoolExecutor<P> on(P& pool, int workers) {
  return PoolExecutor<P>(pool, workers);
}

ROVE_END_TAGGED

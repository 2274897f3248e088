/// Executors for tests: a user's own with threads of its own, and the laws that all executors keep.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rove/core/executor.hpp"

namespace test {

/// Runs f on a thread of its own and ends the program if it has not returned in time: a deadlock is a failure
/// with a name, not a test that hangs.
template <class F>
void within(std::chrono::seconds limit, F f) {
  std::packaged_task<void()> task(std::move(f));
  std::future<void> done = task.get_future();
  std::thread thread(std::move(task));
  if (done.wait_for(limit) != std::future_status::ready) {
    std::fprintf(stderr, "deadlock: not done after %lld s\n", static_cast<long long>(limit.count()));
    std::abort();
  }
  thread.join();
  done.get();
}

/// What a host might have: threads that wait for work, indices dealt out in strides (worker w runs w, w + W,
/// ...), nothing allocated by a call.
class StridedThreads {
 public:
  explicit StridedThreads(int workers) : workers_(workers) {
    for (int worker = 0; worker < workers; ++worker) {
      threads_.emplace_back([this, worker] { serve(worker); });
    }
  }
  StridedThreads(const StridedThreads&) = delete;
  StridedThreads& operator=(const StridedThreads&) = delete;
  ~StridedThreads() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int concurrency() const { return workers_; }

  void for_each(rove::Index n, rove::TaskRef task) {
    std::unique_lock lock(mutex_);
    n_ = n;
    task_ = &task;
    busy_ = workers_;
    ++round_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void serve(int worker) {
    int served = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || round_ != served; });
      if (stop_) return;
      served = round_;
      const rove::TaskRef task = *task_;
      const rove::Index n = n_;
      lock.unlock();
      for (rove::Index index = worker; index < n; index += workers_) task(index, worker);
      lock.lock();
      if (--busy_ == 0) changed_.notify_all();
    }
  }

  int workers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
  rove::Index n_ = 0;
  const rove::TaskRef* task_ = nullptr;
  int round_ = 0;
  int busy_ = 0;
  bool stop_ = false;
};

/// The contract of `Executor`, also kept by `Context`: each index once, workers in range, no two tasks of one
/// worker at a time, plain writes visible on return.
template <class E>
void expect_each_index_once(E& executor, rove::Index n) {
  SCOPED_TRACE("n = " + std::to_string(n) + ", concurrency = " + std::to_string(executor.concurrency()));
  const auto size = static_cast<std::size_t>(n > 0 ? n : 0);
  std::vector<std::atomic<int>> calls(size);
  std::vector<rove::Index> written(size, -1);
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(executor.concurrency()));
  std::atomic<int> faults{0};
  executor.for_each(n, [&](rove::Index index, int worker) {
    if (index < 0 || index >= n || worker < 0 || worker >= executor.concurrency()) {
      ++faults;
      return;
    }
    const auto i = static_cast<std::size_t>(index);
    const auto w = static_cast<std::size_t>(worker);
    if (inside[w].fetch_add(1) != 0) ++faults;
    ++calls[i];
    written[i] = index * index;
    if (index % 3 == 0) std::this_thread::yield();
    inside[w].fetch_sub(1);
  });
  EXPECT_EQ(faults.load(), 0) << "an index or worker out of range, or two tasks of one worker at a time";
  for (std::size_t i = 0; i < size; ++i) {
    EXPECT_EQ(calls[i].load(), 1) << "index " << i;
    EXPECT_EQ(written[i], static_cast<rove::Index>(i * i)) << "index " << i;
  }
}

inline const std::vector<rove::Index> task_counts{0, 1, 2, 3, 7, 8, 9, 64, 1000};

}  // namespace test

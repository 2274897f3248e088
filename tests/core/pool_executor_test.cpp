#include "rove/core/pool_executor.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "support/count_allocations.hpp"
#include "support/eigen_thread_pool.hpp"
#include "support/error_of.hpp"
#include "support/executors.hpp"

namespace {

using rove::Index;
using rove::TaskRef;
using std::chrono::seconds;

static_assert(rove::TaskPool<Eigen::ThreadPool> && rove::TaskPool<Eigen::ThreadPoolInterface>);
static_assert(rove::Executor<rove::PoolExecutor<Eigen::ThreadPool>>);
static_assert(!rove::TaskPool<rove::SerialExecutor>);

/// A pool whose closures run when the test says so.
struct DeferredPool {
  std::deque<std::function<void()>> closures;
  int threads = 3;

  int NumThreads() const { return threads; }
  void Schedule(std::function<void()> closure) { closures.push_back(std::move(closure)); }
  void run_one() {
    const std::function<void()> closure = std::move(closures.front());
    closures.pop_front();
    closure();
  }
};

/// Runs a closure at once, as Eigen's pool does when its queue is full.
struct ImmediatePool {
  int NumThreads() const { return 3; }
  void Schedule(const std::function<void()>& closure) { closure(); }
};

/// Takes `room` closures, then has no memory for more.
struct FullPool {
  std::deque<std::function<void()>> closures;
  std::size_t room = 1;

  int NumThreads() const { return 3; }
  void Schedule(std::function<void()> closure) {
    if (closures.size() == room) throw std::bad_alloc();
    closures.push_back(std::move(closure));
  }
};

TEST(PoolExecutor, runs_each_index_once) {
  test::within(seconds(120), [] {
    for (const int workers : {1, 2, 3, 8}) {
      Eigen::ThreadPool pool(workers);
      auto all = rove::on(pool);
      EXPECT_EQ(all.concurrency(), workers + 1);
      auto fewer = rove::on(pool, workers);
      EXPECT_EQ(fewer.concurrency(), workers);
      for (const Index n : test::task_counts) {
        test::expect_each_index_once(all, n);
        test::expect_each_index_once(fewer, n);
      }
      test::expect_each_index_once(all, -1);
    }
  });
}

TEST(PoolExecutor, workers_are_limited_to_the_pool_and_the_caller) {
  Eigen::ThreadPool pool(2);
  EXPECT_EQ(rove::on(pool, 100).concurrency(), 3);
  EXPECT_EQ(rove::on(pool, 1).concurrency(), 1);
  EXPECT_EQ(test::error_of([&] { rove::on(pool, 0); }), "workers is 0, at least 1 is needed");
}

TEST(PoolExecutor, uses_all_threads_and_the_caller_at_once) {
  test::within(seconds(60), [] {
    Eigen::ThreadPool pool(2);
    const auto executor = rove::on(pool);
    std::atomic<int> arrived{0};
    std::atomic<bool> caller_took_part{false};
    const auto caller = std::this_thread::get_id();
    auto meet = [&](Index, int) {
      if (std::this_thread::get_id() == caller) caller_took_part = true;
      ++arrived;
      while (arrived.load() < 3) std::this_thread::yield();
    };
    executor.for_each(3, TaskRef(meet));
    EXPECT_TRUE(caller_took_part.load());
  });
}

TEST(PoolExecutor, many_small_calls) {
  test::within(seconds(120), [] {
    Eigen::ThreadPool pool(4);
    const auto executor = rove::on(pool);
    std::atomic<Index> sum{0};
    auto add = [&](Index index, int) { sum.fetch_add(index, std::memory_order_relaxed); };
    for (int call = 0; call < 20000; ++call) executor.for_each(5, TaskRef(add));
    EXPECT_EQ(sum.load(), 20000 * 10);
  });
}

TEST(PoolExecutor, may_be_called_from_the_pools_own_threads) {
  test::within(seconds(120), [] {
    Eigen::ThreadPool pool(3);
    std::atomic<int> done{0};
    std::atomic<Index> sum{0};
    // More callers than threads: every thread of the pool is inside a call and none is free to help.
    for (int caller = 0; caller < 12; ++caller) {
      pool.Schedule([&] {
        auto add = [&](Index index, int) { sum.fetch_add(index); };
        for (int call = 0; call < 100; ++call) rove::on(pool).for_each(20, TaskRef(add));
        ++done;
      });
    }
    while (done.load() < 12) std::this_thread::yield();
    EXPECT_EQ(sum.load(), 12 * 100 * 190);
  });
}

TEST(PoolExecutor, one_executor_shared_by_callers_on_all_threads) {
  test::within(seconds(120), [] {
    Eigen::ThreadPool pool(3);
    const auto executor = rove::on(pool);
    std::atomic<int> done{0};
    std::atomic<Index> sum{0};
    auto add = [&](Index index, int) { sum.fetch_add(index); };
    for (int caller = 0; caller < 3; ++caller) {
      pool.Schedule([&] {
        for (int call = 0; call < 500; ++call) executor.for_each(20, TaskRef(add));
        ++done;
      });
    }
    for (int call = 0; call < 500; ++call) executor.for_each(20, TaskRef(add));
    while (done.load() < 3) std::this_thread::yield();
    EXPECT_EQ(sum.load(), 4 * 500 * 190);
  });
}

TEST(PoolExecutor, nested_calls) {
  test::within(seconds(120), [] {
    Eigen::ThreadPool pool(3);
    const auto outer = rove::on(pool);
    std::atomic<Index> sum{0};
    auto add = [&](Index index, int) { sum.fetch_add(index); };
    auto same = [&](Index, int) { outer.for_each(10, TaskRef(add)); };
    outer.for_each(50, TaskRef(same));
    EXPECT_EQ(sum.load(), 50 * 45);
    auto another = [&](Index, int) { rove::on(pool).for_each(10, TaskRef(add)); };
    outer.for_each(50, TaskRef(another));
    EXPECT_EQ(sum.load(), 2 * 50 * 45);
  });
}

TEST(PoolExecutor, does_not_wait_for_a_busy_pool) {
  test::within(seconds(60), [] {
    Eigen::ThreadPool pool(2);
    std::atomic<bool> free{false};
    for (int thread = 0; thread < 2; ++thread) {
      pool.Schedule([&] {
        while (!free.load()) std::this_thread::yield();
      });
    }
    std::atomic<int> calls{0};
    {
      auto executor = rove::on(pool);
      auto count = [&](Index, int worker) { calls += worker == 0 ? 1 : 1000; };
      executor.for_each(10, TaskRef(count));
    }
    EXPECT_EQ(calls.load(), 10) << "all by the caller";
    free = true;  // helpers come now: the call has returned and its executor is gone
  });
}

TEST(PoolExecutor, waits_for_a_helper_that_is_slow) {
  test::within(seconds(60), [] {
    Eigen::ThreadPool pool(1);
    const auto executor = rove::on(pool);
    const auto caller = std::this_thread::get_id();
    std::atomic<int> arrived{0};
    bool helped = false;
    auto task = [&](Index, int) {
      ++arrived;
      while (arrived.load() < 2) std::this_thread::yield();
      if (std::this_thread::get_id() == caller) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      helped = true;
    };
    executor.for_each(2, TaskRef(task));
    EXPECT_TRUE(helped);
  });
}

TEST(PoolExecutor, late_helpers_find_the_region_closed) {
  DeferredPool pool;
  auto executor = std::make_unique<rove::PoolExecutor<DeferredPool>>(rove::on(pool));
  test::expect_each_index_once(*executor, 10);
  ASSERT_EQ(pool.closures.size(), 3u);
  // Those called and not yet come serve the next region: no more are called.
  test::expect_each_index_once(*executor, 10);
  EXPECT_EQ(pool.closures.size(), 3u);
  pool.run_one();
  EXPECT_EQ(pool.closures.size(), 2u);
  test::expect_each_index_once(*executor, 10);
  EXPECT_EQ(pool.closures.size(), 3u);
  executor.reset();
  while (!pool.closures.empty()) pool.run_one();
}

TEST(PoolExecutor, calls_no_more_helpers_than_there_are_tasks) {
  DeferredPool pool;
  auto executor = rove::on(pool);
  test::expect_each_index_once(executor, 2);
  EXPECT_EQ(pool.closures.size(), 1u);
  test::expect_each_index_once(executor, 3);
  EXPECT_EQ(pool.closures.size(), 2u);
  while (!pool.closures.empty()) pool.run_one();
}

TEST(PoolExecutor, a_late_helper_joins_a_later_region_with_a_worker_of_its_own) {
  DeferredPool pool;
  const auto executor = rove::on(pool);
  test::expect_each_index_once(executor, 10);
  std::vector<int> workers(10, -1);
  auto task = [&](Index index, int worker) {
    workers[static_cast<std::size_t>(index)] = worker;
    if (index < 3) pool.run_one();  // as if on another thread: it takes all that is left, or calls the next
  };
  executor.for_each(10, TaskRef(task));
  EXPECT_EQ(workers, (std::vector<int>{0, 1, 2, 3, 3, 3, 3, 3, 3, 3}));
}

TEST(PoolExecutor, a_pool_that_runs_closures_at_once) {
  ImmediatePool pool;
  auto executor = rove::on(pool);
  for (const Index n : test::task_counts) test::expect_each_index_once(executor, n);
}

TEST(PoolExecutor, a_pool_without_room_leaves_the_work_to_the_caller) {
  for (const std::size_t room : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    FullPool pool{{}, room};
    auto executor = rove::on(pool);
    test::expect_each_index_once(executor, 10);
    test::expect_each_index_once(executor, 10);
    EXPECT_EQ(pool.closures.size(), room);
    pool.room = 3;
    test::expect_each_index_once(executor, 10);
    EXPECT_EQ(pool.closures.size(), 3u) << "those refused are called again";
    for (const std::function<void()>& closure : pool.closures) closure();
  }
}

TEST(PoolExecutor, a_copy_works_on_its_own_and_a_moved_one_as_before) {
  DeferredPool pool;
  auto executor = rove::on(pool);
  auto copy = executor;
  int inner = 0;
  auto count = [&](Index, int worker) { inner += worker == 0 ? 1 : 100; };
  auto nested = [&](Index, int) { copy.for_each(4, TaskRef(count)); };
  executor.for_each(2, TaskRef(nested));
  EXPECT_EQ(inner, 8);
  EXPECT_EQ(pool.closures.size(), 4u) << "one for the executor, three for its copy";
  auto moved = std::move(executor);
  test::expect_each_index_once(moved, 10);
  EXPECT_EQ(pool.closures.size(), 6u) << "two more: the one that has not come yet counts";
  copy = moved;
  test::expect_each_index_once(copy, 10);
  while (!pool.closures.empty()) pool.run_one();
}

TEST(PoolExecutor, allocates_nothing_after_construction) {
  test::within(seconds(60), [] {
    Eigen::ThreadPool pool(3);
    const auto executor = rove::on(pool);
    std::atomic<Index> sum{0};
    auto add = [&](Index index, int) { sum += index; };
    executor.for_each(100, TaskRef(add));
    const test::CountedAllocations allocations;
    for (int call = 0; call < 1000; ++call) executor.for_each(100, TaskRef(add));
    EXPECT_EQ(allocations(), 0) << "neither by rove nor, its closure being one pointer, by Eigen's pool";
    EXPECT_EQ(sum.load(), 1001 * 4950);
  });
}

}  // namespace

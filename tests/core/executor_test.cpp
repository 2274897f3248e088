#include "rove/core/executor.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/error_of.hpp"
#include "support/executors.hpp"

namespace {

using rove::AnyExecutor;
using rove::Executor;
using rove::ExecutorRef;
using rove::HostWorkers;
using rove::Index;
using rove::SerialExecutor;
using rove::TaskRef;
using std::chrono::seconds;

static_assert(Executor<SerialExecutor> && Executor<const SerialExecutor>);
static_assert(Executor<AnyExecutor> && Executor<test::StridedThreads>);
static_assert(Executor<ExecutorRef<test::StridedThreads>>);
static_assert(Executor<HostWorkers> && Executor<const HostWorkers>);
static_assert(!Executor<int> && !Executor<std::vector<int>>);
static_assert(std::is_trivially_copyable_v<TaskRef> && sizeof(TaskRef) == 2 * sizeof(void*));
static_assert(!std::is_convertible_v<int, TaskRef>);
static_assert(std::is_nothrow_move_constructible_v<AnyExecutor> && sizeof(AnyExecutor) == sizeof(void*));

TEST(TaskRef, calls_what_it_was_made_from) {
  Index sum = 0;
  auto add = [&](Index index, int worker) { sum += 10 * index + worker; };
  const TaskRef task(add);
  const TaskRef copy = task;
  task(4, 2);
  copy(1, 0);
  EXPECT_EQ(sum, 52);
}

TEST(TaskRef, keeps_the_state_of_a_mutable_callable_and_takes_a_const_one) {
  auto counting = [calls = 0](Index, int) mutable { return ++calls; };
  const TaskRef task(counting);
  task(0, 0);
  task(0, 0);
  EXPECT_EQ(counting(0, 0), 3);
  Index seen = 0;
  const auto writes = [&](Index index, int) { seen = index; };
  const TaskRef write(writes);
  write(7, 0);
  EXPECT_EQ(seen, 7);
}

TEST(SerialExecutor, runs_in_order_as_worker_0) {
  SerialExecutor serial;
  EXPECT_EQ(serial.concurrency(), 1);
  for (const Index n : test::task_counts) test::expect_each_index_once(serial, n);
  test::expect_each_index_once(serial, -3);
  std::vector<Index> order;
  auto record = [&](Index index, int) { order.push_back(index); };
  serial.for_each(4, TaskRef(record));
  EXPECT_EQ(order, (std::vector<Index>{0, 1, 2, 3}));
}

TEST(HostWorkers, count_as_many_and_a_call_runs_as_the_first) {
  HostWorkers workers(3);
  EXPECT_EQ(workers.concurrency(), 3);
  for (const Index n : test::task_counts) test::expect_each_index_once(workers, n);
  std::vector<int> by;
  auto record = [&](Index, int worker) { by.push_back(worker); };
  workers.for_each(4, TaskRef(record));
  EXPECT_EQ(by, (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(test::error_of([] { HostWorkers(0); }), "HostWorkers: workers is 0, at least 1 is needed");
}

TEST(AnyExecutor, is_serial_when_empty_or_moved_from) {
  AnyExecutor empty;
  EXPECT_EQ(empty.concurrency(), 1);
  test::expect_each_index_once(empty, 9);
  test::StridedThreads threads(3);
  AnyExecutor first{rove::on(threads)};
  AnyExecutor second = std::move(first);
  EXPECT_EQ(second.concurrency(), 3);
  EXPECT_EQ(first.concurrency(), 1);  // NOLINT(bugprone-use-after-move): the state is documented
  test::expect_each_index_once(first, 9);
  test::expect_each_index_once(second, 9);
}

TEST(AnyExecutor, owns_the_executor_it_was_given) {
  struct Owning {
    std::unique_ptr<int> concurrency_ = std::make_unique<int>(2);
    long concurrency() const { return *concurrency_; }
    void for_each(Index n, TaskRef task) {
      for (Index index = n; index-- > 0;) task(index, static_cast<int>(index % 2));
    }
  };
  AnyExecutor any{Owning{}};
  EXPECT_EQ(any.concurrency(), 2);
  for (const Index n : test::task_counts) test::expect_each_index_once(any, n);
}

TEST(ExecutorRef, leaves_the_executor_where_it_is) {
  test::within(seconds(60), [] {
    for (const int workers : {1, 2, 3, 8}) {
      test::StridedThreads threads(workers);
      AnyExecutor any{rove::on(threads)};
      AnyExecutor other{rove::on(threads)};
      EXPECT_EQ(any.concurrency(), workers);
      for (const Index n : test::task_counts) {
        test::expect_each_index_once(any, n);
        test::expect_each_index_once(other, n);
      }
    }
  });
}

}  // namespace

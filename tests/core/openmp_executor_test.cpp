#include "rove/core/openmp_executor.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/count_allocations.hpp"
#include "support/error_of.hpp"
#include "support/executors.hpp"

namespace {

using rove::Index;
using rove::OpenMpExecutor;

static_assert(rove::Executor<OpenMpExecutor>);

TEST(OpenMpExecutor, runs_each_index_once) {
  for (const int workers : {1, 2, 3, 8}) {
    OpenMpExecutor executor = rove::on_openmp(workers);
    EXPECT_EQ(executor.concurrency(), workers);
    for (const Index n : test::task_counts) test::expect_each_index_once(executor, n);
    test::expect_each_index_once(executor, -1);
  }
  EXPECT_EQ(rove::on_openmp().concurrency(), omp_get_max_threads());
}

TEST(OpenMpExecutor, uses_as_many_threads_as_it_says) {
  test::within(std::chrono::seconds(60), [] {
    std::atomic<int> arrived{0};
    auto meet = [&](Index, int) {
      ++arrived;
      while (arrived.load() < 3) std::this_thread::yield();
    };
    rove::on_openmp(3).for_each(3, rove::TaskRef(meet));
    EXPECT_EQ(arrived.load(), 3);
  });
}

TEST(OpenMpExecutor, keeps_the_contract_inside_another_parallel_region) {
  std::atomic<int> sum{0};
#pragma omp parallel num_threads(2)
  {
    auto add = [&](Index index, int worker) {
      if (worker >= 0 && worker < 4) sum += static_cast<int>(index);
    };
    rove::on_openmp(4).for_each(10, rove::TaskRef(add));
  }
  EXPECT_EQ(sum.load(), 2 * 45);
}

TEST(OpenMpExecutor, allocates_nothing_once_its_threads_are_there) {
  const OpenMpExecutor executor = rove::on_openmp(3);
  std::atomic<Index> sum{0};
  auto add = [&](Index index, int) { sum += index; };
  executor.for_each(100, rove::TaskRef(add));
  const test::CountedAllocations allocations;
  for (int call = 0; call < 100; ++call) executor.for_each(100, rove::TaskRef(add));
  EXPECT_EQ(allocations(), 0);
  EXPECT_EQ(sum.load(), 101 * 4950);
}

TEST(OpenMpExecutor, refuses_no_threads) {
  EXPECT_EQ(test::error_of([] { rove::on_openmp(0); }), "threads is 0, at least 1 is needed");
}

}  // namespace

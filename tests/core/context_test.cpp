#include "rove/core/context.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/count_allocations.hpp"
#include "support/eigen_thread_pool.hpp"
#include "support/error_of.hpp"
#include "support/executors.hpp"

namespace {

using rove::Context;
using rove::Index;
using rove::PerWorker;
using rove::TaskRef;
using std::chrono::seconds;
using test::error_of;

static_assert(std::is_nothrow_move_constructible_v<Context> && std::is_nothrow_move_assignable_v<Context>);
static_assert(!std::is_copy_constructible_v<Context>);
static_assert(std::is_constructible_v<Context, rove::SerialExecutor> &&
              std::is_constructible_v<Context, rove::AnyExecutor>);
static_assert(!std::is_convertible_v<rove::SerialExecutor, Context> &&
              !std::is_constructible_v<Context, int>);

/// Runs f(context, name) on every kind of executor with 1, 2, 3 and 8 workers.
template <class F>
void on_every_executor(F f) {
  test::within(seconds(240), [&f] {
    {
      SCOPED_TRACE("serial");
      f(Context());
    }
    for (const int workers : {1, 2, 3, 8}) {
      SCOPED_TRACE(std::to_string(workers) + " workers");
      {
        SCOPED_TRACE("Eigen's pool");
        Eigen::ThreadPool pool(workers);
        f(Context{rove::on(pool, workers)});
      }
      {
        SCOPED_TRACE("the user's own");
        test::StridedThreads threads(workers);
        f(Context{rove::on(threads)});
      }
#if defined(_OPENMP)
      {
        SCOPED_TRACE("OpenMP");
        f(Context{rove::on_openmp(workers)});
      }
#endif
    }
  });
}

/// An executor that does what the test says.
struct Scripted {
  int workers;
  std::function<void(Index, TaskRef)> script;
  int concurrency() const { return workers; }
  void for_each(Index n, TaskRef task) const { script(n, task); }
};

TEST(Context, runs_each_index_once) {
  on_every_executor([](const Context& context) {
    for (const Index n : test::task_counts) test::expect_each_index_once(context, n);
    test::expect_each_index_once(context, -1);
    EXPECT_EQ(context.allocations(), 0);
  });
}

TEST(Context, takes_a_temporary_and_any_callable) {
  const auto call = [](const Context& context) {
    int sum = 0;
    context.for_each(3, [&sum](Index index, int) { sum += static_cast<int>(index); });
    return sum;
  };
  EXPECT_EQ(call(Context()), 3);
  EXPECT_EQ(call(Context{rove::SerialExecutor()}), 3);
  static std::atomic<int> calls{0};
  calls = 0;
  const Context context{Scripted{2, [](Index n, TaskRef task) {
                                   for (Index index = 0; index < n; ++index) task(index, 1);
                                 }}};
  context.for_each(
      5, +[](Index, int) { ++calls; });
  context.for_each(5, [count = 0](Index, int) mutable { calls += ++count; });
  EXPECT_EQ(calls.load(), 5 + 15);
}

TEST(Context, moves_between_calls) {
  test::within(seconds(60), [] {
    test::StridedThreads threads(3);
    Context context{rove::on(threads)};
    { Context::Scope(context).allocate<float>(1000); }
    Context moved = std::move(context);
    EXPECT_EQ(moved.concurrency(), 3);
    { Context::Scope(moved).allocate<float>(1000); }
    EXPECT_EQ(moved.allocations(), 1) << "its memory came along";
    test::expect_each_index_once(moved, 10);
    moved = Context();
    EXPECT_EQ(moved.concurrency(), 1);
    EXPECT_EQ(moved.bytes_reserved(), 0);
    test::expect_each_index_once(moved, 10);
  });
}

TEST(Context, a_nested_call_runs_serially_as_the_enclosing_worker) {
  on_every_executor([](const Context& context) {
    Context::Scope scope(context);
    const PerWorker<Index> sums = scope.per_worker<Index>(1);
    for (int worker = 0; worker < context.concurrency(); ++worker) sums(worker)[0] = 0;
    std::atomic<int> faults{0};
    context.for_each(20, [&](Index, int worker) {
      const auto thread = std::this_thread::get_id();
      Index next = 0;
      context.for_each(10, [&](Index index, int inner) {
        if (inner != worker || index != next++ || std::this_thread::get_id() != thread) ++faults;
        context.for_each(3, [&](Index, int innermost) {
          if (innermost != worker) ++faults;
          sums(innermost)[0] += 1;
        });
      });
    });
    EXPECT_EQ(faults.load(), 0);
    Index sum = 0;
    for (int worker = 0; worker < context.concurrency(); ++worker) sum += sums(worker)[0];
    EXPECT_EQ(sum, 20 * 10 * 3);
  });
}

TEST(Context, a_task_may_use_a_context_of_its_own) {
  on_every_executor([](const Context& context) {
    std::atomic<int> calls{0};
    context.for_each(10, [&](Index, int outer_worker) {
      const Context own;
      Context::Scope scope(own);
      scope.allocate<float>(10)[9] = 1.0f;
      own.for_each(5, [&](Index, int worker) {
        calls += worker == 0 ? 1 : 1000;
        context.for_each(2, [&](Index, int nested) { calls += nested == outer_worker ? 1 : 1000; });
      });
      context.for_each(3, [&](Index, int nested) { calls += nested == outer_worker ? 1 : 1000; });
    });
    EXPECT_EQ(calls.load(), 10 * (5 + 5 * 2 + 3));
  });
}

TEST(Context, calls_from_a_pools_own_threads_and_nested_ones_end) {
  test::within(seconds(120), [] {
    Eigen::ThreadPool pool(2);
    std::atomic<int> done{0};
    std::atomic<int> calls{0};
    for (int caller = 0; caller < 8; ++caller) {
      pool.Schedule([&] {
        const Context outer{rove::on(pool)};
        outer.for_each(
            10, [&](Index, int) { Context{rove::on(pool)}.for_each(10, [&](Index, int) { ++calls; }); });
        ++done;
      });
    }
    while (done.load() < 8) std::this_thread::yield();
    EXPECT_EQ(calls.load(), 8 * 10 * 10);
  });
}

TEST(Context, the_exception_of_the_lowest_index_reaches_the_caller) {
  on_every_executor([](const Context& context) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::atomic<int>> calls(100);
      std::string caught;
      try {
        context.for_each(100, [&](Index index, int) {
          ++calls[static_cast<std::size_t>(index)];
          if (index % 10 == 7) throw std::runtime_error("task " + std::to_string(index));
        });
      } catch (const std::runtime_error& error) {
        caught = error.what();
      }
      EXPECT_EQ(caught, "task 7");
      for (std::size_t index = 0; index <= 7; ++index) EXPECT_EQ(calls[index].load(), 1) << index;
      for (std::size_t index = 8; index < 100; ++index) EXPECT_LE(calls[index].load(), 1) << index;
      test::expect_each_index_once(context, 16);  // as if nothing had happened
    }
  });
}

TEST(Context, a_later_exception_of_a_higher_index_is_swallowed) {
  test::within(seconds(60), [] {
    test::StridedThreads threads(2);
    const Context context{rove::on(threads)};
    std::atomic<int> begun{0};
    std::atomic<bool> failing{false};
    try {
      context.for_each(2, [&](Index index, int) {
        ++begun;
        while (begun.load() < 2) std::this_thread::yield();
        if (index == 0) {
          failing = true;
        } else {
          while (!failing.load()) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        throw index;
      });
      FAIL() << "nothing was thrown";
    } catch (const Index index) {
      EXPECT_EQ(index, 0);
    }
  });
}

TEST(Context, tasks_that_had_not_begun_are_left_out_after_a_failure) {
  int calls = 0;
  const Context context{Scripted{2, [](Index n, TaskRef task) {
                                   for (Index index = 0; index < n; ++index) task(index, 0);
                                 }}};
  EXPECT_THROW(context.for_each(100,
                                [&](Index index, int) {
                                  ++calls;
                                  if (index == 4) throw std::bad_alloc();
                                }),
               std::bad_alloc);
  EXPECT_EQ(calls, 5);
}

TEST(Context, an_exception_in_a_nested_call_or_on_a_single_task_passes_too) {
  on_every_executor([](const Context& context) {
    EXPECT_THROW(context.for_each(1, [](Index, int) { throw std::out_of_range("one"); }), std::out_of_range);
    EXPECT_THROW(context.for_each(8,
                                  [&](Index, int) {
                                    context.for_each(3, [](Index, int) { throw std::domain_error("inner"); });
                                  }),
                 std::domain_error);
    Context::Scope scope(context);  // neither is this thread still taken for a task's
    EXPECT_EQ(scope.allocate<float>(3).size(), 3u);
  });
}

TEST(Context, serves_one_call_at_a_time) {
  const std::string in_use =
      "context is in use by a call on another thread: a context serves one call at a time";
  const Context context;
  const auto elsewhere = [](auto f) {
    std::string message;
    std::thread([&] { message = error_of(f); }).join();
    return message;
  };
  const auto open_scope = [&] { Context::Scope scope(context); };
  const auto run = [&] { context.for_each(2, [](Index, int) {}); };
  EXPECT_EQ(elsewhere(open_scope), "(no error)");
  {
    Context::Scope scope(context);
    EXPECT_EQ(elsewhere(open_scope), in_use);
    EXPECT_EQ(elsewhere(run), in_use);
    EXPECT_EQ(elsewhere([&] { scope.allocate<float>(1); }),
              "a scope allocates only on the thread that opened it and outside of tasks");
    run();
    {
      Context::Scope inner(context);
      run();
    }
    EXPECT_EQ(elsewhere(run), in_use) << "the outer scope still holds it";
  }
  EXPECT_EQ(elsewhere(run), "(no error)");
  context.for_each(1, [&](Index, int) {
    EXPECT_EQ(elsewhere(run), in_use) << "a thread that a task starts is not the task";
  });
  EXPECT_EQ(elsewhere(run), "(no error)");
}

TEST(Context, threads_that_meet_on_one_context_get_an_error_or_their_turn) {
  test::within(seconds(60), [] {
    const Context context;
    std::atomic<int> served{0};
    std::atomic<int> refused{0};
    std::vector<std::thread> threads;
    for (int caller = 0; caller < 4; ++caller) {
      threads.emplace_back([&] {
        for (int call = 0; call < 2000; ++call) {
          try {
            Context::Scope scope(context);
            for (int& element : scope.allocate<int>(100)) element = call;
            ++served;
          } catch (const rove::Error&) {
            ++refused;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(served.load() + refused.load(), 8000);
    EXPECT_GE(served.load(), 1);
  });
}

TEST(Context, tasks_do_not_allocate_from_it) {
  on_every_executor([](const Context& context) {
    Context::Scope scope(context);
    for (const Index n : {Index{1}, Index{10}}) {
      EXPECT_EQ(
          error_of([&] { context.for_each(n, [&](Index, int) { Context::Scope inner(context); }); }),
          "a task opened a scope of the context that runs it: allocate before for_each, by per_worker, or "
          "give the task a context of its own");
      EXPECT_EQ(error_of([&] { context.for_each(n, [&](Index, int) { scope.allocate<float>(1); }); }),
                "a scope allocates only on the thread that opened it and outside of tasks");
      EXPECT_EQ(error_of([&] { context.for_each(n, [&](Index, int) { scope.per_worker<float>(1); }); }),
                "a scope allocates only on the thread that opened it and outside of tasks");
    }
  });
}

TEST(Context, an_outer_scope_waits_for_the_inner_one) {
  const Context context;
  Context::Scope outer(context);
  {
    Context::Scope inner(context);
    inner.allocate<float>(1);
    EXPECT_EQ(error_of([&] { outer.allocate<float>(1); }),
              "an outer scope allocated while an inner one was open");
  }
  EXPECT_EQ(outer.allocate<float>(1).size(), 1u);
}

TEST(Context, an_executor_that_breaks_the_contract_is_found_out) {
  const auto run_with = [](Scripted executor) {
    return error_of([&] { Context{std::move(executor)}.for_each(8, [](Index, int) {}); });
  };
  EXPECT_EQ(run_with({0, {}}), "the executor's concurrency is 0, at least 1 is needed");
  EXPECT_EQ(run_with({2, [](Index, TaskRef task) { task(3, 2); }}),
            "the executor called task 3 of 8 as worker 2 of 2");
  EXPECT_EQ(run_with({2, [](Index, TaskRef task) { task(3, -1); }}),
            "the executor called task 3 of 8 as worker -1 of 2");
  EXPECT_EQ(run_with({2, [](Index, TaskRef task) { task(-1, 0); }}),
            "the executor called task -1 of 8 as worker 0 of 2");
  EXPECT_EQ(run_with({2, [](Index n, TaskRef task) { task(n, 0); }}),
            "the executor called task 8 of 8 as worker 0 of 2");
  EXPECT_EQ(run_with({2, [](Index, TaskRef task) { task(0, 0); }}), "the executor ran 1 tasks of 8");
}

TEST(Context, an_executors_own_exception_passes) {
  const Context context{Scripted{2, [](Index, TaskRef) { throw std::runtime_error("no threads"); }}};
  EXPECT_THROW(context.for_each(8, [](Index, int) {}), std::runtime_error);
  Context::Scope scope(context);
  EXPECT_EQ(scope.allocate<float>(1).size(), 1u);
}

TEST(Context, the_second_call_of_a_shape_allocates_nothing) {
  on_every_executor([](const Context& context) {
    const auto call = [&context] {
      Context::Scope scope(context);
      const std::span<Index> results = scope.allocate<Index>(1000);
      const PerWorker<Index> scratch = scope.per_worker<Index>(500);
      context.for_each(1000, [&](Index index, int worker) {
        const std::span<Index> mine = scratch(worker);
        mine[static_cast<std::size_t>(index % 500)] = index;
        context.for_each(2, [&](Index, int) {
          results[static_cast<std::size_t>(index)] = mine[static_cast<std::size_t>(index % 500)];
        });
      });
      Index sum = 0;
      for (const Index result : results) sum += result;
      return sum;
    };
    EXPECT_EQ(call(), 499500);
    const Index blocks = context.allocations();
    const test::CountedAllocations allocations;
    Index sum = 0;
    for (int again = 0; again < 50; ++again) sum += call();
    EXPECT_EQ(allocations(), 0);
    EXPECT_EQ(context.allocations(), blocks);
    EXPECT_EQ(sum, 50 * 499500);
  });
}

TEST(Context, a_serial_one_is_made_without_an_allocation) {
  const test::CountedAllocations allocations;
  const Context context;
  const Context serial{rove::SerialExecutor()};
  Index sum = 0;
  serial.for_each(10, [&sum](Index index, int) { sum += index; });
  EXPECT_EQ(allocations(), 0);
  EXPECT_EQ(sum, 45);
}

}  // namespace

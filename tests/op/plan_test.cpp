// Calls as plans: workers of the host's carry them out, in any order, with the bits of the call.
#include "rove/op/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/op/workspace.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"
#include "support/count_allocations.hpp"
#include "support/error_of.hpp"
#include "support/executors.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::Context;
using rove::HostWorkers;
using rove::Index;
using rove::unbounded;
using rove::window;
using std::chrono::seconds;
using test::error_of;

using Rotary = rove::RotaryFrame<rove::RotationTable<float>>;

constexpr Index width = 16;

Rotary rotary(Index first, Index tokens, double logit_factor = 1) {
  auto frequencies = rove::rotary_frequencies({.rotary_dim = width});
  frequencies.logit_factor = logit_factor;
  return {rove::RotationTable<float>(frequencies, rove::consecutive_positions(tokens, first)),
          rove::Pairing::half_split};
}

/// Calls f(worker) on a thread for each worker, all at the same time, and ends the program if they do not
/// come to an end.
template <class F>
void on_threads(int workers, const F& f) {
  test::within(seconds(120), [&] {
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers; ++worker) threads.emplace_back([&f, worker] { f(worker); });
    for (std::thread& thread : threads) thread.join();
  });
}

template <class Plan>
void run_on_threads(Plan& plan) {
  std::barrier barrier(plan.workers());
  on_threads(plan.workers(), [&](int worker) { plan.run_as(worker, [&] { barrier.arrive_and_wait(); }); });
}

/// One thread in the place of all workers: tasks of a phase in any order, by any of them.
template <class Plan>
void run_scrambled(Plan& plan, unsigned seed) {
  std::mt19937 engine(seed);
  for (Index phase = 0; phase < plan.phases(); ++phase) {
    std::vector<Index> tasks(static_cast<std::size_t>(plan.tasks(phase)));
    for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i] = static_cast<Index>(i);
    std::shuffle(tasks.begin(), tasks.end(), engine);
    for (const Index task : tasks) {
      plan.run(phase, task, static_cast<int>(engine() % static_cast<unsigned>(plan.workers())));
    }
  }
}

/// What a call writes.
struct Written {
  std::vector<float> out, lse;
  bool operator==(const Written&) const = default;
};

template <class X>
Written taken(X& x) {
  Written written{x.out, x.lse};
  std::fill(x.out.begin(), x.out.end(), -77.0F);
  std::fill(x.lse.begin(), x.lse.end(), -77.0F);
  return written;
}

template <class X>
void expect_untouched(const X& x) {
  EXPECT_EQ(x.out, std::vector<float>(x.out.size(), -77));
  EXPECT_EQ(x.lse, std::vector<float>(x.lse.size(), -77));
}

// ---- The bits of the call -----------------------------------------------------------------------

struct Shape {
  Index batch, heads, kv_heads, q_len, kv_len;
  bool causal;
};

// Batches, grouped heads, queries at the end of a cache, several key blocks, rows for several tasks, more
// heads than two workers pack at a time.
constexpr Shape shapes[] = {{2, 4, 2, 33, 33, true},  {3, 6, 2, 5, 40, false},  {1, 2, 2, 70, 290, true},
                            {1, 1, 1, 1, 600, false}, {1, 40, 40, 9, 9, false}, {1, 2, 1, 40, 0, false}};

template <class Kernel>
void expect_the_calls_bits(const Kernel& kernel) {
  Index most_phases = 0;
  for (const Shape& s : shapes) {
    Operands<float> x(s.batch, s.heads, s.kv_heads, s.q_len, s.kv_len, width, width, 1);
    const auto problem = x.problem()
                             .with_query_offset(s.kv_len - s.q_len)
                             .with_mask(window(unbounded, s.causal ? 0 : unbounded));
    const auto frames = rove::rove_frames(rotary(100 + s.kv_len - s.q_len, s.q_len), rotary(100, s.kv_len));
    rove::attention(problem, frames, Context{}, kernel);
    const Written expected = taken(x);
    for (const int workers : {1, 2, 3, 8}) {
      SCOPED_TRACE(std::to_string(s.q_len) + " queries, " + std::to_string(workers) + " workers");
      const Context context{HostWorkers(workers)};
      {
        auto plan = rove::attention_plan(problem, frames, context, kernel);
        EXPECT_EQ(plan.workers(), workers);
        run_on_threads(plan);
        EXPECT_EQ(taken(x), expected) << "threads";
      }
      for (const unsigned seed : {1U, 2U}) {
        auto plan = rove::attention_plan(problem, frames, context, kernel);
        if (workers > 1) most_phases = (std::max)(most_phases, plan.phases());
        run_scrambled(plan, seed);
        EXPECT_EQ(taken(x), expected) << "scrambled by " << seed;
      }
      rove::attention(problem, frames, context, kernel);
      EXPECT_EQ(taken(x), expected) << "a call with the same context";
    }
  }
  EXPECT_GT(most_phases, 2) << "no plan for several workers had several waves";
}

TEST(Plan, has_the_bits_of_the_call_by_the_naive_kernel) {
  expect_the_calls_bits(rove::NaiveKernel{});
}

TEST(Plan, has_the_bits_of_the_call_by_the_tiled_kernel) {
  expect_the_calls_bits(rove::TiledKernel{});
}

TEST(Plan, of_every_operator_and_the_frames_factor) {
  Operands<float> x(1, 2, 1, 9, 9, width, width, 2);
  const auto problem = x.problem().with_mask(rove::causal());
  const Context context{HostWorkers(2)};
  const rove::NaiveKernel kernel;
  const Rotary all = rotary(100, 9, 1.5), queries = rotary(103, 9, 1.5), keys = rotary(100, 12);
  const auto expect_same = [&](const char* name, auto call, auto make) {
    SCOPED_TRACE(name);
    call();
    const Written expected = taken(x);
    auto plan = make();
    run_scrambled(plan, 4);
    EXPECT_EQ(taken(x), expected);
    return expected;
  };
  const Written results[] = {
      expect_same(
          "attention", [&] { rove::attention(problem, context, kernel); },
          [&] { return rove::attention_plan(problem, context, kernel); }),
      expect_same(
          "RoPE", [&] { rove::rope_attention(problem, all, context, kernel); },
          [&] { return rove::rope_attention_plan(problem, all, context, kernel); }),
      expect_same(
          "RoPE, two frames", [&] { rove::rope_attention(problem, queries, keys, context, kernel); },
          [&] { return rove::rope_attention_plan(problem, queries, keys, context, kernel); }),
      expect_same(
          "RoVE", [&] { rove::rove_attention(problem, all, context, kernel); },
          [&] { return rove::rove_attention_plan(problem, all, context, kernel); }),
      expect_same(
          "RoVE, two frames", [&] { rove::rove_attention(problem, queries, keys, context, kernel); },
          [&] { return rove::rove_attention_plan(problem, queries, keys, context, kernel); })};
  for (const Written& a : results) {
    EXPECT_EQ(std::count(std::begin(results), std::end(results), a), 1) << "two operators did the same";
  }
}

TEST(Plan, by_the_default_kernel_lives_on_the_heap_without_what_it_was_made_from) {
  Operands<float> x(1, 2, 1, 9, 9, width, width, 3);
  rove::rove_attention(x.problem(), rotary(100, 9));
  const Written expected = taken(x);
  const Context context{HostWorkers(3)};
  const auto make = [&] {
    const Rotary frame = rotary(100, 9);
    const auto problem = x.problem();
    using Plan = decltype(rove::rove_attention_plan(problem, frame, context));
    return std::unique_ptr<Plan>(new auto(rove::rove_attention_plan(problem, frame, context)));
  };
  const auto plan = make();
  static_assert(!std::is_move_constructible_v<std::remove_reference_t<decltype(*plan)>>);
  run_on_threads(*plan);
  EXPECT_EQ(taken(x), expected);
}

TEST(Plan, B23_of_nothing_has_no_phases) {
  const Context context{HostWorkers(3)};
  const auto expect_nothing = [&](Index batch, Index heads, Index kv_heads, Index q_len) {
    Operands<float> x(batch, heads, kv_heads, q_len, 5, width, width, 5);
    auto tiled = rove::attention_plan(x.problem(), context);
    auto naive = rove::attention_plan(x.problem(), context, rove::NaiveKernel{});
    EXPECT_EQ(tiled.phases(), 0);
    EXPECT_EQ(naive.phases(), 0);
    std::atomic<int> waits{0};
    std::barrier barrier(3);
    on_threads(3, [&](int worker) {
      tiled.run_as(worker, [&] {
        ++waits;
        barrier.arrive_and_wait();
      });
    });
    EXPECT_EQ(waits, 3);
  };
  expect_nothing(1, 2, 1, 0);
  expect_nothing(0, 2, 1, 3);
  expect_nothing(1, 0, 0, 3);
}

// ---- Memory -------------------------------------------------------------------------------------

template <class Kernel>
void expect_exact_memory(const Kernel& kernel) {
  Operands<float> x(2, 4, 2, 33, 33, width, width, 6);
  const auto problem = x.problem().with_mask(window(unbounded, 0));
  const auto frames = rove::rove_frames(rotary(100, 33), rotary(100, 33));
  rove::attention(problem, frames, Context{}, kernel);
  const Written expected = taken(x);
  for (const int workers : {1, 3}) {
    const Index bytes = rove::workspace_bytes(problem, frames, kernel, workers);
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
    const Context context(HostWorkers{workers}, std::span<std::byte>(memory));
    {
      const test::CountedAllocations allocations;
      auto plan = rove::attention_plan(problem, frames, context, kernel);
      for (Index phase = 0; phase < plan.phases(); ++phase) {
        for (Index task = 0; task < plan.tasks(phase); ++task) plan.run(phase, task, workers - 1);
      }
      EXPECT_EQ(allocations(), 0);
    }
    EXPECT_EQ(taken(x), expected);
    const Context less(HostWorkers{workers}, std::span<std::byte>(memory).first(memory.size() - 128));
    EXPECT_NE(error_of([&] { rove::attention_plan(problem, frames, less, kernel); }), "(no error)");
    const Context one_less(HostWorkers{workers}, std::span<std::byte>(memory).first(memory.size() - 1));
    EXPECT_EQ(error_of([&] { rove::attention_plan(problem, frames, one_less, kernel); }),
              "the context's memory has " + std::to_string(bytes - 1) + " bytes, at least " +
                  std::to_string(bytes) + " are needed");
    expect_untouched(x);
  }
}

TEST(Plan, takes_the_workspace_of_the_call_and_allocates_nothing) {
  expect_exact_memory(rove::NaiveKernel{});
  expect_exact_memory(rove::TiledKernel{});
}

TEST(Plan, keeps_its_context_until_it_is_destroyed) {
  Operands<float> x(1, 2, 1, 9, 9, width, width, 7), y(1, 2, 1, 9, 9, width, width, 8);
  const rove::NaiveKernel kernel;
  rove::attention(x.problem(), Context{}, kernel);
  const Written expected = taken(x);
  const Context context{HostWorkers(2)};
  const auto elsewhere = [&] {
    std::string message;
    std::thread([&] { message = error_of([&] { rove::attention(y.problem(), context, kernel); }); }).join();
    return message;
  };
  {
    auto plan = rove::attention_plan(x.problem(), context, kernel);
    EXPECT_EQ(elsewhere(),
              "context is in use by a call on another thread: a context serves one call at a time");
    expect_untouched(y);
    // The thread that made it may go on using the context: its memory nests.
    rove::attention(y.problem(), context, kernel);
    run_scrambled(plan, 9);
  }
  EXPECT_EQ(taken(x), expected);
  EXPECT_EQ(elsewhere(), "(no error)");
}

// ---- Mistakes -----------------------------------------------------------------------------------

TEST(Plan, refuses_what_the_call_refuses_before_anything_is_written) {
  Operands<float> x(1, 2, 1, 2, 5, width, width, 10);
  const auto problem = x.problem();
  const Context context{HostWorkers(2)};
  const auto expect_the_calls = [&](auto call, auto make) {
    const std::string message = error_of(call);
    EXPECT_NE(message, "(no error)");
    EXPECT_EQ(error_of(make), message);
    expect_untouched(x);
  };
  const rove::NaiveKernel kernel;
  const auto infinite = problem.with_scale(std::numeric_limits<double>::infinity());
  expect_the_calls([&] { rove::attention(infinite, context, kernel); },
                   [&] { rove::attention_plan(infinite, context, kernel); });
  expect_the_calls([&] { rove::rove_attention(problem, rotary(0, 5), context, kernel); },
                   [&] { rove::rove_attention_plan(problem, rotary(0, 5), context, kernel); });
  expect_the_calls([&] { rove::rope_attention(problem, rotary(0, 3), rotary(0, 5), context, kernel); },
                   [&] { rove::rope_attention_plan(problem, rotary(0, 3), rotary(0, 5), context, kernel); });
  auto frames = rove::rope_frames(rotary(3, 2), rotary(0, 5));
  frames.logit_factor = -1;
  expect_the_calls([&] { rove::attention(problem, frames, context, kernel); },
                   [&] { rove::attention_plan(problem, frames, context, kernel); });
}

TEST(Plan, refuses_numbers_that_are_not_its_own) {
  Operands<float> x(1, 2, 1, 9, 9, width, width, 11);
  const Context context{HostWorkers(2)};
  auto plan = rove::attention_plan(x.problem(), context, rove::NaiveKernel{});
  ASSERT_EQ(plan.phases(), 2);
  const Index tasks = plan.tasks(1);
  const auto message = [&](Index phase, Index task, int worker) {
    return error_of([&] { plan.run(phase, task, worker); });
  };
  EXPECT_EQ(message(2, 0, 0), "the host ran phase 2 of 2");
  EXPECT_EQ(message(-1, 0, 0), "the host ran phase -1 of 2");
  const std::string of = " of " + std::to_string(tasks) + " as worker ";
  EXPECT_EQ(message(1, tasks, 0), "the host ran task " + std::to_string(tasks) + of + "0 of 2");
  EXPECT_EQ(message(1, -1, 0), "the host ran task -1" + of + "0 of 2");
  EXPECT_EQ(message(1, 0, 2), "the host ran task 0" + of + "2 of 2");
  EXPECT_EQ(message(1, 0, -1), "the host ran task 0" + of + "-1 of 2");
  expect_untouched(x);
}

// ---- A kernel of one's own, and what run_as makes of it -----------------------------------------

/// Writes nothing; keeps a record of who ran what when.
struct Recording {
  struct Entry {
    Index phase, task;
    int worker;
    bool operator==(const Entry&) const = default;
  };
  struct Record {
    explicit Record(std::vector<Index> tasks_) : tasks(std::move(tasks_)) {}
    std::vector<Index> tasks;
    std::mutex mutex;
    std::vector<Entry> entries;
    std::optional<Entry> fails;
    std::vector<int> nested;
  };
  struct Plan {
    Record& record;
    const Context& context;
    Index phases() const { return static_cast<Index>(record.tasks.size()); }
    Index tasks(Index phase) const { return record.tasks[static_cast<std::size_t>(phase)]; }
    void run(Index phase, Index task, int worker) {
      std::vector<int> nested;
      context.for_each(2, [&](Index, int as) { nested.push_back(as); });
      const std::lock_guard lock(record.mutex);
      record.entries.push_back({phase, task, worker});
      record.nested.insert(record.nested.end(), nested.begin(), nested.end());
      if (record.fails && record.fails->phase == phase && record.fails->task == task) {
        throw std::runtime_error("a task failed");
      }
    }
  };

  Record* record;
  template <class Problem>
  void operator()(const Problem&, const Context&) const {}
  template <class Problem, class Transforms>
  Plan plan(const Problem&, const Transforms&, const Context& context) const {
    return {*record, context};
  }
};

TEST(PlanRunAs, deals_out_each_task_once_to_and_fro_and_waits_after_each_phase) {
  Operands<float> x(1, 1, 1, 1, 1, width, width, 12);
  Recording::Record record({7, 0, 3, 1, 12});
  const Context context{HostWorkers(3)};
  auto plan = rove::attention_plan(x.problem(), context, Recording{&record});
  std::barrier barrier(3);
  std::atomic<int> waits{0};
  on_threads(3, [&](int worker) {
    plan.run_as(worker, [&] {
      ++waits;
      barrier.arrive_and_wait();
    });
  });
  EXPECT_EQ(waits, 15);
  EXPECT_TRUE(std::is_sorted(record.entries.begin(), record.entries.end(),
                             [](const auto& a, const auto& b) { return a.phase < b.phase; }));
  std::sort(record.entries.begin(), record.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.phase, a.task) < std::pair(b.phase, b.task);
  });
  const int dealt[] = {0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0};
  std::vector<Recording::Entry> expected;
  for (std::size_t phase = 0; phase < record.tasks.size(); ++phase) {
    for (Index task = 0; task < record.tasks[phase]; ++task) {
      expected.push_back({static_cast<Index>(phase), task, dealt[task]});
    }
  }
  EXPECT_EQ(record.entries, expected);
}

TEST(PlanRunAs, a_task_that_throws_leaves_no_worker_waiting) {
  Operands<float> x(1, 1, 1, 1, 1, width, width, 13);
  Recording::Record record({6, 6, 6});
  record.fails = Recording::Entry{1, 1, 1};  // worker 1's first of the second phase
  const Context context{HostWorkers(3)};
  auto plan = rove::attention_plan(x.problem(), context, Recording{&record});
  std::barrier barrier(3);
  std::vector<std::string> ended(3);
  on_threads(3, [&](int worker) {
    std::string& how = ended[static_cast<std::size_t>(worker)];
    try {
      plan.run_as(worker, [&] { barrier.arrive_and_wait(); });
      how = "well";
    } catch (const std::runtime_error& error) {
      how = error.what();
    }
  });
  EXPECT_EQ(ended, (std::vector<std::string>{"well", "a task failed", "well"}));
  // It left out its second task of that phase and both of the next.
  EXPECT_EQ(std::count_if(record.entries.begin(), record.entries.end(),
                          [](const auto& entry) { return entry.worker == 1; }),
            3);
  EXPECT_EQ(record.entries.size(), 15U);
}

TEST(Plan, tasks_are_tasks_of_the_context) {
  Operands<float> x(1, 1, 1, 1, 1, width, width, 14);
  Recording::Record record({1});
  const Context context{HostWorkers(4)};
  auto plan = rove::attention_plan(x.problem(), context, Recording{&record});
  // On a thread that did not make the plan: for_each inside runs at once, as the enclosing worker.
  std::thread([&] { plan.run(0, 0, 3); }).join();
  EXPECT_EQ(record.nested, (std::vector<int>{3, 3}));
}

}  // namespace
}  // namespace rove_test

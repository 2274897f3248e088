/// \file
/// Who runs the tasks: the `Executor` concept, the serial executor, workers that the host runs itself, and
/// one type that holds any executor. `core/pool_executor.hpp` and `core/openmp_executor.hpp` have the
/// parallel ones. rove owns no threads.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"

namespace rove {

/// A borrowed `void(Index index, int worker)`: two pointers, trivially copyable, allocates nothing. It refers
/// to the callable it was made from and is valid as long as that is.
class TaskRef {
 public:
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, TaskRef> && std::is_object_v<std::remove_reference_t<F>> &&
           std::invocable<F&, Index, int>) ROVE_ALWAYS_INLINE TaskRef(F&& callable)
  noexcept
      : object_(const_cast<void*>(static_cast<const volatile void*>(std::addressof(callable)))),
        call_([](void* object, Index index, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(object))(index, worker);
        }) {}

  ROVE_ALWAYS_INLINE void operator()(Index index, int worker) const { call_(object_, index, worker); }

 private:
  void* object_;
  void (*call_)(void* object, Index index, int worker);
};

/// Anything that runs n tasks and waits for them:
///
/// - `concurrency()`: how many tasks may run at the same time, at least 1, the same at every call;
/// - `for_each(n, task)`: calls `task(index, worker)` once for every index in [0, n), with worker in
///   [0, concurrency()), never two tasks of one worker at a time, and returns when all have ended; what the
///   tasks wrote is then visible to the caller. The tasks that the library passes do not throw.
///
/// Order, chunks and threads are the executor's own choice: no result depends on them.
template <class E>
concept Executor = requires(E& executor, Index n, TaskRef task) {
  { executor.concurrency() } -> std::convertible_to<int>;
  executor.for_each(n, task);
};

}  // namespace rove

ROVE_BEGIN_TAGGED

/// Runs every task on the calling thread, in order.
class SerialExecutor {
 public:
  int concurrency() const { return 1; }

  void for_each(Index n, TaskRef task) const {
    for (Index index = 0; index < n; ++index) task(index, 0);
  }
};

/// Stands for workers that the host runs itself: a context made of it has memory for that many, for a plan
/// (`op/plan.hpp`) that they carry out. A call needs no one but its caller: its tasks run on the calling
/// thread, in order, as worker 0.
class HostWorkers {
 public:
  explicit HostWorkers(int workers) : workers_(workers) {
    ROVE_EXPECT(workers >= 1, "HostWorkers: workers is ", workers, ", at least 1 is needed");
  }

  int concurrency() const { return workers_; }
  void for_each(Index n, TaskRef task) const { SerialExecutor().for_each(n, task); }

 private:
  int workers_;
};

/// An executor that stays where it is: for those that cannot be moved or that several contexts share.
template <Executor E>
class ExecutorRef {
 public:
  explicit ExecutorRef(E& executor) : executor_(&executor) {}

  int concurrency() const { return static_cast<int>(executor_->concurrency()); }
  void for_each(Index n, TaskRef task) const { executor_->for_each(n, task); }

 private:
  E* executor_;
};

/// The executor itself stays with the caller, who keeps it alive: `Context{on(my_executor)}`.
template <Executor E>
ExecutorRef<E> on(E& executor) {
  return ExecutorRef<E>(executor);
}

/// Any executor behind one type, moved by moving a pointer. Empty, as when default constructed or moved from,
/// it is the serial executor and owns nothing.
class AnyExecutor {
 public:
  AnyExecutor() = default;

  template <class E>
  requires(!std::same_as<std::remove_cvref_t<E>, AnyExecutor> &&
           Executor<std::remove_cvref_t<E>>) explicit AnyExecutor(E&& executor) {
    using Held = std::remove_cvref_t<E>;
    if constexpr (!std::same_as<Held, SerialExecutor>) {
      held_ = std::make_unique<Holder<Held>>(std::forward<E>(executor));
    }
  }

  int concurrency() const { return held_ ? held_->concurrency() : 1; }

  void for_each(Index n, TaskRef task) const {
    if (held_) {
      held_->for_each(n, task);
    } else {
      SerialExecutor().for_each(n, task);
    }
  }

 private:
  struct Interface {
    Interface() = default;
    Interface(const Interface&) = delete;
    Interface& operator=(const Interface&) = delete;
    virtual ~Interface() = default;
    virtual int concurrency() = 0;
    virtual void for_each(Index n, TaskRef task) = 0;
  };

  template <class E>
  struct Holder final : Interface {
    template <class Source>
    explicit Holder(Source&& source) : executor(std::forward<Source>(source)) {}
    int concurrency() override { return static_cast<int>(executor.concurrency()); }
    void for_each(Index n, TaskRef task) override { executor.for_each(n, task); }
    E executor;
  };

  std::unique_ptr<Interface> held_;
};

ROVE_END_TAGGED

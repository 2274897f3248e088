/// \file
/// What a call works with: an executor and reusable memory.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>

#include "rove/core/arena.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/executor.hpp"
#include "rove/core/openmp_executor.hpp"
#include "rove/core/pool_executor.hpp"

ROVE_BEGIN_TAGGED

class Context;

namespace detail {

/// An executor to build a context from; a context has the same two functions and is none.
template <class E>
concept ContextExecutor = !std::same_as<std::remove_cvref_t<E>, Context> && Executor<std::remove_cvref_t<E>>;

/// The tasks that a thread is in the middle of, innermost first.
class RunningTask {
 public:
  RunningTask(const Context* context, int worker) : context_(context), worker_(worker), outer_(innermost()) {
    innermost() = this;
  }
  RunningTask(const RunningTask&) = delete;
  RunningTask& operator=(const RunningTask&) = delete;
  ~RunningTask() { innermost() = outer_; }

  int worker() const { return worker_; }

  /// This thread's innermost task of that context, or null.
  static const RunningTask* of(const Context* context) {
    const RunningTask* task = innermost();
    while (task != nullptr && task->context_ != context) task = task->outer_;
    return task;
  }

  /// An address that no other thread has.
  static const void* thread() { return &innermost(); }

 private:
  static const RunningTask*& innermost() {
    static thread_local const RunningTask* task = nullptr;
    return task;
  }

  const Context* context_;
  int worker_;
  const RunningTask* outer_;
};

/// The thread whose call is under way, if any; that thread may enter again.
class Occupancy {
 public:
  Occupancy() = default;
  // A context is moved between calls only, so there is nothing to move.
  Occupancy(Occupancy&& other) noexcept {
    ROVE_ASSERT(other.thread_.load() == nullptr);
    static_cast<void>(other);
  }
  Occupancy& operator=(Occupancy&& other) noexcept {
    ROVE_ASSERT(thread_.load() == nullptr && other.thread_.load() == nullptr);
    static_cast<void>(other);
    return *this;
  }

  bool is_here() const { return thread_.load(std::memory_order_relaxed) == RunningTask::thread(); }

  class Entry {
   public:
    explicit Entry(Occupancy& occupancy) : occupancy_(occupancy) {
      const void* nobody = nullptr;
      const bool entered =
          occupancy.is_here() ||
          occupancy.thread_.compare_exchange_strong(nobody, RunningTask::thread(), std::memory_order_acquire);
      ROVE_EXPECT(entered,
                  "context is in use by a call on another thread: a context serves one call at a time");
      ++occupancy.depth_;
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
      if (--occupancy_.depth_ == 0) occupancy_.thread_.store(nullptr, std::memory_order_release);
    }

   private:
    Occupancy& occupancy_;
  };

 private:
  std::atomic<const void*> thread_{nullptr};
  int depth_ = 0;  // the thread's own
};

/// The tasks of one for_each, as the executor gets them: none throws. After a failure only tasks of lower
/// index begin, so that the one reported is that of the lowest index, where a serial run would have stopped,
/// whatever the executor.
template <class F>
class GuardedTasks {
 public:
  GuardedTasks(const Context* context, F& task, Index n, int workers)
      : context_(context), task_(task), n_(n), workers_(workers) {}

  void operator()(Index index, int worker) {
    begun_.fetch_add(1, std::memory_order_relaxed);
#if ROVE_HAS_EXCEPTIONS
    if (index > failed_.load(std::memory_order_relaxed)) return;
    try {
      run(index, worker);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (index < failed_.load(std::memory_order_relaxed)) {
        failed_.store(index, std::memory_order_relaxed);
        failure_ = std::current_exception();
      }
    }
#else
    run(index, worker);
#endif
  }

  /// When all have ended: throws what was kept.
  void finish() {
#if ROVE_HAS_EXCEPTIONS
    if (failure_) std::rethrow_exception(std::move(failure_));
#endif
    const Index begun = begun_.load(std::memory_order_relaxed);
    ROVE_EXPECT(begun == n_, "the executor ran ", begun, " tasks of ", n_);
  }

 private:
  void run(Index index, int worker) {
    ROVE_EXPECT(index >= 0 && index < n_ && worker >= 0 && worker < workers_, "the executor called task ",
                index, " of ", n_, " as worker ", worker, " of ", workers_);
    const RunningTask running(context_, worker);
    task_(index, worker);
  }

  const Context* context_;
  F& task_;
  Index n_;
  int workers_;
  std::atomic<Index> begun_{0};
  std::atomic<Index> failed_{largest_index};  // the lowest index that failed, if one did
#if ROVE_HAS_EXCEPTIONS
  std::mutex mutex_;
  std::exception_ptr failure_;
#endif
};

}  // namespace detail

/// An executor and the memory that calls reuse. Functions take it by `const Context&`, temporaries too:
///
///     rove_attention(problem, frame, Context{on(pool)});
///
/// It serves one call at a time (checked) and may be moved between calls. A second call of the same shape
/// allocates nothing; over memory of the caller's no call does.
class Context {
 public:
  class Scope;

  /// Serial; allocates when first used.
  Context() = default;

  /// On an executor, which is moved in; one that must stay where it is comes as `on(executor)`.
  template <detail::ContextExecutor E>
  explicit Context(E&& executor) : Context(std::forward<E>(executor), detail::Arena()) {}

  /// Serial, over memory of the caller's, of any alignment: never allocates; a call that needs more is an
  /// error that names both sizes. `WorkspaceSize` adds up how much that is.
  explicit Context(std::span<std::byte> memory) : arena_(memory) {}

  /// On an executor, over memory of the caller's.
  template <detail::ContextExecutor E>
  Context(E&& executor, std::span<std::byte> memory)
      : Context(std::forward<E>(executor), detail::Arena(memory)) {}

  Context(Context&&) noexcept = default;
  Context& operator=(Context&&) noexcept = default;
  ~Context() = default;

  /// Workers: an upper bound on the tasks that run at the same time.
  int concurrency() const { return concurrency_; }

  /// Calls f(index, worker) once for every index in [0, n), never twice at a time for one worker, and returns
  /// when all have ended; worker is in [0, concurrency()). If any throws, the exception of the lowest such
  /// index is rethrown here, and tasks of higher index that had not begun are left out. Inside a task of this
  /// context it runs serially, as the enclosing worker, whose slices stay its own. Allocates nothing.
  template <std::invocable<Index, int> F>
  void for_each(Index n, F&& f) const {
    if (n <= 0) return;
    if (const detail::RunningTask* const enclosing = detail::RunningTask::of(this)) {
      for (Index index = 0; index < n; ++index) f(index, enclosing->worker());
      return;
    }
    const detail::Occupancy::Entry entry(occupancy_);
    if (n == 1 || concurrency_ == 1) {
      const detail::RunningTask running(this, 0);
      for (Index index = 0; index < n; ++index) f(index, 0);
      return;
    }
    detail::GuardedTasks<std::remove_reference_t<F>> tasks(this, f, n, concurrency_);
    executor_.for_each(n, TaskRef(tasks));
    tasks.finish();
  }

  /// Blocks obtained from the system so far.
  Index allocations() const { return arena_.allocations(); }
  /// Bytes held, or the size of the caller's memory.
  Index bytes_reserved() const { return arena_.reserved(); }
  /// The most bytes that were live at once.
  Index high_water() const { return arena_.high_water(); }

 private:
  template <class E>
  Context(E&& executor, detail::Arena arena)
      : executor_(std::forward<E>(executor)),
        concurrency_(executor_.concurrency()),
        arena_(std::move(arena)) {
    ROVE_EXPECT(concurrency_ >= 1, "the executor's concurrency is ", concurrency_, ", at least 1 is needed");
  }

  AnyExecutor executor_;
  int concurrency_ = 1;  // read once: slices are counted by it
  mutable detail::Arena arena_;
  mutable detail::Occupancy occupancy_;
  mutable const Scope* innermost_ = nullptr;
};

/// Memory for the length of a C++ scope: what is allocated here is given back at its end. Scopes nest, and
/// while one lives the context is its thread's. Tasks open none: they use slices made before.
class Context::Scope {
 public:
  explicit Scope(const Context& context)
      : context_(checked(context)),
        entry_(context.occupancy_),
        mark_(context.arena_.mark()),
        outer_(context.innermost_) {
    context.innermost_ = this;
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    context_.innermost_ = outer_;
    context_.arena_.release(mark_);
  }

  /// `count` elements, uninitialised, aligned to `workspace_alignment`; they stay where they are.
  template <detail::WorkspaceElement T>
  std::span<T> allocate(Index count) {
    std::byte* const data = take(detail::padded_bytes(count, sizeof(T)));
    return {reinterpret_cast<T*>(data), static_cast<std::size_t>(count)};
  }

  /// `count` elements for each worker of the context.
  template <detail::WorkspaceElement T>
  PerWorker<T> per_worker(Index count) {
    const Index stride = detail::padded_bytes(count, sizeof(T));
    std::byte* const data = take(detail::bytes_of_all(stride, context_.concurrency()));
    return PerWorker<T>(data, count, stride, context_.concurrency());
  }

 private:
  static const Context& checked(const Context& context) {
    ROVE_EXPECT(
        detail::RunningTask::of(&context) == nullptr,
        "a task opened a scope of the context that runs it: allocate before for_each, by per_worker, or "
        "give the task a context of its own");
    return context;
  }

  std::byte* take(Index bytes) {
    ROVE_EXPECT(context_.occupancy_.is_here() && detail::RunningTask::of(&context_) == nullptr,
                "a scope allocates only on the thread that opened it and outside of tasks");
    ROVE_EXPECT(context_.innermost_ == this, "an outer scope allocated while an inner one was open");
    return context_.arena_.allocate(bytes);
  }

  const Context& context_;
  detail::Occupancy::Entry entry_;
  detail::Arena::Mark mark_;
  const Scope* outer_;
};

ROVE_END_TAGGED

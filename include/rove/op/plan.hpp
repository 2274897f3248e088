/// \file
/// The operators as plans, for hosts whose workers enter together: a pool of threads in which every one calls
/// the same function with its own number, and a barrier between steps. Nothing here starts or waits for a
/// thread.
#pragma once

#include <concepts>
#include <exception>
#include <functional>
#include <utility>

#include "rove/attention/kernel.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"
#include "rove/frame/frame.hpp"
#include "rove/op/attention.hpp"
#include "rove/op/frame_transforms.hpp"
#include "rove/op/frames.hpp"

ROVE_BEGIN_TAGGED

/// One call of an operator, checked and given its memory, to be carried out by workers of the host's. It is
/// made by `attention_plan`, `rove_attention_plan`, `rope_attention_plan`:
///
///     const Context context{HostWorkers(threads)};
///     auto plan = rove_attention_plan(problem, frame, context);
///     // on every thread:
///     plan.run_as(worker, [&] { barrier.arrive_and_wait(); });
///
/// or, sharing out each task in [0, plan.tasks(phase)) once, in any other way and order:
///
///     for (Index phase = 0; phase < plan.phases(); ++phase) {
///       while (…) plan.run(phase, task, worker);
///       barrier.arrive_and_wait();  // all have ended before the next phase begins
///     }
///
/// Results are those of the call, bit for bit, whoever runs what. They are complete when the last phase is.
///
/// A plan holds copies of the problem and its frames, and refers to the operands and to the context, whose
/// memory it keeps until it is destroyed, on the thread that made it. The operands' elements may be written
/// until the first task runs; lengths, offsets, sinks, masks and positions are final when it is made. What
/// was written before must be visible to the workers: threads started later and barriers see to that. It
/// carries out one call and stays where it was made; `new auto(attention_plan(…))` puts it on the heap.
template <class HeldFrames, KernelPlan Plan>
class AttentionPlan {
 public:
  template <class Problem, class K>
  AttentionPlan(const Problem& problem, const HeldFrames& frames, const Context& context, const K& kernel)
      : context_(context),
        frames_(frames),
        plan_(kernel.plan(detail::checked(problem, frames_), detail::frame_transforms(frames_), context)) {}
  AttentionPlan(const AttentionPlan&) = delete;
  AttentionPlan& operator=(const AttentionPlan&) = delete;

  /// How many workers there may be: the context's.
  int workers() const { return context_.concurrency(); }

  /// Steps with a barrier after each; 0 where there is no output.
  Index phases() const { return plan_.phases(); }

  /// Independent tasks of a phase; may be 0. The library's kernels have long ones first.
  Index tasks(Index phase) const { return plan_.tasks(phase); }

  /// Runs one task as `worker` in [0, workers()), which runs no other at that time. May be called from any
  /// thread. Allocates nothing. Throws `Error` for a number out of range, and what masks, scores and frames
  /// of the caller's throw.
  void run(Index phase, Index task, int worker) {
    ROVE_EXPECT(phase >= 0 && phase < phases(), "the host ran phase ", phase, " of ", phases());
    ROVE_EXPECT(task >= 0 && task < tasks(phase) && worker >= 0 && worker < workers(), "the host ran task ",
                task, " of ", tasks(phase), " as worker ", worker, " of ", workers());
    const detail::RunningTask running(&context_, worker);
    plan_.run(phase, task, worker);
  }

  /// One worker's part of the whole call: its share of the tasks of each phase, and `wait()` after each, a
  /// barrier that all `workers()` workers enter, at least once. Tasks are dealt out beforehand, to and fro; a
  /// host whose workers differ in speed shares them out by itself, through `run`. When it has returned in one
  /// worker, results are complete and no worker touches the plan any more. Where a task throws, its worker
  /// leaves out the tasks that it has left, waits with the others to the end, and throws then.
  template <std::invocable Wait>
  void run_as(int worker, Wait&& wait) {
    const Index phases = this->phases();
    if (phases == 0) return static_cast<void>(wait());  // the plan lives until all have entered
#if ROVE_HAS_EXCEPTIONS
    std::exception_ptr failure;
    for (Index phase = 0; phase < phases; ++phase) {
      try {
        if (!failure) run_share(phase, worker);
      } catch (...) {
        failure = std::current_exception();
      }
      wait();
    }
    if (failure) std::rethrow_exception(std::move(failure));
#else
    for (Index phase = 0; phase < phases; ++phase) {
      run_share(phase, worker);
      wait();
    }
#endif
  }

 private:
  // Of W tasks in a row every worker gets one, and of the next W in the opposite order: tasks of falling
  // length come out even.
  void run_share(Index phase, int worker) {
    const Index count = tasks(phase), width = workers();
    for (Index first = 0, place = worker; first < count; first += width, place = width - 1 - place) {
      if (first + place < count) run(phase, first + place, worker);
    }
  }

  const Context& context_;
  HeldFrames frames_;  // the plan's transforms refer to them
  Plan plan_;
};

/// `attention(problem, frames, context, kernel)` as a plan. The context has to outlive it, so that a
/// temporary one is refused; of its executor only the number of workers counts (`HostWorkers`). Throws
/// `Error` as the call would; working memory is `workspace_bytes(problem, frames, kernel, workers)`.
///
/// \param kernel  one with a plan: `TiledKernel`, `NaiveKernel`, or your own
template <Scalar TQ, KeyValues KV, Scalar TOut, Mask M, Score S, Frame FQ, Frame FK, Frame FV, Frame FO,
          class K = DefaultKernel>
auto attention_plan(const AttentionProblem<TQ, KV, TOut, M, S>& problem, const Frames<FQ, FK, FV, FO>& frames,
                    std::reference_wrapper<const Context> context, const K& kernel = {}) {
  using Problem = AttentionProblem<TQ, KV, TOut, M, S>;
  using Transforms = decltype(detail::frame_transforms(frames));
  constexpr bool plans = PlanningKernel<K, Problem, Transforms>;
  static_assert(plans,
                "the kernel has no plan(problem, row_transforms, context) const that returns phases of "
                "tasks: it can only be called");
  if constexpr (plans) {
    using Plan = decltype(kernel.plan(problem, detail::frame_transforms(frames), context.get()));
    return AttentionPlan<Frames<FQ, FK, FV, FO>, Plan>(problem, frames, context.get(), kernel);
  }
}

/// `attention(problem, context, kernel)` as a plan.
template <Scalar TQ, KeyValues KV, Scalar TOut, Mask M, Score S, class K = DefaultKernel>
auto attention_plan(const AttentionProblem<TQ, KV, TOut, M, S>& problem,
                    std::reference_wrapper<const Context> context, const K& kernel = {}) {
  return attention_plan(problem, Frames<>{}, context, kernel);
}

/// `rove_attention(problem, frame, context, kernel)` as a plan.
template <class Problem, Frame F, class K = DefaultKernel>
auto rove_attention_plan(const Problem& problem, const F& frame,
                         std::reference_wrapper<const Context> context, const K& kernel = {}) {
  return attention_plan(problem, rove_frames(frame), context, kernel);
}

/// The same with the frames of the query rows and of the key slots apart.
template <class Problem, Frame Q, Frame FK, class K = DefaultKernel>
auto rove_attention_plan(const Problem& problem, const Q& at_queries, const FK& at_keys,
                         std::reference_wrapper<const Context> context, const K& kernel = {}) {
  return attention_plan(problem, rove_frames(at_queries, at_keys), context, kernel);
}

/// `rope_attention(problem, frame, context, kernel)` as a plan.
template <class Problem, Frame F, class K = DefaultKernel>
auto rope_attention_plan(const Problem& problem, const F& frame,
                         std::reference_wrapper<const Context> context, const K& kernel = {}) {
  return attention_plan(problem, rope_frames(frame), context, kernel);
}

/// The same with the frames of the query rows and of the key slots apart.
template <class Problem, Frame Q, Frame FK, class K = DefaultKernel>
auto rope_attention_plan(const Problem& problem, const Q& at_queries, const FK& at_keys,
                         std::reference_wrapper<const Context> context, const K& kernel = {}) {
  return attention_plan(problem, rope_frames(at_queries, at_keys), context, kernel);
}

ROVE_END_TAGGED

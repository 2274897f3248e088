/// \file
/// What the library's own kernels share: checks, memory, and work in phases of independent tasks.
#pragma once

#include "rove/attention/row_transform.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"

ROVE_BEGIN_TAGGED

/// A `KernelPlan` of the library's own kernels. Making it checks the problem and throws `Error` as a call
/// does. It holds copies of problem and transforms, and the context with its memory until it is destroyed, on
/// the thread that made it; the operands must live as long.
template <class Run>
class Plan {
 public:
  template <class Problem, class Transforms>
  Plan(const Problem& problem, const Transforms& transforms, const Context& context)
      : run_((problem.check(), problem), transforms, context.concurrency()), scope_(context) {
    if (!problem.out.empty()) run_.allocate(scope_);
    phases_ = problem.out.empty() ? 0 : run_.phases();
  }

  Index phases() const { return phases_; }
  Index tasks(Index phase) const { return run_.tasks(phase); }
  void run(Index phase, Index task, int worker) { run_.run(phase, task, worker); }

 private:
  Run run_;
  Context::Scope scope_;
  Index phases_ = 0;
};

namespace detail {

/// A kernel out of `Run<Problem, Transforms>(problem, transforms, workers)`, which has
///
///     WorkspaceSize workspace() const      what allocate takes
///     void allocate(Context::Scope&)
///     Index phases() const ;  Index tasks(Index phase) const
///     void run(Index phase, Index task, int worker)
///
/// and keeps copies of problem and transforms.
template <template <class, class> class Run>
struct PhasedKernel {
  /// Throws `Error` where the problem does not fit together, before anything is written.
  template <class Problem>
  void operator()(const Problem& problem, const Context& context = {}) const {
    fused(problem, RowTransforms<>{}, context);
  }

  /// The same with rows passing through `transforms` as they are read and written.
  template <class Problem, class Transforms>
  void fused(const Problem& problem, const Transforms& transforms, const Context& context) const {
    auto call = plan(problem, transforms, context);
    for (Index phase = 0; phase < call.phases(); ++phase) {
      context.for_each(call.tasks(phase), [&](Index task, int worker) { call.run(phase, task, worker); });
    }
  }

  /// The same call cut into phases, for the context's number of workers.
  template <class Problem, class Transforms>
  Plan<Run<Problem, Transforms>> plan(const Problem& problem, const Transforms& transforms,
                                      const Context& context) const {
    return {problem, transforms, context};
  }

  /// What a call takes from a context of `workers` workers, with or without transforms.
  template <class Problem>
  WorkspaceSize workspace(const Problem& problem, int workers) const {
    if (problem.out.empty()) return {};
    return Run<Problem, RowTransforms<>>(problem, {}, workers).workspace();
  }
};

}  // namespace detail

ROVE_END_TAGGED

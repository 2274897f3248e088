/// \file
/// What a kernel is: a callable, with optional faster entries.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "rove/attention/row_transform.hpp"
#include "rove/core/ambiguous.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"

ROVE_BEGIN_TAGGED

/// Computes `problem.out` (and `problem.lse` where there is one) of an `AttentionProblem`:
///
///     kernel(problem, context)
///
/// Any callable will do, a lambda too. A kernel applies the problem's mask, score, key lengths, sinks and
/// scale itself (`problem.site`, `slots`, `effective_scale` serve hand-written ones). `problem.out` may be
/// `problem.q`: a row is to be read before it is written. It may be called from a context whose executor has
/// many workers; it is never called twice at a time with one context.
template <class K, class Problem>
concept Kernel = requires(const K& kernel, const Problem& problem, const Context& context) {
  kernel(problem, context);
};

namespace detail {

struct NamesFused {
  int fused;
};
struct NamesBackward {
  int backward;
};

// Finding it by name and not by calling it keeps a generic lambda, or a member with a slip in its signature,
// from being taken for no entry at all.
template <class K>
concept NamesFusedEntry = std::is_class_v<K> && !std::is_final_v<K> && !requires {
  &Ambiguous<K, NamesFused>::fused;
};
template <class K>
concept NamesBackwardEntry = std::is_class_v<K> && !std::is_final_v<K> && !requires {
  &Ambiguous<K, NamesBackward>::backward;
};

template <class K, class Problem, class Transforms>
concept FusedCallable = requires(const K& kernel, const Problem& problem, const Transforms& transforms,
                                 const Context& context) {
  kernel.fused(problem, transforms, context);
};

template <class K>
concept WantsCallersScalars = requires {
  requires K::in_callers_scalars;
};

}  // namespace detail

/// A kernel that can also read rows through `RowTransforms` as it packs them and write rows through one:
///
///     kernel.fused(problem, transforms, context)
///
/// so that frames cost no pass over memory of their own. A class that has a member named `fused` must be
/// callable so (final classes: by the call alone).
template <class K, class Problem, class Transforms>
concept FusingKernel = detail::FusedCallable<K, Problem, Transforms>;

/// A call of a kernel, cut into phases of tasks. Tasks of a phase may run at the same time and in any order,
/// and a phase begins when all tasks of the one before have ended; no result depends on who runs what. A
/// worker, in [0, context.concurrency()), runs one task at a time.
template <class P>
concept KernelPlan = requires(P& plan, const P& made, Index phase, Index task, int worker) {
  { made.phases() } -> std::convertible_to<Index>;
  { made.tasks(phase) } -> std::convertible_to<Index>;
  plan.run(phase, task, worker);
};

/// A kernel that can also hand out its call instead of running it, for hosts whose workers enter together:
///
///     kernel.plan(problem, transforms, context)
///
/// The plan has copies of problem and transforms, and its memory from the context, for as long as it lives.
/// Making it checks and allocates all that a call does and writes nothing; without output rows it has no
/// phases.
template <class K, class Problem, class Transforms>
concept PlanningKernel = requires(const K& kernel, const Problem& problem, const Transforms& transforms,
                                  const Context& context) {
  { kernel.plan(problem, transforms, context) } -> KernelPlan;
};

namespace detail {

/// A kernel around another: passes calls on, and what it says of itself, but neither its fused entry nor its
/// plan.
template <class K>
struct WrappedKernel {
  K kernel;
  template <class Problem>
  void operator()(const Problem& problem, const Context& context) const {
    kernel(problem, context);
  }
  template <class Problem>
  requires requires(const K& k, const Problem& p, int workers) { k.workspace(p, workers); }
  WorkspaceSize workspace(const Problem& problem, int workers) const {
    return kernel.workspace(problem, workers);
  }
  template <class Problem>
  requires requires(const K& k, const Problem& p) { k.describe(p); }
  auto describe(const Problem& problem) const { return kernel.describe(problem); }
};

}  // namespace detail

/// Asks for operands in the caller's element types where rows have to be materialised for `kernel`, instead
/// of the accumulator type: rows are rounded to them on the way in, and results once more on the way out. Its
/// fused entry is hidden, as by `materialised`.
template <class K>
struct InCallersScalars : detail::WrappedKernel<K> {
  static constexpr bool in_callers_scalars = true;
};
template <class K>
InCallersScalars<K> in_callers_scalars(K kernel) {
  return {{std::move(kernel)}};
}

/// Hides the fused entry of `kernel`: rows are turned into memory first, then it is called as any other
/// kernel.
template <class K>
struct Materialised : detail::WrappedKernel<K> {
  static constexpr bool in_callers_scalars = detail::WantsCallersScalars<K>;
};
template <class K>
Materialised<K> materialised(K kernel) {
  return {{std::move(kernel)}};
}

ROVE_END_TAGGED

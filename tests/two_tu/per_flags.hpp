// What an object compiled with flags of its own offers to the others: only views and exceptions pass.
#pragma once

#include <cstddef>
#include <vector>

#include "rove/core/tensor_view.hpp"

namespace two_tu {

/// One public type as an object lays it out.
struct Layout {
  const char* type;
  std::size_t size;
  std::size_t alignment;
};

/// The functions of one object.
struct Variant {
  const char* name;
  bool (*runs_here)();                ///< whether this CPU has the instructions
  const char* type;                   ///< the mangled name of its AttentionProblem
  std::vector<Layout> (*layouts)();   ///< of every public struct
  void (*refuse)(rove::Index heads);  ///< throws rove::Error, whose message names heads
  /// Causal RoVE attention, positions 0, 1, …; throws rove::Error where the views do not fit.
  void (*attend)(rove::TensorView<const float> q, rove::TensorView<const float> k,
                 rove::TensorView<const float> v, rove::TensorView<float> out);
  /// The same in double, for judging.
  void (*attend_in_double)(rove::TensorView<const double> q, rove::TensorView<const double> k,
                           rove::TensorView<const double> v, rove::TensorView<double> out);
};

}  // namespace two_tu

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
  const char* tag;                    ///< the name of its inline namespace
  std::vector<Layout> (*layouts)();   ///< of every public struct
  void (*refuse)(rove::Index heads);  ///< throws rove::Error, whose message names heads
};

}  // namespace two_tu

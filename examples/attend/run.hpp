/// \file
/// The library at work on a layer: both operators, once for their results and in turn for their times.
#pragma once

#include <string>

#include "attend/layer.hpp"
#include "attend/options.hpp"
#include "attend/oracle.hpp"

namespace attend {

struct Time {
  double best = 0;  ///< milliseconds
  double median = 0;
};

struct Run {
  Results results;
  Time rope, rove;
  double ratio = 0;  ///< RoVE's time over RoPE's: the median over rounds
  int rounds = 0;
  std::string explanation;  ///< what the library says about the call
};

/// Throws `rove::Error` where an option does not fit the layer.
Run run(const Layer& layer, const Options& options);

}  // namespace attend

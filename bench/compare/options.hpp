/// \file
/// What rove_compare is asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bench {

struct Options {
  bool full = false;     ///< everything, larger tables too
  bool targets = false;  ///< what the targets need, and nothing else
  std::string filter;    ///< races with a case whose name contains it
  std::string json = "results.json";
  std::vector<int> threads;  ///< each case is run with each of these
  int draws = 101;           ///< of every rival
  int shrink = 1;            ///< divides every number of tokens: to see that all runs, not how fast
};

/// Prints what is wrong, or the help that was asked for, and returns the exit status; sets `options` and
/// returns nothing where there is work to do.
std::optional<int> parse_options(int argc, const char* const* argv, Options& options);

}  // namespace bench

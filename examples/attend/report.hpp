/// \file
/// What a run found, as a table for people.
#pragma once

#include <vector>

#include "attend/layer.hpp"
#include "attend/mixers.hpp"
#include "attend/options.hpp"
#include "attend/oracle.hpp"
#include "attend/run.hpp"

namespace attend {

/// Prints to stdout.
void print_report(const Layer& layer, const Options& options, const Run& run, const Oracle& oracle,
                  const std::vector<Verdict>& verdicts, const Mixers* mixers);

}  // namespace attend

/// \file
/// The sections of rove_compare. Each races its rivals and adds their records.
#pragma once

#include "bench/compare/bench.hpp"

namespace bench {

/// OpenBLAS sgemm beside the FMA peak. First, so that later sections can refer to it.
void compare_references(Bench& bench);
/// Tables of cosines and sines beside two calls of the C library for each pair.
void compare_tables(Bench& bench);
/// Turning a tensor beside copying one.
void compare_rotations(Bench& bench);
/// Attention, plain, RoPE and RoVE, by every kernel.
void compare_attention(Bench& bench);

}  // namespace bench

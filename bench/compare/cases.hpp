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
/// The kernels beside each other, at one small shape.
void compare_kernels(Bench& bench);
/// Plain, RoPE and RoVE attention: what positions cost.
void compare_frames(Bench& bench);
/// Plain attention of many lengths beside the peak, sgemm, the tile products alone and 4096 tokens.
void compare_speeds(Bench& bench);
/// Plain attention of head sizes other than 64 and 128 beside these two.
void compare_head_sizes(Bench& bench);
/// Masks, scores and wide logits beside plain attention.
void compare_variants(Bench& bench);
/// 16-bit operands beside float.
void compare_storage(Bench& bench);
/// A window of a long sequence beside all of its past.
void compare_window(Bench& bench);
/// Two threads beside one, of attention, sgemm and the peak.
void compare_threads(Bench& bench);

}  // namespace bench

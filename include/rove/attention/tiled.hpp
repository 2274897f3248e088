/// \file
/// The fast kernel: packed operands, register tiles, an online softmax between two tile products.
#pragma once

#include <string>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/phased_kernel.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/tiled/run.hpp"
#include "rove/attention/tiled/tile.hpp"
#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

/// Attention by register tiles, in the library's fixed arithmetic (see arithmetic.hpp): bit for bit
/// `NaiveKernel`'s results.
///
/// Keys are packed into panels of 16, channel-major, and values into panels as wide as a tile, once for all
/// query heads of their group; row transforms are applied on the way. A tile of query rows passes over the
/// key blocks: scores by one tile product, an online softmax over a block's worth of them, Σ A v by another.
/// Blocks that the mask rules out are skipped, blocks that it leaves whole carry no test, and of the others
/// only the part that some row sees is computed. A block with NaN or infinities that not every row sees goes
/// key by key, so that a hidden one stays hidden.
///
/// Workers share packing, then query tiles. Workspace: the packed keys and values of the kv heads in flight
/// (one with one worker, otherwise as many as give every worker tasks) and less than 1 MiB a worker for usual
/// widths.
struct TiledKernel : detail::PhasedKernel<detail::TiledRun> {
  /// For `explain`.
  template <class Problem>
  std::string describe(const Problem& problem) const {
    using Acc = typename Problem::accumulator;
    using Shape = detail::TileShape<Acc>;
    return "tiled kernel, tiles of " + std::to_string(Shape::rows) + " rows by " +
           std::to_string(Shape::packets * Shape::width) + " keys, key blocks of " +
           std::to_string(detail::key_block_length<Acc>(problem.channels(), problem.value_channels()));
  }
};

ROVE_END_TAGGED

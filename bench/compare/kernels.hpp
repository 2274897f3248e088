/// \file
/// The attention kernels that are compared: a line each.
#pragma once

#include "rove/attention/kernel.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/tiled.hpp"

namespace bench {

/// Calls visit(name, kernel) for those that are fast enough for any shape; for the others too where the shape
/// is small.
template <class Visit>
void for_each_kernel(bool small, const Visit& visit) {
  visit("tiled", rove::TiledKernel{});
  if (!small) return;
  visit("naive", rove::NaiveKernel{});
  visit("naive-materialised", rove::materialised(rove::NaiveKernel{}));
}

}  // namespace bench

/// \file
/// The attention kernels that are compared: a line each.
#pragma once

#include "rove/attention/kernel.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/tiled.hpp"

namespace bench {

/// Calls visit(name, kernel).
template <class Visit>
void for_each_kernel(bool full, const Visit& visit) {
  visit("naive", rove::NaiveKernel{});
  visit("tiled", rove::TiledKernel{});
  if (full) visit("naive-materialised", rove::materialised(rove::NaiveKernel{}));
}

}  // namespace bench

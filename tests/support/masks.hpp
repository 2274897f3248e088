/// \file
/// A mask of somebody else's.
#pragma once

#include "rove/attention/mask.hpp"

namespace outside {

/// With no more than it must have.
struct EvenKeys {
  bool visible(const rove::Site& site) const { return site.key % 2 == 0; }
};

}  // namespace outside

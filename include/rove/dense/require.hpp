/// \file
/// The oracle's own argument check. It shares nothing with the checks of the code it judges.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED
namespace dense {
namespace detail {

/// Throws std::invalid_argument with the pieces streamed into one message unless the condition holds; prints
/// and aborts where exceptions are off.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (condition) return;
  std::ostringstream stream;
  (stream << ... << parts);
#if ROVE_HAS_EXCEPTIONS
  throw std::invalid_argument(stream.str());
#else
  std::fprintf(stderr, "rove::dense: %s\n", stream.str().c_str());
  std::abort();
#endif
}

}  // namespace detail
}  // namespace dense
ROVE_END_TAGGED

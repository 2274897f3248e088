/// \file
/// What an error says.
#pragma once

#include <string>
#include <utility>

#include "rove/core/check.hpp"

namespace test {

/// The message of the rove::Error that f throws.
template <class F>
std::string error_of(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const rove::Error& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace test

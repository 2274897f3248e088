/// \file
/// Errors: what a caller did wrong (`ROVE_EXPECT`, always on) and what the library got wrong (`ROVE_ASSERT`,
/// debug builds). Both may be defined before the first include.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

#include "rove/core/config.hpp"

namespace rove {

/// A caller's mistake: the message names the argument and the numbers that do not fit. Thrown before anything
/// is written.
class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// What runs instead of a throw where the program is built with -fno-exceptions. It must not return; if it
/// does, the program aborts.
using ErrorHandler = void (*)(const char* message);

namespace untagged {

inline std::atomic<ErrorHandler>& error_handler_slot() {
  static std::atomic<ErrorHandler> slot{nullptr};
  return slot;
}

}  // namespace untagged

/// Installs the handler for builds without exceptions and returns the one before (null: print and abort).
/// Thread-safe. Builds with exceptions throw `Error` and never call it.
inline ErrorHandler set_error_handler(ErrorHandler handler) {
  return untagged::error_handler_slot().exchange(handler);
}

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

/// "q has 3 heads" out of its pieces; only ever evaluated for a failed check.
template <class... Parts>
ROVE_NO_INLINE std::string message(const Parts&... parts) {
  std::ostringstream stream;
  stream.precision(17);
  (stream << ... << parts);
  return stream.str();
}

[[noreturn]] ROVE_NO_INLINE inline void fail(const std::string& what) {
#if ROVE_HAS_EXCEPTIONS
  throw Error(what);
#else
  if (const ErrorHandler handler = untagged::error_handler_slot().load()) handler(what.c_str());
  std::fprintf(stderr, "rove: %s\n", what.c_str());
  std::abort();
#endif
}

}  // namespace detail

ROVE_END_TAGGED

/// A precondition that the caller owes; always checked. The second argument is a parenthesised or plain list
/// of pieces that are streamed into the message: ROVE_EXPECT(a == b, "q has ", a, " heads, k has ", b).
#if !defined(ROVE_EXPECT)
#define ROVE_EXPECT(condition, ...) \
  ((condition) ? static_cast<void>(0) : ::rove::detail::fail(::rove::detail::message(__VA_ARGS__)))
#endif

/// An invariant of the library itself, checked in debug builds, allowed in inner loops.
#if !defined(ROVE_ASSERT)
#define ROVE_ASSERT(condition) assert(condition)
#endif

// Built with -fno-exceptions -fno-rtti: a caller's mistake reaches the handler, once, with its message; what
// the handler leaves by is its own business, here the process.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rove/rove.hpp"

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "this file is about builds without exceptions and RTTI"
#endif

namespace {

[[noreturn]] void leave(const char* message) {
  const bool right = std::strcmp(message, "q has 3 heads, not 4") == 0;
  std::fprintf(stderr, "the handler was told: %s\n", message);
  std::_Exit(right ? EXIT_SUCCESS : EXIT_FAILURE);
}

}  // namespace

int main() {
  if (rove::set_error_handler(&leave) != nullptr) return EXIT_FAILURE;
  if (rove::set_error_handler(&leave) != &leave) return EXIT_FAILURE;
  const rove::Index heads = 3;
  ROVE_EXPECT(heads == 4, "q has ", heads, " heads, not ", 4);
  std::puts("the check let it pass");
  return EXIT_FAILURE;
}

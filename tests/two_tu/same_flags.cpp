// The second of two files with the same flags: everything in the umbrella is defined in both.
#include "rove/rove.hpp"

namespace two_tu {
int version_of_the_other_file();
int version_of_the_other_file() {
  return ROVE_VERSION;
}
}  // namespace two_tu

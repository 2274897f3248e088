// The smallest program that uses the library from another project.
#include <rove/rove.hpp>

#include <cstdio>

int main() {
  std::printf("rove %d.%d.%d\n", ROVE_VERSION_MAJOR, ROVE_VERSION_MINOR, ROVE_VERSION_PATCH);
}

#include "problems.hpp"
#include "storages.hpp"

void rove_fuzz::fuzz_floats(Bytes& bytes) {
  fuzz<float, float, float, float>(bytes);
}

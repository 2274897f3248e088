#include "problems.hpp"
#include "storages.hpp"

void rove_fuzz::fuzz_halves(Bytes& bytes) {
  fuzz<Eigen::bfloat16, Eigen::half, Eigen::bfloat16, Eigen::half>(bytes);
}

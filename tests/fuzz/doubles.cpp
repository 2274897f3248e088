#include "problems.hpp"
#include "storages.hpp"

void rove_fuzz::fuzz_doubles(Bytes& bytes) {
  fuzz<double, Eigen::half, double, double>(bytes);
}

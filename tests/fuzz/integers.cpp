#include "problems.hpp"
#include "storages.hpp"

void rove_fuzz::fuzz_integers(Bytes& bytes) {
  fuzz<float, std::int8_t, std::int8_t, Eigen::bfloat16>(bytes);
}

// libFuzzer's entry: attention on problems made of its bytes, held against the dense oracle.
//
//   attention_fuzz -max_total_time=600 corpus/        searches
//   attention_fuzz crash-...                          runs one input again
#include <cstddef>
#include <cstdint>

#include "bytes.hpp"
#include "storages.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rove_fuzz::Bytes bytes(data, size);
  switch (bytes.below(4)) {
    case 1:
      rove_fuzz::fuzz_doubles(bytes);
      break;
    case 2:
      rove_fuzz::fuzz_halves(bytes);
      break;
    case 3:
      rove_fuzz::fuzz_integers(bytes);
      break;
    default:
      rove_fuzz::fuzz_floats(bytes);
  }
  return 0;
}

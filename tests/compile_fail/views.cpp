// Views: constness is kept, outputs are written, 16-bit storage is what it says.
#include <cstdint>

#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"

float* writable(const float* read_only, float* data, std::uint16_t* bits, std::uint32_t* words) {
#if ROVE_PROBE == 1
  const rove::TensorView<float> view = rove::bhtd(read_only, 1, 1, 1, 4);
#else
  const rove::TensorView<float> view = rove::bhtd(data, 1, 1, 1, 4);
#endif
#if ROVE_PROBE == 2
  auto half = rove::as_half(words);
#else
  auto half = rove::as_half(bits);
#endif
#if ROVE_PROBE == 3
  auto other = rove::as_bfloat16(half);
#else
  auto other = rove::as_half(half);
#endif
  (void)read_only;
  (void)words;
  (void)other;
  return view.data;
}

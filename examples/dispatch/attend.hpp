/// \file
/// One function, compiled once for each instruction set.
#pragma once

#include <rove/core/tensor_view.hpp>

namespace dispatch {

/// What passes between objects of different flags: views and numbers. Frames, tables, problems, masks and
/// contexts have code of their instruction set in them and stay inside (the compiler sees to it: their types
/// differ).
struct Operands {
  rove::TensorView<const float> q, k, v;
  rove::TensorView<float> out;
  double rope_theta;
};

/// Causal attention with rotary frames. Throws `rove::Error`, which may pass too, where the shapes do not
/// fit.
void attend_baseline(
    const Operands& operands);  ///< as compilers build by themselves: SSE2, or NEON on AArch64
#if defined(__x86_64__)
void attend_avx2(const Operands& operands);
void attend_avx512(const Operands& operands);
#endif

}  // namespace dispatch

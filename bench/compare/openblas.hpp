/// \file
/// OpenBLAS's sgemm as a rival.
#pragma once

#include <string>

#include "bench/support/buffer.hpp"

namespace bench {

/// To be called before anything else in main. OpenBLAS reads its environment while the program is loaded, so
/// where that has to change, the program is started over with the same arguments. A variable that the user
/// has set is left as it is.
///
/// - OPENBLAS_CORETYPE where OpenBLAS chose kernels too old for this CPU;
/// - OPENBLAS_THREAD_TIMEOUT: its threads are to sleep when they have nothing to do. They would spin for tens
///   of milliseconds after each product, on the CPUs of whichever rival comes next.
void prepare_openblas(char** argv);

std::string openblas_core();
std::string openblas_version();

/// C ← A B for square float matrices.
class Sgemm {
 public:
  explicit Sgemm(int n);

  double flops() const { return 2.0 * n_ * n_ * n_; }
  void operator()(int threads);

  /// Whether the last product is one: a few rows against double, within n·2⁻²⁴ Σ_k |a_ik b_kj|.
  bool is_right() const;

 private:
  int n_;
  Buffer<float> a_, b_, c_;
};

}  // namespace bench

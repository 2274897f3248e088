#include "bench/compare/openblas.hpp"

#include <cblas.h>

#if defined(__linux__)
#include <unistd.h>
#endif

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/compare/openblas_core.hpp"

namespace bench {

void prepare_openblas(char** argv) {
#if defined(__linux__)
  bool changed = false;
  const auto set = [&](const char* name, const std::string& value) {
    if (value.empty() || std::getenv(name) != nullptr) return;
    changed = setenv(name, value.c_str(), 1) == 0 || changed;
  };
  set("OPENBLAS_CORETYPE", core_to_ask_for(this_cpu(), openblas_core()));
  set("OPENBLAS_THREAD_TIMEOUT", "4");  // 2^4 looks
  // What was set is there the next time, so this ends. Should exec fail, OpenBLAS runs as it is: its core and
  // its share of the peak are reported either way.
  if (changed) execv("/proc/self/exe", argv);
#else
  static_cast<void>(argv);
#endif
}

std::string openblas_core() {
  return openblas_get_corename();
}

std::string openblas_version() {
  const std::string config = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  return config.substr(0, config.find(' ', config.find(' ') + 1));
}

Sgemm::Sgemm(int n) : n_(n), a_(Index{n} * n, 1), b_(Index{n} * n, 2), c_(Index{n} * n, 3) {}

void Sgemm::operator()(int threads) {
  openblas_set_num_threads(threads);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n_, n_, n_, 1.0F, a_.data(), n_, b_.data(), n_, 0.0F,
              c_.data(), n_);
}

bool Sgemm::is_right() const {
  const auto n = static_cast<std::size_t>(n_);
  for (const std::size_t i : {std::size_t{0}, n / 3, n / 2, n - 1}) {
    std::vector<double> row(n), size(n);
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t j = 0; j < n; ++j) {
        const double product = static_cast<double>(a_.data()[i * n + k]) * b_.data()[k * n + j];
        row[j] += product;
        size[j] += std::abs(product);
      }
    }
    for (std::size_t j = 0; j < n; ++j) {
      const double error = std::abs(c_.data()[i * n + j] - row[j]);
      if (!(error <= n_ * 0x1p-24 * size[j])) return false;  // NaN too
    }
  }
  return true;
}

}  // namespace bench

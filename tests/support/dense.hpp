/// \file
/// What the oracle's own tests feed it.
#pragma once

#include <Eigen/Core>
#include <random>

#include "rove/core/config.hpp"

namespace test {

inline bool causal(rove::Index i, rove::Index j) {
  return j <= i;
}

inline Eigen::MatrixXd random_matrix(std::mt19937_64& engine, rove::Index rows, rove::Index cols) {
  std::normal_distribution<double> normal;
  return Eigen::MatrixXd::NullaryExpr(rows, cols, [&] { return normal(engine); });
}

}  // namespace test

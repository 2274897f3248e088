/// \file
/// The convolution that RoVE becomes once its weights depend on the offset alone.
#pragma once

#include <Eigen/Core>
#include <functional>

#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED
namespace dense {

/// Plain causal convolution over tokens: y_i = Σ_{δ ≤ 0, i + δ ≥ 0} a_δ ψ_δ x_{i+δ}.
///
/// \param x    tokens × input channels
/// \param psi  the kernel ψ_δ, output × input channels, asked for δ = 0, −1, .. 1 − tokens
/// \param a    the weight a_δ
/// \return     tokens × output channels
inline Eigen::MatrixXd causal_convolution(const Eigen::MatrixXd& x,
                                          const std::function<Eigen::MatrixXd(Index delta)>& psi,
                                          const std::function<double(Index delta)>& a) {
  Eigen::MatrixXd y = Eigen::MatrixXd::Zero(x.rows(), psi(0).rows());
  for (Index lag = 0; lag < x.rows(); ++lag) {
    const Eigen::MatrixXd tap = a(-lag) * psi(-lag);
    for (Index i = lag; i < x.rows(); ++i) y.row(i) += x.row(i - lag) * tap.transpose();
  }
  return y;
}

}  // namespace dense
ROVE_END_TAGGED

/// \file
/// Which structure a mixer has: block-Toeplitz or Kronecker.
#pragma once

#include <Eigen/Core>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>

#include "rove/core/config.hpp"
#include "rove/dense/mixer.hpp"
#include "rove/dense/require.hpp"

ROVE_BEGIN_TAGGED
namespace dense {

namespace detail {

/// `block(i, j)` gives the blocks. See block_toeplitz_defect.
template <class Block>
double toeplitz_defect(const Eigen::MatrixXd& a, const Block& block) {
  double defect = 0;
  for (Index delta = 1 - a.rows(); delta < a.cols(); ++delta) {
    const Index first = (std::max)(Index{0}, -delta);
    const Index last = (std::min)(Index{a.rows()}, a.cols() - delta);
    Index heaviest = first;
    for (Index i = first; i < last; ++i) {
      if (std::abs(a(i, i + delta)) > std::abs(a(heaviest, heaviest + delta))) heaviest = i;
    }
    const double weight = a(heaviest, heaviest + delta);
    Eigen::MatrixXd psi = block(heaviest, heaviest + delta);
    psi = weight == 0 ? Eigen::MatrixXd::Zero(psi.rows(), psi.cols()) : Eigen::MatrixXd(psi / weight);
    for (Index i = first; i < last; ++i) {
      const Eigen::MatrixXd difference = block(i, i + delta) - a(i, i + delta) * psi;
      if (difference.size() > 0) defect = (std::max)(defect, difference.cwiseAbs().maxCoeff());
    }
  }
  return defect;
}

}  // namespace detail

/// How far M is from Σ_δ (A∘S_δ) ⊗ ψ_δ for any ψ: the blocks, divided by A_ij, should agree along each
/// diagonal. ψ_δ is read off the diagonal's block with the largest |A_ij|, and the result is the largest
/// |M_ij − A_ij ψ_δ|, so that small weights are not divided by and a block with A_ij = 0 must be 0.
///
/// \param m  (n · p) × (m · q), blocks of p × q
/// \param a  n × m
inline double block_toeplitz_defect(const Eigen::MatrixXd& m, const Eigen::MatrixXd& a) {
  detail::require(a.size() > 0 && m.rows() % a.rows() == 0 && m.cols() % a.cols() == 0, "a matrix of ",
                  m.rows(), " x ", m.cols(), " has no ", a.rows(), " x ", a.cols(), " equal blocks");
  const Index p = m.rows() / a.rows();
  const Index q = m.cols() / a.cols();
  return detail::toeplitz_defect(
      a, [&](Index i, Index j) -> Eigen::MatrixXd { return m.block(i * p, j * q, p, q); });
}

/// The same without forming the whole.
inline double block_toeplitz_defect(const Mixer& mixer, const Eigen::MatrixXd& a) {
  detail::require(a.rows() == mixer.out_tokens() && a.cols() == mixer.in_tokens(), "A is ", a.rows(), " x ",
                  a.cols(), ", the mixer has ", mixer.out_tokens(), " x ", mixer.in_tokens(), " blocks");
  return detail::toeplitz_defect(a, [&](Index i, Index j) { return mixer.block(i, j); });
}

/// Whether the defect is at most `tolerance` (absolute). `Matrix` is Eigen::MatrixXd or Mixer.
template <class Matrix>
bool is_block_toeplitz(const Matrix& m, const Eigen::MatrixXd& a, double tolerance) {
  return block_toeplitz_defect(m, a) <= tolerance;
}

/// Van Loan and Pitsianis' rearrangement (1993): row i · (block columns) + j is vec of block (i, j), so A ⊗ B
/// goes to vec(A) vec(B)ᵀ.
///
/// \param m  whole matrix, blocks of block_rows × block_cols
inline Eigen::MatrixXd rearranged(const Eigen::MatrixXd& m, Index block_rows, Index block_cols) {
  detail::require(
      block_rows > 0 && block_cols > 0 && m.rows() % block_rows == 0 && m.cols() % block_cols == 0,
      "a matrix of ", m.rows(), " x ", m.cols(), " has no blocks of ", block_rows, " x ", block_cols);
  const Index rows = m.rows() / block_rows;
  const Index cols = m.cols() / block_cols;
  Eigen::MatrixXd result(rows * cols, block_rows * block_cols);
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < cols; ++j) {
      result.row(i * cols + j) =
          vec(m.block(i * block_rows, j * block_cols, block_rows, block_cols)).transpose();
    }
  }
  return result;
}

/// How many Kronecker products M is a sum of: the number of singular values of the rearranged matrix above
/// `tolerance` times the largest. 1 exactly if M = A ⊗ B.
inline Index rearranged_rank(const Eigen::MatrixXd& m, Index block_rows, Index block_cols, double tolerance) {
  const Eigen::JacobiSVD<Eigen::MatrixXd> svd(rearranged(m, block_rows, block_cols));
  const Eigen::VectorXd& values = svd.singularValues();
  return (values.array() > tolerance * values(0)).count();
}

}  // namespace dense
ROVE_END_TAGGED

/// \file
/// Attention read as one big matrix on vec(X): RoPE's is a Kronecker product, RoVE's is block-Toeplitz.
///
/// A mixer of n × m tokens has n × m blocks, block (i, j) = A_ij ψ(i, j), ψ a matrix of output × input
/// channels. For one head with projections W_V, W_O and weights A:
///
///     RoPE   A ⊗ (W_O W_V)                            kronecker_mixer(A, W_O W_V)
///     RoVE   Σ_δ (A∘S_δ) ⊗ (W_O R_δ W_V)              block_toeplitz_mixer(A, δ ↦ W_O R_δ W_V)
///     any    blocks A_ij W_O R_i⁻¹ R_j W_V            block_mixer(A, (i, j) ↦ W_O R_i⁻¹ R_j W_V)
///
/// ψ is the caller's callable, so a mixer evaluates nothing of the code it judges.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <functional>
#include <utility>

#include "rove/core/config.hpp"
#include "rove/dense/require.hpp"

ROVE_BEGIN_TAGGED
namespace dense {

/// vec(X) for X of tokens × channels: the tokens one below the other, vec(X)[t · channels + c] = X(t, c).
inline Eigen::VectorXd vec(const Eigen::MatrixXd& x) {
  Eigen::VectorXd stacked(x.size());
  for (Index t = 0; t < x.rows(); ++t) stacked.segment(t * x.cols(), x.cols()) = x.row(t).transpose();
  return stacked;
}

/// The inverse of `vec`: tokens × channels. \throws std::invalid_argument if the length is no multiple.
inline Eigen::MatrixXd unvec(const Eigen::VectorXd& stacked, Index channels) {
  detail::require(channels > 0 && stacked.size() % channels == 0, "a vector of ", stacked.size(),
                  " entries is no stack of tokens with ", channels, " channels");
  Eigen::MatrixXd x(stacked.size() / channels, channels);
  for (Index t = 0; t < x.rows(); ++t) x.row(t) = stacked.segment(t * channels, channels).transpose();
  return x;
}

/// S_δ of rows × cols: (S_δ)_ij = 1 where j − i = δ, else 0.
inline Eigen::MatrixXd shift_matrix(Index rows, Index cols, Index delta) {
  Eigen::MatrixXd s = Eigen::MatrixXd::Zero(rows, cols);
  for (Index i = 0; i < rows; ++i) {
    if (i + delta >= 0 && i + delta < cols) s(i, i + delta) = 1;
  }
  return s;
}

/// A ⊗ B: block (i, j) is A_ij B.
inline Eigen::MatrixXd kronecker_product(const Eigen::MatrixXd& a, const Eigen::MatrixXd& b) {
  Eigen::MatrixXd product(a.rows() * b.rows(), a.cols() * b.cols());
  for (Index i = 0; i < a.rows(); ++i) {
    for (Index j = 0; j < a.cols(); ++j) {
      product.block(i * b.rows(), j * b.cols(), b.rows(), b.cols()) = a(i, j) * b;
    }
  }
  return product;
}

/// A matrix on vec(X), kept as A and ψ; made by the three functions below.
class Mixer {
 public:
  Index out_tokens() const { return weights_.rows(); }
  Index in_tokens() const { return weights_.cols(); }
  Index out_channels() const { return out_channels_; }
  Index in_channels() const { return in_channels_; }
  /// A, out_tokens × in_tokens.
  const Eigen::MatrixXd& weights() const { return weights_; }

  /// Block (i, j) = A_ij ψ(i, j), out_channels × in_channels; nothing else is formed.
  Eigen::MatrixXd block(Index i, Index j) const { return weights_(i, j) * kernel(i, j); }

  /// The whole matrix by its definition, (out_tokens · out_channels) × (in_tokens · in_channels): a Kronecker
  /// product, the sum Σ_δ (A∘S_δ) ⊗ ψ_δ of Kronecker products, or the blocks set in place. For small sizes.
  Eigen::MatrixXd dense() const {
    const Index n = out_tokens();
    const Index m = in_tokens();
    switch (structure_) {
      case Structure::kronecker:
        return kronecker_product(weights_, kernel(0, 0));
      case Structure::block_toeplitz: {
        Eigen::MatrixXd sum = Eigen::MatrixXd::Zero(n * out_channels_, m * in_channels_);
        for (Index delta = 1 - n; delta < m; ++delta) {
          sum += kronecker_product(weights_.cwiseProduct(shift_matrix(n, m, delta)), kernel(0, delta));
        }
        return sum;
      }
      case Structure::blocks:
        break;
    }
    Eigen::MatrixXd whole(n * out_channels_, m * in_channels_);
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < m; ++j) {
        whole.block(i * out_channels_, j * in_channels_, out_channels_, in_channels_) = block(i, j);
      }
    }
    return whole;
  }

  /// Row i of the result is Σ_j A_ij ψ(i, j) x_j, block by block, x of in_tokens × in_channels: unvec(dense()
  /// · vec(x)) without the big matrix. ψ is called once per offset (block-Toeplitz) or pair with A_ij ≠ 0.
  /// \throws std::invalid_argument if x has another shape
  Eigen::MatrixXd apply(const Eigen::MatrixXd& x) const {
    detail::require(x.rows() == in_tokens() && x.cols() == in_channels_, "x is ", x.rows(), " x ", x.cols(),
                    ", the mixer takes ", in_tokens(), " tokens of ", in_channels_, " channels");
    const Index n = out_tokens();
    const Index m = in_tokens();
    Eigen::MatrixXd y = Eigen::MatrixXd::Zero(n, out_channels_);
    for (Index delta = 1 - n; delta < m; ++delta) {
      Eigen::MatrixXd psi;
      for (Index i = (std::max)(Index{0}, -delta); i < (std::min)(n, m - delta); ++i) {
        const Index j = i + delta;
        if (weights_(i, j) == 0) continue;
        if (psi.size() == 0 || structure_ == Structure::blocks) psi = kernel(i, j);
        y.row(i) += weights_(i, j) * (psi * x.row(j).transpose()).transpose();
      }
    }
    return y;
  }

  /// The same on a stacked vector.
  Eigen::VectorXd apply_stacked(const Eigen::VectorXd& stacked) const {
    return vec(apply(unvec(stacked, in_channels_)));
  }

 private:
  using BlockKernel = std::function<Eigen::MatrixXd(Index i, Index j)>;
  enum class Structure { kronecker, block_toeplitz, blocks };

  Mixer(Structure structure, Eigen::MatrixXd weights, BlockKernel kernel)
      : structure_(structure), weights_(std::move(weights)), kernel_(std::move(kernel)) {
    detail::require(weights_.size() > 0, "A is ", weights_.rows(), " x ", weights_.cols(), ": no tokens");
    const Eigen::MatrixXd first = kernel_(0, 0);
    out_channels_ = first.rows();
    in_channels_ = first.cols();
  }

  Eigen::MatrixXd kernel(Index i, Index j) const {
    Eigen::MatrixXd psi = kernel_(i, j);
    detail::require(psi.rows() == out_channels_ && psi.cols() == in_channels_, "psi(", i, ", ", j, ") is ",
                    psi.rows(), " x ", psi.cols(), ", psi(0, 0) is ", out_channels_, " x ", in_channels_);
    return psi;
  }

  friend Mixer kronecker_mixer(const Eigen::MatrixXd& a, const Eigen::MatrixXd& w);
  friend Mixer block_toeplitz_mixer(const Eigen::MatrixXd& a, std::function<Eigen::MatrixXd(Index)> psi);
  friend Mixer block_mixer(const Eigen::MatrixXd& a, std::function<Eigen::MatrixXd(Index, Index)> psi);

  Structure structure_;
  Eigen::MatrixXd weights_;
  BlockKernel kernel_;
  Index out_channels_ = 0;
  Index in_channels_ = 0;
};

/// A ⊗ W, W = W_O W_V: RoPE's mixer of one head (and plain attention's).
inline Mixer kronecker_mixer(const Eigen::MatrixXd& a, const Eigen::MatrixXd& w) {
  return Mixer(Mixer::Structure::kronecker, a, [w](Index, Index) { return w; });
}

/// Σ_δ (A∘S_δ) ⊗ ψ_δ, δ = j − i in rows: RoVE's mixer of one head with ψ_δ = W_O R_δ W_V.
inline Mixer block_toeplitz_mixer(const Eigen::MatrixXd& a, std::function<Eigen::MatrixXd(Index delta)> psi) {
  return Mixer(Mixer::Structure::block_toeplitz, a,
               [psi = std::move(psi)](Index i, Index j) { return psi(j - i); });
}

/// Blocks A_ij ψ(i, j): frames that are no one-parameter group have no ψ_δ.
inline Mixer block_mixer(const Eigen::MatrixXd& a, std::function<Eigen::MatrixXd(Index i, Index j)> psi) {
  return Mixer(Mixer::Structure::blocks, a, std::move(psi));
}

}  // namespace dense
ROVE_END_TAGGED

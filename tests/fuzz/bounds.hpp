/// \file
/// What the oracle makes of a head, with an error bound that holds where frames cancel.
#pragma once

#include "rove/core/config.hpp"
#include "rove/dense/attention.hpp"
#include "rove/dense/error_bound.hpp"
#include "support/oracle.hpp"

namespace rove_fuzz {

/// |R⁻ᵀ|, |R|, |R| and |R⁻¹| of the four roles, or more; empty: the identity.
using FrameSizes = rove_test::FrameMatrices;

/// The implementation's arithmetic and its output's scalar.
struct Rounding {
  rove::dense::Precision accumulators;
  rove::dense::Storage output;
};

/// The oracle's results for one head of batch row b, and `constant` times the bound on their error, with rows
/// whose every product counts:
///
///     |R_i⁻¹| Σ_j A_ij |R_j| |v_j|   and   |scale| Σ_c (|R_i⁻ᵀ| |q_i|)_c (|R_j| |k_j|)_c + |added score|
///
/// `dense::error_bound` takes |R_j v_j| instead, which is smaller where products cancel; inputs that are
/// searched for find such rows. In a translation unit of its own: Eigen's decompositions take long to
/// compile.
rove_test::Expectation::Head expected_head(const rove::dense::AttentionInput& in, const FrameSizes& sizes,
                                           rove::Index b, Rounding rounding, double constant);

}  // namespace rove_fuzz

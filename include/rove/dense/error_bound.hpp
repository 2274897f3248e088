/// \file
/// How far a sound implementation may be from the oracle, element by element.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "rove/core/config.hpp"
#include "rove/dense/attention.hpp"
#include "rove/dense/require.hpp"
#include "rove/dense/rotation.hpp"

ROVE_BEGIN_TAGGED
namespace dense {

/// What an implementation adds, multiplies and exponentiates in: ε = 2⁻²⁴ or 2⁻⁵³.
enum class Precision { float32, float64 };

/// What its output is rounded to, once.
enum class Storage { float16, bfloat16, float32, float64 };

/// ε, half the distance from 1 to the next number.
inline double unit_roundoff(Precision precision) {
  return precision == Precision::float32 ? 0x1p-24 : 0x1p-53;
}

/// The most that rounding x to the type can move it: half an ulp of the type at |x|, subnormals included, +∞
/// where x may round to infinity, NaN for NaN.
inline double half_ulp(Storage type, double x) {
  struct Format {
    int digits, lowest_exponent, highest_exponent;
  };
  const Format format = type == Storage::float16    ? Format{11, -14, 15}
                        : type == Storage::bfloat16 ? Format{8, -126, 127}
                        : type == Storage::float32  ? Format{24, -126, 127}
                                                    : Format{53, -1022, 1023};
  x = std::abs(x);
  if (std::isnan(x)) return x;
  const double largest = std::ldexp(2 - std::ldexp(1.0, 1 - format.digits), format.highest_exponent);
  const double top = std::ldexp(0.5, format.highest_exponent - format.digits + 1);
  if (x - largest >= top) return std::numeric_limits<double>::infinity();
  const int exponent = x == 0 ? format.lowest_exponent : (std::max)(std::ilogb(x), format.lowest_exponent);
  return (std::max)(std::ldexp(0.5, exponent - format.digits + 1), std::numeric_limits<double>::denorm_min());
}

namespace detail {

/// √min(n, 256) + √⌈n / 256⌉: rounding of a sum of n terms in blocks of 256, errors as a random walk.
inline double sum_growth(Index n) {
  return std::sqrt(static_cast<double>((std::min)(n, Index{256}))) +
         std::sqrt(static_cast<double>((n + 255) / 256));
}

/// How far the logits of a row may be off, in units of ε: L for their own rounding and for the exponential,
/// and L √d / 8 for d products added one after the other, whose partial sums round as a random walk.
inline double logit_error(const AttentionResult& result, Index i) {
  return result.logit_size(i) * (1 + std::sqrt(static_cast<double>(result.channels)) / 8);
}

}  // namespace detail

/// Bound on |computed out − result.out|, queries × value channels:
///
///     c ε (1 + L_i (1 + √d/8) + √min(n, 256) + √⌈n/256⌉) (|R_i⁻¹| Σ_j A_ij |R_j v_j|)
///       + e⁻⁵⁸ |R_i⁻¹| Σ |R_j v_j|                         over the tail
///       + half an ulp of the output type
///
/// with n the keys that row i sees, d the query channels and L_i the size of its logits
/// (AttentionResult::logit_size): a logit is off by ε L_i (1 + √d/8), a weight relatively by as much, and a
/// sum of n terms grows its error as a random walk does when it runs over blocks of 256 keys that are then
/// joined. Those walks make it a bound for rounding errors that do not conspire; the largest share of it seen
/// on real q, k, v was 0.66. The tail are the keys whose weight is below e⁻⁵⁹ of the row's largest, the
/// sink's among them: an implementation may make those weights 0, and their logits, which a mask made of a
/// large bias may have pushed far away, do not count in L_i.
///
/// It holds for frames whose rows R_j v_j, R_i⁻ᵀ q_i and R_j k_j are no small difference of large products,
/// and while nothing overflows or underflows. Rows that are empty have bound 0; rows that are NaN have bound
/// NaN.
///
/// \param result        what `attention` gave for the inputs exactly as the implementation reads them
/// \param accumulators  the implementation's arithmetic
/// \param type          the scalar of its output
/// \param c             the constant
inline Eigen::MatrixXd error_bound(const AttentionResult& result, Precision accumulators, Storage type,
                                   double c = 3) {
  const double epsilon = unit_roundoff(accumulators);
  const double tail_weight = std::exp(-58.0);
  Eigen::MatrixXd bound = Eigen::MatrixXd::Zero(result.out.rows(), result.out.cols());
  for (Index i = 0; i < bound.rows(); ++i) {
    const Index n = result.visible_keys[static_cast<std::size_t>(i)];
    const double factor = c * epsilon * (1 + detail::logit_error(result, i) + detail::sum_growth(n));
    for (Index d = 0; d < bound.cols(); ++d) {
      const double arithmetic = factor * result.magnitude(i, d) + tail_weight * result.tail(i, d);
      if (arithmetic == 0 && result.out(i, d) == 0) continue;
      bound(i, d) = arithmetic + half_ulp(type, std::abs(result.out(i, d)) + arithmetic);
    }
  }
  return bound;
}

/// Bound on |computed LSE − result.lse|, one a query; the LSE is in the accumulators' type:
///
///     c ε (1 + L_i (1 + √d/8) + √min(n, 256) + √⌈n/256⌉) + half an ulp of the accumulators' type
///
/// the logits' error moves the LSE by at most ε L_i (1 + √d/8), the sum's relative error by its logarithm,
/// and the last addition rounds. Rows with an infinite LSE have bound 0, rows with NaN have NaN.
inline Eigen::VectorXd lse_error_bound(const AttentionResult& result, Precision accumulators, double c = 3) {
  const double epsilon = unit_roundoff(accumulators);
  const Storage type = accumulators == Precision::float32 ? Storage::float32 : Storage::float64;
  Eigen::VectorXd bound = Eigen::VectorXd::Zero(result.lse.size());
  for (Index i = 0; i < bound.size(); ++i) {
    if (std::isinf(result.lse(i))) continue;
    const Index n = result.visible_keys[static_cast<std::size_t>(i)];
    const double arithmetic =
        c * epsilon * (1 + detail::logit_error(result, i) + (n == 0 ? 0 : detail::sum_growth(n)));
    bound(i) = arithmetic + half_ulp(type, std::abs(result.lse(i)) + arithmetic);
  }
  return bound;
}

/// How far each pair's phase p·ω may be off, tokens × pairs, where a model keeps its angles in float32: 3 |p|
/// ω 2⁻²⁴, two roundings' worth for ω (a power and a division) and one for the product.
inline Eigen::MatrixXd float32_phase_error(const Eigen::VectorXd& positions,
                                           const Eigen::VectorXd& inv_freq) {
  return 3 * 0x1p-24 * positions.cwiseAbs() * inv_freq.cwiseAbs().transpose();
}

/// What phases that are off add to the error of the output, queries × value channels; exact arithmetic
/// otherwise. Queries and keys are turned by rotary pairs, values and outputs by exact frames or none.
///
/// Turning a pair by an angle that is δ off moves it by at most δ times its length, so a logit moves by
///
///     |Δs_ij| ≤ |scale| Σ_pairs |q_pair| |k_pair| (δ_i + δ_j)
///
/// (a score modifier is taken to have a slope of at most 1, as soft-cap and biases do). Along the straight
/// path from the exact to the moved logits dy/dt = Σ_j A_ij Δs_ij (R_j v_j − y), and weights change by at
/// most e^{2D}, D = max_j |Δs_ij|; with B = Σ_j A_ij |Δs_ij| |R_j v_j − y| and S = Σ_j A_ij |Δs_ij| the whole
/// way is at most
///
///     |Δy| ≤ e^{2D} B / (1 − e^{2D} S)
///
/// in the shared frame, and |R_i⁻¹| times it in the output's. +∞ where e^{2D} S ≥ 1.
///
/// \param in           the problem with exact frames
/// \param result       what `attention` gave for it
/// \param query_phase  δ_i, queries × pairs, radians (`float32_phase_error`)
/// \param key_phase    δ_j, keys × pairs
/// \param pairing, offset  where the pairs lie in q and k
/// \throws std::invalid_argument if the phases do not fit q and k, in rows or in channels
inline Eigen::MatrixXd phase_error_bound(const AttentionInput& in, const AttentionResult& result,
                                         const Eigen::MatrixXd& query_phase, const Eigen::MatrixXd& key_phase,
                                         Pairing pairing, Index offset = 0) {
  const Index pairs = query_phase.cols();
  detail::require(
      query_phase.rows() == in.q.rows() && key_phase.rows() == in.k.rows() && key_phase.cols() == pairs,
      "phases are ", query_phase.rows(), " x ", pairs, " and ", key_phase.rows(), " x ", key_phase.cols(),
      " for ", in.q.rows(), " queries and ", in.k.rows(), " keys");
  detail::require(offset >= 0 && offset + 2 * pairs <= in.q.cols(), "rotary channels ", offset, "..",
                  offset + 2 * pairs, " do not fit into ", in.q.cols(), " channels");
  const auto pair_lengths = [&](const Eigen::MatrixXd& rows) -> detail::RowMatrix {
    return detail::RowMatrix::NullaryExpr(rows.rows(), pairs, [&](Index t, Index pair) {
      const auto [x, y] = pair_channels(pair, pairs, pairing, offset);
      return std::hypot(rows(t, x), rows(t, y));
    });
  };
  const detail::RowMatrix q = pair_lengths(in.q);
  const detail::RowMatrix k = pair_lengths(in.k);
  const detail::RowMatrix q_moved = q.cwiseProduct(query_phase);
  const detail::RowMatrix k_moved = k.cwiseProduct(key_phase);
  const detail::RowMatrix v = detail::turned(in.v, in.value_frame, "value_frame");
  const double scale = std::abs(detail::scale_of(in));

  Eigen::MatrixXd bound = Eigen::MatrixXd::Zero(result.out.rows(), result.out.cols());
  for (Index i = 0; i < bound.rows(); ++i) {
    const Eigen::RowVectorXd a = result.weights.row(i);
    const Eigen::RowVectorXd y = a * v;
    Eigen::RowVectorXd way = Eigen::RowVectorXd::Zero(y.size());
    double largest = 0;
    double mean = 0;
    for (Index j = 0; j < a.size(); ++j) {
      if (a(j) == 0) continue;
      const double moved = scale * (q_moved.row(i).dot(k.row(j)) + q.row(i).dot(k_moved.row(j)));
      largest = (std::max)(largest, moved);
      mean += a(j) * moved;
      way += a(j) * moved * (v.row(j) - y).cwiseAbs();
    }
    const double growth = std::exp(2 * largest);
    way *= growth * mean < 1 ? growth / (1 - growth * mean) : std::numeric_limits<double>::infinity();
    if (in.output_frame) {
      const Eigen::MatrixXd back =
          detail::inverse(detail::frame_at(in.output_frame, i, y.size(), "output_frame"));
      way = detail::times(back.cwiseAbs(), way);
    }
    bound.row(i) = way;
  }
  return bound;
}

}  // namespace dense
ROVE_END_TAGGED

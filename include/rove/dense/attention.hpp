/// \file
/// The oracle: attention of one head in double, the formula as written.
///
/// Everything under rove/dense is an island: Eigen and the standard library alone, double throughout, no code
/// shared with what it judges. It is meant for tests and for looking inside, O(n² d) and one head at a time.
#pragma once

#include <Eigen/Core>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "rove/core/config.hpp"
#include "rove/dense/require.hpp"

ROVE_BEGIN_TAGGED
namespace dense {

/// The matrix R_t of token t. Empty: the identity.
using FrameMatrix = std::function<Eigen::MatrixXd(Index t)>;

/// One head's problem. Query rows are i, key rows are j, both from 0; callables get rows, so what goes by
/// absolute index adds the offset itself.
struct AttentionInput {
  Eigen::MatrixXd q{};  ///< queries × channels
  Eigen::MatrixXd k{};  ///< keys × channels
  Eigen::MatrixXd v{};  ///< keys × value channels
  /// Factor of the logits; left out, 1/√channels.
  std::optional<double> scale{};
  /// Whether query i sees key j. Empty: all are seen.
  std::function<bool(Index i, Index j)> visible{};
  /// The modified logit, applied after the scale and before the mask. Empty: none. Not called for keys that
  /// are not seen.
  std::function<double(double s, Index i, Index j)> score{};
  /// A logit that takes weight and has no value: enters the denominator and the LSE once.
  std::optional<double> sink{};

  FrameMatrix query_frame{};   ///< R_i of the queries: turned by R_i⁻ᵀ
  FrameMatrix key_frame{};     ///< R_j of the keys: turned by R_j
  FrameMatrix value_frame{};   ///< R_j of the values: turned by R_j
  FrameMatrix output_frame{};  ///< R_i of the outputs: turned by R_i⁻¹
};

/// What `attention` found, with the sizes that `error_bound` needs.
struct AttentionResult {
  Eigen::MatrixXd out{};      ///< y, queries × value channels
  Eigen::MatrixXd weights{};  ///< A, queries × keys; 0 where a key is not seen
  Eigen::VectorXd lse{};      ///< natural logarithm of the denominator, sink included

  /// |R_i⁻¹| Σ_j A_ij |R_j v_j|, queries × value channels.
  Eigen::MatrixXd magnitude{};
  /// |R_i⁻¹| Σ |R_j v_j| over the seen keys whose weight lies below e⁻⁵⁹ of the row's largest, the sink's
  /// among them.
  Eigen::MatrixXd tail{};
  /// L_i = max_j(|scale| Σ_c |q'_c| |k'_c| + |added score|) over the seen keys that carry weight, q' and k'
  /// the turned rows; at least |sink| where the sink carries weight.
  Eigen::VectorXd logit_size{};
  /// Channels of a query and a key: how many products a logit sums.
  Index channels = 0;
  /// How many keys a query sees.
  std::vector<Index> visible_keys{};
};

namespace detail {

using RowMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// M x. An exact zero of M is no entry at all, so a NaN in one pair of channels stays in that pair.
template <class Row>
Eigen::RowVectorXd times(const Eigen::MatrixXd& m, const Row& x) {
  Eigen::RowVectorXd y = Eigen::RowVectorXd::Zero(m.rows());
  for (Index c = 0; c < m.cols(); ++c) {
    for (Index r = 0; r < m.rows(); ++r) {
      if (m(r, c) != 0) y(r) += m(r, c) * x(c);
    }
  }
  return y;
}

inline Eigen::MatrixXd frame_at(const FrameMatrix& frame, Index t, Index channels, const char* name) {
  Eigen::MatrixXd r = frame(t);
  require(r.rows() == channels && r.cols() == channels, name, " of token ", t, " is ", r.rows(), " x ",
          r.cols(), ", the rows have ", channels, " channels");
  return r;
}

/// R⁻¹ by LU with partial pivoting, whatever R is.
inline Eigen::MatrixXd inverse(const Eigen::MatrixXd& r) {
  return r.partialPivLu().inverse();
}

/// R_t x_t for each row.
inline RowMatrix turned(const Eigen::MatrixXd& rows, const FrameMatrix& frame, const char* name) {
  RowMatrix result = rows;
  if (!frame) return result;
  for (Index t = 0; t < rows.rows(); ++t) {
    result.row(t) = times(frame_at(frame, t, rows.cols(), name), rows.row(t));
  }
  return result;
}

/// R_t⁻ᵀ x_t for each row.
inline RowMatrix turned_inverse_transposed(const Eigen::MatrixXd& rows, const FrameMatrix& frame,
                                           const char* name) {
  RowMatrix result = rows;
  if (!frame) return result;
  for (Index t = 0; t < rows.rows(); ++t) {
    const Eigen::MatrixXd r = frame_at(frame, t, rows.cols(), name);
    result.row(t) = r.transpose().partialPivLu().solve(rows.row(t).transpose()).transpose();
  }
  return result;
}

inline double scale_of(const AttentionInput& in) {
  return in.scale ? *in.scale : 1 / std::sqrt(static_cast<double>(in.q.cols()));
}

/// One row's logits and what became of them, in the frame that all tokens share.
struct Row {
  std::vector<Index> keys{};          ///< seen
  std::vector<double> logits{};       ///< of those
  std::vector<double> logit_sizes{};  ///< |scale| Σ |q'||k'| + |added score| of those
  double largest = -std::numeric_limits<double>::infinity();
  bool poisoned = false;  ///< a logit is NaN or +∞
};

inline Row row_of(const AttentionInput& in, const RowMatrix& q, const RowMatrix& k, double scale, Index i) {
  Row row;
  for (Index j = 0; j < k.rows(); ++j) {
    if (in.visible && !in.visible(i, j)) continue;
    const double plain = scale * q.row(i).dot(k.row(j));
    const double s = in.score ? in.score(plain, i, j) : plain;
    const double size = std::abs(scale) * q.row(i).cwiseAbs().dot(k.row(j).cwiseAbs());
    row.keys.push_back(j);
    row.logits.push_back(s);
    row.logit_sizes.push_back(in.score ? size + std::abs(s - plain) : size);
    if (std::isnan(s) || s == std::numeric_limits<double>::infinity()) row.poisoned = true;
    if (s > row.largest) row.largest = s;
  }
  return row;
}

/// A seen key so far below the row's largest logit, the sink among them, that an implementation may take its
/// weight for 0.
inline bool is_tail(double logit, double largest) {
  return logit < largest - 59;
}

/// That such a key's logit has no say in how accurate the row is: it is not so large that a float error in it
/// could lift it back.
inline bool is_tail_for_sure(double logit, double logit_size, double largest) {
  return is_tail(logit, largest) && 3 * 0x1p-24 * logit_size < 1;
}

}  // namespace detail

/// Attention of one head (arXiv 2606.11275):
///
///     s_ij = score(scale · ⟨R_i⁻ᵀ q_i , R_j k_j⟩)
///     A_ij = exp(s_ij) / (Σ_j exp(s_ij) + exp(sink))     over the keys j that query i sees
///     y_i  = R_i⁻¹ Σ_j A_ij R_j v_j
///     lse_i = ln(Σ_j exp(s_ij) + exp(sink))
///
/// Each of the four frames stands on its own: with query and key frames alone this is RoPE, with all four
/// RoVE. R⁻¹ is a general inverse (LU), so no frame needs to be orthogonal. Per token the rows are turned
/// once.
///
/// A row that sees no key, or only logits of −∞, is empty: output and weights 0, LSE the sink, or −∞ without
/// one. A logit of NaN or +∞ makes the row NaN. What is not seen is never multiplied, so NaN there stays
/// there; a seen key with logit −∞ has weight 0 and its value is multiplied.
///
/// \throws std::invalid_argument if the shapes of q, k, v or of a frame do not fit
inline AttentionResult attention(const AttentionInput& in) {
  const Index queries = in.q.rows();
  const Index keys = in.k.rows();
  const Index width = in.v.cols();
  detail::require(in.q.cols() > 0, "q has no channels");
  detail::require(in.q.cols() == in.k.cols(), "q has ", in.q.cols(), " channels, k has ", in.k.cols());
  detail::require(keys == in.v.rows(), "k has ", keys, " tokens, v has ", in.v.rows());

  const detail::RowMatrix q = detail::turned_inverse_transposed(in.q, in.query_frame, "query_frame");
  const detail::RowMatrix k = detail::turned(in.k, in.key_frame, "key_frame");
  const detail::RowMatrix v = detail::turned(in.v, in.value_frame, "value_frame");
  const detail::RowMatrix v_size = v.cwiseAbs();
  const double scale = detail::scale_of(in);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();

  AttentionResult result;
  result.channels = in.q.cols();
  result.out = Eigen::MatrixXd::Zero(queries, width);
  result.weights = Eigen::MatrixXd::Zero(queries, keys);
  result.lse = Eigen::VectorXd::Constant(queries, in.sink ? *in.sink : -infinity);
  result.magnitude = Eigen::MatrixXd::Zero(queries, width);
  result.tail = Eigen::MatrixXd::Zero(queries, width);
  result.logit_size = Eigen::VectorXd::Zero(queries);
  result.visible_keys.assign(static_cast<std::size_t>(queries), 0);

  for (Index i = 0; i < queries; ++i) {
    const detail::Row row = detail::row_of(in, q, k, scale, i);
    result.visible_keys[static_cast<std::size_t>(i)] = static_cast<Index>(row.keys.size());
    if (row.poisoned || (row.largest > -infinity && in.sink && !(*in.sink < infinity))) {
      result.out.row(i).setConstant(nan);
      result.magnitude.row(i).setConstant(nan);
      for (const Index j : row.keys) result.weights(i, j) = nan;
      result.lse(i) = result.logit_size(i) = nan;
      continue;
    }
    if (row.largest == -infinity) continue;

    const double largest = in.sink ? (std::max)(row.largest, *in.sink) : row.largest;
    double denominator = in.sink ? std::exp(*in.sink - largest) : 0;
    for (const double s : row.logits) denominator += std::exp(s - largest);
    result.lse(i) = largest + std::log(denominator);

    Eigen::RowVectorXd y = Eigen::RowVectorXd::Zero(width);
    Eigen::RowVectorXd size = Eigen::RowVectorXd::Zero(width);
    Eigen::RowVectorXd tail = Eigen::RowVectorXd::Zero(width);
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      const Index j = row.keys[n];
      const double a = std::exp(row.logits[n] - largest) / denominator;
      result.weights(i, j) = a;
      y += a * v.row(j);
      size += a * v_size.row(j);
      if (row.logits[n] == -infinity) continue;
      if (detail::is_tail(row.logits[n], largest)) tail += v_size.row(j);
      if (!detail::is_tail_for_sure(row.logits[n], row.logit_sizes[n], largest)) {
        result.logit_size(i) = (std::max)(result.logit_size(i), row.logit_sizes[n]);
      }
    }
    if (in.sink && *in.sink > row.largest - 59) {
      result.logit_size(i) = (std::max)(result.logit_size(i), std::abs(*in.sink));
    }
    if (in.output_frame) {
      const Eigen::MatrixXd back =
          detail::inverse(detail::frame_at(in.output_frame, i, width, "output_frame"));
      y = detail::times(back, y);
      size = detail::times(back.cwiseAbs(), size);
      tail = detail::times(back.cwiseAbs(), tail);
    }
    result.out.row(i) = y;
    result.magnitude.row(i) = size;
    result.tail.row(i) = tail;
  }
  return result;
}

}  // namespace dense
ROVE_END_TAGGED

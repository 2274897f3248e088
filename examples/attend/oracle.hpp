/// \file
/// Attention of a layer in double, and how far results are from it.
#pragma once

#include <Eigen/Core>
#include <rove/dense/dense.hpp>
#include <string>
#include <vector>

#include "attend/layer.hpp"
#include "attend/options.hpp"

namespace attend {

/// One line of the report: the largest error of a result, the bound at that element, and the largest share of
/// its own bound that any element uses.
struct Verdict {
  std::string subject;
  double error = 0;
  double bound = 0;
  double worst_share = 0;
  bool holds = true;

  /// Adds one element. NaN where NaN belongs is no error.
  void add(double computed, double exact, double allowed);
};

/// What a run of the library gave, contiguous as the shapes say; empty where it did not run.
struct Results {
  std::vector<float> rope;  ///< [batch, heads, q_len, value_channels]
  std::vector<float> rove;  ///< likewise
  std::vector<float> lse;   ///< [batch, heads, q_len]
};

/// The layer's problem for dense::attention, from its own frequencies, frames and mask.
class Oracle {
 public:
  Oracle(const Layer& layer, const Options& options);

  /// The query rows that are judged, of every head: all up to 512, otherwise 64, the first and the last
  /// included.
  const std::vector<Index>& rows() const { return rows_; }

  /// Some rows of one head; `turn_values` makes RoPE RoVE.
  rove::dense::AttentionInput input(Index batch, Index head, const std::vector<Index>& rows,
                                    bool turn_values) const;

  /// R_δ on the value channels.
  Eigen::MatrixXd value_rotation(double delta) const;
  const Eigen::VectorXd& inv_freq() const { return inv_freq_; }
  rove::dense::Pairing value_pairing() const { return value_pairing_; }

  std::vector<Verdict> judge(const Results& results) const;

 private:
  Eigen::MatrixXd reference_phases(const std::vector<Index>& tokens) const;

  const Layer& layer_;
  const Options& options_;
  Eigen::VectorXd inv_freq_;
  rove::dense::Pairing pairing_;
  rove::dense::Pairing value_pairing_;
  std::vector<Index> rows_;
};

}  // namespace attend

/// \file
/// Rotary frames of any kind, and their matrices.
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <functional>
#include <vector>

#include "rove/dense/rotation.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/position/positions.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"
#include "support/frames.hpp"

namespace rove_test {

using Table = rove::RotationTable<float>;
using Rotary = rove::RotaryFrame<Table>;

/// What says how a rotary frame turns, but for the positions.
struct Kind {
  rove::Index rotary_dim = 16;
  rove::Pairing pairing = rove::Pairing::half_split;
  double theta = 100;
  rove::Index first_channel = 0;
  double attention_factor = 1;
  double logit_factor = 1;
};

/// The frame of a kind at the positions given.
inline Rotary rotary(const Kind& kind, const rove::Positions& positions) {
  auto frequencies = rove::rotary_frequencies({.rotary_dim = kind.rotary_dim, .rope_theta = kind.theta});
  frequencies.attention_factor = kind.attention_factor;
  frequencies.logit_factor = kind.logit_factor;
  return Rotary(Table(frequencies, positions), kind.pairing, kind.first_channel);
}

/// The matrix of token t at position first[b] + t; `divided` by that much on the channels that turn.
inline std::function<Eigen::MatrixXd(rove::Index, rove::Index)> matrix(const Kind& kind, rove::Index width,
                                                                       std::vector<rove::Index> first,
                                                                       double divided = 1) {
  return [=](rove::Index b, rove::Index t) {
    const rove::Index start = first.size() == 1 ? first[0] : first[static_cast<std::size_t>(b)];
    Eigen::MatrixXd r = rove::dense::rotation_matrix(
        width, rove::dense::inverse_frequencies(kind.rotary_dim, kind.theta), static_cast<double>(start + t),
        dense_pairing(kind.pairing), kind.first_channel);
    r.middleRows(kind.first_channel, kind.rotary_dim) /= divided;
    return r;
  };
}

}  // namespace rove_test

/// \file
/// The picture of two mixers: RoPE's, one kernel at every place, beside RoVE's, one kernel per offset.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <string>

namespace attend {

/// n × n blocks of m × m, drawn beside each other. Both matrices are the whole mixers, as they act on the
/// stacked tokens; what is drawn is read off them.
struct MixerPicture {
  std::string title;
  std::string subtitle;
  std::string kernel;         ///< RoPE's one kernel in words: "W_{O} W_{V}"
  std::string offset_kernel;  ///< RoVE's: "W_{O} R_{δ} W_{V}"
  std::int64_t first_token;   ///< number of the first row and column
  Eigen::MatrixXd weights;    ///< A, n × n; 0 where a key is not seen
  Eigen::MatrixXd kronecker;  ///< (n m) × (n m)
  Eigen::MatrixXd toeplitz;   ///< (n m) × (n m)
};

/// The picture as SVG text, on a white card, so that it reads on a dark page too.
std::string draw(const MixerPicture& picture);

}  // namespace attend

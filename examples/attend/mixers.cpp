#include "attend/mixers.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <rove/dense/dense.hpp>
#include <string>
#include <vector>

#include "attend/layer.hpp"
#include "attend/options.hpp"
#include "attend/oracle.hpp"
#include "support/npy.hpp"

namespace attend {
namespace {

namespace dense = rove::dense;

struct Projections {
  Eigen::MatrixXd wo;  ///< model channels × value channels
  Eigen::MatrixXd wv;  ///< value channels × model channels
};

Eigen::MatrixXd read_matrix(const std::filesystem::path& file, const std::vector<Index>& shape) {
  const npy::Array<double> array = npy::read<double>(file);
  if (array.shape != shape) {
    throw npy::FileError(
        file, "has shape " + npy::to_string(array.shape) + "; " + npy::to_string(shape) + " expected");
  }
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  return Eigen::Map<const RowMajor>(array.values.data(), shape[1], shape[2]);
}

/// Rows of the identity: up to four pairs, from the fastest on, spread over all.
Projections some_pairs(const Layer& layer, const Oracle& oracle) {
  const Index pairs = oracle.inv_freq().size();
  const Index shown = (std::min)(pairs, Index{4});
  Eigen::MatrixXd chosen = Eigen::MatrixXd::Zero(2 * shown, layer.value_channels);
  for (Index i = 0; i < shown; ++i) {
    const auto [x, y] = dense::pair_channels(i * pairs / shown, pairs, oracle.value_pairing());
    chosen(i, x) = 1;
    chosen(shown + i, y) = 1;
  }
  return {chosen, chosen.transpose()};
}

std::string range(Index first, Index count) {
  return count == 1 ? std::to_string(first) : std::to_string(first) + "–" + std::to_string(first + count - 1);
}

}  // namespace

Mixers mixers(const Layer& layer, const Options& options, const Oracle& oracle) {
  const Index tokens = (std::min)(layer.q_len, Index{8});
  Mixers result;
  MixerPicture& picture = result.picture;
  Projections weights;
  Index head = 0, first_row = layer.q_len - tokens;
  picture.title = "One attention head, two mixers";
  if (options.sample) {
    head = 4;
    first_row = 32;  // where this head looks about; the text's first tokens draw nearly all its weight
    constexpr Index shown = 8;
    weights.wo = read_matrix(options.data / "layer14_wo.npy", {1, shown, layer.value_channels});
    weights.wv = read_matrix(options.data / "layer14_wv.npy", {1, layer.value_channels, shown});
    picture.kernel = "W_{O} W_{V}";
    picture.offset_kernel = "W_{O} R_{δ} W_{V}";
    picture.subtitle = "SmolLM2-135M, layer 14, query head 4 with its own weights: tokens " +
                       range(layer.first_query() + first_row, tokens) +
                       " of a text, 8 of the 576 model channels";
  } else {
    weights = some_pairs(layer, oracle);
    picture.kernel = "I";
    picture.offset_kernel = "R_{δ}";
    picture.subtitle = "Query head 0: tokens " + range(layer.first_query() + first_row, tokens) + " of " +
                       std::to_string(layer.kv_len) + ", " + std::to_string(weights.wo.rows()) + " of the " +
                       std::to_string(layer.value_channels) + " value channels, projections left out";
  }
  picture.first_token = layer.first_query() + first_row;

  std::vector<Index> rows(static_cast<std::size_t>(tokens));
  std::iota(rows.begin(), rows.end(), first_row);
  picture.weights =
      dense::attention(oracle.input(0, head, rows, false)).weights.middleCols(picture.first_token, tokens);

  const auto psi = [&](Index delta) -> Eigen::MatrixXd {
    return weights.wo * oracle.value_rotation(static_cast<double>(delta)) * weights.wv;
  };
  picture.kronecker = dense::kronecker_mixer(picture.weights, weights.wo * weights.wv).dense();
  picture.toeplitz = dense::block_toeplitz_mixer(picture.weights, psi).dense();

  const Index width = weights.wo.rows();
  result.kronecker_rank = dense::rearranged_rank(picture.kronecker, width, width, 1e-9);
  result.toeplitz_rank = dense::rearranged_rank(picture.toeplitz, width, width, 1e-9);
  for (Index delta = 1 - tokens; delta < tokens; ++delta) {
    const Eigen::MatrixXd shifted = picture.weights.cwiseProduct(dense::shift_matrix(tokens, tokens, delta));
    if (!shifted.isZero(0)) ++result.offsets;
  }
  return result;
}

}  // namespace attend

// The operator on real inputs and as a matrix: captured layers of a model, and the mixer that a layer's head
// is between its W_V and its W_O.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <memory>
#include <vector>

#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/dense/attention.hpp"
#include "rove/dense/error_bound.hpp"
#include "rove/dense/mixer.hpp"
#include "rove/dense/rotation.hpp"
#include "rove/op/attention.hpp"
#include "rove/op/weights.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "support/frames.hpp"
#include "support/judge.hpp"
#include "support/plain_kernel.hpp"
#include "support/smollm2.hpp"

namespace rove_test {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using rove::bhtd;
using rove::causal;
using rove::Index;
using rove::Pairing;
namespace dense = rove::dense;

template <class T>
rove::RotaryFrame<rove::RotationTable<T>> rotary(Index tokens, Index channels = 64,
                                                 double theta = smollm2_rope_base, Index first = 0) {
  return {rove::RotationTable<T>(rove::rotary_frequencies({.rotary_dim = channels, .rope_theta = theta}),
                                 rove::consecutive_positions(tokens, first)),
          Pairing::half_split};
}

MatrixXd rotation(double position, Index channels = 64, double theta = smollm2_rope_base) {
  return dense::rotation_matrix(channels, dense::inverse_frequencies(channels, theta), position,
                                dense::Pairing::half_split);
}

// ---- Captured layers ----------------------------------------------------------------------------

class CapturedLayers : public ::testing::TestWithParam<int> {
 protected:
  CapturedLayer layer = captured_layer(GetParam());
  std::vector<float> out = std::vector<float>(layer.q.values.size());
  std::vector<float> lse = std::vector<float>(layer.lse.values.size());

  auto problem() {
    const Index n = layer.tokens();
    return rove::attention_problem(bhtd(layer.q.values.data(), 1, layer.heads(), n, 64),
                                   bhtd(layer.k.values.data(), 1, layer.kv_heads(), n, 64),
                                   bhtd(layer.v.values.data(), 1, layer.kv_heads(), n, 64),
                                   bhtd(out.data(), 1, layer.heads(), n, 64))
        .with_lse(rove::bht(lse.data(), 1, layer.heads(), n))
        .with_mask(causal());
  }

  dense::AttentionInput input(Index head, bool turn_values) {
    const auto table = std::make_shared<std::vector<MatrixXd>>();
    for (Index t = 0; t < layer.tokens(); ++t) table->push_back(rotation(static_cast<double>(t)));
    const auto frame = [table](Index, Index t) { return (*table)[static_cast<std::size_t>(t)]; };
    FrameMatrices frames{.query = frame, .key = frame, .value = {}, .output = {}};
    if (turn_values) frames.value = frames.output = frame;
    return dense_input(problem(), 0, head, frames);
  }

  /// Largest |out − golden| over bound; the golden is rounded once to float32.
  double worst(const NpyArray& golden, Index head, const MatrixXd& bound) {
    const MatrixXd should = head_matrix(golden, head);
    double worst = 0;
    for (Index i = 0; i < layer.tokens(); ++i) {
      for (Index c = 0; c < 64; ++c) {
        const double error = std::abs(static_cast<double>(problem().out(0, head, i, c)) - should(i, c));
        worst =
            std::max(worst, error / (bound(i, c) + dense::half_ulp(dense::Storage::float32, should(i, c))));
      }
    }
    return worst;
  }
};

TEST_P(CapturedLayers, rove_meets_the_goldens_and_so_does_the_lse) {
  rove::rove_attention(problem(), rotary<float>(layer.tokens()));
  const MatrixXd golden_lse = head_matrix(layer.lse, 0);
  double largest = 0;
  for (Index head = 0; head < layer.heads(); ++head) {
    const auto result = dense::attention(input(head, true));
    const double head_worst = worst(
        layer.rove, head, dense::error_bound(result, dense::Precision::float32, dense::Storage::float32));
    EXPECT_LE(head_worst, 1) << "head " << head;
    largest = std::max(largest, head_worst);
    const VectorXd lse_bound = dense::lse_error_bound(result, dense::Precision::float32);
    for (Index i = 0; i < layer.tokens(); ++i) {
      EXPECT_NEAR(problem().lse(0, head, i), golden_lse(head, i),
                  lse_bound(i) + dense::half_ulp(dense::Storage::float32, golden_lse(head, i)));
    }
  }
  EXPECT_GT(largest, 0.02) << "so close that something was compared with itself";
}

// The model computed in float32, its angles too.
TEST_P(CapturedLayers, rope_meets_the_model_within_its_arithmetic) {
  rove::rope_attention(problem(), rotary<float>(layer.tokens()));
  const VectorXd positions = VectorXd::LinSpaced(layer.tokens(), 0, static_cast<double>(layer.tokens() - 1));
  const MatrixXd phases =
      dense::float32_phase_error(positions, dense::inverse_frequencies(64, smollm2_rope_base));
  double largest = 0;
  for (Index head = 0; head < layer.heads(); ++head) {
    const auto in = input(head, false);
    const auto result = dense::attention(in);
    // Its arithmetic and ours.
    const MatrixXd bound =
        2 * dense::error_bound(result, dense::Precision::float32, dense::Storage::float32) +
        dense::phase_error_bound(in, result, phases, phases, dense::Pairing::half_split);
    const double head_worst = worst(layer.attention, head, bound);
    EXPECT_LE(head_worst, 1) << "head " << head;
    largest = std::max(largest, head_worst);
  }
  EXPECT_GT(largest, 0.02);
}

TEST_P(CapturedLayers, every_path_gives_the_same_function) {
  const auto frame = rotary<float>(layer.tokens());
  rove::rove_attention(problem(), frame);
  const std::vector<float> fused = out, fused_lse = lse;
  rove::rove_attention(problem(), frame, rove::Context{}, rove::materialised(rove::NaiveKernel{}));
  EXPECT_EQ(out, fused);
  EXPECT_EQ(lse, fused_lse);
  rove::rove_attention(problem(), frame, rove::Context{}, plain_kernel);
  for (Index head = 0; head < layer.heads(); ++head) {
    const auto bound = dense::error_bound(dense::attention(input(head, true)), dense::Precision::float32,
                                          dense::Storage::float32);
    EXPECT_LE(worst(layer.rove, head, bound), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(SmolLM2, CapturedLayers, ::testing::Values(0, 14, 29));

// ---- The layer as a matrix ----------------------------------------------------------------------

double distance(const MatrixXd& a, const MatrixXd& b) {
  return (a - b).cwiseAbs().maxCoeff();
}

MatrixXd random_matrix(Index rows, Index cols, unsigned seed) {
  const std::vector<double> numbers = normal_numbers<double>(static_cast<std::size_t>(rows * cols), seed);
  return Eigen::Map<const MatrixXd>(numbers.data(), rows, cols);
}

std::vector<double> row_major(const MatrixXd& m) {
  std::vector<double> numbers;
  for (Index r = 0; r < m.rows(); ++r) {
    for (Index c = 0; c < m.cols(); ++c) numbers.push_back(m(r, c));
  }
  return numbers;
}

/// One head of a layer in double: y_i of the operator on x W_Vᵀ, projected by W_O; and A of the same call.
struct Layer {
  MatrixXd x, q, k, wv, wo;

  template <class Frames>
  MatrixXd output(const Frames& frames, MatrixXd& a) const {
    const Index n = q.rows(), m = k.rows(), d = q.cols(), width = wv.rows();
    const std::vector<double> queries = row_major(q), keys = row_major(k),
                              values = row_major(product(x, wv.transpose()));
    std::vector<double> y(static_cast<std::size_t>(n * width)), weights(static_cast<std::size_t>(n * m));
    const auto problem =
        rove::attention_problem(bhtd(queries.data(), 1, 1, n, d), bhtd(keys.data(), 1, 1, m, d),
                                bhtd(values.data(), 1, 1, m, width), bhtd(y.data(), 1, 1, n, width))
            .with_mask(causal())
            .with_query_offset(rove::align_last());
    rove::attention(problem, frames);
    rove::attention_weights(problem, frames, bhtd(weights.data(), 1, 1, n, m));
    using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    a = Eigen::Map<const Rows>(weights.data(), n, m);
    return product(Eigen::Map<const Rows>(y.data(), n, width), wo.transpose());
  }
};

Layer random_layer(Index queries, Index keys, unsigned seed) {
  return {random_matrix(keys, 12, seed), random_matrix(queries, 8, seed + 1),
          random_matrix(keys, 8, seed + 2), random_matrix(8, 12, seed + 3), random_matrix(12, 8, seed + 4)};
}

/// A by the oracle, so that a mixer owes nothing to what it judges.
MatrixXd oracle_weights(const Layer& layer, const dense::FrameMatrix& at_queries,
                        const dense::FrameMatrix& at_keys) {
  const Index offset = layer.k.rows() - layer.q.rows();
  dense::AttentionInput in;
  in.q = layer.q;
  in.k = layer.k;
  in.v = MatrixXd::Zero(layer.k.rows(), 1);
  in.visible = [offset](Index i, Index j) { return j <= i + offset; };
  in.query_frame = at_queries;
  in.key_frame = at_keys;
  return dense::attention(in).weights;
}

// Random weights, sizes at which the whole matrix on vec(x) is formed: 96 × 96.
TEST(Mixer, rove_attention_is_the_block_toeplitz_mixer) {
  const Layer layer = random_layer(8, 8, 1);
  const auto frame = rotary<double>(8, 8, 100, 50);
  const dense::FrameMatrix at = [](Index t) { return rotation(static_cast<double>(t + 50), 8, 100); };
  MatrixXd a;
  const MatrixXd y = layer.output(rove::rove_frames(frame), a);
  const MatrixXd oracle = oracle_weights(layer, at, at);
  EXPECT_LT(distance(a, oracle), 1e-14);
  const dense::Mixer mixer = dense::block_toeplitz_mixer(oracle, [&](Index delta) -> MatrixXd {
    return product(product(layer.wo, rotation(static_cast<double>(delta), 8, 100)), layer.wv);
  });
  const MatrixXd whole = mixer.dense();
  ASSERT_EQ(whole.rows(), 96);
  EXPECT_LT(distance(dense::vec(y), product(whole, dense::vec(layer.x))), 1e-12);
}

TEST(Mixer, rope_attention_is_the_kronecker_mixer) {
  const Layer layer = random_layer(8, 8, 11);
  const auto frame = rotary<double>(8, 8, 100, 50);
  const dense::FrameMatrix at = [](Index t) { return rotation(static_cast<double>(t + 50), 8, 100); };
  MatrixXd a;
  const MatrixXd y = layer.output(rove::rope_frames(frame), a);
  const MatrixXd oracle = oracle_weights(layer, at, at);
  const MatrixXd whole = dense::kronecker_mixer(oracle, product(layer.wo, layer.wv)).dense();
  EXPECT_LT(distance(dense::vec(y), product(whole, dense::vec(layer.x))), 1e-12);
  // And RoVE's is another matrix.
  const MatrixXd rove_y = layer.output(rove::rove_frames(frame), a);
  EXPECT_GT(distance(dense::vec(rove_y), product(whole, dense::vec(layer.x))), 0.1);
}

TEST(Mixer, queries_at_the_end_of_the_keys) {
  const Layer layer = random_layer(3, 8, 21);
  const auto keys = rotary<double>(8, 8, 100, 50);
  const dense::FrameMatrix at = [](Index t) { return rotation(static_cast<double>(t + 50), 8, 100); };
  const dense::FrameMatrix at_queries = [at](Index t) { return at(t + 5); };
  MatrixXd a;
  const MatrixXd y = layer.output(rove::rove_frames(rove::rows(keys, 5, 3), keys), a);
  const MatrixXd oracle = oracle_weights(layer, at_queries, at);
  EXPECT_LT(distance(a, oracle), 1e-14);
  // Row i stands at 5 + i: the kernel of block (i, j) is that of the offset j − i − 5.
  const dense::Mixer mixer = dense::block_toeplitz_mixer(oracle, [&](Index delta) -> MatrixXd {
    return product(product(layer.wo, rotation(static_cast<double>(delta - 5), 8, 100)), layer.wv);
  });
  EXPECT_LT(distance(dense::vec(y), product(mixer.dense(), dense::vec(layer.x))), 1e-12);
}

// Frames that are no group have no ψ_δ: blocks A_ij W_O R_i⁻¹ R_j W_V.
TEST(Mixer, frames_of_any_matrices_are_the_block_mixer) {
  const Layer layer = random_layer(8, 8, 31);
  std::vector<MatrixXd> matrices;
  for (std::uint32_t t = 0; t < 8; ++t) matrices.push_back(random_frame_matrix(8, t + 100));
  const auto at = [&matrices](Index t) { return matrices[static_cast<std::size_t>(t)]; };
  MatrixXd a;
  const MatrixXd y = layer.output(rove::rove_frames(MatrixFrame<>(matrices)), a);
  const MatrixXd oracle = oracle_weights(layer, at, at);
  const dense::Mixer mixer = dense::block_mixer(oracle, [&](Index i, Index j) -> MatrixXd {
    return product(product(layer.wo, inverse_of(at(i))), product(at(j), layer.wv));
  });
  EXPECT_LT(distance(dense::vec(y), product(mixer.dense(), dense::vec(layer.x))), 1e-12);
}

// The real layer 14: x, W_V of kv head 1, W_O of head 4, the captured q and k; 24 tokens, width 576, by
// blocks.
TEST(Mixer, the_real_layer_by_blocks) {
  const CapturedLayer captured = captured_layer(14);
  Layer layer;
  layer.x = head_matrix(smollm2_array("layer14_x"), 0);
  layer.wv = head_matrix(smollm2_array("layer14_wv"), 0);
  layer.wo = head_matrix(smollm2_array("layer14_wo"), 0);
  layer.q = head_matrix(captured.q, 4).topRows(24);
  layer.k = head_matrix(captured.k, 1).topRows(24);
  const auto frame = rotary<double>(24);
  const dense::FrameMatrix at = [](Index t) { return rotation(static_cast<double>(t)); };
  const MatrixXd oracle = oracle_weights(layer, at, at);
  // What rounding can do: |W_O| Σ_j A_ij |R_i⁻¹| |R_j| |W_V| |x_j|, |R_i⁻¹| |R_j| ≤ 2, some thousand
  // roundings.
  const MatrixXd size =
      4 * product(product(oracle, product(layer.x.cwiseAbs(), layer.wv.cwiseAbs().transpose())),
                  layer.wo.cwiseAbs().transpose());
  const double bound = 1000 * 0x1p-53 * size.maxCoeff();

  MatrixXd a;
  const MatrixXd rove_y = layer.output(rove::rove_frames(frame), a);
  const dense::Mixer rove_mixer = dense::block_toeplitz_mixer(oracle, [&](Index delta) -> MatrixXd {
    return product(layer.wo, product(rotation(static_cast<double>(delta)), layer.wv));
  });
  ASSERT_EQ(rove_mixer.out_channels(), 576);
  EXPECT_LT(distance(rove_y, rove_mixer.apply(layer.x)), bound);
  EXPECT_LT(distance(a, oracle), 1e-13);

  const MatrixXd rope_y = layer.output(rove::rope_frames(frame), a);
  const dense::Mixer rope_mixer = dense::kronecker_mixer(oracle, product(layer.wo, layer.wv));
  EXPECT_LT(distance(rope_y, rope_mixer.apply(layer.x)), bound);
  EXPECT_GT(distance(rove_y, rope_y), 1e6 * bound);
}

}  // namespace
}  // namespace rove_test

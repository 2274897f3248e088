#include "rove/dense/mixer.hpp"

#include <gtest/gtest.h>

#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "rove/dense/attention.hpp"
#include "rove/dense/convolution.hpp"
#include "rove/dense/rotation.hpp"
#include "rove/dense/structure.hpp"
#include "support/dense.hpp"
#include "support/smollm2.hpp"

namespace {

using rove::Index;
using namespace rove::dense;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using test::causal;
using test::random_matrix;

MatrixXd rotation(Index channels, Index position, double base = 100) {
  return rotation_matrix(channels, inverse_frequencies(channels, base), static_cast<double>(position),
                         Pairing::half_split);
}

/// One head of a layer on x: q, k given, v = x W_Vᵀ, the output projected by W_O.
struct Layer {
  MatrixXd x, q, k, wv, wo;
  FrameMatrix frame;

  AttentionResult run(bool turn_values) const {
    AttentionInput in{.q = q, .k = k, .v = x * wv.transpose()};
    in.visible = causal;
    in.query_frame = in.key_frame = frame;
    if (turn_values) in.value_frame = in.output_frame = frame;
    return attention(in);
  }
  MatrixXd output(bool turn_values) const { return run(turn_values).out * wo.transpose(); }
};

Layer random_layer(unsigned seed, Index tokens, Index width, Index head) {
  std::mt19937_64 engine(seed);
  return {random_matrix(engine, tokens, width), random_matrix(engine, tokens, head),
          random_matrix(engine, tokens, head),  random_matrix(engine, head, width),
          random_matrix(engine, width, head),   [head](Index t) { return rotation(head, t + 50); }};
}

Mixer rove_mixer(const Layer& layer) {
  const Index head = layer.wv.rows();
  return block_toeplitz_mixer(layer.run(true).weights, [wo = layer.wo, wv = layer.wv, head](Index delta) {
    return MatrixXd(wo * rotation(head, delta) * wv);
  });
}

Mixer rope_mixer(const Layer& layer) {
  return kronecker_mixer(layer.run(false).weights, layer.wo * layer.wv);
}

TEST(Vec, stacks_tokens) {
  const MatrixXd x{{1, 2, 3}, {4, 5, 6}};
  EXPECT_EQ(vec(x), (VectorXd{{1, 2, 3, 4, 5, 6}}));
  EXPECT_EQ(unvec(vec(x), 3), x);
  EXPECT_THROW(unvec(vec(x), 4), std::invalid_argument);
}

TEST(ShiftMatrix, marks_one_diagonal_and_all_of_them_cover) {
  EXPECT_EQ(shift_matrix(2, 3, 1), (MatrixXd{{0, 1, 0}, {0, 0, 1}}));
  EXPECT_EQ(shift_matrix(2, 3, -1), (MatrixXd{{0, 0, 0}, {1, 0, 0}}));
  MatrixXd sum = MatrixXd::Zero(4, 6);
  for (Index delta = -3; delta < 6; ++delta) sum += shift_matrix(4, 6, delta);
  EXPECT_EQ(sum, MatrixXd::Ones(4, 6));
}

TEST(KroneckerProduct, on_paper) {
  const MatrixXd a{{1, 2}};
  const MatrixXd b{{0, 3}, {4, 5}};
  EXPECT_EQ(kronecker_product(a, b), (MatrixXd{{0, 3, 0, 6}, {4, 5, 8, 10}}));
}

TEST(Mixer, block_toeplitz_on_paper) {
  const MatrixXd a{{0.5, 0.25}, {2, 4}};
  const Mixer mixer = block_toeplitz_mixer(a, [](Index delta) {
    return MatrixXd::Constant(1, 1, delta == 0 ? 1 : 10 * static_cast<double>(delta));
  });
  EXPECT_EQ(mixer.dense(), (MatrixXd{{0.5, 2.5}, {-20, 4}}));
  EXPECT_EQ(mixer.block(1, 0)(0, 0), -20);
}

TEST(Mixer, rove_attention_is_the_block_toeplitz_mixer) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    const Layer layer = random_layer(seed, 7, 5, 4);
    const Mixer mixer = rove_mixer(layer);
    const MatrixXd expected = layer.output(true);
    EXPECT_TRUE(unvec(mixer.dense() * vec(layer.x), 5).isApprox(expected, 1e-13));
    EXPECT_TRUE(mixer.apply(layer.x).isApprox(expected, 1e-13));
    EXPECT_TRUE(mixer.apply_stacked(vec(layer.x)).isApprox(vec(expected), 1e-13));
  }
}

TEST(Mixer, rope_attention_is_the_kronecker_mixer) {
  const Layer layer = random_layer(4, 8, 6, 4);
  const Mixer mixer = rope_mixer(layer);
  EXPECT_TRUE(unvec(mixer.dense() * vec(layer.x), 6).isApprox(layer.output(false), 1e-13));
  EXPECT_TRUE(mixer.apply(layer.x).isApprox(layer.output(false), 1e-13));
  EXPECT_GT((mixer.apply(layer.x) - layer.output(true)).cwiseAbs().maxCoeff(), 0.1);
}

TEST(Mixer, frames_that_are_no_group_are_the_block_mixer) {
  Layer layer = random_layer(5, 6, 5, 4);
  std::mt19937_64 engine(6);
  std::vector<MatrixXd> frames;
  for (int t = 0; t < 6; ++t) frames.push_back(MatrixXd::Identity(4, 4) + 0.3 * random_matrix(engine, 4, 4));
  layer.frame = [frames](Index t) { return frames[static_cast<std::size_t>(t)]; };
  const MatrixXd a = layer.run(true).weights;
  const Mixer mixer = block_mixer(a, [&](Index i, Index j) {
    return MatrixXd(layer.wo * layer.frame(i).inverse() * layer.frame(j) * layer.wv);
  });
  EXPECT_TRUE(mixer.apply(layer.x).isApprox(layer.output(true), 1e-12));
  EXPECT_TRUE(unvec(mixer.dense() * vec(layer.x), 5).isApprox(layer.output(true), 1e-12));
  EXPECT_GT(block_toeplitz_defect(mixer, a), 1e-3);
}

TEST(Mixer, blocks_are_those_of_the_whole) {
  const Layer layer = random_layer(7, 5, 4, 4);
  for (const Mixer& mixer : {rove_mixer(layer), rope_mixer(layer)}) {
    const MatrixXd whole = mixer.dense();
    for (Index i = 0; i < 5; ++i) {
      for (Index j = 0; j < 5; ++j)
        EXPECT_TRUE(whole.block(i * 4, j * 4, 4, 4).isApprox(mixer.block(i, j), 1e-15));
    }
  }
}

TEST(Mixer, more_keys_than_queries) {
  std::mt19937_64 engine(8);
  const MatrixXd a = random_matrix(engine, 2, 5);
  const MatrixXd x = random_matrix(engine, 5, 3);
  const Mixer mixer =
      block_toeplitz_mixer(a, [](Index delta) { return MatrixXd(rotation(4, delta).leftCols(3)); });
  EXPECT_EQ(mixer.dense().rows(), 8);
  EXPECT_EQ(mixer.dense().cols(), 15);
  EXPECT_TRUE(unvec(mixer.dense() * vec(x), 4).isApprox(mixer.apply(x), 1e-14));
}

TEST(Structure, rove_is_block_toeplitz) {
  const Layer layer = random_layer(9, 8, 6, 4);
  const Mixer mixer = rove_mixer(layer);
  const MatrixXd a = mixer.weights();
  EXPECT_TRUE(is_block_toeplitz(mixer, a, 1e-14));
  EXPECT_TRUE(is_block_toeplitz(mixer.dense(), a, 1e-14));
  // Not by the formula that built it, but by reading the operator column by column.
  MatrixXd probed(8 * 6, 8 * 6);
  for (Index column = 0; column < probed.cols(); ++column) {
    AttentionInput in{
        .q = layer.q, .k = layer.k, .v = unvec(VectorXd::Unit(8 * 6, column), 6) * layer.wv.transpose()};
    in.visible = causal;
    in.query_frame = in.key_frame = in.value_frame = in.output_frame = layer.frame;
    probed.col(column) = vec(attention(in).out * layer.wo.transpose());
  }
  EXPECT_TRUE(is_block_toeplitz(probed, a, 1e-12));
  EXPECT_TRUE(probed.isApprox(mixer.dense(), 1e-12));
}

TEST(Structure, a_moved_block_is_seen) {
  const Layer layer = random_layer(10, 6, 4, 4);
  const Mixer mixer = rove_mixer(layer);
  MatrixXd whole = mixer.dense();
  whole(2 * 4 + 1, 1 * 4 + 3) += 1e-6;
  EXPECT_FALSE(is_block_toeplitz(whole, mixer.weights(), 1e-9));
  whole = mixer.dense();
  whole(0, 4) = 1e-6;  // above the diagonal, where A is 0
  EXPECT_FALSE(is_block_toeplitz(whole, mixer.weights(), 1e-9));
}

TEST(Structure, rearranged_takes_a_kronecker_product_to_an_outer_product) {
  std::mt19937_64 engine(11);
  const MatrixXd a = random_matrix(engine, 3, 2);
  const MatrixXd b = random_matrix(engine, 2, 4);
  EXPECT_EQ(rearranged(kronecker_product(a, b), 2, 4), vec(a) * vec(b).transpose());
}

TEST(Structure, rope_is_kronecker_and_rove_is_not) {
  const Layer layer = random_layer(12, 8, 12, 6);
  EXPECT_EQ(rearranged_rank(rope_mixer(layer).dense(), 12, 12, 1e-12), 1);
  // R_δ of three pairs spans 2 · 3 matrices.
  EXPECT_EQ(rearranged_rank(rove_mixer(layer).dense(), 12, 12, 1e-10), 6);
  EXPECT_EQ(rearranged_rank(MatrixXd::Zero(4, 4), 2, 2, 1e-12), 0);
}

TEST(Structure, refuses_blocks_that_do_not_fit) {
  EXPECT_THROW(rearranged(MatrixXd::Zero(4, 4), 3, 2), std::invalid_argument);
  EXPECT_THROW(block_toeplitz_defect(MatrixXd::Zero(4, 4), MatrixXd::Zero(3, 2)), std::invalid_argument);
  const Mixer mixer = kronecker_mixer(MatrixXd::Ones(2, 2), MatrixXd::Ones(1, 1));
  EXPECT_THROW(block_toeplitz_defect(mixer, MatrixXd::Ones(2, 3)), std::invalid_argument);
}

TEST(Mixer, refuses_what_does_not_fit) {
  const auto message = [](auto&& call) {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const Mixer mixer = kronecker_mixer(MatrixXd::Ones(2, 3), MatrixXd::Ones(4, 5));
  EXPECT_EQ(message([&] { mixer.apply(MatrixXd::Ones(2, 5)); }),
            "x is 2 x 5, the mixer takes 3 tokens of 5 channels");
  EXPECT_EQ(message([] { kronecker_mixer(MatrixXd::Ones(0, 3), MatrixXd::Ones(4, 5)); }),
            "A is 0 x 3: no tokens");
  const Mixer uneven =
      block_mixer(MatrixXd::Ones(2, 2), [](Index i, Index) { return MatrixXd(MatrixXd::Ones(i + 1, 1)); });
  EXPECT_EQ(message([&] { uneven.block(1, 0); }), "psi(1, 0) is 2 x 1, psi(0, 0) is 1 x 1");
}

TEST(Convolution, on_paper) {
  // y_i = x_i + 10 · 2 x_{i-1} + 100 · 4 x_{i-2}
  const auto psi = [](Index delta) { return MatrixXd::Constant(1, 1, std::pow(2.0, -delta)); };
  const auto a = [](Index delta) { return std::pow(10.0, -static_cast<double>(delta)); };
  EXPECT_EQ(causal_convolution(MatrixXd{{1}, {2}, {3}}, psi, a), (MatrixXd{{1}, {22}, {443}}));
}

TEST(Convolution, is_the_mixer_of_a_fixed_toeplitz_a) {
  const Layer layer = random_layer(13, 9, 5, 4);
  const auto weight = [](Index delta) { return 1 / (1.5 - static_cast<double>(delta)); };
  const MatrixXd a =
      MatrixXd::NullaryExpr(9, 9, [&](Index i, Index j) { return j <= i ? weight(j - i) : 0.0; });
  const auto psi = [&](Index delta) { return MatrixXd(layer.wo * rotation(4, delta) * layer.wv); };
  const MatrixXd expected = causal_convolution(layer.x, psi, weight);
  EXPECT_TRUE(block_toeplitz_mixer(a, psi).apply(layer.x).isApprox(expected, 1e-14));
  // And RoVE itself with such an A: R_i⁻¹ Σ_j A_ij R_j v_j, projected.
  const MatrixXd v = layer.x * layer.wv.transpose();
  MatrixXd y(9, 4);
  for (Index i = 0; i < 9; ++i) {
    VectorXd sum = VectorXd::Zero(4);
    for (Index j = 0; j <= i; ++j) sum += a(i, j) * (layer.frame(j) * v.row(j).transpose());
    y.row(i) = (layer.frame(i).inverse() * sum).transpose();
  }
  EXPECT_TRUE((y * layer.wo.transpose()).isApprox(expected, 1e-13));
}

// Attention whose logits depend on the offset alone has Toeplitz weights up to each row's denominator.
TEST(Convolution, is_rove_attention_with_logits_by_offset) {
  std::mt19937_64 engine(14);
  AttentionInput in{.q = MatrixXd::Zero(8, 4), .k = MatrixXd::Zero(8, 4), .v = random_matrix(engine, 8, 4)};
  in.visible = causal;
  in.score = [](double, Index i, Index j) { return -0.3 * static_cast<double>(i - j); };
  in.value_frame = in.output_frame = [](Index t) { return rotation(4, t); };
  const AttentionResult result = attention(in);
  const MatrixXd sums = causal_convolution(
      in.v, [](Index delta) { return rotation(4, delta); },
      [](Index delta) { return std::exp(0.3 * static_cast<double>(delta)); });
  EXPECT_TRUE((result.lse.array().exp().matrix().asDiagonal() * result.out).isApprox(sums, 1e-13));
}

/// Layer 14, query head 4, KV head 1, tokens 0..23: width 576, so a block is 576 × 576.
class RealLayer : public testing::Test {
 protected:
  static Layer load() {
    const rove_test::CapturedLayer captured = rove_test::captured_layer(14);
    Layer layer;
    layer.x = rove_test::head_matrix(rove_test::smollm2_array("layer14_x"), 0);
    layer.wv = rove_test::head_matrix(rove_test::smollm2_array("layer14_wv"), 0);
    layer.wo = rove_test::head_matrix(rove_test::smollm2_array("layer14_wo"), 0);
    layer.q = rove_test::head_matrix(captured.q, 4).topRows(layer.x.rows());
    layer.k = rove_test::head_matrix(captured.k, 1).topRows(layer.x.rows());
    layer.frame = [](Index t) { return rotation(64, t, rove_test::smollm2_rope_base); };
    return layer;
  }

  /// A bound on the rounding of either way of computing W_O (Σ_j A_ij R_{j-i} (W_V x_j)) in double, whatever
  /// the order: (number of roundings) · 2⁻⁵³ · the same expression in absolute values.
  MatrixXd bound(const MatrixXd& a) const {
    const MatrixXd v = layer.x.cwiseAbs() * layer.wv.cwiseAbs().transpose();
    MatrixXd y = MatrixXd::Zero(a.rows(), 64);
    for (Index i = 0; i < a.rows(); ++i) {
      for (Index j = 0; j < a.cols(); ++j) {
        if (a(i, j) != 0)
          y.row(i) += a(i, j) * (layer.frame(j - i).cwiseAbs() * v.row(j).transpose()).transpose();
      }
    }
    // Both ways: 576 + 64 + 64 terms of the products, 24 of the sum, and R_i⁻¹ R_j for R_{j-i}: |R_i⁻¹||R_j|
    // ≤ 2.
    return 2 * 2 * (576 + 64 + 64 + 24) * 0x1p-53 * y * layer.wo.cwiseAbs().transpose();
  }

  Layer layer = load();
};

TEST_F(RealLayer, x_through_w_v_is_the_captured_v) {
  const MatrixXd v = layer.x * layer.wv.transpose();
  const MatrixXd captured = rove_test::head_matrix(rove_test::captured_layer(14).v, 1).topRows(24);
  // float32 sums of 576 products.
  const MatrixXd bound = 576 * 0x1p-24 * layer.x.cwiseAbs() * layer.wv.cwiseAbs().transpose();
  EXPECT_TRUE(((v - captured).array().abs() <= bound.array()).all());
}

TEST_F(RealLayer, rove_attention_is_the_block_toeplitz_mixer) {
  const AttentionResult result = layer.run(true);
  const Mixer mixer = block_toeplitz_mixer(result.weights, [this](Index delta) {
    return MatrixXd(layer.wo * (rotation(64, delta, rove_test::smollm2_rope_base) * layer.wv));
  });
  const MatrixXd error = mixer.apply(layer.x) - result.out * layer.wo.transpose();
  EXPECT_TRUE((error.array().abs() <= bound(result.weights).array()).all());
  EXPECT_GT(error.cwiseAbs().maxCoeff(), 0);
  // The diagonal δ = -3, block by block.
  for (Index i = 4; i < 24; i += 7) {
    const MatrixXd difference =
        mixer.block(i, i - 3) / result.weights(i, i - 3) - mixer.block(3, 0) / result.weights(3, 0);
    EXPECT_LE(difference.cwiseAbs().maxCoeff(), 1e-14);
  }
}

TEST_F(RealLayer, rope_attention_is_the_kronecker_mixer) {
  const AttentionResult result = layer.run(false);
  const Mixer mixer = kronecker_mixer(result.weights, layer.wo * layer.wv);
  const MatrixXd error = mixer.apply(layer.x) - result.out * layer.wo.transpose();
  EXPECT_TRUE((error.array().abs() <= bound(result.weights).array()).all());
  // The two differ by far more.
  EXPECT_GT((layer.output(true) - layer.output(false)).cwiseAbs().maxCoeff(), 1e-2);
}

}  // namespace

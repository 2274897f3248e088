// The oracle against captured layers of a model: the goldens of RoVE, and what the model itself computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "rove/dense/attention.hpp"
#include "rove/dense/error_bound.hpp"
#include "rove/dense/rotation.hpp"
#include "support/dense.hpp"
#include "support/smollm2.hpp"

namespace {

using rove::Index;
using namespace rove::dense;
using Eigen::MatrixXd;
using Eigen::VectorXd;
using test::causal;

/// RoPE or RoVE of one head of a captured layer.
AttentionInput captured_input(const rove_test::CapturedLayer& layer, Index head, bool turn_values) {
  AttentionInput in;
  const Index kv_head = head / (layer.heads() / layer.kv_heads());
  in.q = rove_test::head_matrix(layer.q, head);
  in.k = rove_test::head_matrix(layer.k, kv_head);
  in.v = rove_test::head_matrix(layer.v, kv_head);
  in.visible = causal;
  const auto table = std::make_shared<std::vector<MatrixXd>>();
  const VectorXd inv_freq = inverse_frequencies(64, rove_test::smollm2_rope_base);
  for (Index t = 0; t < layer.tokens(); ++t) {
    table->push_back(rotation_matrix(64, inv_freq, static_cast<double>(t), Pairing::half_split));
  }
  const FrameMatrix frame = [table](Index t) { return (*table)[static_cast<std::size_t>(t)]; };
  in.query_frame = in.key_frame = frame;
  if (turn_values) in.value_frame = in.output_frame = frame;
  return in;
}

class Captured : public testing::TestWithParam<int> {
 protected:
  rove_test::CapturedLayer layer = rove_test::captured_layer(GetParam());
};

// The goldens are the exact values rounded once to float32, so double is within half an ulp and its own
// error.
TEST_P(Captured, B13_rove_and_lse_meet_the_goldens) {
  const MatrixXd golden_lse = rove_test::head_matrix(layer.lse, 0);
  Index same_rounding = 0;
  for (Index head = 0; head < layer.heads(); ++head) {
    const AttentionResult result = attention(captured_input(layer, head, true));
    const MatrixXd golden = rove_test::head_matrix(layer.rove, head);
    const MatrixXd own = error_bound(result, Precision::float64, Storage::float64);
    const VectorXd own_lse = lse_error_bound(result, Precision::float64);
    for (Index i = 0; i < layer.tokens(); ++i) {
      ASSERT_NEAR(result.lse(i), golden_lse(head, i),
                  half_ulp(Storage::float32, golden_lse(head, i)) + own_lse(i))
          << "head " << head << " row " << i;
      for (Index c = 0; c < 64; ++c) {
        ASSERT_NEAR(result.out(i, c), golden(i, c), half_ulp(Storage::float32, golden(i, c)) + own(i, c))
            << "head " << head << " row " << i << " channel " << c;
        same_rounding += static_cast<double>(static_cast<float>(result.out(i, c))) == golden(i, c);
      }
    }
  }
  // All but the few that lie within double's error of a tie.
  EXPECT_GE(same_rounding, layer.heads() * layer.tokens() * 64 - 3);
}

// What the model computed in float32, with angles in float32.
TEST_P(Captured, rope_meets_the_model_within_its_arithmetic) {
  const VectorXd inv_freq = inverse_frequencies(64, rove_test::smollm2_rope_base);
  const VectorXd positions = VectorXd::LinSpaced(layer.tokens(), 0, static_cast<double>(layer.tokens() - 1));
  const MatrixXd phases = float32_phase_error(positions, inv_freq);
  double worst = 0;
  for (const Index head : {0, 4, 8}) {
    const AttentionInput in = captured_input(layer, head, false);
    const AttentionResult result = attention(in);
    const MatrixXd bound = error_bound(result, Precision::float32, Storage::float32) +
                           phase_error_bound(in, result, phases, phases, Pairing::half_split);
    const MatrixXd error = (rove_test::head_matrix(layer.attention, head) - result.out).cwiseAbs();
    worst = (std::max)(worst, (error.array() / bound.array()).maxCoeff());
  }
  EXPECT_LE(worst, 1);
  EXPECT_GE(worst, 0.05);  // a thing compared with itself would be far below
}

// The effect itself is many times any tolerance: one cannot be mistaken for the other.
TEST_P(Captured, rove_is_not_rope) {
  const MatrixXd difference =
      rove_test::head_matrix(layer.rove, 0) - rove_test::head_matrix(layer.attention, 0);
  EXPECT_GT(difference.cwiseAbs().maxCoeff(), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(SmolLM2, Captured, testing::Values(0, 14, 29));

}  // namespace

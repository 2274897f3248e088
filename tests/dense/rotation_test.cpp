#include "rove/dense/rotation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace {

using rove::Index;
using namespace rove::dense;
using Eigen::MatrixXd;
using Eigen::VectorXd;

TEST(DenseRotation, a_pair_turns_counterclockwise) {
  const VectorXd quarter = VectorXd::Constant(1, std::acos(0.0));
  const MatrixXd r = rotation_matrix(2, quarter, 1, Pairing::half_split);
  EXPECT_NEAR(r(0, 0), 0, 1e-15);
  EXPECT_NEAR(r(0, 1), -1, 1e-15);
  EXPECT_NEAR(r(1, 0), 1, 1e-15);
  EXPECT_NEAR(r(1, 1), 0, 1e-15);
}

TEST(DenseRotation, pairings_put_the_same_turns_elsewhere) {
  const VectorXd inv_freq = inverse_frequencies(4, 100);
  EXPECT_DOUBLE_EQ(inv_freq(0), 1);
  EXPECT_DOUBLE_EQ(inv_freq(1), 0.1);
  const double position = 123;
  const MatrixXd split = rotation_matrix(7, inv_freq, position, Pairing::half_split, 2);
  const MatrixXd adjacent = rotation_matrix(7, inv_freq, position, Pairing::interleaved, 2);
  for (Index pair = 0; pair < 2; ++pair) {
    const double c = std::cos(position * inv_freq(pair));
    const double s = std::sin(position * inv_freq(pair));
    EXPECT_DOUBLE_EQ(split(2 + pair, 2 + pair), c);
    EXPECT_DOUBLE_EQ(split(4 + pair, 4 + pair), c);
    EXPECT_DOUBLE_EQ(split(4 + pair, 2 + pair), s);
    EXPECT_DOUBLE_EQ(split(2 + pair, 4 + pair), -s);
    EXPECT_DOUBLE_EQ(adjacent(2 + 2 * pair, 2 + 2 * pair), c);
    EXPECT_DOUBLE_EQ(adjacent(3 + 2 * pair, 3 + 2 * pair), c);
    EXPECT_DOUBLE_EQ(adjacent(3 + 2 * pair, 2 + 2 * pair), s);
    EXPECT_DOUBLE_EQ(adjacent(2 + 2 * pair, 3 + 2 * pair), -s);
  }
  for (const MatrixXd& r : {split, adjacent}) {
    EXPECT_EQ((r.array() != 0).count(), 3 + 8);  // channels 0, 1 and 6 pass
    for (const Index c : {0, 1, 6}) EXPECT_EQ(r(c, c), 1);
  }
}

TEST(DenseRotation, is_a_one_parameter_group_of_orthogonal_matrices) {
  const VectorXd inv_freq = inverse_frequencies(6, 10000);
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const auto r = [&](double p) { return rotation_matrix(8, inv_freq, p, pairing, 1); };
    EXPECT_TRUE((r(-3) * r(10.5)).isApprox(r(7.5), 1e-14));
    EXPECT_TRUE((r(5).transpose() * r(5)).isApprox(MatrixXd::Identity(8, 8), 1e-14));
    EXPECT_TRUE(r(0).isIdentity(0));
  }
}

TEST(DenseRotation, refuses_what_does_not_fit) {
  const auto message = [](auto&& call) {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(message([] { rotation_matrix(5, VectorXd::Ones(2), 1, Pairing::half_split, 2); }),
            "rotary channels 2..6 do not fit into 5 channels");
  EXPECT_EQ(message([] { inverse_frequencies(33, 10000); }), "rotary_dim 33 is not even");
}

}  // namespace

// What rows pass through on their way into and out of a kernel, and their gradients on the way back.
#include "rove/op/frame_transforms.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rove/attention/problem.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/frame/adaptors.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/op/frames.hpp"
#include "rove/op/weights.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"
#include "support/frames.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::Index;
using rove::KeyFactor;
using rove::Pairing;
using Row = std::vector<double>;

// Rows of 14 channels, of which 3 … 10 turn.
constexpr Index width = 14, first_channel = 3, rotary_dim = 8, first_position = 100;

rove::RotaryFrequencies yarn_frequencies() {
  return rove::rotary_frequencies(
      {.rotary_dim = rotary_dim,
       .rope_theta = 10000,
       .scaling = rove::Yarn{.factor = 4, .original_max_position_embeddings = 64}});
}

/// YaRN's attention factor for a factor of 4, 0.1 ln 4 + 1 (arXiv 2309.00071, equation 15, is its square).
const double m = 0.1 * std::log(4.0) + 1;

using YarnFrame = rove::RotaryFrame<rove::RotationTable<double>>;

/// Token t at position 100 + first + t.
YarnFrame yarn_frame(Pairing pairing, Index tokens, Index first = 0) {
  return YarnFrame(rove::RotationTable<double>(yarn_frequencies(),
                                               rove::consecutive_positions(tokens, first_position + first)),
                   pairing, first_channel);
}

/// The rotary channels turned by `sign` times the token's angles and multiplied by `factor`, the rest as they
/// are: cos and sin by hand.
Row turned(Row row, Pairing pairing, Index t, double sign, double factor) {
  const std::vector<double> inv_freq = yarn_frequencies().inv_freq;
  for (std::size_t pair = 0; pair < rotary_dim / 2; ++pair) {
    const bool halves = pairing == Pairing::half_split;
    const std::size_t a = first_channel + (halves ? pair : 2 * pair);
    const std::size_t b = halves ? a + rotary_dim / 2 : a + 1;
    const double angle = sign * static_cast<double>(first_position + t) * inv_freq[pair];
    const double x = row[a], y = row[b];
    row[a] = factor * (x * std::cos(angle) - y * std::sin(angle));
    row[b] = factor * (x * std::sin(angle) + y * std::cos(angle));
  }
  return row;
}

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

template <class Transform>
Row forward(const Transform& transform, Index t, Row row) {
  transform.forward(0, t, std::span<double>(row));
  return row;
}

template <class Transform>
Row adjoint(const Transform& transform, Index t, Row row) {
  transform.adjoint(0, t, std::span<double>(row));
  return row;
}

// Numbers of size 1 through a rotation and a factor of 1.3, of 14 channels.
constexpr double tolerance = 64 * 0x1p-53;

void expect_rows_near(const Row& is, const Row& should, const std::string& what) {
  for (std::size_t c = 0; c < is.size(); ++c)
    EXPECT_NEAR(is[c], should[c], 4 * tolerance) << what << ' ' << c;
}

/// ⟨g, M x⟩ = ⟨Mᵀ g, x⟩ for the transform of every role.
template <class Transforms>
void expect_adjoint(const Transforms& transforms, Index tokens) {
  const auto expect = [tokens](const auto& transform, const char* role) {
    for (Index t = 0; t < tokens; ++t) {
      const auto seed = static_cast<unsigned>(10 * t);
      const Row x = normal_numbers<double>(width, seed + 1), g = normal_numbers<double>(width, seed + 2);
      const Row mx = forward(transform, t, x), mg = adjoint(transform, t, g);
      EXPECT_NEAR(dot(g, mx), dot(mg, x), tolerance * std::sqrt(dot(g, g) * dot(mx, mx)))
          << role << ", token " << t;
    }
  };
  expect(transforms.query, "query");
  expect(transforms.key, "key");
  expect(transforms.value, "value");
  expect(transforms.output, "output");
}

/// m to the `power` on the turned channels of queries and of their gradients, and on no other row.
template <class Frames>
void expect_yarn(const Frames& frames, Pairing pairing, double power, bool values_turn, const char* form) {
  SCOPED_TRACE(std::string(form) + (pairing == Pairing::half_split ? ", half split" : ", interleaved"));
  const auto transforms = rove::detail::frame_transforms(frames);
  const double factor = std::pow(m, power);
  for (Index t = 0; t < 5; ++t) {
    const Row x = normal_numbers<double>(width, static_cast<unsigned>(t) + 50);
    const Row there = turned(x, pairing, t, 1, 1), back = turned(x, pairing, t, -1, 1);
    expect_rows_near(forward(transforms.query, t, x), turned(x, pairing, t, 1, factor), "query");
    expect_rows_near(adjoint(transforms.query, t, x), turned(x, pairing, t, -1, factor), "dQ");
    expect_rows_near(forward(transforms.key, t, x), there, "key");
    expect_rows_near(adjoint(transforms.key, t, x), back, "dK");
    expect_rows_near(forward(transforms.value, t, x), values_turn ? there : x, "value");
    expect_rows_near(adjoint(transforms.value, t, x), values_turn ? back : x, "dV");
    expect_rows_near(forward(transforms.output, t, x), values_turn ? back : x, "output");
    expect_rows_near(adjoint(transforms.output, t, x), values_turn ? there : x, "dO");
  }
  expect_adjoint(transforms, 5);
}

TEST(FrameTransforms, N05_yarns_factor_is_on_the_gradients_of_queries_too) {
  EXPECT_DOUBLE_EQ(yarn_frequencies().attention_factor, m);
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const YarnFrame frame = yarn_frame(pairing, 5);
    for (const auto& [keys, power] : {std::pair(KeyFactor::in_queries, 2.0),  //
                                      std::pair(KeyFactor::already_in_keys, 1.0)}) {
      expect_yarn(rove::rope_frames(frame, keys), pairing, power, false, "rope, one frame");
      expect_yarn(rove::rope_frames(frame, frame, keys), pairing, power, false, "rope, two frames");
      expect_yarn(rove::rove_frames(frame, keys), pairing, power, true, "rove, one frame");
      expect_yarn(rove::rove_frames(frame, frame, keys), pairing, power, true, "rove, two frames");
      expect_yarn(rove::rove_frames(frame, frame, frame, keys), pairing, power, true, "rove, three frames");
      expect_yarn(rove::rove_frames(frame, frame, frame, frame, keys), pairing, power, true,
                  "rove, four frames");
    }
    // Through an adaptor: the last rows of a longer frame.
    expect_yarn(rove::rove_frames(rove::rows(yarn_frame(pairing, 9, -4), 4, 5)), pairing, 2, true, "rows");
  }
}

TEST(FrameTransforms, N05_yarns_factor_is_on_the_gradients_of_tokens_that_turn_backwards) {
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const auto frames = rove::rove_frames(rove::inverse_frame(yarn_frame(pairing, 5)));
    const auto transforms = rove::detail::frame_transforms(frames);
    for (Index t = 0; t < 5; ++t) {
      const Row x = normal_numbers<double>(width, static_cast<unsigned>(t) + 70);
      expect_rows_near(forward(transforms.query, t, x), turned(x, pairing, t, -1, m * m), "query");
      expect_rows_near(adjoint(transforms.query, t, x), turned(x, pairing, t, 1, m * m), "dQ");
      expect_rows_near(adjoint(transforms.key, t, x), turned(x, pairing, t, 1, 1), "dK");
    }
    expect_adjoint(transforms, 5);
  }
}

// The gradient of a logit as a backward pass will have it, dq = scale · Mᵀ k', against differences of the
// logits that the operator's own weights show. A logit is linear in q, so the differences are exact but for
// rounding, whatever their width.
TEST(FrameTransforms, N05_the_gradient_of_a_logit_is_the_slope_of_the_operators_logits) {
  constexpr Index q_len = 2, kv_len = 4;
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const auto frames = rove::rove_frames(yarn_frame(pairing, q_len, 2), yarn_frame(pairing, kv_len));
    const auto transforms = rove::detail::frame_transforms(frames);
    Operands<double> x(1, 1, 1, q_len, kv_len, width, width, 3);
    std::fill_n(x.k.begin(), width, 0.0);  // key 0: its logit is 0 for every query
    const auto problem = x.problem();
    /// s_ij = ln A_ij − ln A_i0.
    const auto logit = [&](Index i, Index j) {
      std::vector<double> weights(q_len * kv_len);
      rove::attention_weights(problem, frames, rove::bhtd(weights.data(), 1, 1, q_len, kv_len));
      const auto row = static_cast<std::size_t>(i * kv_len);
      return std::log(weights[row + static_cast<std::size_t>(j)] / weights[row]);
    };
    for (Index i = 0; i < q_len; ++i) {
      for (Index j = 1; j < kv_len; ++j) {
        const auto key = x.k.begin() + j * width;
        const Row turned_key = forward(transforms.key, j, Row(key, key + width));
        const Row gradient = adjoint(transforms.query, i, turned_key);
        // By hand: the key at its own angle, then back by the query's, m² where they turn.
        const Row by_hand =
            turned(turned(Row(key, key + width), pairing, j, 1, 1), pairing, 2 + i, -1, m * m);
        for (std::size_t c = 0; c < width; ++c) {
          double& q = x.q[static_cast<std::size_t>(i * width) + c];
          const double before = q, h = 0.5;
          q = before + h;
          const double above = logit(i, j);
          q = before - h;
          const double below = logit(i, j);
          q = before;
          const double slope = (above - below) / (2 * h), scale = 1 / std::sqrt(static_cast<double>(width));
          EXPECT_NEAR(scale * gradient[c], slope, 1e-13) << i << ", " << j << ", channel " << c;
          EXPECT_NEAR(scale * by_hand[c], slope, 1e-13) << i << ", " << j << ", channel " << c;
        }
      }
    }
  }
}

// Frames that are no rotations, where the adjoint of R⁻ᵀ is neither R nor Rᵀ.
TEST(FrameTransforms, adjoints_are_transposes_for_any_frame) {
  std::vector<Eigen::MatrixXd> matrices;
  for (std::uint32_t t = 0; t < 4; ++t) matrices.push_back(random_frame_matrix(width, t));
  const MatrixFrame<> frame(std::move(matrices));
  expect_adjoint(rove::detail::frame_transforms(rove::rove_frames(frame)), 4);
  expect_adjoint(rove::detail::frame_transforms(rove::rove_frames(
                     rove::left_factor(MatrixFrame<>({random_frame_matrix(width, 9)}), frame))),
                 4);
}

}  // namespace
}  // namespace rove_test

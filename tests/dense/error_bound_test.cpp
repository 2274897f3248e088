#include "rove/dense/error_bound.hpp"

#include <gtest/gtest.h>

#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "rove/dense/attention.hpp"
#include "rove/dense/rotation.hpp"
#include "support/smollm2.hpp"

namespace {

using rove::Index;
using namespace rove::dense;
using Eigen::MatrixXd;
using Eigen::MatrixXf;
using Eigen::VectorXd;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(HalfUlp, of_each_type) {
  EXPECT_EQ(half_ulp(Storage::float64, 1), 0x1p-53);
  EXPECT_EQ(half_ulp(Storage::float32, -1), 0x1p-24);
  EXPECT_EQ(half_ulp(Storage::bfloat16, 1.5), 0x1p-8);
  EXPECT_EQ(half_ulp(Storage::float16, 3), 0x1p-10);
  EXPECT_EQ(half_ulp(Storage::float32, std::nextafter(2.0, 0.0)), 0x1p-24);
  EXPECT_EQ(half_ulp(Storage::float32, 2), 0x1p-23);
}

TEST(HalfUlp, of_subnormals_and_zero) {
  EXPECT_EQ(half_ulp(Storage::float16, 0), 0x1p-25);
  EXPECT_EQ(half_ulp(Storage::float16, 0x1p-14), 0x1p-25);
  EXPECT_EQ(half_ulp(Storage::float16, 0x1p-20), 0x1p-25);
  EXPECT_EQ(half_ulp(Storage::float32, 0x1p-140), 0x1p-150);
  EXPECT_EQ(half_ulp(Storage::bfloat16, 0x1p-130), 0x1p-134);
  EXPECT_EQ(half_ulp(Storage::float64, 0x1p-1022), 0x1p-1074);  // half of it is no double
}

TEST(HalfUlp, where_rounding_overflows) {
  EXPECT_EQ(half_ulp(Storage::float16, 65504), 16);
  EXPECT_EQ(half_ulp(Storage::float16, 65519.999), 16);
  EXPECT_EQ(half_ulp(Storage::float16, 65520), infinity);
  EXPECT_EQ(half_ulp(Storage::float32, 0x1.fffffep127), 0x1p103);
  EXPECT_EQ(half_ulp(Storage::float32, 0x1p128), infinity);
  EXPECT_EQ(half_ulp(Storage::bfloat16, infinity), infinity);
  EXPECT_TRUE(std::isnan(half_ulp(Storage::float32, nan)));
}

/// One key of logit 0 and value 1: every size is 1, L is 0.
AttentionInput one_key() {
  AttentionInput in;
  in.q = MatrixXd::Zero(1, 1);
  in.k = MatrixXd::Zero(1, 1);
  in.v = MatrixXd::Ones(1, 1);
  return in;
}

TEST(ErrorBound, is_the_formula) {
  AttentionInput in = one_key();
  // 3 ε (1 + 0 + √1 + √1) + half an ulp at 1 and a little.
  EXPECT_EQ(error_bound(attention(in), Precision::float32, Storage::float32)(0, 0), 9 * 0x1p-24 + 0x1p-24);
  EXPECT_EQ(error_bound(attention(in), Precision::float32, Storage::bfloat16)(0, 0), 9 * 0x1p-24 + 0x1p-8);
  EXPECT_EQ(error_bound(attention(in), Precision::float64, Storage::float32, 2)(0, 0), 6 * 0x1p-53 + 0x1p-24);
  EXPECT_EQ(lse_error_bound(attention(in), Precision::float32)(0),
            9 * 0x1p-24 + half_ulp(Storage::float32, 9 * 0x1p-24));
  in.q(0, 0) = 3;
  in.k(0, 0) = -4;
  in.scale = -0.5;
  in.score = [](double s, Index, Index) { return s - 2; };  // L = 0.5 · 12 + 2, over one channel
  EXPECT_DOUBLE_EQ(error_bound(attention(in), Precision::float32, Storage::float32)(0, 0),
                   3 * 0x1p-24 * (1 + 8 * 1.125 + 2) + 0x1p-24);
  // The same logit over 64 channels, 64 products of 1/64 each: √64 / 8 = 1.
  in.q = MatrixXd::Constant(1, 64, 3.0 / 8);
  in.k = MatrixXd::Constant(1, 64, -4.0 / 8);
  EXPECT_DOUBLE_EQ(lse_error_bound(attention(in), Precision::float32)(0),
                   3 * 0x1p-24 * (1 + 8 * 2 + 2) + half_ulp(Storage::float32, 4.0));
}

TEST(ErrorBound, counts_the_keys_that_are_seen) {
  AttentionInput in = one_key();
  in.k = MatrixXd::Zero(600, 1);
  in.v = MatrixXd::Ones(600, 1);
  const auto bound = [&] { return error_bound(attention(in), Precision::float32, Storage::float32)(0, 0); };
  EXPECT_NEAR(bound(), 3 * 0x1p-24 * (1 + 16 + std::sqrt(3.0)) + 0x1p-24, 1e-12);
  in.visible = [](Index, Index j) { return j < 9; };
  EXPECT_NEAR(bound(), 3 * 0x1p-24 * (1 + 3 + 1) + 0x1p-24, 1e-12);
}

TEST(ErrorBound, empty_rows_have_none_and_nan_rows_nan) {
  AttentionInput in = one_key();
  in.visible = [](Index, Index) { return false; };
  EXPECT_EQ(error_bound(attention(in), Precision::float32, Storage::float16)(0, 0), 0);
  EXPECT_EQ(lse_error_bound(attention(in), Precision::float32)(0), 0);
  in.sink = 1;
  EXPECT_LE(lse_error_bound(attention(in), Precision::float32)(0), 4 * 0x1p-24);
  in = one_key();
  in.q(0, 0) = nan;
  EXPECT_TRUE(std::isnan(error_bound(attention(in), Precision::float32, Storage::float32)(0, 0)));
  EXPECT_TRUE(std::isnan(lse_error_bound(attention(in), Precision::float32)(0)));
}

TEST(ErrorBound, keys_that_a_large_bias_hides_do_not_widen_it) {
  AttentionInput in = one_key();
  in.k = MatrixXd::Zero(2, 1);
  in.v = MatrixXd{{1}, {1e6}};
  in.score = [](double s, Index, Index j) { return j == 1 ? s - 1e4 : s; };
  const AttentionResult hidden = attention(in);
  EXPECT_EQ(hidden.logit_size(0), 0);
  EXPECT_EQ(hidden.tail(0, 0), 1e6);
  // So large a bias has a float error of more than the distance: it might not hide the key.
  in.score = [](double s, Index, Index j) { return j == 1 ? s - 1e8 : s; };
  EXPECT_EQ(attention(in).logit_size(0), 1e8);
}

TEST(ErrorBound, keys_far_below_the_sink_are_a_tail_too) {
  AttentionInput in = one_key();
  in.sink = 70;
  const AttentionResult drowned = attention(in);
  EXPECT_EQ(drowned.tail(0, 0), in.v(0, 0));
  EXPECT_EQ(drowned.logit_size(0), 70);
  EXPECT_LE(drowned.out(0, 0), error_bound(drowned, Precision::float32, Storage::float32)(0, 0));
}

// A key that is far below but may have been lifted back by the rounding of its huge logit: it is a tail, for
// an implementation may drop it, and its logit counts, for another one may not.
TEST(ErrorBound, a_key_far_below_with_a_huge_logit_may_be_dropped_and_may_be_lifted) {
  AttentionInput in = one_key();
  in.q(0, 0) = 1e4;
  in.k = MatrixXd{{0}, {1e4}};
  in.v = MatrixXd{{1}, {1e30}};
  const double added = -1e8 - 59.4;
  in.score = [added](double s, Index, Index j) { return j == 1 ? s + added : s; };
  const AttentionResult result = attention(in);
  EXPECT_NEAR(result.lse(0), 0, 1e-15);
  EXPECT_EQ(result.tail(0, 0), 1e30);
  EXPECT_EQ(result.logit_size(0), 1e8 - added);
  // Dropped, by an implementation whose logits are exact enough to see where the key lies.
  EXPECT_LE(std::abs(1 - result.out(0, 0)), error_bound(result, Precision::float64, Storage::float64)(0, 0));
  // Lifted from −59.4 to −56, by one in float.
  const float lifted = 1e8F + static_cast<float>(added);
  EXPECT_EQ(lifted, -56);
  const double out = 1 + std::exp(static_cast<double>(lifted)) * 1e30;
  EXPECT_LE(std::abs(out - result.out(0, 0)),
            error_bound(result, Precision::float32, Storage::float32)(0, 0));
}

TEST(ErrorBound, a_sink_counts_as_a_logit_where_it_carries_weight) {
  AttentionInput in = one_key();
  in.sink = -30;
  EXPECT_EQ(attention(in).logit_size(0), 30);
  in.sink = -1000;
  EXPECT_EQ(attention(in).logit_size(0), 0);
}

/// Attention in plain float, as one would write it: tables rounded from double, rows turned, one pass for the
/// maximum, one for the sums, in blocks of 256 keys, 1/l, and back.
struct PlainFloat {
  MatrixXf out;
  Eigen::VectorXf lse;
};

MatrixXf turned_in_float(const MatrixXd& rows, const FrameMatrix& frame, bool inverse_transposed) {
  MatrixXf result = rows.cast<float>();
  if (!frame) return result;
  for (Index t = 0; t < rows.rows(); ++t) {
    const MatrixXd exact = inverse_transposed ? MatrixXd(frame(t).inverse().transpose()) : frame(t);
    const MatrixXf r = exact.cast<float>();
    const Eigen::RowVectorXf row = result.row(t);
    for (Index a = 0; a < row.size(); ++a) {
      float sum = 0;
      for (Index b = 0; b < row.size(); ++b) sum += r(a, b) * row(b);
      result(t, a) = sum;
    }
  }
  return result;
}

PlainFloat plain_float(const AttentionInput& in) {
  const MatrixXf q = turned_in_float(in.q, in.query_frame, true);
  const MatrixXf k = turned_in_float(in.k, in.key_frame, false);
  const MatrixXf v = turned_in_float(in.v, in.value_frame, false);
  const auto scale =
      static_cast<float>(in.scale ? *in.scale : 1 / std::sqrt(static_cast<double>(in.q.cols())));
  PlainFloat result{MatrixXf::Zero(q.rows(), v.cols()), Eigen::VectorXf(q.rows())};
  for (Index i = 0; i < q.rows(); ++i) {
    std::vector<Index> keys;
    std::vector<float> logits;
    float largest = in.sink ? static_cast<float>(*in.sink) : -std::numeric_limits<float>::infinity();
    for (Index j = 0; j < k.rows(); ++j) {
      if (in.visible && !in.visible(i, j)) continue;
      float s = 0;
      for (Index c = 0; c < q.cols(); ++c) s += q(i, c) * k(j, c);
      s *= scale;
      if (in.score) s = static_cast<float>(in.score(s, i, j));
      keys.push_back(j);
      logits.push_back(s);
      largest = (std::max)(largest, s);
    }
    float denominator = in.sink ? std::exp(static_cast<float>(*in.sink) - largest) : 0;
    Eigen::RowVectorXf sum = Eigen::RowVectorXf::Zero(v.cols());
    for (std::size_t first = 0; first < keys.size(); first += 256) {
      float block_weight = 0;
      Eigen::RowVectorXf block = Eigen::RowVectorXf::Zero(v.cols());
      for (std::size_t n = first; n < (std::min)(keys.size(), first + 256); ++n) {
        const float p = std::exp(logits[n] - largest);
        block_weight += p;
        for (Index c = 0; c < v.cols(); ++c) block(c) += p * v(keys[n], c);
      }
      denominator += block_weight;
      sum += block;
    }
    result.lse(i) = largest + std::log(denominator);
    sum *= 1 / denominator;
    if (in.output_frame) {
      const MatrixXf back = in.output_frame(i).inverse().cast<float>();
      sum = (back * sum.transpose()).transpose().eval();
    }
    result.out.row(i) = sum;
  }
  return result;
}

/// The largest error over its bound, of out and of the LSE.
struct Ratio {
  double out = 0, lse = 0;
};

Ratio ratio_of(const AttentionInput& in, double c = 3) {
  const AttentionResult exact = attention(in);
  const PlainFloat plain = plain_float(in);
  const MatrixXd bound = error_bound(exact, Precision::float32, Storage::float32, c);
  const VectorXd lse_bound = lse_error_bound(exact, Precision::float32, c);
  Ratio ratio;
  ratio.out = ((plain.out.cast<double>() - exact.out).array().abs() / bound.array()).maxCoeff();
  ratio.lse = ((plain.lse.cast<double>() - exact.lse).array().abs() / lse_bound.array()).maxCoeff();
  return ratio;
}

FrameMatrix rotary(Index channels, Pairing pairing, double first, double base = 10000) {
  return [=](Index t) {
    return rotation_matrix(channels, inverse_frequencies(channels, base), first + static_cast<double>(t),
                           pairing);
  };
}

// A shear a token, no rotation: R⁻ᵀ differs from R.
FrameMatrix shear(Index channels) {
  return [=](Index t) {
    MatrixXd r = MatrixXd::Identity(channels, channels);
    for (Index c = 0; c + 1 < channels; c += 2) r(c, c + 1) = std::sin(static_cast<double>(t + c));
    return r;
  };
}

TEST(ErrorBound, holds_for_plain_float_on_a_random_suite_and_is_not_wide) {
  std::mt19937_64 engine(20260611);
  std::normal_distribution<float> normal;
  const auto random = [&](Index rows, Index cols, double size) {
    return MatrixXd(MatrixXd::NullaryExpr(
        rows, cols, [&] { return static_cast<double>(normal(engine) * static_cast<float>(size)); }));
  };
  Ratio largest;
  double smallest = infinity;
  for (int round = 0; round < 48; ++round) {
    SCOPED_TRACE(round);
    const Index n = std::vector<Index>{1, 2, 7, 33, 100, 300}[static_cast<std::size_t>(round % 6)];
    const Index d = round % 4 == 0 ? 64 : 16;
    AttentionInput in;
    in.q = random(3, d, round % 5 == 0 ? 4 : 1);
    in.k = random(n, d, 1);
    in.v = random(n, d, round % 7 == 0 ? 100 : 1);
    if (round % 8 < 6) {
      const FrameMatrix frame =
          round % 8 == 5 ? shear(d) : rotary(d, round % 2 ? Pairing::interleaved : Pairing::half_split, 1000);
      in.query_frame = in.key_frame = in.value_frame = in.output_frame = frame;
    }
    if (round % 3 == 1) in.sink = normal(engine);
    if (round % 4 == 1) in.score = [](double s, Index, Index) { return 5 * std::tanh(s / 5); };
    if (round % 4 == 2)
      in.score = [](double s, Index i, Index j) { return s - 0.25 * std::abs(static_cast<double>(i - j)); };
    if (round % 4 == 3) in.score = [](double s, Index, Index j) { return j % 3 == 1 ? s - 1e4 : s; };
    const Ratio ratio = ratio_of(in);
    EXPECT_LE(ratio.out, 1);
    EXPECT_LE(ratio.lse, 1);
    largest.out = (std::max)(largest.out, ratio.out);
    largest.lse = (std::max)(largest.lse, ratio.lse);
    if (n > 2) smallest = (std::min)(smallest, ratio.out);  // one key alone may be exact
  }
  EXPECT_GE(largest.out, 0.15);
  EXPECT_GE(largest.lse, 0.15);
  EXPECT_GE(smallest, 0.01);
}

TEST(ErrorBound, holds_for_plain_float_on_captured_layers) {
  for (const int number : {0, 14, 29}) {
    SCOPED_TRACE(number);
    const rove_test::CapturedLayer layer = rove_test::captured_layer(number);
    Ratio largest;
    for (const Index head : {0, 4, 8}) {
      AttentionInput in;
      in.q = rove_test::head_matrix(layer.q, head);
      in.k = rove_test::head_matrix(layer.k, head / 3);
      in.v = rove_test::head_matrix(layer.v, head / 3);
      in.visible = [](Index i, Index j) { return j <= i; };
      in.query_frame = in.key_frame = in.value_frame = in.output_frame =
          rotary(64, Pairing::half_split, 0, rove_test::smollm2_rope_base);
      const Ratio ratio = ratio_of(in);
      largest.out = (std::max)(largest.out, ratio.out);
      largest.lse = (std::max)(largest.lse, ratio.lse);
    }
    EXPECT_LE(largest.out, 1);
    EXPECT_LE(largest.lse, 1);
    EXPECT_GE(largest.out, 0.1);
  }
}

// What the bound is for: a fault that is small by eye lies outside of it.
TEST(ErrorBound, excludes_a_small_fault) {
  std::mt19937_64 engine(5);
  std::normal_distribution<double> normal;
  const auto random = [&] { return MatrixXd(MatrixXd::NullaryExpr(20, 8, [&] { return normal(engine); })); };
  AttentionInput in{.q = random(), .k = random(), .v = random()};
  in.query_frame = in.key_frame = in.value_frame = in.output_frame = rotary(8, Pairing::half_split, 100);
  const AttentionResult right = attention(in);
  const MatrixXd bound = error_bound(right, Precision::float32, Storage::float32);
  in.value_frame = in.output_frame = rotary(8, Pairing::half_split, 100, 10010);  // theta off by a thousandth
  EXPECT_GT(((attention(in).out - right.out).array().abs() / bound.array()).maxCoeff(), 10);
}

}  // namespace

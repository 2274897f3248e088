// The operators: frames of every form, factors that come with a table, values in a frame of their own.
#include "rove/op/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "support/judge.hpp"
#include "support/rotary.hpp"

namespace rove_test {
namespace {

using rove::bhtd;
using rove::causal;
using rove::consecutive_positions;
using rove::Index;
using rove::KeyFactor;
using rove::Pairing;

// ---- Values in a frame of their own -------------------------------------------------------------

// Multi-head latent attention: 192 channels of keys, of which the last 64 turn, and values of 128.
TEST(Attention, values_of_another_width_pairing_and_frequencies) {
  Operands<float> x(1, 2, 1, 11, 11, 192, 128, 1);
  const Kind keys{.rotary_dim = 64, .pairing = Pairing::interleaved, .theta = 10000, .first_channel = 128};
  const Kind values{.rotary_dim = 96, .pairing = Pairing::half_split, .theta = 500, .first_channel = 16};
  const auto at = consecutive_positions(11, 100);
  const auto problem = x.problem().with_mask(causal());
  rove::attention(problem, rove::rove_frames(rotary(keys, at), rotary(keys, at), rotary(values, at)));
  const auto k = matrix(keys, 192, {100}), v = matrix(values, 128, {100});
  judge(problem, {.query = k, .key = k, .value = v, .output = v});
}

// Files that permute the rows of W_Q and W_K to interleaved pairs leave those of W_V alone.
TEST(Attention, N04_interleaved_keys_with_half_split_values) {
  Operands<float> x(1, 2, 2, 9, 9, 16, 16, 2);
  const Kind interleaved{.pairing = Pairing::interleaved}, half{};
  const auto at = consecutive_positions(9, 100);
  // The same model twice: as published, half-split throughout …
  const auto published = x.problem().with_mask(causal());
  rove::rove_attention(published, rotary(half, at));
  const std::vector<float> expected = x.out;
  // … and as in the file, channel i of a half going to 2i, of the other to 2i + 1.
  Operands<float> y = x;
  const auto permute = [](const std::vector<float>& from, std::vector<float>& to) {
    for (std::size_t row = 0; row < from.size() / 16; ++row) {
      for (std::size_t i = 0; i < 8; ++i) {
        to[row * 16 + 2 * i] = from[row * 16 + i];
        to[row * 16 + 2 * i + 1] = from[row * 16 + 8 + i];
      }
    }
  };
  permute(x.q, y.q);
  permute(x.k, y.k);
  const auto file = y.problem().with_mask(causal());
  rove::attention(file,
                  rove::rove_frames(rotary(interleaved, at), rotary(interleaved, at), rotary(half, at)));
  const auto k = matrix(interleaved, 16, {100}), v = matrix(half, 16, {100});
  judge(file, {.query = k, .key = k, .value = v, .output = v});
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(y.out[i], expected[i], 1e-5);
  // One frame for all of them is another function altogether.
  rove::rove_attention(file, rotary(interleaved, at));
  double error = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(y.out[i] - expected[i]), 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  EXPECT_GT(std::sqrt(error / size), 0.3);
}

TEST(Attention, values_with_an_offset_and_output_frames_apart) {
  Operands<float> x(1, 2, 1, 4, 9, 16, 12, 3);
  const Kind keys{},
      values{.rotary_dim = 6, .pairing = Pairing::interleaved, .theta = 30, .first_channel = 5};
  const auto at_queries = consecutive_positions(4, 105), at_keys = consecutive_positions(9, 100);
  const auto problem = x.problem().with_mask(causal()).with_query_offset(rove::align_last());
  rove::attention(problem, rove::rove_frames(rotary(keys, at_queries), rotary(keys, at_keys),
                                             rotary(values, at_keys), rotary(values, at_queries)));
  judge(problem, {.query = matrix(keys, 16, {105}),
                  .key = matrix(keys, 16, {100}),
                  .value = matrix(values, 12, {100}),
                  .output = matrix(values, 12, {105})});
  // Values alone turn: queries and keys came turned already.
  using rove::IdentityFrame;
  rove::attention(problem, rove::rove_frames(IdentityFrame{}, IdentityFrame{}, rotary(values, at_keys),
                                             rotary(values, at_queries)));
  judge(problem,
        {.query = {}, .key = {}, .value = matrix(values, 12, {100}), .output = matrix(values, 12, {105})});
}

// ---- Batches ------------------------------------------------------------------------------------

TEST(Attention, B20_left_padding_is_the_unpadded_result_within_the_bound) {
  // Row 0 has 10 tokens, row 1 five behind 5 of padding: positions −5 … 4, and indices to match.
  Operands<float> padded(2, 2, 1, 10, 10, 16, 16, 4);
  const std::vector<Index> first = {0, -5};
  const Kind kind{};
  const auto frame = rotary(kind, consecutive_positions(10, first));
  const auto moved = rove::displaced(padded.problem().kv, rove::IntegerSpan(first));
  const auto not_padding = rove::mask([](const rove::Site& site) { return site.key >= 0; });
  const auto problem =
      padded.problem().with_key_values(moved).with_query_offsets(first).with_mask(causal()).and_mask(
          not_padding);
  rove::rove_attention(problem, frame);
  judge(problem, {.query = matrix(kind, 16, first),
                  .key = matrix(kind, 16, first),
                  .value = matrix(kind, 16, first),
                  .output = matrix(kind, 16, first)});
  // Row 1 alone, without padding.
  Operands<float> alone(1, 2, 1, 5, 5, 16, 16, 5);
  for (Index h = 0; h < 2; ++h) {
    for (Index t = 0; t < 5; ++t) {
      for (Index c = 0; c < 16; ++c) {
        alone.q[static_cast<std::size_t>((h * 5 + t) * 16 + c)] = padded.problem().q(1, h, t + 5, c);
        if (h > 0) continue;
        alone.k[static_cast<std::size_t>(t * 16 + c)] = padded.problem().kv.k(1, 0, t + 5, c);
        alone.v[static_cast<std::size_t>(t * 16 + c)] = padded.problem().kv.v(1, 0, t + 5, c);
      }
    }
  }
  const auto unpadded = alone.problem().with_mask(causal());
  rove::rove_attention(unpadded, rotary(kind, consecutive_positions(5)));
  const auto r = matrix(kind, 16, {0});
  judge(unpadded, {.query = r, .key = r, .value = r, .output = r});
  for (Index h = 0; h < 2; ++h) {
    const auto bound = rove::dense::error_bound(
        rove::dense::attention(dense_input(unpadded, 0, h, {.query = r, .key = r, .value = r, .output = r})),
        rove::dense::Precision::float32, rove::dense::Storage::float32);
    for (Index t = 0; t < 5; ++t) {
      for (Index c = 0; c < 16; ++c) {
        EXPECT_NEAR(problem.out(1, h, t + 5, c), unpadded.out(0, h, t, c), 2 * bound(t, c));
      }
    }
    // Padding queries see nothing.
    for (Index c = 0; c < 16; ++c) EXPECT_EQ(problem.out(1, h, 2, c), 0.0F);
  }
}

TEST(Attention, frames_per_batch_row_beside_shared_ones) {
  Operands<float> x(3, 2, 2, 6, 6, 16, 16, 6);
  const std::vector<Index> own = {100, 7, 50};
  const Kind kind{};
  const auto shared = rotary(kind, consecutive_positions(6, 100)),
             per_row = rotary(kind, consecutive_positions(6, own));
  const auto problem = x.problem().with_mask(causal());
  rove::attention(problem, rove::rove_frames(per_row, shared));
  judge(problem, {.query = matrix(kind, 16, own),
                  .key = matrix(kind, 16, {100}),
                  .value = matrix(kind, 16, {100}),
                  .output = matrix(kind, 16, own)});
}

// ---- Factors ------------------------------------------------------------------------------------

// YaRN's m on 8 of 16 channels: m² on that part of the logits, values pure.
TEST(Attention, attention_factor_reaches_the_turned_channels_of_the_logits_alone) {
  const Kind kind{.rotary_dim = 8, .attention_factor = 1.4};
  const auto at = consecutive_positions(9, 100);
  Operands<float> x(1, 2, 1, 9, 9, 16, 16, 7);
  const auto problem = x.problem().with_mask(causal());
  const auto pure = matrix(kind, 16, {100});
  const FrameMatrices squared{
      .query = matrix(kind, 16, {100}, 1.4 * 1.4), .key = pure, .value = pure, .output = pure};
  rove::rove_attention(problem, rotary(kind, at));
  judge(problem, squared);
  rove::rope_attention(problem, rotary(kind, at));
  judge(problem, {.query = squared.query, .key = pure, .value = {}, .output = {}});
  // It comes from the query's table, whatever frame the values are in.
  const Kind values{.rotary_dim = 16, .attention_factor = 3};
  rove::attention(problem, rove::rove_frames(rotary(kind, at), rotary(kind, at), rotary(values, at)));
  judge(problem, {.query = squared.query,
                  .key = pure,
                  .value = matrix(values, 16, {100}),
                  .output = matrix(values, 16, {100})});
}

TEST(Attention, keys_that_carry_their_factor_need_only_m_on_the_queries) {
  const Kind kind{.rotary_dim = 8, .attention_factor = 1.4};
  const auto at = consecutive_positions(9, 100);
  Operands<float> x(1, 2, 1, 9, 9, 16, 16, 8);
  const auto problem = x.problem().with_mask(causal());
  rove::rope_attention(problem, rotary(kind, at));
  const std::vector<float> expected = x.out;
  // Keys as other libraries cache them: turned, and times m where they turn.
  const Rotary frame = rotary(kind, at);
  for (Index t = 0; t < 9; ++t) {
    const std::span<float> row = std::span<float>(x.k).subspan(static_cast<std::size_t>(t * 16), 16);
    frame.apply(0, t, row);
    for (std::size_t c = 0; c < 8; ++c) row[c] *= 1.4F;
  }
  rove::attention(problem, rove::rope_frames(frame, rove::IdentityFrame{}, KeyFactor::already_in_keys));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(x.out[i], expected[i], 1e-5);
  judge(problem, {.query = matrix(kind, 16, {100}, 1.4), .key = {}, .value = {}, .output = {}});
  // In each of the other forms.
  const auto with_m = [&](const auto& frames, const FrameMatrices& matrices) {
    rove::attention(problem, frames);
    judge(problem, matrices);
  };
  const auto q = matrix(kind, 16, {100}, 1.4), pure = matrix(kind, 16, {100});
  with_m(rove::rope_frames(frame, KeyFactor::already_in_keys),
         {.query = q, .key = pure, .value = {}, .output = {}});
  const FrameMatrices all{.query = q, .key = pure, .value = pure, .output = pure};
  with_m(rove::rove_frames(frame, KeyFactor::already_in_keys), all);
  with_m(rove::rove_frames(frame, frame, KeyFactor::already_in_keys), all);
  with_m(rove::rove_frames(frame, frame, frame, KeyFactor::already_in_keys), all);
  with_m(rove::rove_frames(frame, frame, frame, frame, KeyFactor::already_in_keys), all);
}

TEST(Attention, B36_logit_factor_multiplies_the_default_scale_alone) {
  const Kind plain{}, deepseek{.logit_factor = 1.589626};
  const auto at = consecutive_positions(9, 100);
  Operands<float> x(1, 2, 1, 9, 9, 16, 16, 9);
  const auto base = x.problem().with_mask(causal());
  const auto r = matrix(plain, 16, {100});
  const FrameMatrices all{.query = r, .key = r, .value = r, .output = r};
  rove::rove_attention(base, rotary(deepseek, at));
  auto expected = base;
  expected.logit_factor = 1.589626;
  judge(expected, all);
  // On top of the problem's own factor.
  rove::rove_attention(expected, rotary(deepseek, at));
  auto twice = base;
  twice.logit_factor = 1.589626 * 1.589626;
  judge(twice, all);
  // A scale that the caller gave is left alone.
  const auto given = base.with_scale(0.3);
  rove::rove_attention(given, rotary(deepseek, at));
  judge(given, all);
  EXPECT_EQ(rove::rope_frames(rotary(deepseek, at)).logit_factor, 1.589626);
  EXPECT_EQ(rove::rope_frames(rotary(deepseek, at), rotary(deepseek, at)).logit_factor, 1.589626);
  EXPECT_EQ(rove::rove_frames(rotary(deepseek, at)).logit_factor, 1.589626);
  EXPECT_EQ(rove::rove_frames(rotary(deepseek, at), rotary(deepseek, at)).logit_factor, 1.589626);
  EXPECT_EQ(rove::rove_frames(rotary(deepseek, at), rotary(deepseek, at), rotary(plain, at)).logit_factor,
            1.589626);
  // With cached keys, turned before, it comes with the queries; with queries turned before, with the keys.
  EXPECT_EQ(rove::rope_frames(rotary(deepseek, at), rove::IdentityFrame{}).logit_factor, 1.589626);
  EXPECT_EQ(rove::rope_frames(rove::IdentityFrame{}, rotary(deepseek, at)).logit_factor, 1.589626);
  EXPECT_EQ(rove::rove_frames(rotary(plain, at), rotary(plain, at), rotary(deepseek, at)).logit_factor, 1);
}

// ---- Precision ----------------------------------------------------------------------------------

TEST(Attention, every_scalar_through_frames) {
  const Kind kind{};
  const auto at = consecutive_positions(7, 100);
  const auto r = matrix(kind, 16, {100});
  const FrameMatrices all{.query = r, .key = r, .value = r, .output = r};
  {
    Operands<Eigen::bfloat16> x(1, 2, 1, 7, 7, 16, 16, 10);
    const auto problem = x.problem().with_mask(causal());
    rove::rove_attention(problem, rotary(kind, at));
    judge(problem, all);
  }
  {
    Operands<Eigen::half, Eigen::bfloat16, float, Eigen::half> x(1, 2, 1, 7, 7, 16, 16, 11);
    const auto problem = x.problem().with_mask(causal());
    rove::rove_attention(problem, rotary(kind, at));
    judge(problem, all);
  }
  {
    Operands<double> x(1, 2, 1, 7, 7, 16, 16, 12);
    const auto problem = x.problem().with_mask(causal());
    const rove::RotaryFrame frame(
        rove::RotationTable<double>(rove::rotary_frequencies({.rotary_dim = 16, .rope_theta = 100}), at),
        Pairing::half_split);
    rove::rove_attention(problem, frame);
    judge(problem, all);
  }
}

TEST(Attention, out_may_be_q_through_frames_too) {
  const Kind kind{};
  const auto frame = rotary(kind, consecutive_positions(9, 100));
  Operands<float> apart(1, 2, 2, 9, 9, 16, 16, 13);
  rove::rove_attention(apart.problem().with_mask(causal()), frame);
  for (const bool fused : {true, false}) {
    Operands<float> x(1, 2, 2, 9, 9, 16, 16, 13);
    auto problem = x.problem().with_mask(causal());
    problem.out = bhtd(x.q.data(), 1, 2, 9, 16);
    if (fused) {
      rove::rove_attention(problem, frame);
    } else {
      rove::rove_attention(problem, frame, rove::Context{}, rove::materialised(rove::NaiveKernel{}));
    }
    EXPECT_EQ(x.q, apart.out);
  }
}

TEST(Attention, partial_results_merge_before_the_frame_is_undone) {
  const Kind kind{};
  Operands<float> x(1, 2, 1, 5, 20, 16, 16, 14);
  const auto whole = x.problem();
  const auto at_queries = rotary(kind, consecutive_positions(5, 100)),
             at_keys = rotary(kind, consecutive_positions(20, 90));
  std::vector<float> other(x.out.size()), other_lse(x.lse.size());
  const auto part = [&](Index first, Index last, const auto& out, const auto& lse) {
    const auto problem = rove::attention_problem(whole.q, whole.kv.k.slice(2, first, last - first),
                                                 whole.kv.v.slice(2, first, last - first), out)
                             .with_lse(lse);
    const auto keys = rove::rows(at_keys, first, last - first);
    rove::attention(problem, rove::rove_frames(at_queries, keys, keys, rove::IdentityFrame{}));
  };
  const auto out_b = bhtd(other.data(), 1, 2, 5, 16);
  const auto lse_b = rove::bht(other_lse.data(), 1, 2, 5);
  part(0, 7, whole.out, whole.lse);
  part(7, 20, out_b, lse_b);
  rove::merge_partials(whole.out, whole.lse, out_b, lse_b);
  for (Index h = 0; h < 2; ++h) {
    for (Index t = 0; t < 5; ++t) at_queries.inverse(0, t, std::span<float>(whole.out.row(0, h, t), 16));
  }
  judge(whole, {.query = matrix(kind, 16, {100}),
                .key = matrix(kind, 16, {90}),
                .value = matrix(kind, 16, {90}),
                .output = matrix(kind, 16, {100})});
}

// ---- Nothing ------------------------------------------------------------------------------------

/// No token, and rows of float alone: an identity is neither asked nor called.
struct NeverCalled {
  static constexpr bool is_identity = true;
  Index batch() const { return 1; }
  Index tokens() const { return 0; }
  Index channels() const { return 0; }
  void apply(Index, Index, std::span<float>) const { ADD_FAILURE(); }
  void inverse(Index, Index, std::span<float>) const { ADD_FAILURE(); }
  void transpose(Index, Index, std::span<float>) const { ADD_FAILURE(); }
  void inverse_transpose(Index, Index, std::span<float>) const { ADD_FAILURE(); }
};

template <class T>
void expect_plain_attention() {
  Operands<T> plain(1, 2, 1, 20, 20, 16, 16, 12), framed = plain;
  rove::attention(plain.problem());
  for (const bool fused : {true, false}) {
    if (fused) {
      rove::rove_attention(framed.problem(), NeverCalled{}, NeverCalled{});
    } else {
      rove::rove_attention(framed.problem(), NeverCalled{}, NeverCalled{}, rove::Context{},
                           rove::materialised(rove::NaiveKernel{}));
    }
    EXPECT_EQ(framed.out, plain.out);
  }
}

TEST(Attention, identities_are_never_called) {
  expect_plain_attention<float>();
  expect_plain_attention<double>();
}

TEST(Attention, B23_B24_shapes_of_nothing) {
  const Kind kind{};
  Operands<float> x(1, 2, 1, 3, 0, 16, 16, 15);
  rove::attention(x.problem(), rove::rove_frames(rotary(kind, consecutive_positions(3)),
                                                 rotary(kind, consecutive_positions(0))));
  EXPECT_EQ(x.out, std::vector<float>(x.out.size(), 0.0F));
  Operands<float> none(1, 2, 1, 0, 3, 16, 16, 16);
  rove::attention(none.problem(), rove::rove_frames(rotary(kind, consecutive_positions(0)),
                                                    rotary(kind, consecutive_positions(3))));
  Operands<float> no_batch(0, 2, 1, 3, 3, 16, 16, 17);
  rove::rove_attention(no_batch.problem(), rotary(kind, consecutive_positions(3)));
  Operands<float> plain(1, 2, 1, 3, 0, 16, 16, 18);
  rove::attention(plain.problem());
  EXPECT_EQ(plain.out, std::vector<float>(plain.out.size(), 0.0F));
}

}  // namespace
}  // namespace rove_test

// What a kernel without a fused entry is given, and what becomes of its results.
#include "rove/op/materialise.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "rove/attention/key_values/int8.hpp"
#include "rove/attention/key_values/paged.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/op/attention.hpp"
#include "support/frames.hpp"
#include "support/judge.hpp"
#include "support/plain_kernel.hpp"

namespace rove_test {
namespace {

using Eigen::bfloat16;
using Eigen::half;
using rove::bhtd;
using rove::causal;
using rove::Context;
using rove::Index;

template <class P>
using query_t = typename std::remove_cvref_t<P>::query_storage;
template <class P>
using key_t = typename std::remove_cvref_t<P>::key_storage;
template <class P>
using value_t = typename std::remove_cvref_t<P>::value_storage;
template <class P>
using output_t = typename std::remove_cvref_t<P>::output_storage;
template <class P>
using kv_t = typename std::remove_cvref_t<P>::key_values_type;

AnyFrame<float> rotary(const std::vector<Index>& positions) {
  return frame_cases().front().at(positions);
}
FrameMatrices rotary_matrices(Index first_query, Index first_key) {
  const auto at = [](Index first) {
    return [first, matrix = frame_cases().front().matrix](Index, Index t) { return matrix(first + t); };
  };
  return {.query = at(first_query), .key = at(first_key), .value = at(first_key), .output = at(first_query)};
}

TEST(Materialise, operands_are_tensors_in_the_accumulator_type) {
  Operands<bfloat16, half, bfloat16, half> x(1, 2, 1, 4, 4, 16, 16, 1);
  bool called = false;
  rove::attention(x.problem().with_mask(causal()), Context{},
                  [&](const auto& problem, const Context& context) {
                    using P = decltype(problem);
                    static_assert(std::is_same_v<query_t<P>, float> && std::is_same_v<key_t<P>, float> &&
                                  std::is_same_v<value_t<P>, float> && std::is_same_v<output_t<P>, float>);
                    EXPECT_EQ(problem.q.stride[3], 1);
                    EXPECT_EQ(problem.q.stride[2], 16);
                    EXPECT_EQ(problem.kv.k.stride[3], 1);
                    EXPECT_EQ(problem.kv.v.stride[2], 16);
                    EXPECT_EQ(problem.out.stride[2], 16);
                    called = true;
                    plain_kernel(problem, context);
                  });
  EXPECT_TRUE(called);
  judge(x.problem().with_mask(causal()));

  Operands<float, half, double, bfloat16> y(1, 2, 1, 4, 4, 16, 16, 2);
  rove::attention(y.problem(), Context{}, [](const auto& problem, const Context& context) {
    using P = decltype(problem);
    static_assert(std::is_same_v<query_t<P>, double> && std::is_same_v<key_t<P>, double> &&
                  std::is_same_v<value_t<P>, double> && std::is_same_v<output_t<P>, double>);
    plain_kernel(problem, context);
  });
  judge(y.problem());
}

TEST(Materialise, in_callers_scalars_gives_the_callers) {
  Operands<bfloat16, half, bfloat16, half> x(1, 2, 1, 4, 4, 16, 16, 3);
  const auto kernel = [](const auto& problem, const Context& context) {
    using P = decltype(problem);
    static_assert(std::is_same_v<query_t<P>, bfloat16> && std::is_same_v<key_t<P>, half> &&
                  std::is_same_v<value_t<P>, bfloat16> && std::is_same_v<output_t<P>, half>);
    plain_kernel(problem, context);
  };
  rove::attention(x.problem(), Context{}, rove::in_callers_scalars(kernel));
  judge(x.problem());
  // Turned rows are rounded to them too, and results twice: no longer within the bound of one rounding, but
  // near: three roundings to 8 bits of numbers up to 4.
  rove::attention(x.problem().with_mask(causal()), rove::rove_frames(rotary(positions_from(100, 4))),
                  Context{}, rove::in_callers_scalars(kernel));
  Operands<float> exact(1, 2, 1, 4, 4, 16, 16, 3);
  for (std::size_t i = 0; i < x.q.size(); ++i) exact.q[i] = static_cast<float>(x.q[i]);
  for (std::size_t i = 0; i < x.k.size(); ++i) exact.k[i] = static_cast<float>(x.k[i]);
  for (std::size_t i = 0; i < x.v.size(); ++i) exact.v[i] = static_cast<float>(x.v[i]);
  rove::attention(exact.problem().with_mask(causal()), rove::rove_frames(rotary(positions_from(100, 4))));
  for (std::size_t i = 0; i < x.out.size(); ++i)
    EXPECT_NEAR(static_cast<float>(x.out[i]), exact.out[i], 0.15);
  // In float there is nothing to round: the same bits.
  Operands<float> a(1, 2, 1, 4, 4, 16, 16, 4), b = a;
  rove::attention(a.problem(), rove::rove_frames(rotary(positions_from(100, 4))), Context{},
                  rove::in_callers_scalars(rove::NaiveKernel{}));
  rove::attention(b.problem(), rove::rove_frames(rotary(positions_from(100, 4))));
  EXPECT_EQ(0, std::memcmp(a.out.data(), b.out.data(), a.out.size() * sizeof(float)));
}

TEST(Materialise, eight_bit_rows_are_widened_whatever_the_kernel_asks_for) {
  std::vector<std::int8_t> k(2 * 4 * 16), v(k.size());
  for (std::size_t i = 0; i < k.size(); ++i) {
    k[i] = static_cast<std::int8_t>(static_cast<int>(i * 37 % 255) - 127);
    v[i] = static_cast<std::int8_t>(static_cast<int>(i * 91 % 255) - 127);
  }
  const std::vector<float> scales = {0.01F, 0.02F, 0.005F, 0.03F, 0.01F, 0.02F, 0.04F, 0.001F};
  Operands<float> x(1, 4, 2, 4, 4, 16, 16, 5);
  const auto kv = rove::int8_key_values(
      bhtd<const std::int8_t>(k.data(), 1, 2, 4, 16), rove::bht(scales.data(), 1, 2, 4),
      bhtd<const std::int8_t>(v.data(), 1, 2, 4, 16), rove::bht(scales.data(), 1, 2, 4));
  const auto problem = rove::attention_problem(x.problem().q, kv, x.problem().out);
  const auto kernel = [](const auto& turned, const Context& context) {
    static_assert(std::is_same_v<key_t<decltype(turned)>, float>);
    plain_kernel(turned, context);
  };
  rove::attention(problem, Context{}, kernel);
  judge(problem);
  rove::attention(problem, Context{}, rove::in_callers_scalars(kernel));
  judge(problem);
}

TEST(Materialise, what_needs_no_turning_is_handed_on_as_it_lies) {
  Operands<float> x(1, 2, 1, 4, 4, 16, 16, 6);
  const auto problem = x.problem();
  rove::attention(problem, Context{}, [&](const auto& given, const Context& context) {
    static_assert(
        std::is_same_v<std::remove_cvref_t<decltype(given)>, std::remove_cvref_t<decltype(problem)>>);
    EXPECT_EQ(given.q.data, problem.q.data);
    EXPECT_EQ(given.kv.k.data, problem.kv.k.data);
    EXPECT_EQ(given.out.data, problem.out.data);
    plain_kernel(given, context);
  });
  judge(problem);
  // RoPE turns no output: the kernel writes the caller's own.
  rove::attention(problem, rove::rope_frames(rotary(positions_from(100, 4))), Context{},
                  [&](const auto& given, const Context& context) {
                    EXPECT_NE(given.q.data, problem.q.data);
                    EXPECT_NE(given.kv.k.data, problem.kv.k.data);
                    EXPECT_EQ(given.out.data, problem.out.data);
                    plain_kernel(given, context);
                  });
  FrameMatrices rope = rotary_matrices(100, 100);
  rope.value = rope.output = {};
  judge(problem, rope);
  // Values in a frame of their own, queries and keys as they are.
  using rove::IdentityFrame;
  const AnyFrame<float> frame = rotary(positions_from(100, 4));
  rove::attention(problem, rove::rove_frames(IdentityFrame{}, IdentityFrame{}, frame, frame), Context{},
                  [&](const auto& given, const Context& context) {
                    EXPECT_EQ(given.q.data, problem.q.data);
                    EXPECT_NE(given.kv.v.data, problem.kv.v.data);
                    EXPECT_NE(given.out.data, problem.out.data);
                    plain_kernel(given, context);
                  });
  FrameMatrices values = rotary_matrices(100, 100);
  values.query = values.key = {};
  judge(problem, values);
}

TEST(Materialise, everything_else_of_the_problem_is_the_callers) {
  Operands<float> x(2, 2, 1, 3, 6, 16, 16, 7);
  const std::vector<Index> lengths = {6, 4}, offsets = {3, 1};
  const std::vector<float> sinks = {0.5F, -1};
  auto problem = x.problem()
                     .with_mask(causal())
                     .with_key_lengths(lengths)
                     .with_query_offsets(offsets)
                     .with_sinks(sinks)
                     .with_scale(0.3);
  const auto frames = rove::rove_frames(rotary(positions_from(100, 3)), rotary(positions_from(90, 6)));
  rove::attention(problem, frames, Context{}, [&](const auto& given, const Context& context) {
    EXPECT_EQ(given.lse.data, problem.lse.data);
    EXPECT_EQ(given.sinks.data(), sinks.data());
    EXPECT_EQ(given.scale, 0.3);
    EXPECT_EQ(given.first_query(1), 1);
    EXPECT_EQ(given.slots(1).last, 4);
    EXPECT_EQ(given.kv_len(), 6);
    EXPECT_NO_THROW(given.check());
    plain_kernel(given, context);
  });
  judge(problem, rotary_matrices(100, 90));
  problem.logit_factor = 1.5;
  problem.scale.reset();
  rove::attention(problem, frames, Context{}, plain_kernel);
  judge(problem, rotary_matrices(100, 90));
}

TEST(Materialise, only_slots_in_use_are_turned_and_shown) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Operands<float> x(3, 2, 1, 2, 8, 16, 16, 8);
  // Batch row 0 uses 5 of 8 places, row 1 none, row 2 three; the rest is NaN.
  const std::vector<Index> lengths = {5, 0, 3};
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::size_t at = static_cast<std::size_t>(lengths[b]) * 16; at < 8 * 16; ++at) {
      x.k[b * 8 * 16 + at] = x.v[b * 8 * 16 + at] = nan;
    }
  }
  const auto problem = x.problem().with_key_lengths(lengths);
  const auto frames = rove::rove_frames(rotary(positions_from(100, 2)), rotary(positions_from(90, 8)));
  rove::attention(problem, frames, Context{}, [&](const auto& given, const Context& context) {
    EXPECT_EQ(given.kv.first_slot, 0);
    EXPECT_EQ(given.kv.k.tokens(), 5);
    for (Index b = 0; b < 3; ++b) {
      // Also for a kernel that asks the cache and not the problem.
      EXPECT_EQ(given.kv.slots(b).last, lengths[static_cast<std::size_t>(b)]);
      for (Index j = given.slots(b).last; j < 5; ++j) {
        for (Index c = 0; c < 16; ++c) {
          EXPECT_EQ(given.kv.k(b, 0, j, c), 0.0F);
          EXPECT_EQ(given.kv.v(b, 0, j, c), 0.0F);
        }
      }
    }
    plain_kernel(given, context);
  });
  judge(problem, rotary_matrices(100, 90));
}

// Values wider than keys: nothing of an earlier row stays in the part that a key does not cover.
TEST(Materialise, slots_that_are_not_in_use_are_zeros_in_wide_values_too) {
  Operands<float> x(2, 2, 1, 2, 8, 16, 24, 12);
  const std::vector<Index> lengths = {5, 3};
  const auto problem = x.problem().with_key_lengths(lengths);
  const auto frames = rove::rope_frames(rotary(positions_from(100, 2)), rotary(positions_from(90, 8)));
  rove::attention(problem, frames, Context{}, [&](const auto& given, const Context& context) {
    for (Index j = 3; j < 5; ++j) {
      for (Index c = 0; c < 24; ++c) EXPECT_EQ(given.kv.v(1, 0, j, c), 0.0F) << j << ", " << c;
    }
    plain_kernel(given, context);
  });
  FrameMatrices rope = rotary_matrices(100, 90);
  rope.value = rope.output = {};
  judge(problem, rope);
}

TEST(Materialise, rings_and_pages_become_tensors_that_keep_slots_and_indices) {
  // A ring of 8 places after 13 keys: slots [5, 13), of which the last row of the batch holds only 3.
  Operands<float> x(2, 2, 1, 2, 8, 16, 16, 9);
  const std::vector<Index> appended = {13, 3};
  const auto ring = rove::ring_key_values(x.problem().kv.k, x.problem().kv.v, rove::IntegerSpan(appended));
  const auto problem =
      x.problem().with_key_values(ring).with_query_offset(rove::align_last()).with_mask(rove::window(4));
  const auto frames = rove::rove_frames(rotary(positions_from(200, 2)), rotary(positions_from(100, 13)));
  rove::attention(problem, frames, Context{}, [&](const auto& given, const Context& context) {
    EXPECT_EQ(given.kv.first_slot, 0);
    EXPECT_EQ(given.kv.k.tokens(), 13);
    EXPECT_EQ(given.kv.length(), 13);
    EXPECT_EQ(given.slots(0).first, 5);
    EXPECT_EQ(given.slots(1).last, 3);
    EXPECT_EQ(given.kv.indices(0, 7).first, 7);
    EXPECT_EQ(given.first_query(0), 11);
    plain_kernel(given, context);
  });
  judge(problem, rotary_matrices(200, 100));
  // Alone, only what the ring holds is put in memory, from slot 5 on.
  const std::vector<Index> both = {13, 13};
  const auto full = problem.with_key_values(
      rove::ring_key_values(x.problem().kv.k, x.problem().kv.v, rove::IntegerSpan(both)));
  rove::attention(full, frames, Context{}, [&](const auto& given, const Context& context) {
    EXPECT_EQ(given.kv.first_slot, 5);
    EXPECT_EQ(given.kv.k.tokens(), 8);
    const auto run = given.kv.keys(1, 0, 6);
    EXPECT_EQ(run.count, 7);
    EXPECT_EQ(run.data, given.kv.k.row(1, 0, 1));
    EXPECT_EQ(given.kv.values(1, 0, 6).data, given.kv.v.row(1, 0, 1));
    plain_kernel(given, context);
  });
  judge(full, rotary_matrices(200, 100));
}

/// Counts which of its entries is called.
struct Both {
  int* plain;
  int* fused_calls;
  template <class P>
  void operator()(const P& problem, const Context& context) const {
    ++*plain;
    plain_kernel(problem, context);
  }
  template <class P, class T>
  void fused(const P& problem, const T& transforms, const Context& context) const {
    ++*fused_calls;
    rove::NaiveKernel{}.fused(problem, transforms, context);
  }
};

TEST(Materialise, a_kernel_with_both_entries_is_called_by_the_fused_one_unless_wrapped) {
  int plain = 0, fused = 0;
  const Both kernel{&plain, &fused};
  Operands<float> x(1, 2, 1, 4, 4, 16, 16, 10);
  const auto frames = rove::rove_frames(rotary(positions_from(100, 4)));
  rove::attention(x.problem(), frames, Context{}, kernel);
  EXPECT_EQ(fused, 1);
  EXPECT_EQ(plain, 0);
  judge(x.problem(), rotary_matrices(100, 100));
  rove::attention(x.problem(), frames, Context{}, rove::materialised(kernel));
  EXPECT_EQ(fused, 1);
  EXPECT_EQ(plain, 1);
  judge(x.problem(), rotary_matrices(100, 100));
}

TEST(Materialise, a_row_of_zeros_is_plus_zero_on_every_path) {
  Operands<float> x(1, 1, 1, 2, 2, 16, 16, 11);
  const auto problem = x.problem().with_mask(rove::window(1));
  const std::vector<Index> none = {0};
  const auto frames = rove::rove_frames(rotary(positions_from(100, 2)));
  for (const bool fused : {true, false}) {
    x.out.assign(x.out.size(), -77);
    if (fused) {
      rove::attention(problem.with_key_lengths(none), frames);
    } else {
      rove::attention(problem.with_key_lengths(none), frames, Context{},
                      rove::materialised(rove::NaiveKernel{}));
    }
    const std::vector<float> zeros(x.out.size(), 0.0F);
    EXPECT_EQ(0, std::memcmp(x.out.data(), zeros.data(), zeros.size() * sizeof(float)));
  }
}

}  // namespace
}  // namespace rove_test

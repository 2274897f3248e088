// What counts as a kernel, and how one's entries are found.
#include "rove/attention/kernel.hpp"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/naive.hpp"
#include "support/judge.hpp"
#include "support/plain_kernel.hpp"

namespace rove_test {
namespace {

using rove::Context;
using rove::Index;
using rove::RowTransforms;

using Problem = decltype(std::declval<Operands<float>&>().problem());

// ---- Concepts -----------------------------------------------------------------------------------

struct Simple {
  void operator()(const Problem&, const Context&) const {}
};
struct Generic {
  template <class P>
  void operator()(const P&, const Context&) const {}
};
struct Fusing : Generic {
  template <class P, class T>
  void fused(const P&, const T&, const Context&) const {}
};
struct FinalFusing final : Generic {
  template <class P, class T>
  void fused(const P&, const T&, const Context&) const {}
};
struct FinalSimple final : Generic {};
struct SlipInFused : Generic {
  template <class P>
  void fused(const P&, int, const Context&) const {}
};
struct NotConst : Generic {
  template <class P, class T>
  void fused(const P&, const T&, const Context&) {}
};
struct PrivateFused : Generic {
 private:
  int fused = 0;
};
struct NamesBackward : Generic {
  void backward() const {}
};
[[maybe_unused]] void function(const Problem&, const Context&) {}

template <class K>
inline constexpr bool fuses = rove::FusingKernel<K, Problem, RowTransforms<>>;
template <class K>
inline constexpr bool names = rove::detail::NamesFusedEntry<K>;

static_assert(rove::Kernel<Simple, Problem> && rove::Kernel<rove::NaiveKernel, Problem> &&
              rove::Kernel<decltype(plain_kernel), Problem> && rove::Kernel<decltype(&function), Problem>);
static_assert(!rove::Kernel<int, Problem>);

static_assert(fuses<rove::NaiveKernel> && fuses<Fusing> && fuses<FinalFusing>);
static_assert(!fuses<Simple> && !fuses<Generic> && !fuses<FinalSimple> && !fuses<SlipInFused> &&
              !fuses<NotConst> && !fuses<PrivateFused> && !fuses<decltype(&function)>);
// A generic lambda can be called with any arguments: no entry is read into that.
static_assert(!fuses<decltype(plain_kernel)> && !names<decltype(plain_kernel)>);
static_assert(!fuses<decltype([](const auto&...) {})> && !names<decltype([](const auto&...) {})>);

static_assert(names<rove::NaiveKernel> && names<Fusing> && names<SlipInFused> && names<NotConst> &&
              names<PrivateFused>);
static_assert(!names<Simple> && !names<Generic> && !names<FinalFusing> && !names<decltype(&function)> &&
              !names<int>);
static_assert(rove::detail::NamesBackwardEntry<NamesBackward> && !rove::detail::NamesBackwardEntry<Fusing>);

// ---- Wrappers -----------------------------------------------------------------------------------

static_assert(!fuses<rove::Materialised<rove::NaiveKernel>> && !names<rove::Materialised<rove::NaiveKernel>>);
static_assert(!fuses<rove::InCallersScalars<rove::NaiveKernel>> &&
              !names<rove::InCallersScalars<rove::NaiveKernel>>);

template <class K>
inline constexpr bool wants = rove::detail::WantsCallersScalars<K>;
static_assert(!wants<rove::NaiveKernel> && !wants<rove::Materialised<rove::NaiveKernel>> &&
              wants<rove::InCallersScalars<rove::NaiveKernel>>);
static_assert(wants<rove::Materialised<rove::InCallersScalars<Simple>>> &&
              wants<rove::InCallersScalars<rove::Materialised<Simple>>>);
struct SaysNo : Generic {
  static constexpr bool in_callers_scalars = false;
};
static_assert(!wants<SaysNo>);

template <class K>
concept HasWorkspace = requires(const K& kernel, const Problem& problem) {
  kernel.workspace(problem, 1);
};
template <class K>
concept Describes = requires(const K& kernel, const Problem& problem) {
  kernel.describe(problem);
};
static_assert(HasWorkspace<rove::Materialised<rove::NaiveKernel>> &&
              Describes<rove::Materialised<rove::NaiveKernel>>);
static_assert(HasWorkspace<rove::InCallersScalars<rove::NaiveKernel>> &&
              Describes<rove::InCallersScalars<rove::NaiveKernel>>);
static_assert(!HasWorkspace<rove::Materialised<Simple>> && !Describes<rove::Materialised<Simple>>);

TEST(Kernel, wrappers_hand_on_the_call_the_workspace_and_the_description) {
  Operands<float> x(1, 2, 1, 5, 5, 8, 8, 1), y = x, z = x;
  rove::NaiveKernel{}(x.problem());
  rove::materialised(rove::NaiveKernel{})(y.problem(), Context{});
  rove::in_callers_scalars(rove::NaiveKernel{})(z.problem(), Context{});
  EXPECT_EQ(x.out, y.out);
  EXPECT_EQ(x.out, z.out);
  const auto problem = x.problem();
  for (const int workers : {1, 3}) {
    const Index bytes = rove::NaiveKernel{}.workspace(problem, workers).bytes();
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(rove::materialised(rove::NaiveKernel{}).workspace(problem, workers).bytes(), bytes);
    EXPECT_EQ(rove::in_callers_scalars(rove::NaiveKernel{}).workspace(problem, workers).bytes(), bytes);
  }
  EXPECT_EQ(rove::materialised(rove::NaiveKernel{}).describe(problem), rove::NaiveKernel{}.describe(problem));
  EXPECT_EQ(rove::NaiveKernel{}.describe(problem), "naive kernel, key blocks of 256");
}

TEST(Kernel, a_wrapped_kernel_keeps_its_state) {
  int calls = 0;
  const auto count = [&calls](const auto&, const Context&) { ++calls; };
  Operands<float> x(1, 1, 1, 1, 1, 4, 4);
  rove::materialised(count)(x.problem(), Context{});
  rove::in_callers_scalars(count)(x.problem(), Context{});
  rove::materialised(rove::in_callers_scalars(count))(x.problem(), Context{});
  EXPECT_EQ(calls, 3);
}

// Results are compared by bits across kernels and versions: the length of a block is part of the arithmetic.
TEST(Arithmetic, key_blocks_follow_from_widths_and_accumulator_alone) {
  using rove::detail::key_block_length;
  static_assert(key_block_length<float>(1, 1) == 256 && key_block_length<float>(64, 64) == 256 &&
                key_block_length<float>(128, 128) == 256);
  static_assert(key_block_length<float>(129, 128) == 128 && key_block_length<float>(192, 128) == 128);
  static_assert(key_block_length<float>(512, 512) == 64 && key_block_length<float>(1024, 1024) == 32 &&
                key_block_length<float>(100000, 1) == 32);
  static_assert(key_block_length<double>(64, 64) == 256 && key_block_length<double>(128, 128) == 128);
  static_assert(rove::detail::chunk_length == 4096);
}

// The naive kernel's own entries.
TEST(Kernel, naive_workspace_is_nothing_where_there_is_nothing_to_write) {
  Operands<float> x(1, 1, 1, 0, 5, 8, 8);
  EXPECT_EQ(rove::NaiveKernel{}.workspace(x.problem(), 2).bytes(), 0);
}

// The kernel that the tests use for a user's own is held against the oracle like any other.
TEST(Kernel, the_plain_kernel_of_the_tests_is_right) {
  Operands<float> x(2, 4, 2, 5, 9, 8, 6, 3);
  const std::vector<float> sinks = {0.5F, -1, 2, 0};
  const std::vector<Index> lengths = {9, 4};
  const auto problem = x.problem().with_sinks(sinks).with_key_lengths(lengths);
  plain_kernel(problem, Context{});
  judge(problem);
}

}  // namespace
}  // namespace rove_test

// Working memory: said beforehand to the byte, taken once, given back; exceptions and nested calls.
#include "rove/op/workspace.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/op/attention.hpp"
#include "rove/op/weights.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"
#include "support/count_allocations.hpp"
#include "support/eigen_thread_pool.hpp"
#include "support/error_of.hpp"
#include "support/executors.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::causal;
using rove::Context;
using rove::Index;
using test::error_of;

using Rotary = rove::RotaryFrame<rove::RotationTable<float>>;

Rotary rotary(Index tokens) {
  return {rove::RotationTable<float>(rove::rotary_frequencies({.rotary_dim = 16}),
                                     rove::consecutive_positions(tokens, 100)),
          rove::Pairing::half_split};
}

/// Takes its own memory from the context, so that the materialised path nests it.
struct Nesting {
  template <class Problem>
  void operator()(const Problem& problem, const Context& context) const {
    Context::Scope scope(context);
    const auto rows = scope.template allocate<float>(problem.q_len() * 7);
    const auto slices = scope.template per_worker<double>(5);
    context.for_each(problem.q_len(), [&](Index i, int worker) {
      rows[static_cast<std::size_t>(i * 7)] = 1;
      slices(worker)[4] = 2;
    });
    for (float* out = problem.out.data; out != problem.out.data + problem.out.size(); ++out) *out = 0;
  }
  template <class Problem>
  rove::WorkspaceSize workspace(const Problem& problem, int workers) const {
    rove::WorkspaceSize size;
    size.template add<float>(problem.q_len() * 7);
    size.template add_per_worker<double>(5, workers);
    return size;
  }
};

// ---- workspace_bytes ----------------------------------------------------------------------------

/// `call` runs in `bytes` bytes at any address, twice, and allocates nothing; at the worst address, one past
/// a multiple of the alignment, one byte less is refused with both sizes.
template <class Executor, class Call>
void expect_exact(Index bytes, Executor& executor, const Call& call, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_GT(bytes, 0);
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes) + 256);
  const std::size_t to_aligned = 128 - reinterpret_cast<std::uintptr_t>(memory.data()) % 128;
  const auto piece = [&](std::size_t shift, Index size) {
    return std::span<std::byte>(memory).subspan(to_aligned + shift, static_cast<std::size_t>(size));
  };
  for (const std::size_t shift : {0U, 1U, 64U, 127U}) {
    const Context context(rove::on(executor), piece(shift, bytes));
    EXPECT_EQ(error_of([&] { call(context); }), "(no error)");
    EXPECT_EQ(error_of([&] { call(context); }), "(no error)") << "the second time";
    EXPECT_EQ(context.allocations(), 0);
  }
  const Context less(rove::on(executor), piece(1, bytes - 1));
  EXPECT_EQ(error_of([&] { call(less); }), "the context's memory has " + std::to_string(bytes - 1) +
                                               " bytes, at least " + std::to_string(bytes) + " are needed");
}

TEST(WorkspaceBytes, are_exact_for_every_path_and_number_of_workers) {
  Operands<float> x(2, 4, 2, 33, 33, 16, 16, 1);
  const auto problem = x.problem().with_mask(causal());
  const auto frames = rove::rove_frames(rotary(33));
  const auto naive = rove::NaiveKernel{};
  const auto materialised = rove::materialised(rove::NaiveKernel{});
  const auto callers = rove::in_callers_scalars(rove::NaiveKernel{});
  const Nesting nesting;
  for (const int workers : {1, 3}) {
    test::StridedThreads threads(workers);
    expect_exact(
        rove::workspace_bytes(problem, naive, workers), threads,
        [&](const Context& context) { rove::attention(problem, context, naive); }, "plain");
    expect_exact(
        rove::workspace_bytes(problem, frames, naive, workers), threads,
        [&](const Context& context) { rove::attention(problem, frames, context, naive); }, "fused");
    expect_exact(
        rove::workspace_bytes(problem, frames, materialised, workers), threads,
        [&](const Context& context) { rove::attention(problem, frames, context, materialised); },
        "materialised");
    expect_exact(
        rove::workspace_bytes(problem, frames, callers, workers), threads,
        [&](const Context& context) { rove::attention(problem, frames, context, callers); },
        "callers' scalars");
    expect_exact(
        rove::workspace_bytes(problem, frames, nesting, workers), threads,
        [&](const Context& context) { rove::attention(problem, frames, context, nesting); }, "nesting");
    expect_exact(
        rove::workspace_bytes(problem, nesting, workers), threads,
        [&](const Context& context) { rove::attention(problem, context, nesting); }, "nesting, plain");
  }
}

TEST(WorkspaceBytes, of_calls_that_name_no_kernel_are_asked_without_one) {
  Operands<float> x(2, 4, 2, 33, 33, 16, 16, 1);
  const auto problem = x.problem().with_mask(causal());
  const auto frame = rotary(33);
  const auto frames = rove::rove_frames(frame);
  EXPECT_EQ(rove::workspace_bytes(problem), rove::workspace_bytes(problem, 1));
  EXPECT_EQ(rove::workspace_bytes(problem, frames), rove::workspace_bytes(problem, frames, 1));
  for (const int workers : {1, 3}) {
    test::StridedThreads threads(workers);
    expect_exact(
        rove::workspace_bytes(problem, workers), threads,
        [&](const Context& context) { rove::attention(problem, context); }, "plain");
    expect_exact(
        rove::workspace_bytes(problem, frames, workers), threads,
        [&](const Context& context) { rove::rove_attention(problem, frame, context); }, "rove");
    EXPECT_EQ(rove::explain(problem, workers), rove::explain(problem, rove::DefaultKernel{}, workers));
    EXPECT_EQ(rove::explain(problem, frames, workers),
              rove::explain(problem, frames, rove::DefaultKernel{}, workers));
  }
}

TEST(WorkspaceBytes, too_little_memory_is_found_before_anything_is_written) {
  Operands<float> x(1, 2, 1, 9, 9, 16, 16, 2);
  const auto problem = x.problem().with_mask(causal());
  const auto frames = rove::rove_frames(rotary(9));
  std::vector<std::byte> memory(static_cast<std::size_t>(rove::workspace_bytes(problem, frames)) - 128);
  const Context context{std::span<std::byte>(memory)};
  EXPECT_NE(error_of([&] { rove::attention(problem, frames, context); }), "(no error)");
  EXPECT_EQ(x.out, std::vector<float>(x.out.size(), -77));
  EXPECT_EQ(x.lse, std::vector<float>(x.lse.size(), -77));
}

TEST(WorkspaceBytes, of_nothing_are_none_and_errors_are_the_calls) {
  Operands<float> x(1, 2, 1, 0, 9, 16, 16, 3);
  EXPECT_EQ(rove::workspace_bytes(x.problem()), 0);
  EXPECT_EQ(rove::workspace_bytes(x.problem(), rove::Frames<>{}), 0);
  Operands<float> y(1, 2, 1, 2, 9, 16, 16, 4);
  EXPECT_EQ(error_of([&] {
              rove::workspace_bytes(y.problem().with_scale(std::numeric_limits<double>::infinity()));
            }),
            "scale must be finite, got inf");
  EXPECT_EQ(error_of([&] { rove::workspace_bytes(y.problem(), rove::rope_frames(rotary(3), rotary(9))); }),
            "the query frame has 3 tokens where there are 2 queries: take rows(frame, first, count) of a "
            "longer one");
  // A kernel that says nothing counts as taking nothing of its own: what it is handed takes none either.
  const auto silent = [](const auto&, const Context&) {};
  EXPECT_EQ(rove::workspace_bytes(y.problem(), silent), 0);
  EXPECT_GT(rove::workspace_bytes(y.problem(), rove::rope_frames(rotary(2), rotary(9)), silent), 0);
  EXPECT_EQ(error_of([&] { rove::workspace_bytes(y.problem(), rove::NaiveKernel{}, 0); }),
            "workers is 0, at least 1 is needed");
}

// ---- Allocations --------------------------------------------------------------------------------

TEST(Allocations, only_the_first_call_of_a_shape_makes_any) {
  Operands<float> x(2, 4, 2, 33, 33, 16, 16, 5);
  const auto problem = x.problem().with_mask(causal());
  const auto frames = rove::rove_frames(rotary(33));
  std::vector<float> weights(static_cast<std::size_t>(2 * 4 * 33 * 33));
  const auto a = rove::bhtd(weights.data(), 2, 4, 33, 33);
  const auto all = [&](const Context& context) {
    rove::attention(problem, context);
    rove::attention(problem, frames, context);
    rove::attention(problem, frames, context, rove::materialised(rove::NaiveKernel{}));
    rove::attention(problem, frames, context, Nesting{});
    rove::attention_weights(problem, frames, a, context);
  };
  const auto expect_none_later = [&](const Context& context, const char* name) {
    all(context);
    all(context);  // blocks may become one at the end of the first round
    const Index blocks = context.allocations();
    const test::CountedAllocations allocations;
    all(context);
    EXPECT_EQ(allocations(), 0) << name;
    EXPECT_EQ(context.allocations(), blocks) << name;
  };
  expect_none_later(Context{}, "serial");
  test::StridedThreads threads(3);
  expect_none_later(Context(rove::on(threads)), "threads of one's own");
}

TEST(Allocations, a_pools_closures_are_the_only_ones_it_makes) {
  Operands<float> x(1, 2, 1, 33, 33, 16, 16, 6);
  const auto problem = x.problem().with_mask(causal());
  const auto frames = rove::rove_frames(rotary(33));
  Eigen::ThreadPool pool(2);
  const Context context(rove::on(pool));
  for (int i = 0; i < 3; ++i) rove::attention(problem, frames, context);
  const Index blocks = context.allocations();
  rove::attention(problem, frames, context);
  EXPECT_EQ(context.allocations(), blocks);
}

TEST(Allocations, a_refused_call_leaves_the_context_as_it_was) {
  Operands<float> x(1, 2, 1, 9, 9, 16, 16, 7);
  const auto problem = x.problem();
  const Context context;
  rove::attention(problem, context);
  const Index blocks = context.allocations();
  EXPECT_NE(error_of([&] {
              rove::attention(problem.with_scale(std::numeric_limits<double>::infinity()), context);
            }),
            "(no error)");
  rove::attention(problem, context);
  EXPECT_EQ(context.allocations(), blocks);
}

// ---- Exceptions and nesting ---------------------------------------------------------------------

struct MaskFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(Exceptions, a_mask_that_throws_inside_a_worker_reaches_the_caller) {
  Operands<float> x(2, 4, 2, 33, 33, 16, 16, 8);
  std::atomic<bool> armed{true};
  const auto faulty = rove::mask([&armed](Index, Index head, Index query, Index) {
    if (armed && head == 2 && query == 20) throw MaskFault("query 20 of head 2");
    return true;
  });
  const auto problem = x.problem().with_mask(faulty);
  const auto frames = rove::rove_frames(rotary(33));
  const auto check = [&](const Context& context) {
    for (const bool fused : {true, false}) {
      armed = true;
      const auto call = [&] {
        if (fused) {
          rove::attention(problem, frames, context);
        } else {
          rove::attention(problem, frames, context, rove::materialised(rove::NaiveKernel{}));
        }
      };
      try {
        call();
        FAIL() << "nothing was thrown";
      } catch (const MaskFault& fault) {
        EXPECT_STREQ(fault.what(), "query 20 of head 2");
      }
      // The context serves the next call.
      armed = false;
      call();
      Operands<float> y(2, 4, 2, 33, 33, 16, 16, 8);
      rove::attention(y.problem(), frames);
      EXPECT_EQ(x.out, y.out);
    }
  };
  check(Context{});
  for (const int workers : {1, 3, 8}) {
    Eigen::ThreadPool pool(workers);
    check(Context(rove::on(pool)));
    test::StridedThreads threads(workers);
    check(Context(rove::on(threads)));
  }
}

TEST(Exceptions, a_kernel_that_throws_gives_its_memory_back) {
  Operands<float> x(1, 2, 1, 9, 9, 16, 16, 9);
  const auto frames = rove::rove_frames(rotary(9));
  const Context context;
  const auto throwing = [](const auto&, const Context&) { throw MaskFault("kernel"); };
  EXPECT_THROW(rove::attention(x.problem(), frames, context, throwing), MaskFault);
  rove::attention(x.problem(), frames, context, rove::materialised(rove::NaiveKernel{}));
  const Index blocks = context.allocations();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(rove::attention(x.problem(), frames, context, throwing), MaskFault);
    rove::attention(x.problem(), frames, context, rove::materialised(rove::NaiveKernel{}));
  }
  EXPECT_EQ(context.allocations(), blocks);
}

// A call inside a task of another call: with a context of its own, as the library asks.
TEST(Nesting, calls_inside_of_tasks_end_and_agree) {
  test::within(std::chrono::seconds(60), [] {
    Eigen::ThreadPool pool(3);
    const Context outer(rove::on(pool));
    Operands<float> expected(1, 2, 1, 17, 17, 16, 16, 10);
    const auto frames = rove::rove_frames(rotary(17));
    rove::attention(expected.problem().with_mask(causal()), frames);
    std::vector<Operands<float>> each(8, Operands<float>(1, 2, 1, 17, 17, 16, 16, 10));
    outer.for_each(8, [&](Index i, int) {
      const Context inner(rove::on(pool));
      rove::attention(each[static_cast<std::size_t>(i)].problem().with_mask(causal()), frames, inner);
    });
    for (const Operands<float>& x : each) EXPECT_EQ(x.out, expected.out);
    // The same context again is a mistake that is named, not a deadlock or a mixed-up result.
    Operands<float> y(1, 2, 1, 17, 17, 16, 16, 10);
    const std::string message =
        error_of([&] { outer.for_each(2, [&](Index, int) { rove::attention(y.problem(), outer); }); });
    EXPECT_EQ(message.substr(0, 55), "a task opened a scope of the context that runs it: allo");
  });
}

// ---- explain ------------------------------------------------------------------------------------

bool has(const std::string& line, const std::string& part) {
  return line.find(part) != std::string::npos;
}

TEST(Explain, says_kernel_isa_path_tiles_and_bytes_in_a_line) {
  Operands<float> x(1, 2, 1, 8, 512, 16, 16, 11);
  const auto problem = x.problem().with_query_offset(rove::align_first());
  const auto frames = rove::rove_frames(rove::rows(rotary(512), 0, 8), rotary(512));
  const std::string plain = rove::explain(problem);
  EXPECT_FALSE(has(plain, "\n"));
  EXPECT_TRUE(has(plain, rove::DefaultKernel{}.describe(problem))) << plain;
  EXPECT_TRUE(has(plain, rove::detail::isa_name())) << plain;
  EXPECT_TRUE(has(plain, ROVE_HAS_FMA ? "with fma" : "without fma")) << plain;
  EXPECT_TRUE(has(plain, "rows as they are")) << plain;
  EXPECT_TRUE(has(plain, "0 of 32 row tiles masked out")) << plain;
  EXPECT_TRUE(has(plain, std::to_string(rove::workspace_bytes(problem)) + " bytes for 1 worker")) << plain;
  EXPECT_TRUE(has(rove::explain(problem, frames), "rows turned as they are read and written"));
  // 8 rows of 2 heads, the second of two blocks of 256 keys beyond the causal edge.
  const auto masked = problem.with_mask(causal());
  EXPECT_TRUE(has(rove::explain(masked, frames), "16 of 32 row tiles masked out"))
      << rove::explain(masked, frames);
  const auto kernel = rove::materialised(rove::NaiveKernel{});
  const std::string three = rove::explain(masked, frames, kernel, 3);
  EXPECT_TRUE(has(three, "rows turned in memory first")) << three;
  EXPECT_TRUE(
      has(three, std::to_string(rove::workspace_bytes(masked, frames, kernel, 3)) + " bytes for 3 workers"))
      << three;
  const std::string lambda = rove::explain(masked, [](const auto&, const Context&) {});
  EXPECT_EQ(lambda.substr(0, 22), "a kernel of the caller") << lambda;
  EXPECT_TRUE(has(lambda, "workspace 0 bytes")) << lambda;
  EXPECT_EQ(error_of([&] { rove::explain(masked.with_scale(std::numeric_limits<double>::infinity())); }),
            "scale must be finite, got inf");
  EXPECT_EQ(error_of([&] { rove::explain(masked, rove::rope_frames(rotary(7), rotary(512))); }),
            "the query frame has 7 tokens where there are 8 queries: take rows(frame, first, count) of a "
            "longer one");
}

// A kernel that takes the accumulator's operands alone, as the materialised path promises them, can be asked
// about a problem in bfloat16.
TEST(Explain, asks_the_kernel_about_what_it_will_be_given) {
  Operands<Eigen::bfloat16> x(1, 2, 1, 4, 4, 16, 16, 12);
  const auto floats_only = [](const auto& problem, const Context&) {
    const float* q = problem.q.data;
    (void)q;
  };
  EXPECT_GT(rove::workspace_bytes(x.problem(), floats_only), 0);
  EXPECT_TRUE(has(rove::explain(x.problem(), floats_only), "turned in memory first"));
}

}  // namespace
}  // namespace rove_test

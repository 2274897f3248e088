// Calls on many threads at once, for the thread sanitizer above all: workers of one call, callers that share
// a pool, callers that share what they read.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "rove/attention/any_mask.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/core/context.hpp"
#include "rove/core/pool_executor.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/op/attention.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"
#include "support/eigen_thread_pool.hpp"
#include "support/executors.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::Context;
using rove::Index;
using std::chrono::seconds;

/// RoVE over sequences of some tiles and two key blocks, with fewer key/value heads than workers.
class Call {
 public:
  /// Writes anew into memory of its own; everything it reads is shared.
  struct Result {
    std::vector<float> out = std::vector<float>(std::size_t{2 * 4 * tokens * width}, -77);
    std::vector<float> lse = std::vector<float>(std::size_t{2 * 4 * tokens}, -77);
    bool operator==(const Result&) const = default;
  };

  void operator()(Result& result, const Context& context) const {
    const auto problem = rove::attention_problem(rove::bhtd(inputs_.q.data(), 2, 4, tokens, width),
                                                 rove::bhtd(inputs_.k.data(), 2, 2, tokens, width),
                                                 rove::bhtd(inputs_.v.data(), 2, 2, tokens, width),
                                                 rove::bhtd(result.out.data(), 2, 4, tokens, width))
                             .with_lse(rove::bht(result.lse.data(), 2, 4, tokens))
                             .with_mask(mask_);
    rove::rove_attention(problem, frame_, context, rove::TiledKernel{});
  }
  Result operator()(const Context& context = {}) const {
    Result result;
    (*this)(result, context);
    return result;
  }

 private:
  static constexpr Index tokens = 270, width = 16;
  Operands<float> inputs_{2, 4, 2, tokens, tokens, width, width, 7};
  rove::AnyMask mask_ = rove::causal();
  rove::RotaryFrame<rove::RotationTable<float>> frame_{
      rove::RotationTable<float>(rove::rotary_frequencies({.rotary_dim = width}),
                                 rove::consecutive_positions(tokens)),
      rove::Pairing::half_split};
};

TEST(Threads, workers_of_one_call_after_another) {
  test::within(seconds(120), [] {
    const Call call;
    const auto expected = call();
    for (const int workers : {1, 2, 3, 8}) {
      SCOPED_TRACE(std::to_string(workers) + " threads");
      Eigen::ThreadPool pool(workers);
      const Context context{rove::on(pool)};
      for (int times = 0; times < 5; ++times) EXPECT_EQ(call(context), expected);
      test::StridedThreads threads(workers);
      const Context strided{rove::on(threads)};
      for (int times = 0; times < 5; ++times) EXPECT_EQ(call(strided), expected);
    }
  });
}

TEST(Threads, callers_that_share_a_pool) {
  test::within(seconds(120), [] {
    const Call call;
    const auto expected = call();
    Eigen::ThreadPool pool(3);
    std::vector<std::future<Call::Result>> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.push_back(std::async(std::launch::async, [&] {
        const Context context{rove::on(pool)};
        auto result = call(context);
        for (int times = 0; times < 3; ++times) call(result, context);
        return result;
      }));
    }
    for (auto& caller : callers) EXPECT_EQ(caller.get(), expected);
  });
}

TEST(Threads, callers_that_share_an_executor) {
  // Whoever comes second works alone.
  test::within(seconds(120), [] {
    const Call call;
    const auto expected = call();
    Eigen::ThreadPool pool(2);
    auto executor = rove::on(pool);
    std::vector<std::future<Call::Result>> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.push_back(std::async(std::launch::async, [&] { return call(Context{rove::on(executor)}); }));
    }
    for (auto& caller : callers) EXPECT_EQ(caller.get(), expected);
  });
}

TEST(Threads, calls_from_the_pools_own_threads) {
  test::within(seconds(120), [] {
    const Call call;
    const auto expected = call();
    Eigen::ThreadPool pool(3);
    std::vector<std::promise<Call::Result>> results(4);
    for (std::promise<Call::Result>& result : results) {
      pool.Schedule([&] { result.set_value(call(Context{rove::on(pool)})); });
    }
    for (std::promise<Call::Result>& result : results) EXPECT_EQ(result.get_future().get(), expected);
  });
}

}  // namespace
}  // namespace rove_test

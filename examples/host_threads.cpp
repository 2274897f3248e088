// A host with threads of its own, as in ggml: all of them enter every operation together, each with its
// number, and meet at a barrier. An operator becomes a plan that they carry out; the library starts and waits
// for no thread, allocates nothing in the host's memory, and results are the call's to the last bit.
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdio>
#include <rove/rove.hpp>
#include <thread>
#include <vector>

#include "support/real_layer.hpp"

namespace {

using rove::Index;

// The host: f(worker) on every thread.
template <class F>
void on_all_threads(int count, const F& f) {
  std::vector<std::thread> threads;
  for (int worker = 1; worker < count; ++worker) threads.emplace_back(f, worker);
  f(0);
  for (std::thread& thread : threads) thread.join();
}

// [docs:host_threads]
// Tasks dealt out beforehand: one line on each thread.
template <class Plan>
void deal_out(Plan& plan) {
  std::barrier barrier(plan.workers());
  on_all_threads(plan.workers(),
                 [&](int worker) { plan.run_as(worker, [&] { barrier.arrive_and_wait(); }); });
}

// Tasks claimed as threads come free, by a counter that starts anew when all have met.
template <class Plan>
void let_claim(Plan& plan) {
  std::atomic<Index> next{0};
  std::barrier barrier(plan.workers(), [&]() noexcept { next = 0; });
  on_all_threads(plan.workers(), [&](int worker) {
    for (Index phase = 0; phase < plan.phases(); ++phase) {
      for (Index task = next++; task < plan.tasks(phase); task = next++) plan.run(phase, task, worker);
      barrier.arrive_and_wait();
    }
  });
}
// [/docs:host_threads]

}  // namespace

int main() {
  const support::RealLayer layer;
  const auto frame = layer.frame();
  std::vector<float> out(layer.q.values.size());
  const auto problem =
      rove::attention_problem(support::view(layer.q), support::view(layer.k), support::view(layer.v),
                              rove::bhtd(out.data(), 1, layer.heads(), layer.tokens(), layer.channels()))
          .with_mask(rove::causal());
  rove::rove_attention(problem, frame);
  const std::vector<float> expected = out;

  bool good = true;
  for (const int threads : {1, 2, 4}) {
    // When the host plans its graph: how much memory, all of it the host's.
    const Index bytes =
        rove::workspace_bytes(problem, rove::rove_frames(frame), rove::DefaultKernel(), threads);
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
    const rove::Context context(rove::HostWorkers{threads}, memory);
    const auto check = [&](const char* sharing, const auto& carry_out) {
      out.assign(out.size(), 0);
      {
        auto plan = rove::rove_attention_plan(problem, frame, context);
        carry_out(plan);
      }
      const bool same = out == expected;
      std::printf("%d threads, %7lld bytes, tasks %s: %s\n", threads, static_cast<long long>(bytes), sharing,
                  same ? "same bits" : "OTHER BITS");
      good = good && same && context.allocations() == 0;
    };
    check("dealt out", [](auto& plan) { deal_out(plan); });
    check("claimed  ", [](auto& plan) { let_claim(plan); });
  }
  return good ? 0 : 1;
}

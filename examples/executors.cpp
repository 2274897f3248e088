// Who does the work, and in whose memory: a thread pool, OpenMP, an executor of one's own, and memory of
// one's own. The library starts no thread, and results are the same to the last bit.
#if __has_include(<Eigen/ThreadPool>)
#include <Eigen/ThreadPool>
#else
#include <unsupported/Eigen/CXX11/ThreadPool>  // Eigen 3.4
#endif

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <rove/rove.hpp>
#include <thread>
#include <vector>

#include "support/real_layer.hpp"

namespace {

using rove::Index;

// An executor is two functions. This one starts its threads anew each time, which a real one would not.
class FreshThreads {
 public:
  explicit FreshThreads(int workers) : workers_(workers) {}

  int concurrency() const { return workers_; }

  // Calls task(index, worker) once for every index in [0, n), no two tasks of a worker at the same time, and
  // waits for all of them.
  void for_each(Index n, rove::TaskRef task) const {
    std::atomic<Index> next{0};
    const auto work = [&](int worker) {
      for (Index index = next++; index < n; index = next++) task(index, worker);
    };
    std::vector<std::thread> threads;
    for (int worker = 1; worker < workers_; ++worker) threads.emplace_back(work, worker);
    work(0);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int workers_;
};

}  // namespace

int main() {
  const support::RealLayer layer;
  const auto frame = layer.frame();
  std::vector<float> out(layer.q.values.size());
  const auto problem =
      rove::attention_problem(support::view(layer.q), support::view(layer.k), support::view(layer.v),
                              rove::bhtd(out.data(), 1, layer.heads(), layer.tokens(), layer.channels()))
          .with_mask(rove::causal());

  rove::rove_attention(problem, frame);  // no context: serial, with memory for this call
  const std::vector<float> expected = out;

  // Calls twice, as a model does layer after layer, and says what the context's memory cost.
  std::printf("%-32s workers  bits   blocks allocated by the first call, the second\n", "executor");
  bool good = true;
  const auto run = [&](const char* name, const rove::Context& context) {
    bool same = true;
    Index blocks[2];
    for (Index& allocated : blocks) {
      const Index before = context.allocations();
      out.assign(out.size(), 0);
      rove::rove_attention(problem, frame, context);
      same = same && out == expected;
      allocated = context.allocations() - before;
    }
    std::printf("%-32s %7d  %-5s  %lld, %lld\n", name, context.concurrency(), same ? "same" : "OTHER",
                static_cast<long long>(blocks[0]), static_cast<long long>(blocks[1]));
    good = good && same && blocks[1] == 0;
  };

  run("serial", rove::Context());

  Eigen::ThreadPool pool(3);
  run("Eigen::ThreadPool of 3", rove::Context(rove::on(pool)));  // the calling thread takes part
  run("the same, 2 workers at most", rove::Context(rove::on(pool, 2)));
#if defined(_OPENMP)
  run("OpenMP", rove::Context(rove::on_openmp(2)));
#endif
  run("one's own, given away", rove::Context(FreshThreads(3)));
  FreshThreads threads(2);
  run("one's own, lent", rove::Context(rove::on(threads)));

  // Memory of one's own: as much as the call says it takes, and never an allocation.
  const auto executor = rove::on(pool, 2);
  const Index bytes = rove::workspace_bytes(problem, rove::rove_frames(frame), executor.concurrency());
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
  const rove::Context confined(executor, memory);
  run("pool, in memory of one's own", confined);
  good = good && confined.allocations() == 0;
  std::printf("\n%lld bytes are enough; a byte less is refused:\n", static_cast<long long>(bytes));
  memory.pop_back();
  try {
    rove::rove_attention(problem, frame, rove::Context(executor, memory));
    good = false;
  } catch (const rove::Error& error) {
    std::printf("%s\n", error.what());
  }
  return good ? 0 : 1;
}

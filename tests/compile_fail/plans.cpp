// Plans: what cannot be one is told in words, at the call.
#include "rove/rove.hpp"

namespace {

struct OwnPlan {
  rove::Index phases() const { return 0; }
#if ROVE_PROBE != 1
  rove::Index tasks(rove::Index) const {
    return 0;
  }
#endif
  void run(rove::Index, rove::Index, int) {}
};

struct OwnKernel {
  template <class Problem>
  void operator()(const Problem&, const rove::Context&) const {}
  template <class Problem, class Transforms>
  OwnPlan plan(const Problem&, const Transforms&, const rove::Context&) const {
    return {};
  }
};

}  // namespace

void attend(const float* in, float* result, const rove::RotaryFrequencies& frequencies) {
  const auto rows = rove::bhtd(in, 1, 1, 4, 8);
  const rove::RotaryFrame frame(rove::RotationTable<float>(frequencies, rove::consecutive_positions(4)),
                                rove::Pairing::half_split);
  const auto problem = rove::attention_problem(rows, rows, rows, rove::bhtd(result, 1, 1, 4, 8));
  const rove::Context context{rove::HostWorkers(2)};
  auto own = rove::rove_attention_plan(problem, frame, context, OwnKernel{});
  own.run_as(0, [] {});
#if ROVE_PROBE == 2
  auto called = rove::rove_attention_plan(problem, frame, context, rove::materialised(rove::NaiveKernel{}));
#elif ROVE_PROBE == 3
  auto dangling = rove::rove_attention_plan(problem, frame, rove::Context{rove::HostWorkers(2)});
#elif ROVE_PROBE == 4
  auto moved = std::move(own);
#endif
}

// Operators: what does not fit is told in words, at the call.
#include "rove/rove.hpp"

namespace {

struct OwnKernel {
  template <class Problem>
  void operator()(const Problem&, const rove::Context&) const {}
#if ROVE_PROBE == 1
  template <class Problem>
  void fused(const Problem&, int, const rove::Context&) const {}
#else
  template <class Problem, class Transforms>
  void fused(const Problem&, const Transforms&, const rove::Context&) const {}
#endif
};

#if ROVE_PROBE == 2
using Number = double;
#else
using Number = float;
#endif
#if ROVE_PROBE == 3
using Output = const float;
#else
using Output = float;
#endif

}  // namespace

void attend(const Number* in, Output* result, const rove::RotaryFrequencies& frequencies) {
  const auto rows = rove::bhtd(in, 1, 1, 4, 8);
  const auto out = rove::bhtd(result, 1, 1, 4, 8);
  const rove::RotaryFrame frame(rove::RotationTable<float>(frequencies, rove::consecutive_positions(4)),
                                rove::Pairing::half_split);
  const auto problem = rove::attention_problem(rows, rows, rows, out);
  rove::rove_attention(problem, frame);
  rove::rove_attention(problem, frame, rove::Context{}, OwnKernel{});
#if ROVE_PROBE == 4
  const auto other = rove::bhtd(static_cast<const double*>(nullptr), 1, 1, 4, 8);
#else
  const auto other = rows;
#endif
  (void)problem.with_key_values(rove::key_values(other, other));
}

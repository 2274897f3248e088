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

struct FloatFrame {
  rove::Index batch() const { return 1; }
  rove::Index tokens() const { return 4; }
  rove::Index channels() const { return 0; }
  void apply(rove::Index, rove::Index, std::span<float>) const {}
  void inverse(rove::Index, rove::Index, std::span<float>) const {}
  void transpose(rove::Index, rove::Index, std::span<float>) const {}
  void inverse_transpose(rove::Index, rove::Index, std::span<float>) const {}
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

#if ROVE_PROBE == 5
using Rows = double;
#else
using Rows = float;
#endif

void attend_by_own_frame(const Rows* in, float* result) {
  const auto rows = rove::bhtd(in, 1, 1, 4, 8);
  rove::rove_attention(rove::attention_problem(rows, rows, rows, rove::bhtd(result, 1, 1, 4, 8)),
                       FloatFrame{});
}

// Compiled several times with different flags, each time under the name TWO_TU_VARIANT.
#include "per_flags.hpp"

#include <typeinfo>

#include "rove/rove.hpp"

#define TWO_TU_STRING_(name) #name
#define TWO_TU_STRING(name) TWO_TU_STRING_(name)
#define TWO_TU_NAME_(name) variant_##name
#define TWO_TU_NAME(name) TWO_TU_NAME_(name)

namespace two_tu {
namespace {

bool runs_here() {
#if defined(__x86_64__)
  bool all = true;
#if defined(__AVX2__)
  all = all && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
#endif
#if defined(__AVX512F__)
  all = all && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
        __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0;
#endif
  return all;
#else
  return true;
#endif
}

using Rows = rove::TensorView<const float>;
using Problem = decltype(rove::attention_problem(Rows{}, Rows{}, Rows{}, rove::TensorView<float>{}));

template <class T>
Layout layout(const char* type) {
  return {type, sizeof(T), alignof(T)};
}
#define TWO_TU_LAYOUT(...) layout<__VA_ARGS__>(#__VA_ARGS__)

std::vector<Layout> layouts() {
  return {
      TWO_TU_LAYOUT(rove::TensorView<float>),
      TWO_TU_LAYOUT(rove::TensorView<const double>),
      TWO_TU_LAYOUT(rove::RowView<float>),
      TWO_TU_LAYOUT(rove::IntegerSpan),
      TWO_TU_LAYOUT(rove::Error),
      TWO_TU_LAYOUT(rove::QueryOffset),
      TWO_TU_LAYOUT(rove::Site),
      TWO_TU_LAYOUT(rove::AttentionShape),
      TWO_TU_LAYOUT(rove::RotaryFrequencies),
      TWO_TU_LAYOUT(rove::RopeScaling),
      TWO_TU_LAYOUT(rove::RotationTable<float>),
      TWO_TU_LAYOUT(rove::RotaryFrame<rove::RotationTable<float>>),
      TWO_TU_LAYOUT(rove::AnyMask),
      TWO_TU_LAYOUT(rove::AnyScore),
      TWO_TU_LAYOUT(rove::Context),
      TWO_TU_LAYOUT(Problem),
  };
}

void refuse(rove::Index heads) {
  ROVE_EXPECT(heads == 0, "q has ", heads, " heads, not 0");
}

template <class T>
void attend(rove::TensorView<const T> q, rove::TensorView<const T> k, rove::TensorView<const T> v,
            rove::TensorView<T> out) {
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = q.channels(), .rope_theta = 1e4});
  const rove::RotaryFrame frame(rove::RotationTable<T>(frequencies, rove::consecutive_positions(q.tokens())),
                                rove::Pairing::half_split);
  rove::rove_attention(rove::attention_problem(q, k, v, out).with_mask(rove::causal()), frame);
}

}  // namespace

extern const Variant TWO_TU_NAME(TWO_TU_VARIANT);
const Variant TWO_TU_NAME(TWO_TU_VARIANT) = {TWO_TU_STRING(TWO_TU_VARIANT),
                                             &runs_here,
                                             typeid(Problem).name(),
                                             &layouts,
                                             &refuse,
                                             &attend<float>,
                                             &attend<double>};

}  // namespace two_tu

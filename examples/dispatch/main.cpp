// One program for several CPUs: attend.cpp is compiled once for each instruction set, and the CPU that the
// program finds itself on decides which of them is called.
#include "dispatch/attend.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "support/real_layer.hpp"

namespace {

struct Version {
  const char* name;
  bool supported;  // by this CPU and its operating system
  void (*attend)(const dispatch::Operands&);
};

// The widest first. Each condition lists what CMakeLists.txt compiles that version with, feature by feature.
std::vector<Version> versions() {
  return {
#if defined(__x86_64__)
    {"AVX-512",
     __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
     dispatch::attend_avx512},
        {"AVX2 with FMA", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
         dispatch::attend_avx2},
#endif
        {"baseline", true, dispatch::attend_baseline},
  };
}

// The shortest of five runs.
double milliseconds(const Version& version, const dispatch::Operands& operands) {
  using Clock = std::chrono::steady_clock;
  double shortest = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 5; ++run) {
    const auto start = Clock::now();
    version.attend(operands);
    shortest = std::fmin(shortest, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return shortest;
}

}  // namespace

int main() {
  const support::RealLayer layer;
  std::vector<float> out(layer.q.values.size());
  const dispatch::Operands operands{
      .q = support::view(layer.q),
      .k = support::view(layer.k),
      .v = support::view(layer.v),
      .out = rove::bhtd(out.data(), 1, layer.heads(), layer.tokens(), layer.channels()),
      .rope_theta = 1e5};

  bool good = true;
  const Version* chosen = nullptr;
  const std::vector<Version> all = versions();
  for (const Version& version : all) {
    if (!version.supported) {
      std::printf("%-14s not on this CPU\n", version.name);
      continue;
    }
    if (chosen == nullptr) chosen = &version;
    const double time = milliseconds(version, operands);
    const double difference = support::largest_difference(out, layer.attention.values);
    good = good && difference < 1e-5;
    std::printf("%-14s %6.2f ms, off the model's own output by %.1e%s\n", version.name, time, difference,
                chosen == &version ? "  <- a program calls this one" : "");
  }

  // An exception crosses as well: its type is the same in every object.
  dispatch::Operands unfit = operands;
  unfit.k = unfit.k.slice(1, 0, 2);  // two key heads, three value heads
  try {
    chosen->attend(unfit);
    good = false;
  } catch (const rove::Error& error) {
    std::printf("%-14s refuses what does not fit: %s\n", chosen->name, error.what());
  }
  return good ? 0 : 1;
}

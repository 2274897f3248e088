/// \file
/// Which of OpenBLAS's kernels this CPU deserves. Its own choice goes by model numbers: on a CPU younger than
/// the library, or behind a hypervisor that shows another number, it can fall back to SSE2 and be many times
/// slower than it need be, an unfair rival.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// As far as the choice goes.
struct CpuFeatures {
  bool amd = false;
  bool avx = false;
  bool avx2_fma = false;
  bool avx512 = false;  ///< F, DQ, BW and VL
  bool avx512_bf16 = false;
};

/// Of the CPU that this runs on; none of them on any but x86-64.
inline CpuFeatures this_cpu() {
  CpuFeatures cpu;
#if defined(__x86_64__)
  __builtin_cpu_init();
  cpu.amd = __builtin_cpu_is("amd");
  cpu.avx = __builtin_cpu_supports("avx");
  cpu.avx2_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  cpu.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  cpu.avx512_bf16 = __builtin_cpu_supports("avx512bf16");
#endif
  return cpu;
}

/// OpenBLAS's names of cores whose sgemm uses all of the CPU; the first is to be asked for where it chose
/// none of them. The three for AVX-512 have one sgemm. Empty: its own choice stands.
inline std::vector<std::string_view> suitable_cores(const CpuFeatures& cpu) {
  if (cpu.avx512 && cpu.avx512_bf16) return {"Cooperlake", "SapphireRapids", "SkylakeX"};
  if (cpu.avx512) return {"SkylakeX"};
  if (cpu.avx2_fma && cpu.amd) return {"Zen", "Haswell"};
  if (cpu.avx2_fma) return {"Haswell", "Zen"};
  if (cpu.avx) return {"Sandybridge"};
  return {};
}

/// What to put in OPENBLAS_CORETYPE; empty where `chosen`, OpenBLAS's own choice, will do.
inline std::string core_to_ask_for(const CpuFeatures& cpu, std::string_view chosen) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  const auto cores = suitable_cores(cpu);
  for (const std::string_view core : cores) {
    if (std::equal(core.begin(), core.end(), chosen.begin(), chosen.end(), same)) return {};
  }
  return cores.empty() ? std::string() : std::string(cores.front());
}

}  // namespace bench

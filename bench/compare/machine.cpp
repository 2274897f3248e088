#include "bench/compare/machine.hpp"

#include <Eigen/Core>

#include <fstream>
#include <string>
#include <thread>

#include "bench/compare/openblas.hpp"
#include "rove/core/config.hpp"

#define ROVE_BENCH_QUOTE(x) #x
#define ROVE_BENCH_STRING(x) ROVE_BENCH_QUOTE(x)

namespace bench {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#elif defined(__GNUC__)
  return "GCC " __VERSION__;
#else
  return "unknown";
#endif
}

std::string version(int major, int minor, int patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

}  // namespace

nlohmann::ordered_json describe_machine() {
  nlohmann::ordered_json json;
  json["cpu"] = cpu_name();
  json["logical_cpus"] = std::thread::hardware_concurrency();
  json["isa"] = ROVE_BENCH_STRING(ROVE_TAG_ISA) " " ROVE_BENCH_STRING(ROVE_TAG_FMA);
  json["compiler"] = compiler();
#if defined(__OPTIMIZE__)
  json["optimised"] = true;
#else
  json["optimised"] = false;
#endif
  json["rove"] = version(ROVE_VERSION_MAJOR, ROVE_VERSION_MINOR, ROVE_VERSION_PATCH);
  json["eigen"] = version(EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
  json["openblas"] = openblas_version();
  json["openblas_core"] = openblas_core();
  json["threads_pinned"] = false;
  return json;
}

}  // namespace bench

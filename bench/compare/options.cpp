#include "bench/compare/options.hpp"

#include <CLI/CLI.hpp>
#include <thread>

namespace bench {

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app("Times the library's rivals in turn and prints how they compare.", "rove_compare");
  bool quick = false;
  auto* const full =
      app.add_flag("--full", options.full,
                   "4096 tokens, larger tables and the materialised path too; takes half an hour or more");
  app.add_flag("--quick", quick, "a few minutes (the default)")->excludes(full);
  app.add_option("--filter", options.filter, "only races with a case whose name contains this");
  app.add_option("--json", options.json, "file for the results")->capture_default_str();
  app.add_option("--threads", options.threads,
                 "numbers of threads to time with; 1 and 2 where there are two CPUs")
      ->check(CLI::Range(1, 1024));
  app.add_option("--draws", options.draws, "timed runs of every rival; below 101 intervals are wide")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (options.threads.empty()) {
    options.threads = {1};
    if (std::thread::hardware_concurrency() > 1) options.threads.push_back(2);
  }
  return {};
}

}  // namespace bench

#include "bench/compare/options.hpp"

#include <CLI/CLI.hpp>
#include <thread>

namespace bench {

std::optional<int> parse_options(int argc, const char* const* argv, Options& options) {
  CLI::App app("Times the library's rivals in turn and prints how they compare.", "rove_compare");
  bool quick = false;
  auto* const extent = app.add_option_group("extent", "how much of it");
  extent->add_flag("--quick", quick, "up to 1024 tokens, a few minutes (the default)");
  extent->add_flag("--targets", options.targets,
                   "every speed that the library is meant to reach, and whether it does; 20 to 30 minutes");
  extent->add_flag("--full", options.full, "both of these and larger tables");
  extent->require_option(0, 1);
  app.add_option("--filter", options.filter, "only races with a case whose name contains this");
  app.add_option("--json", options.json, "file for the results")->capture_default_str();
  app.add_option("--threads", options.threads,
                 "numbers of threads to time with; 1 and 2 where there are two CPUs")
      ->check(CLI::Range(1, 1024));
  app.add_option("--draws", options.draws,
                 "timed runs of every rival, fewer of long ones; below 101 intervals are wide")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--shrink", options.shrink,
                 "divide all numbers of tokens by this: shows that everything runs, not how fast")
      ->check(CLI::Range(1, 64));
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

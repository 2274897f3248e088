// Rivals in turn: the library's rotations, tables and attention beside the FMA peak, OpenBLAS, memcpy and
// each other. bench/README.md says how to read what it prints.

#include <exception>
#include <iostream>
#include <string>

#include "bench/compare/bench.hpp"
#include "bench/compare/cases.hpp"
#include "bench/compare/machine.hpp"
#include "bench/compare/openblas.hpp"
#include "bench/compare/options.hpp"
#include "bench/compare/report.hpp"

int main(int argc, char** argv) {
  bench::prepare_openblas(argv);
  bench::Options options;
  if (const auto status = bench::parse_options(argc, argv, options)) return *status;
  try {
    bench::check_writable(options.json);
    auto header = bench::describe_machine();
    for (const auto& [key, value] : header.items()) {
      std::cout << key << ": " << (value.is_string() ? value.get<std::string>() : value.dump()) << '\n';
    }
    header["draws"] = options.draws;
    header["full"] = options.full;
    if (options.shrink > 1) header["shrink"] = options.shrink;

    bench::Bench bench(options);
    bench::compare_references(bench);
    if (!options.targets) {
      bench::compare_tables(bench);
      bench::compare_rotations(bench);
      bench::compare_kernels(bench);
    }
    bench::compare_frames(bench);
    if (bench.has_time()) {
      bench::compare_speeds(bench);
      bench::compare_head_sizes(bench);
      bench::compare_variants(bench);
      bench::compare_storage(bench);
      bench::compare_window(bench);
      bench::compare_threads(bench);
    }
    if (!bench.targets().empty()) {
      std::cout << "\nTargets\n\n";
      bench::print_targets(std::cout, bench.targets());
    }
    bench::write_results(options.json, header, bench.records(), bench.targets());
    std::cout << "\nwritten to " << options.json << '\n';
  } catch (const std::exception& error) {
    std::cerr << "rove_compare: " << error.what() << '\n';
    return 1;
  }
  return 0;
}

/// \file
/// One run of rove_compare: what was asked for, threads, and what has been found so far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/compare/options.hpp"
#include "bench/compare/race.hpp"
#include "bench/compare/record.hpp"
#include "bench/compare/report.hpp"
#include "bench/compare/target.hpp"
#include "bench/support/workers.hpp"

namespace bench {

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)) {}

  const Options& options() const { return options_; }
  std::span<const Record> records() const { return records_; }
  std::span<const Target> targets() const { return targets_; }

  /// Whether races that take many seconds are wanted.
  bool has_time() const { return options_.full || options_.targets; }
  /// Timed runs of each rival of a race of long ones.
  int draws(int most) const { return (std::min)(options_.draws, most); }
  /// A number of tokens as asked for by --shrink.
  Index tokens(Index count) const { return (std::max)(Index{1}, count / options_.shrink); }

  const Workers& workers(int threads) { return workers_.try_emplace(threads, threads).first->second; }

  /// Whether a race between these is wanted.
  bool wants(std::span<const Rival> rivals) const {
    for (const Rival& rival : rivals) {
      if (rival.name.find(options_.filter) != std::string::npos) return true;
    }
    return false;
  }

  /// One section of the table: its title, then, when `fill` has added them, its records.
  template <class Fill>
  void section(const char* title, const Fill& fill) {
    std::cout << '\n' << title << "\n\n" << std::flush;
    const std::size_t first = records_.size();
    fill();
    const auto added = records().subspan(first);
    if (added.empty()) {
      std::cout << "(none asked for)\n";
    } else {
      print_table(std::cout, added);
    }
  }
  void add(Record record) { records_.push_back(std::move(record)); }
  void add(Target target) {
    if (options_.shrink > 1) target.obstacle = "shapes were shrunk";
    targets_.push_back(std::move(target));
  }

  /// OpenBLAS's flops a second by number of threads, where it is worth comparing with.
  std::map<int, double> sgemm_gflops;

 private:
  Options options_;
  std::map<int, Workers> workers_;
  std::vector<Record> records_;
  std::vector<Target> targets_;
};

}  // namespace bench

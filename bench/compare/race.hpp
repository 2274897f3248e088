/// \file
/// Rivals timed in turn, A B A B …: whatever slows the machine for a while slows all of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/compare/statistics.hpp"

namespace bench {

struct Rival {
  std::string name;
  std::function<void()> run;
};

/// The times of one rival, round by round.
struct Draws {
  std::vector<double> seconds;

  double best() const { return smallest(seconds); }
  double median() const { return bench::median(seconds); }
};

/// `rounds` rounds; in each, every rival runs once, in the order given. One round before them is not timed:
/// it touches memory, fills caches and wakes threads. A rival should take 100 µs or more, against a clock
/// that is read in 0.05. Wall-clock time, no draw dropped.
template <class Clock = std::chrono::steady_clock>
std::vector<Draws> race(std::span<const Rival> rivals, int rounds) {
  std::vector<Draws> taken(rivals.size());
  for (const Rival& rival : rivals) rival.run();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < rivals.size(); ++i) {
      const auto begin = Clock::now();
      rivals[i].run();
      const auto end = Clock::now();
      taken[i].seconds.push_back(std::chrono::duration<double>(end - begin).count());
    }
  }
  return taken;
}

}  // namespace bench

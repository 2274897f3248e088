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

/// What takes no longer runs once untimed before each draw.
inline constexpr double short_seconds = 0.1;

/// `rounds` rounds; in each, every rival runs once, in the order given. One round before them is not timed:
/// it touches memory, fills caches and wakes threads. A rival that took `short_seconds` or less in it also
/// runs once untimed before each draw, so that what it finds in caches is its own and not what a longer rival
/// left. A rival should take 100 µs or more, against a clock that is read in 0.05. Wall-clock time, no draw
/// dropped.
template <class Clock = std::chrono::steady_clock>
std::vector<Draws> race(std::span<const Rival> rivals, int rounds) {
  const auto timed = [](const Rival& rival) {
    const auto begin = Clock::now();
    rival.run();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::vector<Draws> taken(rivals.size());
  std::vector<bool> is_short;
  for (const Rival& rival : rivals) is_short.push_back(timed(rival) <= short_seconds);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < rivals.size(); ++i) {
      if (is_short[i]) rivals[i].run();
      taken[i].seconds.push_back(timed(rivals[i]));
    }
  }
  return taken;
}

}  // namespace bench

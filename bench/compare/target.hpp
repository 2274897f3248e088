/// \file
/// What the library is meant to reach, beside what was measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/compare/statistics.hpp"

namespace bench {

enum class Side { at_least, at_most };
enum class Verdict { met, missed, not_comparable };

/// One bar for one shape. Several shapes share a row: each has to meet it.
struct Target {
  std::string row;    ///< what is asked for
  std::string shape;  ///< of what
  double measured;    ///< best over best, unless the row says that it is a median
  Side side;
  double bar;
  std::optional<Ratio> ratio = {};  ///< the median of adjacent pairs and its interval, where there are pairs
  bool by_interval = false;         ///< missed only where the whole interval is beyond the bar
  std::string obstacle = {};        ///< why this machine cannot tell, if it cannot

  /// The number that is held against the bar.
  double judged() const {
    if (!by_interval || !ratio) return measured;
    return side == Side::at_most ? ratio->interval.low : ratio->interval.high;
  }
  /// 1 at the bar, below it where the bar is missed.
  double margin() const { return side == Side::at_least ? judged() / bar : bar / judged(); }
  Verdict verdict() const {
    if (!obstacle.empty()) return Verdict::not_comparable;
    return margin() >= 1 ? Verdict::met : Verdict::missed;  // NaN too
  }
};

inline const char* name(Verdict verdict) {
  return verdict == Verdict::met ? "met" : verdict == Verdict::missed ? "missed" : "not comparable here";
}

/// The shapes of one row.
struct TargetRow {
  const Target* worst;  ///< of those that can be judged, if any can
  std::size_t shapes = 0;
  std::size_t missed = 0;
  std::size_t not_comparable = 0;

  Verdict verdict() const {
    if (missed > 0) return Verdict::missed;
    return not_comparable == shapes ? Verdict::not_comparable : Verdict::met;
  }
};

/// One entry a row, in the order of the rows' first shapes.
inline std::vector<TargetRow> target_rows(std::span<const Target> targets) {
  std::vector<TargetRow> rows;
  for (const Target& target : targets) {
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const TargetRow& r) { return r.worst->row == target.row; });
    if (row == rows.end()) row = rows.insert(rows.end(), TargetRow{&target});
    ++row->shapes;
    const Verdict verdict = target.verdict(), so_far = row->worst->verdict();
    row->missed += verdict == Verdict::missed ? 1 : 0;
    row->not_comparable += verdict == Verdict::not_comparable ? 1 : 0;
    const bool judged = verdict != Verdict::not_comparable, were = so_far != Verdict::not_comparable;
    if ((judged && !were) || (judged == were && !(target.margin() >= row->worst->margin()))) {
      row->worst = &target;
    }
  }
  return rows;
}

}  // namespace bench

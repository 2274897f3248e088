/// \file
/// What a list of measured times says: order statistics only, since interruptions make times lopsided and
/// their mean meaningless.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace bench {

inline std::vector<double> sorted(std::span<const double> values) {
  if (values.empty()) throw std::invalid_argument("no values to take statistics of");
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

inline double smallest(std::span<const double> values) {
  return sorted(values).front();
}

/// The middle value; the mean of the two middle ones of an even number.
inline double median(std::span<const double> values) {
  const auto in_order = sorted(values);
  const std::size_t half = in_order.size() / 2;
  return in_order.size() % 2 == 1 ? in_order[half] : (in_order[half - 1] + in_order[half]) / 2;
}

struct Interval {
  double low;
  double high;
  double coverage;  ///< how likely it holds the true median, if the values are independent draws
};

/// Whatever their distribution, n independent draws have the median between the k-th smallest and the k-th
/// largest with probability 1 − 2 P(B < k), B ~ Binomial(n, ½). Takes the largest k that reaches `wanted`;
/// k = 1, the whole range, where none does (5 draws or fewer for 0.95): then `coverage` is less.
/// (David and Nagaraja, Order Statistics, 7.1.)
inline Interval median_interval(std::span<const double> values, double wanted = 0.95) {
  const auto in_order = sorted(values);
  const auto n = static_cast<double>(in_order.size());
  const auto probability = [n](double i) {  // P(B = i)
    return std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) - n * std::log(2.0));
  };
  std::size_t k = 1;
  double below = probability(0);  // P(B < k)
  while (2 * (k + 1) <= in_order.size() + 1) {
    const double next = below + probability(static_cast<double>(k));
    if (1 - 2 * next < wanted) break;
    below = next;
    ++k;
  }
  return {in_order[k - 1], in_order[in_order.size() - k], std::max(0.0, 1 - 2 * below)};
}

/// How one rival's time compares with another's, measured in turn.
struct Ratio {
  double median;      ///< of the quotients of adjacent pairs: slow drifts of the machine cancel
  Interval interval;  ///< of that median
  double of_bests;    ///< quotient of the two best times: far from `median` on a machine that was not quiet
};

/// a[i] / b[i] over the rounds i.
inline Ratio paired_ratio(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) throw std::invalid_argument("rivals need the same number of draws");
  std::vector<double> quotients;
  for (std::size_t i = 0; i < a.size(); ++i) quotients.push_back(a[i] / b[i]);
  return {median(quotients), median_interval(quotients), smallest(a) / smallest(b)};
}

/// How many times as fast a rival is that does `work_a` in a[i] seconds as one that does `work_b` in b[i].
inline Ratio speed_ratio(double work_a, std::span<const double> a, double work_b, std::span<const double> b) {
  Ratio ratio = paired_ratio(b, a);
  const double scale = work_a / work_b;
  ratio.median *= scale;
  ratio.interval.low *= scale;
  ratio.interval.high *= scale;
  ratio.of_bests *= scale;
  return ratio;
}

}  // namespace bench

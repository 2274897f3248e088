/// \file
/// Tests of packets, of the plain type and of the target's own: numbers to fill them with, and when two are
/// the same.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "rove/core/simd.hpp"

namespace rove_test {

/// The bytes of a value.
template <class T>
std::vector<unsigned char> bytes(const T& value) {
  std::vector<unsigned char> result(sizeof value);
  std::memcpy(result.data(), &value, sizeof value);
  return result;
}

/// The same bits; any two NaN count as the same.
template <class Acc>
bool same(Acc a, Acc b) {
  return (std::isnan(a) && std::isnan(b)) || bytes(a) == bytes(b);
}

/// Numbers that are awkward in one way or another, in random order.
template <class Acc>
std::vector<Acc> awkward(std::size_t count, unsigned seed) {
  constexpr Acc infinity = std::numeric_limits<Acc>::infinity(),
                tiny = std::numeric_limits<Acc>::denorm_min();
  const Acc special[] = {0,
                         Acc(-0.0),
                         infinity,
                         -infinity,
                         std::numeric_limits<Acc>::quiet_NaN(),
                         tiny,
                         -tiny,
                         (std::numeric_limits<Acc>::max)(),
                         1,
                         -1};
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 3);
  std::vector<Acc> numbers(count);
  for (auto& number : numbers) {
    const std::size_t pick = random() % 40;
    number = pick < std::size(special) ? special[pick] : static_cast<Acc>(normal(random));
  }
  return numbers;
}

/// Runs each test on the plain type, a packet of width 1, and on the target's own packet.
template <class P>
class Packets : public testing::Test {};
using PacketTypes = testing::Types<float, double, rove::simd::packet_t<float>, rove::simd::packet_t<double>>;

}  // namespace rove_test

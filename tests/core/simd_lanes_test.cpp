// Lanes that change places, and folds over them: by one tree, whatever the width of a packet.
#include "rove/core/simd_lanes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "rove/core/simd.hpp"
#include "support/packets.hpp"

namespace {

namespace simd = rove::simd;
using rove_test::awkward;
using rove_test::bytes;

using rove_test::Packets;
using rove_test::PacketTypes;
TYPED_TEST_SUITE(Packets, PacketTypes);

TYPED_TEST(Packets, sums_fold_sixteen_lanes_by_one_tree) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, 1);
  for (int trial = 0; trial < 200; ++trial) {
    Acc lanes[16];
    for (Acc& lane : lanes) lane = static_cast<Acc>(std::exp(6 * normal(random)));
    P packets[simd::parts<P>];
    for (int i = 0; i < simd::parts<P>; ++i) packets[i] = simd::load<P>(lanes + i * simd::width<P>);
    const Acc largest = simd::reduce_max<P>(packets), sum = simd::reduce_add<P>(packets);
    EXPECT_EQ(largest, *std::max_element(lanes, lanes + 16));
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    EXPECT_EQ(sum, lanes[0]);
  }
}

TYPED_TEST(Packets, the_largest_of_lanes_is_nan_if_any_is) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  for (int poisoned = 0; poisoned < 16; ++poisoned) {
    Acc lanes[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2};
    lanes[poisoned] = std::numeric_limits<Acc>::quiet_NaN();
    P packets[simd::parts<P>];
    for (int i = 0; i < simd::parts<P>; ++i) packets[i] = simd::load<P>(lanes + i * simd::width<P>);
    EXPECT_TRUE(std::isnan(simd::reduce_max<P>(packets))) << poisoned;
  }
}

TYPED_TEST(Packets, pairs_swap_double_and_change_sign) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  if constexpr (!simd::is_scalar<P>) {
    constexpr int width = simd::width<P>;
    std::vector<Acc> numbers(width), halves(width / 2);  // exactly as long as what may be read
    for (int i = 0; i < width; ++i) numbers[static_cast<std::size_t>(i)] = static_cast<Acc>(i + 1);
    for (int i = 0; i < width / 2; ++i) halves[static_cast<std::size_t>(i)] = static_cast<Acc>(10 * i);
    const P packet = simd::load<P>(numbers.data());
    const P swapped = simd::swap_pairs(packet), turned = simd::negate_even(packet);
    const P doubled = simd::load_dup<P>(halves.data());
    for (int i = 0; i < width; ++i) {
      EXPECT_EQ(simd::lane(swapped, i), static_cast<Acc>((i ^ 1) + 1));
      EXPECT_EQ(simd::lane(turned, i), static_cast<Acc>(i % 2 == 0 ? -(i + 1) : i + 1));
      EXPECT_EQ(simd::lane(doubled, i), static_cast<Acc>(10 * (i / 2)));
    }
    EXPECT_TRUE(std::signbit(simd::lane(simd::negate_even(simd::broadcast<P>(0)), 0)));
  }
}

TYPED_TEST(Packets, a_transposed_square_has_its_rows_as_columns) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  const auto numbers = awkward<Acc>(std::size_t{width} * width, 8);
  P rows[std::size_t{width}];
  for (int i = 0; i < width; ++i) rows[i] = simd::load<P>(&numbers[static_cast<std::size_t>(i * width)]);
  simd::transpose<P>(rows);
  for (int i = 0; i < width; ++i) {
    for (int j = 0; j < width; ++j) {
      ASSERT_EQ(bytes(simd::lane(rows[i], j)), bytes(numbers[static_cast<std::size_t>(j * width + i)]))
          << i << ' ' << j;
    }
  }
}

/// The tree of `reduce`, written out.
template <class Acc, class Fold>
Acc tree(const Acc (&lanes)[16], Fold fold) {
  Acc left[16];
  std::copy(lanes, lanes + 16, left);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) left[i] = fold(left[i], left[i + half]);
  }
  return left[0];
}

TYPED_TEST(Packets, many_sums_at_once_are_those_of_one_at_a_time) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  std::mt19937 random(9);
  std::normal_distribution<double> normal(0, 1);
  const auto add = [](auto a, auto b) { return a + b; };
  // Neither associative nor commutative: it tells left from right and every order from every other.
  const auto lean = [](auto a, auto b) {
    return simd::mul_add(a, simd::broadcast<decltype(a)>(Acc(0.625)), b);
  };
  for (int trial = 0; trial < 100; ++trial) {
    Acc lanes[std::size_t{width}][16];
    P sums[std::size_t{width}], leant[std::size_t{width}];
    for (int r = 0; r < width; ++r) {
      for (Acc& lane : lanes[r]) lane = static_cast<Acc>(std::exp(trial < 50 ? 6 * normal(random) : 0.1));
      if (trial >= 50) lanes[r][trial % 16] = static_cast<Acc>(normal(random));
      P parts[simd::parts<P>];
      for (int i = 0; i < simd::parts<P>; ++i) parts[i] = simd::load<P>(lanes[r] + i * width);
      sums[r] = simd::fold_parts<P>(parts, add);
      leant[r] = simd::fold_parts<P>(parts, lean);
      ASSERT_EQ(bytes(simd::reduce<P>(parts, lean)), bytes(tree(lanes[r], lean)));
    }
    const P sum = simd::reduce_each<P>(sums, add), other = simd::reduce_each<P>(leant, lean);
    for (int r = 0; r < width; ++r) {
      ASSERT_EQ(bytes(simd::lane(sum, r)), bytes(tree(lanes[r], add))) << r;
      ASSERT_EQ(bytes(simd::lane(other, r)), bytes(tree(lanes[r], lean))) << r;
    }
  }
}

TYPED_TEST(Packets, many_maxima_at_once_pass_over_nan) {
  using P = TypeParam;
  using Acc = simd::lane_t<P>;
  constexpr int width = simd::width<P>;
  const Acc nan = std::numeric_limits<Acc>::quiet_NaN(), infinity = std::numeric_limits<Acc>::infinity();
  for (int at = 0; at < width; ++at) {
    for (int poisoned = 0; poisoned < width; ++poisoned) {
      Acc lanes[std::size_t{width}][std::size_t{width}];
      P rows[std::size_t{width}];
      for (int r = 0; r < width; ++r) {
        for (Acc& lane : lanes[r]) lane = -infinity;
        lanes[r][at] = static_cast<Acc>(r) - 2;
        if (poisoned != at) lanes[r][poisoned] = nan;
        rows[r] = simd::load<P>(lanes[r]);
        // As a running maximum has it, which starts from a number: NaN never gets in.
        rows[r] = simd::maximum(simd::broadcast<P>(-infinity), rows[r]);
      }
      const P top = simd::reduce_each<P>(rows, [](P a, P b) { return simd::maximum(a, b); });
      for (int r = 0; r < width; ++r) ASSERT_EQ(simd::lane(top, r), static_cast<Acc>(r) - 2);
    }
  }
}

}  // namespace

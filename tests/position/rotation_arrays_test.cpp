// Tables from arrays of cosines and sines: every layout, factors within, and what is no rotation.
#include "rove/position/rotation_arrays.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "position/golden.hpp"
#include "rove/position/positions.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"

namespace {

using rove::consecutive_positions;
using rove::Index;
using rove::RotaryFrequencies;
using rove::RotationArrays;
using rove::RotationTable;
using rove::TableLayout;
using rove_test::message_of;

template <class T>
class RotationTableOf : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(RotationTableOf, Scalars);

/// cos and sin of `rows` tokens from position 100 on, `pairs` pairs, in one of the layouts.
template <class T>
struct Arrays {
  Arrays(TableLayout layout, Index rows, Index pairs, double factor = 1) {
    for (Index t = 0; t < rows; ++t) {
      const Index width = layout == TableLayout::one_per_pair ? pairs : 2 * pairs;
      for (Index c = 0; c < width; ++c) {
        const Index k = layout == TableLayout::neighbours_repeated ? c / 2 : c % pairs;
        const double phase = static_cast<double>(100 + t) * std::pow(100.0, -static_cast<double>(k));
        cos.push_back(static_cast<T>(factor * std::cos(phase)));
        sin.push_back(static_cast<T>(factor * std::sin(phase)));
      }
    }
    view = {.cos = cos, .sin = sin, .rows = rows, .rotary_dim = 2 * pairs, .layout = layout};
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  std::vector<T> cos, sin;
  RotationArrays<T> view;
};

constexpr std::array layouts{TableLayout::one_per_pair, TableLayout::halves_repeated,
                             TableLayout::neighbours_repeated};

TYPED_TEST(RotationTableOf, from_arrays_of_every_layout) {
  const RotationTable<TypeParam> computed(RotaryFrequencies{.inv_freq = {1, 0.01, 0.0001}},
                                          consecutive_positions(4, 100));
  for (const TableLayout layout : layouts) {
    Arrays<TypeParam> arrays(layout, 4, 3);
    arrays.view.attention_factor = 1.25;
    arrays.view.logit_factor = 1.5;
    const RotationTable<TypeParam> table(arrays.view);
    EXPECT_EQ(table.attention_factor(), 1.25);
    EXPECT_EQ(table.logit_factor(), 1.5);
    EXPECT_EQ(table.rows(), 4);
    EXPECT_EQ(table.pairs(), 3);
    for (Index t = 0; t < 4; ++t) {
      for (Index k = 0; k < 3; ++k) {
        EXPECT_NEAR(table.cos(0, t)[k], computed.cos(0, t)[k],
                    std::numeric_limits<TypeParam>::epsilon() * 64);
        EXPECT_NEAR(table.sin(0, t)[k], computed.sin(0, t)[k],
                    std::numeric_limits<TypeParam>::epsilon() * 64);
      }
    }
  }
}

TYPED_TEST(RotationTableOf, from_arrays_of_each_batch_row_or_none) {
  Arrays<TypeParam> arrays(TableLayout::halves_repeated, 6, 2);
  arrays.view.rows = 3;
  arrays.view.batch = 2;
  const RotationTable<TypeParam> table(arrays.view);
  EXPECT_EQ(table.batch(), 2);
  EXPECT_EQ(table.cos(1, 0)[1], arrays.cos[3 * 4 + 1]);
  EXPECT_EQ(table.sin(0, 2)[0], arrays.sin[2 * 4]);
  EXPECT_EQ(RotationTable<TypeParam>({.rows = 0, .rotary_dim = 2}).rows(), 0);
}

TYPED_TEST(RotationTableOf, B45_halves_that_differ_are_no_rotation) {
  Arrays<TypeParam> halves(TableLayout::halves_repeated, 2, 2);
  halves.sin[4 + 3] = -halves.sin[4 + 3];
  const std::string message = message_of([&] { RotationTable<TypeParam>{halves.view}; });
  EXPECT_EQ(message.find("cos and sin of pair 1 in row 1 are ("), 0U) << message;
  EXPECT_NE(message.find(") at 1 but ("), std::string::npos) << message;
  EXPECT_NE(message.find(") at 3: no rotation, or another layout"), std::string::npos) << message;

  Arrays<TypeParam> neighbours(TableLayout::neighbours_repeated, 2, 2);
  neighbours.cos[1] = TypeParam{0};
  EXPECT_NE(message_of([&] { RotationTable<TypeParam>{neighbours.view}; }).find("at 1: no rotation"),
            std::string::npos);

  // One layout taken for another.
  neighbours.cos[1] = neighbours.cos[0];
  neighbours.view.layout = TableLayout::halves_repeated;
  EXPECT_NE(message_of([&] { RotationTable<TypeParam>{neighbours.view}; }).find("another layout"),
            std::string::npos);
}

TYPED_TEST(RotationTableOf, B45_numbers_off_the_circle_are_no_rotation) {
  for (const TableLayout layout : layouts) {
    const Arrays<TypeParam> stretched(layout, 2, 2, 1.25);
    const std::string message = message_of([&] { RotationTable<TypeParam>{stretched.view}; });
    EXPECT_EQ(message.find("cos^2 + sin^2 of pair 0 in row 0 is 1.562"), 0U) << message;
    EXPECT_NE(message.find(", not 1: the arrays carry a factor (array_factor) or were rounded to 16 bits"),
              std::string::npos);
  }
  Arrays<TypeParam> off(TableLayout::one_per_pair, 2, 2);
  const TypeParam right = off.cos[3];
  off.cos[3] += 8 * std::numeric_limits<TypeParam>::epsilon();
  EXPECT_EQ(message_of([&] { RotationTable<TypeParam>{off.view}; }).find("cos^2 + sin^2 of pair 1 in row 1"),
            0U);
  off.cos[3] = std::numeric_limits<TypeParam>::quiet_NaN();
  EXPECT_NE(message_of([&] { RotationTable<TypeParam>{off.view}; }).find("is nan, not 1"), std::string::npos);
  off.cos[3] = std::nextafter(right, TypeParam{2});
  EXPECT_NO_THROW(RotationTable<TypeParam>{off.view});
}

TYPED_TEST(RotationTableOf, a_factor_in_the_arrays_is_divided_out) {
  Arrays<TypeParam> arrays(TableLayout::halves_repeated, 3, 4, 1.3465735902799727);
  arrays.view.array_factor = 1.3465735902799727;
  const Arrays<TypeParam> pure(TableLayout::halves_repeated, 3, 4);
  const RotationTable<TypeParam> table(arrays.view);
  EXPECT_EQ(table.attention_factor(), 1.0);
  for (Index t = 0; t < 3; ++t) {
    for (Index k = 0; k < 4; ++k) {
      const auto place = static_cast<std::size_t>(8 * t + k);
      EXPECT_NEAR(table.cos(0, t)[k], pure.cos[place], std::numeric_limits<TypeParam>::epsilon());
      EXPECT_NEAR(table.sin(0, t)[k], pure.sin[place], std::numeric_limits<TypeParam>::epsilon());
    }
  }
}

TYPED_TEST(RotationTableOf, array_refusals) {
  const auto refused = [](auto change) {
    Arrays<TypeParam> arrays(TableLayout::halves_repeated, 3, 2);
    change(arrays.view);
    return message_of([&] { RotationTable<TypeParam>{arrays.view}; });
  };
  using View = RotationArrays<TypeParam>;
  EXPECT_EQ(refused([](View& v) { v.rotary_dim = 3; }),
            "rotary_dim is 3; it must be positive and even: channels turn in pairs");
  EXPECT_EQ(refused([](View& v) { v.rows = -1; }), "rows is -1; it must not be negative");
  EXPECT_EQ(refused([](View& v) { v.batch = 0; }), "batch is 0; it must be positive");
  EXPECT_EQ(refused([](View& v) { v.array_factor = 0; }),
            "array_factor is 0; it must be positive and finite");
  EXPECT_EQ(refused([](View& v) { v.attention_factor = 0; }),
            "attention_factor is 0; it must be positive and finite");
  EXPECT_EQ(refused([](View& v) { v.logit_factor = 0; }),
            "logit_factor is 0; it must be positive and finite");
  EXPECT_EQ(refused([](View& v) { v.rows = 2; }),
            "cos has 12 numbers; 1 batch rows of 2 tokens with 4 numbers each were announced");
  EXPECT_EQ(refused([](View& v) { v.layout = TableLayout::one_per_pair; }),
            "cos has 12 numbers; 1 batch rows of 3 tokens with 2 numbers each were announced");
  EXPECT_EQ(refused([](View& v) { v.sin = v.sin.first(11); }),
            "sin has 11 numbers; 1 batch rows of 3 tokens with 4 numbers each were announced");
  EXPECT_EQ(
      refused([](View& v) { v.batch = Index{1} << 62; }),
      "cos has 12 numbers; 4611686018427387904 batch rows of 3 tokens with 4 numbers each were announced");
  EXPECT_EQ(refused([](View& v) { v.rows = 0; }),
            "cos has 12 numbers; 1 batch rows of 0 tokens with 4 numbers each were announced");
}

}  // namespace

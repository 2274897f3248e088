/// \file
/// The laws that a frame keeps by itself, for any frame: put your own through `expect_frame_laws`.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "rove/core/row_block.hpp"
#include "rove/frame/frame.hpp"

namespace rove_test {

/// Many rows at once have the bits of one row after the other, in place and from elsewhere, and nothing
/// between the rows is touched.
template <class Acc, class F>
void expect_rows_like_a_row(const F& frame, rove::Index width) {
  using rove::Action, rove::Index;
  constexpr Index gap = 3;
  const Index stride = width + gap;
  std::vector<Acc> x(static_cast<std::size_t>(stride * frame.tokens()));
  for (std::size_t c = 0; c < x.size(); ++c) {
    x[c] = static_cast<Acc>(std::sin(1.3 * static_cast<double>(c + 1)));
  }
  const auto rows_of = [&](auto* data, Index count) {
    return rove::RowBlock<std::remove_pointer_t<decltype(data)>>{data, count, width, stride};
  };
  const auto check = [&](auto action) {
    for (Index b = 0; b < frame.batch(); ++b) {
      for (Index first = 0; first < frame.tokens(); ++first) {
        const Index count = frame.tokens() - first;
        std::vector<Acc> one_by_one = x, in_place = x, apart(x.size(), Acc(7));
        const auto should = rows_of(one_by_one.data(), count);
        for (Index r = 0; r < count; ++r)
          rove::detail::act_row<action.value>(frame, b, first + r, should.row(r));
        rove::detail::act_rows<action.value>(frame, b, first,
                                             rows_of(static_cast<const Acc*>(in_place.data()), count),
                                             rows_of(in_place.data(), count));
        rove::detail::act_rows<action.value>(
            frame, b, first, rows_of(static_cast<const Acc*>(x.data()), count), rows_of(apart.data(), count));
        EXPECT_EQ(std::memcmp(in_place.data(), one_by_one.data(), x.size() * sizeof(Acc)), 0)
            << count << " rows in place, action " << static_cast<int>(action.value);
        for (Index i = 0; i < static_cast<Index>(x.size()); ++i) {
          const bool written = i / stride < count && i % stride < width;
          ASSERT_EQ(apart[static_cast<std::size_t>(i)], written ? one_by_one[static_cast<std::size_t>(i)] : 7)
              << "row " << i / stride << " of " << count << " from elsewhere, channel " << i % stride
              << ", action " << static_cast<int>(action.value);
        }
      }
    }
  };
  check(std::integral_constant<Action, Action::apply>{});
  check(std::integral_constant<Action, Action::inverse>{});
  check(std::integral_constant<Action, Action::transpose>{});
  check(std::integral_constant<Action, Action::inverse_transpose>{});
}

/// The four actions of every token belong together: R⁻¹ undoes R, ⟨R x, y⟩ = ⟨x, Rᵀ y⟩, R⁻ᵀ undoes Rᵀ; R is
/// linear; channels past `channels()` pass by bits; many rows at once come out as one by one. Where the
/// traits say so, R⁻ᵀ = R, and R_a R_b = R_{a+b} with token t at position t.
///
/// \param width      of the rows, at least frame.channels()
/// \param tolerance  relative to the size of the numbers that an action adds up, which for a badly
/// conditioned
///                   frame is larger than that of its results
template <class Acc, class F>
void expect_frame_laws(const F& frame, rove::Index width, double tolerance, bool orthogonal,
                       bool one_parameter) {
  using rove::Index;
  using Row = std::vector<Acc>;
  const auto row_of = [width](int seed) {
    Row row(static_cast<std::size_t>(width));
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] = static_cast<Acc>(std::sin(1.7 * static_cast<double>(c + 1) * (seed + 1)) + 0.3 * seed - 0.2);
    }
    return row;
  };
  const auto act = [&frame](rove::Index b, rove::Index t, int action, Row row) {
    const std::span<Acc> span(row);
    if (action == 0) frame.apply(b, t, span);
    if (action == 1) frame.inverse(b, t, span);
    if (action == 2) frame.transpose(b, t, span);
    if (action == 3) frame.inverse_transpose(b, t, span);
    return row;
  };
  const auto dot = [](const Row& a, const Row& b) {
    double sum = 0;
    for (std::size_t c = 0; c < a.size(); ++c) sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
    return sum;
  };
  const auto near = [&](const Row& is, const Row& should, double size, const char* law, Index b, Index t) {
    for (std::size_t c = 0; c < is.size(); ++c) {
      EXPECT_NEAR(static_cast<double>(is[c]), static_cast<double>(should[c]), tolerance * size)
          << law << ", batch row " << b << ", token " << t << ", channel " << c;
    }
  };
  const auto size_of = [](const Row& row) {
    double size = 1;
    for (const Acc x : row) size = std::max(size, std::abs(static_cast<double>(x)));
    return size;
  };

  ASSERT_LE(frame.channels(), width);
  expect_rows_like_a_row<Acc>(frame, width);
  const Row x = row_of(1), y = row_of(2);
  for (Index b = 0; b < frame.batch(); ++b) {
    for (Index t = 0; t < frame.tokens(); ++t) {
      const Row applied = act(b, t, 0, x), undone = act(b, t, 1, x);
      const Row transposed = act(b, t, 2, y), inverse_transposed = act(b, t, 3, y);
      double size =
          std::max({size_of(applied), size_of(undone), size_of(transposed), size_of(inverse_transposed)});
      size *= size;
      near(act(b, t, 1, applied), x, size, "inverse undoes apply", b, t);
      near(act(b, t, 0, undone), x, size, "apply undoes inverse", b, t);
      near(act(b, t, 3, transposed), y, size, "inverse_transpose undoes transpose", b, t);
      EXPECT_NEAR(dot(applied, y), dot(x, transposed), tolerance * size * static_cast<double>(width))
          << "transpose is the adjoint of apply, token " << t;
      EXPECT_NEAR(dot(undone, y), dot(x, inverse_transposed), tolerance * size * static_cast<double>(width))
          << "inverse_transpose is the adjoint of inverse, token " << t;
      Row mixed = x;
      for (std::size_t c = 0; c < mixed.size(); ++c) mixed[c] = 2 * x[c] - y[c];
      const Row y_applied = act(b, t, 0, y);
      Row should = applied;
      for (std::size_t c = 0; c < should.size(); ++c) should[c] = 2 * applied[c] - y_applied[c];
      near(act(b, t, 0, mixed), should, size, "linearity", b, t);
      for (Index c = frame.channels(); c < width; ++c) {
        const auto at = static_cast<std::size_t>(c);
        EXPECT_TRUE(applied[at] == x[at] && undone[at] == x[at] && transposed[at] == y[at] &&
                    inverse_transposed[at] == y[at])
            << "channel " << c << " does not pass";
      }
      if (orthogonal) {
        near(act(b, t, 3, x), applied, size, "orthogonality", b, t);
        EXPECT_NEAR(dot(applied, applied), dot(x, x), tolerance * dot(x, x) * 4) << "length, token " << t;
      }
      if (one_parameter) {
        const Index other = frame.tokens() - 1 - t;
        near(act(b, t, 0, act(b, other, 0, x)), act(b, frame.tokens() - 1, 0, x),
             size * size_of(act(b, other, 0, x)), "R_a R_b = R_{a+b}", b, t);
      }
    }
  }
}

/// The same with the traits that the frame's type declares.
template <class Acc, class F>
void expect_frame_laws(const F& frame, rove::Index width, double tolerance) {
  expect_frame_laws<Acc>(frame, width, tolerance, rove::is_orthogonal_v<F>, rove::is_one_parameter_v<F>);
}

}  // namespace rove_test

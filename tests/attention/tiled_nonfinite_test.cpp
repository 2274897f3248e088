// NaN and infinity in one key or value, at every place in tiles and blocks: rows that do not see it have the
// bits of a call with zeros in its place, rows that do have what IEEE arithmetic makes of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/tiled.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::causal;
using rove::Index;

/// A head of its own for the dirty key, and one beside it that must not notice. A block of 256 keys, a second
/// one of two panels and a bit; rows of 20 tiles and a bit.
constexpr Index n = 293, d = 6;
/// The channel that gets dirty.
constexpr Index dirty_channel = 4;

template <class T>
T& at(std::vector<T>& rows, Index head, Index row, Index channel) {
  return rows[static_cast<std::size_t>((head * n + row) * d + channel)];
}

template <class T>
Operands<T> operands() {
  return Operands<T>(1, 2, 2, n, n, d, d, 58);
}

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// Calls `check(row, channel, is, as_clean)` for all of head 0, with what a call gave and what one with zeros
/// gave, after seeing to it that head 1 and the rows of `hidden` are the same bits.
template <class T, class Hidden, class Check>
void compare(Operands<T>& dirty, Operands<T>& clean, const Hidden& hidden, const Check& check) {
  for (Index row = 0; row < n; ++row) {
    for (Index c = 0; c < d; ++c) {
      const T is = at(dirty.out, 0, row, c), as_clean = at(clean.out, 0, row, c);
      ASSERT_TRUE(same_bits(at(dirty.out, 1, row, c), at(clean.out, 1, row, c))) << "other head, row " << row;
      if (hidden(row)) {
        ASSERT_TRUE(same_bits(is, as_clean))
            << "row " << row << ", channel " << c << ": " << is << ", should be " << as_clean;
      } else {
        check(row, c, is, as_clean);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
    if (hidden(row)) {
      ASSERT_TRUE(
          same_bits(dirty.lse[static_cast<std::size_t>(row)], clean.lse[static_cast<std::size_t>(row)]))
          << "log-sum-exp of row " << row;
    }
  }
}

/// One key after another dirty in `k` or `v` of head 0, under `mask`; `step` leaves keys out. `value` in a
/// key is NaN.
template <class T, class Mask, class Visible, class Check>
void for_every_key(std::vector<T> Operands<T>::*side, T value, Index step, const Mask& mask,
                   const Visible& visible, const Check& check) {
  const Operands<T> source = operands<T>();
  for (Index key = 0; key < n; key += step) {
    SCOPED_TRACE("key " + std::to_string(key));
    Operands<T> dirty = source, clean = source;
    at(dirty.*side, 0, key, dirty_channel) = value;
    at(clean.*side, 0, key, dirty_channel) = 0;
    rove::TiledKernel{}(dirty.problem().with_mask(mask));
    rove::TiledKernel{}(clean.problem().with_mask(mask));
    compare(
        dirty, clean, [&](Index row) { return !visible(row, key); }, check);
    if (testing::Test::HasFatalFailure()) return;
    for (Index row = 0; row < n; ++row) {
      const auto place = static_cast<std::size_t>(row);
      if (!visible(row, key)) continue;
      if (side == &Operands<T>::k) {
        ASSERT_TRUE(std::isnan(dirty.lse[place])) << "log-sum-exp of row " << row;
      } else {
        ASSERT_TRUE(same_bits(dirty.lse[place], clean.lse[place])) << "log-sum-exp of row " << row;
      }
    }
  }
}

constexpr auto sees = [](Index row, Index key) { return key <= row; };

/// Whatever of a row that saw a NaN logit is left: NaN.
constexpr auto is_nan = [](Index row, Index c, auto is, auto) {
  ASSERT_TRUE(std::isnan(is)) << "row " << row << ", channel " << c << ": " << is;
};

/// The dirty channel is `value`, the others have not noticed.
template <class T>
auto one_channel_is(T value) {
  return [value](Index row, Index c, T is, T as_clean) {
    if (c != dirty_channel) {
      ASSERT_TRUE(same_bits(is, as_clean)) << "row " << row << ", channel " << c;
    } else if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(is)) << "row " << row << ": " << is;
    } else {
      ASSERT_EQ(is, value) << "row " << row;
    }
  };
}

template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

TEST(TiledNonfinite, N02_nan_in_a_key) {
  for_every_key(&Operands<float>::k, nan<float>, 1, causal(), sees, is_nan);
}

// The query's sign decides: a logit of +∞ makes its row NaN, one of −∞ has weight 0 and leaves what a call
// without the key gives.
TEST(TiledNonfinite, N02_infinity_in_a_key) {
  Operands<float> source = operands<float>();
  for (Index key = 0; key < n; ++key) {
    SCOPED_TRACE("key " + std::to_string(key));
    Operands<float> dirty = source, without = source;
    at(dirty.k, 0, key, dirty_channel) = infinity<float>;
    rove::TiledKernel{}(dirty.problem().with_mask(causal()));
    rove::TiledKernel{}(without.problem().with_mask(
        causal() & rove::mask([key](Index, Index head, Index, Index k) { return head == 1 || k != key; })));
    compare(
        dirty, without, [&](Index row) { return row < key || at(source.q, 0, row, dirty_channel) < 0; },
        [](Index row, Index c, float is, float) {
          ASSERT_TRUE(std::isnan(is)) << "row " << row << ", channel " << c << ": " << is;
        });
    if (HasFatalFailure()) return;
  }
}

TEST(TiledNonfinite, N02_nan_in_a_value) {
  for_every_key(&Operands<float>::v, nan<float>, 1, causal(), sees, one_channel_is(nan<float>));
}

TEST(TiledNonfinite, N02_infinity_in_a_value) {
  for_every_key(&Operands<float>::v, -infinity<float>, 1, causal(), sees, one_channel_is(-infinity<float>));
}

TEST(TiledNonfinite, N02_in_double) {
  for_every_key(&Operands<double>::k, nan<double>, 5, causal(), sees, is_nan);
  for_every_key(&Operands<double>::v, infinity<double>, 5, causal(), sees, one_channel_is(infinity<double>));
}

// Holes in rows: keys before and after are seen.
TEST(TiledNonfinite, N02_behind_a_mask_without_order) {
  const auto visible = [](Index row, Index key) { return (row * 7 + key * 3) % 5 != 0; };
  const auto mask = rove::mask([=](Index, Index, Index query, Index key) { return visible(query, key); });
  for_every_key(&Operands<float>::k, nan<float>, 7, mask, visible, is_nan);
  for_every_key(&Operands<float>::v, nan<float>, 7, mask, visible, one_channel_is(nan<float>));
}

// A key that every row of a tile sees, whose weight is exactly 0: 0 · ∞ is NaN, as IEEE has it.
TEST(TiledNonfinite, N02_a_weight_of_zero_does_not_shield) {
  Operands<float> x = operands<float>();
  for (Index row = 0; row < n; ++row) at(x.q, 0, row, 0) = 100;
  for (Index key = 0; key < n; ++key) at(x.k, 0, key, 0) = key == 20 ? -100 : 100;
  at(x.v, 0, 20, dirty_channel) = infinity<float>;
  rove::TiledKernel{}(x.problem().with_mask(causal()));
  for (Index row = 0; row < n; ++row) {
    EXPECT_EQ(std::isnan(at(x.out, 0, row, dirty_channel)), row >= 20) << "row " << row;
    EXPECT_TRUE(std::isfinite(at(x.out, 0, row, 0))) << "row " << row;
  }
}

}  // namespace
}  // namespace rove_test

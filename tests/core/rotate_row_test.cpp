#include "rove/core/rotate_row.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/core/row_block.hpp"

namespace {

using Eigen::bfloat16;
using Eigen::half;
using rove::Direction;
using rove::Index;
using rove::Pairing;

/// Pairs of the widths that tails go wrong at: 19 and 33 channels' worth, 40, 48, 72, 80, 96, 112, and around
/// every packet width.
constexpr Index pair_counts[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,  15, 16, 17, 19, 20,
                                 23, 24, 31, 32, 33, 36, 40, 47, 48, 49, 56, 64, 80};

/// `count` elements at an address `offset` bytes past a multiple of 64, with guard bytes on both sides. The
/// block ends right after the upper guard.
template <class T>
class Guarded {
 public:
  Guarded(Index count, std::size_t offset) : bytes_(static_cast<std::size_t>(count) * sizeof(T)) {
    block_.reset(new unsigned char[64 + guard + offset + bytes_ + guard]);
    const auto address = reinterpret_cast<std::uintptr_t>(block_.get());
    first_ = block_.get() + (64 - address % 64) % 64;
    std::memset(first_, 0xa5, guard + offset + bytes_ + guard);
    first_ += guard + offset;
  }
  T* data() { return reinterpret_cast<T*>(first_); }
  bool intact() const {
    for (std::size_t i = 1; i <= guard; ++i) {
      if (*(first_ - i) != 0xa5 || first_[bytes_ + i - 1] != 0xa5) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard = 64;
  std::size_t bytes_;
  std::unique_ptr<unsigned char[]> block_;
  unsigned char* first_;
};

/// The formula, with the roundings that are promised, one pair at a time.
template <class Acc>
void turn(Acc c, Acc s, Acc& x, Acc& y) {
#if ROVE_HAS_FMA
  const Acc turned_x = std::fma(-y, s, x * c), turned_y = std::fma(x, s, y * c);
#else
  const Acc turned_x = x * c - y * s, turned_y = y * c + x * s;
#endif
  x = turned_x;
  y = turned_y;
}

template <class Case>
class RotateRow : public testing::Test {};
// Element type and table type.
using Cases =
    testing::Types<std::tuple<float, float>, std::tuple<double, double>, std::tuple<bfloat16, float>,
                   std::tuple<half, float>, std::tuple<float, double>, std::tuple<half, double>>;
TYPED_TEST_SUITE(RotateRow, Cases);

/// Every combination that must give the same bits.
template <class T, class Table, Direction direction>
void check_all() {
  using Acc = rove::accumulator_t<T>;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  for (const Index pairs : pair_counts) {
    const std::size_t half_width = static_cast<std::size_t>(pairs);
    // Exactly as long as what may be read, so that the sanitizer sees one step too far.
    std::vector<Table> cos(half_width), sin(half_width);
    std::vector<T> row(2 * half_width), right(2 * half_width);
    for (std::size_t k = 0; k < half_width; ++k) {
      const double angle = 20 * normal(random);
      cos[k] = static_cast<Table>(std::cos(angle));
      sin[k] = static_cast<Table>(std::sin(angle));
    }
    for (auto& x : row) x = rove::round_to<T>(normal(random));
    for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
      for (std::size_t k = 0; k < half_width; ++k) {
        const std::size_t first = pairing == Pairing::half_split ? k : 2 * k;
        const std::size_t second = pairing == Pairing::half_split ? k + half_width : 2 * k + 1;
        Acc x = rove::widen<Acc>(row[first]), y = rove::widen<Acc>(row[second]);
        const Acc s = static_cast<Acc>(sin[k]);
        turn(static_cast<Acc>(cos[k]), direction == Direction::forward ? s : -s, x, y);
        right[first] = rove::round_to<T>(x);
        right[second] = rove::round_to<T>(y);
      }
      for (const auto& [from_stride, to_stride] :
           {std::pair<Index, Index>{1, 1}, {1, 3}, {2, 1}, {3, 3}, {-1, 1}, {1, -2}}) {
        for (const std::size_t offset : {std::size_t{0}, sizeof(T), std::size_t{8}, std::size_t{24}}) {
          SCOPED_TRACE(testing::Message()
                       << pairs << " pairs, strides " << from_stride << ' ' << to_stride << ", offset "
                       << offset << ", pairing " << static_cast<int>(pairing));
          const Index width = 2 * pairs;
          const auto span = [width](Index stride) {
            return width == 0 ? Index{0} : (width - 1) * std::abs(stride) + 1;
          };
          const auto start = [&](Index stride) { return stride < 0 ? span(stride) - 1 : Index{0}; };
          Guarded<T> from(span(from_stride), offset), to(span(to_stride), offset);
          T* const source = from.data() + (width == 0 ? 0 : start(from_stride));
          T* const target = to.data() + (width == 0 ? 0 : start(to_stride));
          for (Index i = 0; i < width; ++i) source[i * from_stride] = row[static_cast<std::size_t>(i)];

          rove::rotate_row<direction>(pairing, cos.data(), sin.data(), pairs, static_cast<const T*>(source),
                                      from_stride, target, to_stride);
          for (Index i = 0; i < width; ++i) {
            const T& expected = right[static_cast<std::size_t>(i)];
            ASSERT_EQ(std::memcmp(&target[i * to_stride], &expected, sizeof(T)), 0) << i;
            ASSERT_EQ(std::memcmp(&source[i * from_stride], &row[static_cast<std::size_t>(i)], sizeof(T)), 0);
          }
          rove::rotate_row<direction>(pairing, cos.data(), sin.data(), pairs, source, from_stride);
          for (Index i = 0; i < width; ++i) {
            const T& expected = right[static_cast<std::size_t>(i)];
            ASSERT_EQ(std::memcmp(&source[i * from_stride], &expected, sizeof(T)), 0) << i;
          }
          ASSERT_TRUE(from.intact() && to.intact());
        }
      }
    }
  }
}

TYPED_TEST(RotateRow, B25_B26_B74_every_width_stride_and_alignment_has_the_same_bits) {
  using T = std::tuple_element_t<0, TypeParam>;
  using Table = std::tuple_element_t<1, TypeParam>;
  check_all<T, Table, Direction::forward>();
  check_all<T, Table, Direction::inverse>();
}

template <class Acc, class Table, Direction direction>
void check_rows() {
  std::mt19937 random(4);
  std::normal_distribution<double> normal(0, 2);
  constexpr Index count = 3, gap = 5;
  for (const Index pairs : pair_counts) {
    const Index stride = 2 * pairs + gap;
    const auto size = static_cast<std::size_t>(count * stride);
    std::vector<Table> cos(static_cast<std::size_t>(count * pairs)), sin(cos.size());
    for (std::size_t k = 0; k < cos.size(); ++k) {
      const double angle = 20 * normal(random);
      cos[k] = static_cast<Table>(std::cos(angle));
      sin[k] = static_cast<Table>(std::sin(angle));
    }
    const auto with_angles = [&](Index r, const auto& use) {
      use(cos.data() + r * pairs, sin.data() + r * pairs);
    };
    std::vector<Acc> rows(size);
    for (Acc& x : rows) x = static_cast<Acc>(normal(random));
    for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
      SCOPED_TRACE(testing::Message() << pairs << " pairs, pairing " << static_cast<int>(pairing));
      std::vector<Acc> right = rows, in_place = rows, apart(size, Acc(7));
      for (Index r = 0; r < count; ++r) {
        rove::rotate_row<direction>(pairing, cos.data() + r * pairs, sin.data() + r * pairs, pairs,
                                    right.data() + r * stride);
      }
      const auto block = [&](auto* data) {
        return rove::RowBlock<std::remove_pointer_t<decltype(data)>>{data, count, 2 * pairs, stride};
      };
      rove::rotate_rows<direction>(pairing, pairs, block(static_cast<const Acc*>(in_place.data())),
                                   block(in_place.data()), with_angles);
      // Read with another distance between rows, backwards even.
      const rove::RowBlock<const Acc> backwards{rows.data() + (count - 1) * stride, count, 2 * pairs,
                                                -stride};
      rove::rotate_rows<direction>(pairing, pairs, backwards, block(apart.data()),
                                   [&](Index r, const auto& use) { with_angles(count - 1 - r, use); });
      ASSERT_EQ(std::memcmp(in_place.data(), right.data(), size * sizeof(Acc)), 0);
      for (std::size_t i = 0; i < size; ++i) {
        const Index row = static_cast<Index>(i) / stride, channel = static_cast<Index>(i) % stride;
        const Acc turned = right[static_cast<std::size_t>((count - 1 - row) * stride + channel)];
        ASSERT_EQ(apart[i], channel < 2 * pairs ? turned : Acc(7)) << i;
      }
    }
  }
}

template <class Case>
class RotateRows : public testing::Test {};
using RowCases =
    testing::Types<std::tuple<float, float>, std::tuple<double, double>, std::tuple<float, double>>;
TYPED_TEST_SUITE(RotateRows, RowCases);

TYPED_TEST(RotateRows, many_rows_have_the_bits_of_one_by_one) {
  using Acc = std::tuple_element_t<0, TypeParam>;
  using Table = std::tuple_element_t<1, TypeParam>;
  check_rows<Acc, Table, Direction::forward>();
  check_rows<Acc, Table, Direction::inverse>();
}

TEST(RotateRowFacts, a_quarter_turn_goes_from_x_to_y) {
  const float cos[] = {0, 1}, sin[] = {1, 0};
  float halves[] = {1, 2, 3, 4}, neighbours[] = {1, 2, 3, 4};
  rove::rotate_row<Direction::forward>(Pairing::half_split, cos, sin, 2, halves);
  rove::rotate_row<Direction::forward>(Pairing::interleaved, cos, sin, 2, neighbours);
  const float halves_right[] = {-3, 2, 1, 4}, neighbours_right[] = {-2, 1, 3, 4};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(halves[i], halves_right[i]);
    EXPECT_EQ(neighbours[i], neighbours_right[i]);
  }
  rove::rotate_row<Direction::inverse>(Pairing::interleaved, cos, sin, 2, neighbours);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(neighbours[i], static_cast<float>(i + 1));
}

TEST(RotateRowFacts, B73_in_place_reads_the_partner_before_writing_it) {
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    for (const Index pairs : pair_counts) {
      const std::size_t width = 2 * static_cast<std::size_t>(pairs);
      const std::vector<double> cos(width, 0.6), sin(width, 0.8);
      std::vector<double> row(width), turned(width);
      for (std::size_t i = 0; i < width; ++i) row[i] = static_cast<double>(i) + 1;
      rove::rotate_row<Direction::forward>(pairing, cos.data(), sin.data(), pairs,
                                           static_cast<const double*>(row.data()), Index{1}, turned.data(),
                                           Index{1});
      rove::rotate_row<Direction::forward>(pairing, cos.data(), sin.data(), pairs, row.data());
      EXPECT_EQ(row, turned) << pairs;
    }
  }
}

TEST(RotateRowFacts, inverse_undoes_forward_within_rounding) {
  std::mt19937 random(9);
  std::normal_distribution<double> normal(0, 1);
  std::vector<double> cos(37), sin(37), row(74);
  for (std::size_t k = 0; k < 37; ++k) {
    const double angle = 100 * normal(random);
    cos[k] = std::cos(angle);
    sin[k] = std::sin(angle);
  }
  for (double& x : row) x = normal(random);
  const std::vector<double> before = row;
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    rove::rotate_row<Direction::forward>(pairing, cos.data(), sin.data(), 37, row.data());
    rove::rotate_row<Direction::inverse>(pairing, cos.data(), sin.data(), 37, row.data());
    // Two rotations, each off by at most 2 roundings of a pair's length; cos² + sin² is 1 within 2.
    for (std::size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], before[i], 8 * 0x1p-53 * 4);
  }
}

TEST(RotateRowFacts, a_non_finite_pair_stays_by_itself) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const std::vector<float> cos(40, 0.6F), sin(40, 0.8F);
    std::vector<float> clean(80, 1), poisoned(80, 1);
    poisoned[0] = infinity;
    rove::rotate_row<Direction::forward>(pairing, cos.data(), sin.data(), 40, clean.data());
    rove::rotate_row<Direction::forward>(pairing, cos.data(), sin.data(), 40, poisoned.data());
    const std::size_t partner = pairing == Pairing::half_split ? 40 : 1;
    for (std::size_t i = 1; i < 80; ++i) {
      if (i != partner) {
        EXPECT_EQ(poisoned[i], clean[i]);
      }
    }
    EXPECT_EQ(poisoned[0], infinity);
    EXPECT_EQ(poisoned[partner], infinity);
  }
}

}  // namespace

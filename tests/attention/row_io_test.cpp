// Which rows are read where they lie and written straight to their place, and which by way of scratch.
#include "rove/attention/row_io.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "rove/attention/row_transform.hpp"
#include "rove/core/row_block.hpp"
#include "rove/core/scalar.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::Index;
using rove::RowBlock;
using rove::RowRun;

constexpr Index packet = rove::simd::native_width<float>;
constexpr Index channels = 2 * packet;
constexpr Index stride = channels + 3;

/// Doubles what it reads, without a form for many rows.
struct Twice {
  static constexpr bool is_identity = false;
  template <class Acc>
  void forward(Index, Index, std::span<Acc> row) const {
    for (Acc& x : row) x *= 2;
  }
  template <class Acc>
  void adjoint(Index b, Index t, std::span<Acc> row) const {
    forward(b, t, row);
  }
};

/// Adds one, which no linear map does: what it has been called with can be told.
struct OneMore {
  static constexpr bool is_identity = false;
  template <class Acc>
  void forward(Index, Index, std::span<Acc> row) const {
    for (Acc& x : row) x += 1;
  }
  template <class Acc>
  void adjoint(Index, Index, std::span<Acc>) const {}
};

class ViewRows : public testing::Test {
 protected:
  std::vector<float> memory = normal_numbers<float>(16 * stride * 2, 61);
  std::vector<float> scratch = std::vector<float>(16 * stride, 7.0F);

  /// Rows 3 to 7 of `run`, of `width` channels.
  template <class Storage, class Transform = rove::IdentityTransform>
  RowBlock<const float> view(RowRun<Storage> run, Index width = channels, const Transform& transform = {}) {
    return rove::detail::view_rows<Storage>(
        transform, 0, 3, RowBlock<float>{scratch.data(), 5, width, stride}, [&](Index row) {
          RowRun<Storage> rest = run;
          rest.data += (row - 3) * run.row_stride;
          rest.count -= row - 3;
          return rest;
        });
  }
  /// Whether they came by way of scratch, with factor · their numbers.
  bool copied(RowBlock<const float> rows, RowRun<float> run, Index width, float factor) const {
    if (rows.data != scratch.data() || rows.stride != stride || rows.count != 5) return false;
    for (Index r = 0; r < 5; ++r) {
      for (Index c = 0; c < width; ++c) {
        const float right = factor * run.data[r * run.row_stride + c * run.channel_stride];
        if (rows.data[r * stride + c] != right) return false;
      }
    }
    return true;
  }
};

TEST_F(ViewRows, that_lie_as_they_are_to_be_read_stay_where_they_are) {
  for (const Index row_stride : {channels, stride, Index{0}}) {
    const auto rows = view(RowRun<float>{memory.data(), 9, row_stride, 1});
    EXPECT_EQ(rows.data, memory.data());
    EXPECT_EQ(rows.stride, row_stride);
    EXPECT_EQ(rows.count, 5);
    EXPECT_EQ(rows.channels, channels);
  }
  EXPECT_EQ(view(RowRun<float>{memory.data(), 5, stride, 1}).data, memory.data());
  EXPECT_EQ(scratch, std::vector<float>(16 * stride, 7.0F));
}

TEST_F(ViewRows, that_lie_otherwise_are_read_into_scratch) {
  const RowRun<float> strided{memory.data(), 9, 2 * channels, 2};
  EXPECT_TRUE(copied(view(strided), strided, channels, 1));
  const RowRun<float> rows{memory.data(), 9, stride, 1};
  if (packet > 1) {  // whole packets of them would be read past their end
    EXPECT_TRUE(copied(view(rows, channels - 1), rows, channels - 1, 1));
  }
  EXPECT_TRUE(copied(view(rows, channels, Twice{}), rows, channels, 2));
  const float factors[] = {0.5F, 0.5F, 0.5F, 0.5F, 0.5F, 0.5F};
  const RowRun<float> scaled{memory.data(), 6, stride, 1, factors, 1};
  EXPECT_TRUE(copied(view(scaled), scaled, channels, 0.5F));
  const std::vector<Eigen::half> halves = normal_numbers<Eigen::half>(5 * stride, 62);
  const auto widened = view(RowRun<Eigen::half>{halves.data(), 5, stride, 1});
  EXPECT_EQ(widened.data, scratch.data());
  EXPECT_EQ(widened.data[4 * stride], static_cast<float>(halves[4 * stride]));
}

TEST_F(ViewRows, of_runs_that_end_before_them_are_read_into_scratch) {
  const RowRun<float> rows{memory.data(), 9, stride, 1};
  const auto read = rove::detail::view_rows<float>(
      rove::IdentityTransform{}, 0, 3, RowBlock<float>{scratch.data(), 5, channels, stride}, [&](Index row) {
        return RowRun<float>{memory.data() + (row - 3) * stride, row < 7 ? 7 - row : 4, stride, 1};
      });
  EXPECT_TRUE(copied(read, rows, channels, 1));
}

TEST(PlaceOfOutputs, is_in_the_output_for_rows_that_stay_as_they_are) {
  Operands<float> operands(1, 2, 2, 9, 4, channels, channels, 63);
  std::vector<float> scratch(16 * stride);
  const RowBlock<float> rows{scratch.data(), 5, channels, stride};
  auto problem = operands.problem();
  problem.out.stride[2] = channels / 2;
  const auto place = rove::detail::place_of_outputs<rove::IdentityTransform>(problem, 0, 1, 3, rows);
  EXPECT_EQ(place.data, problem.out.row(0, 1, 3));
  EXPECT_EQ(place.stride, problem.out.stride[2]);
  EXPECT_EQ(place.count, 5);
  EXPECT_EQ(place.channels, channels);
  EXPECT_EQ(rove::detail::place_of_outputs<Twice>(problem, 0, 1, 3, rows).data, scratch.data());

  auto strided = problem;
  strided.out.stride[3] = 2;
  EXPECT_EQ(rove::detail::place_of_outputs<rove::IdentityTransform>(strided, 0, 1, 3, rows).data,
            scratch.data());
  Operands<float, float, float, Eigen::half> rounded(1, 2, 2, 9, 4, channels, channels, 64);
  EXPECT_EQ(rove::detail::place_of_outputs<rove::IdentityTransform>(rounded.problem(), 0, 1, 3, rows).data,
            scratch.data());
}

TEST(WriteOutputs, leaves_rows_of_zeros_alone_and_no_others) {
  Operands<float> operands(1, 1, 1, 4, 4, channels, channels, 65);
  std::vector<float> scratch(4 * stride, 1.0F), right(4 * channels, 2.0F);
  const RowBlock<float> rows{scratch.data(), 4, channels, stride},
      results{right.data(), 4, channels, channels};
  for (float& x : rows.row(0)) x = 0;
  for (float& x : results.row(0)) x = 0;
  rows.row(1).front() = 0;
  results.row(1).front() = 1;
  for (float& x : rows.row(3).first(channels - 1)) x = 0;
  for (float& x : results.row(3).first(channels - 1)) x = 1;
  rove::detail::write_outputs(operands.problem(), OneMore{}, 0, 0, 0, rows);
  EXPECT_EQ(operands.out, right);
}

}  // namespace
}  // namespace rove_test

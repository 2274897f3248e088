// What the tiled kernel packs: widths that fill no packet, rows that fill no tile, keys that fill no panel;
// the bits of the plain kernel, which packs nothing so.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "rove/attention/naive.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/core/context.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::Index;

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Both kernels on the same operands. The tiled one works in memory that is full of NaN: what it does not
/// write itself it must not read.
template <class T>
void expect_naive_bits(const Operands<T>& operands) {
  using Acc = typename Operands<T>::Acc;
  Operands<T> tiled = operands, naive = operands;
  rove::NaiveKernel{}(naive.problem());
  const auto problem = tiled.problem();
  const Index bytes = rove::TiledKernel{}.workspace(problem, 1).bytes();
  std::vector<Acc> memory(static_cast<std::size_t>(bytes) / sizeof(Acc) + 1,
                          std::numeric_limits<Acc>::quiet_NaN());
  const rove::Context context{std::as_writable_bytes(std::span(memory))};
  rove::TiledKernel{}(problem, context);
  ASSERT_TRUE(same_bits(tiled.out, naive.out));
  ASSERT_TRUE(same_bits(tiled.lse, naive.lse));
}

template <class T>
class TiledPack : public testing::Test {
 public:
  using Acc = typename Operands<T>::Acc;
  static constexpr Index tile = rove::detail::TileShape<Acc>::rows;
};
using Scalars = testing::Types<float, double, Eigen::half>;
TYPED_TEST_SUITE(TiledPack, Scalars);

TYPED_TEST(TiledPack, every_number_of_channels) {
  for (Index channels = 1; channels <= 41; ++channels) {
    for (const Index value_channels : {Index{1}, channels, 42 - channels, Index{67}}) {
      SCOPED_TRACE(std::to_string(channels) + " and " + std::to_string(value_channels) + " channels");
      expect_naive_bits(Operands<TypeParam>(1, 1, 1, 9, 37, channels, value_channels, 51));
    }
  }
}

TYPED_TEST(TiledPack, every_number_of_rows) {
  for (Index rows = 1; rows <= 2 * TestFixture::tile + 1; ++rows) {
    for (const Index keys : {1, 19, 270}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(keys) + " keys");
      expect_naive_bits(Operands<TypeParam>(1, 2, 1, rows, keys, 7, 5, 52));
    }
  }
}

TYPED_TEST(TiledPack, every_number_of_keys) {
  for (Index keys = 1; keys <= 70; ++keys) {
    SCOPED_TRACE(std::to_string(keys) + " keys");
    expect_naive_bits(Operands<TypeParam>(2, 1, 1, 3, keys, 11, 13, 53));
  }
  // Round a block, of 256 and of fewer keys where rows are wide.
  for (const Index channels : {8, 129, 257}) {
    const Index block = rove::detail::key_block_length<typename TestFixture::Acc>(channels, channels);
    for (const Index keys : {block - 1, block, block + 1, 2 * block + 17}) {
      SCOPED_TRACE(std::to_string(keys) + " keys of " + std::to_string(channels));
      expect_naive_bits(Operands<TypeParam>(1, 1, 1, 5, keys, channels, channels, 54));
    }
  }
}

TYPED_TEST(TiledPack, tasks_of_many_tiles_and_their_last) {
  // A task has up to 32 tiles; one more row begins the next.
  for (const Index rows : {32 * TestFixture::tile - 1, 32 * TestFixture::tile + 1, 33 * TestFixture::tile}) {
    SCOPED_TRACE(rows);
    expect_naive_bits(Operands<TypeParam>(1, 1, 1, rows, 33, 5, 3, 55));
  }
}

}  // namespace
}  // namespace rove_test

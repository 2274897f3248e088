#include "rove/core/view_checks.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/error_of.hpp"

namespace {

using rove::Index;
using View = rove::TensorView<float>;
using test::error_of;

/// Every byte offset that a view touches, as often as it touches it, found by walking it.
template <class T>
std::vector<Index> bytes_of(const rove::TensorView<T>& view, const void* origin) {
  std::vector<Index> bytes;
  const Index base = static_cast<Index>(reinterpret_cast<std::uintptr_t>(view.data)) -
                     static_cast<Index>(reinterpret_cast<std::uintptr_t>(origin));
  for (Index b = 0; b < view.extent[0]; ++b)
    for (Index h = 0; h < view.extent[1]; ++h)
      for (Index t = 0; t < view.extent[2]; ++t)
        for (Index c = 0; c < view.extent[3]; ++c)
          for (Index byte = 0; byte < static_cast<Index>(sizeof(T)); ++byte)
            bytes.push_back(
                base + byte +
                (b * view.stride[0] + h * view.stride[1] + t * view.stride[2] + c * view.stride[3]) *
                    static_cast<Index>(sizeof(T)));
  return bytes;
}

template <class T>
bool walk_finds_repeats(const rove::TensorView<T>& view) {
  const auto bytes = bytes_of(view, view.data);
  return std::set<Index>(bytes.begin(), bytes.end()).size() != bytes.size();
}

template <class A, class B>
bool walk_finds_shared(const rove::TensorView<A>& a, const rove::TensorView<B>& b) {
  const auto first = bytes_of(a, a.data), second = bytes_of(b, a.data);
  const std::set<Index> seen(first.begin(), first.end());
  for (const Index byte : second) {
    if (seen.count(byte) != 0) return true;
  }
  return false;
}

TEST(ViewChecks, usual_layouts_do_not_overlap_themselves) {
  float x = 0;
  EXPECT_FALSE(rove::overlaps_itself(rove::bhtd(&x, 2, 3, 4, 5)));
  EXPECT_FALSE(rove::overlaps_itself(rove::bthd(&x, 2, 3, 4, 5)));
  std::vector<float> packed(2 * 3 * 58);
  const auto [q, k, v] = rove::packed_qkv(packed.data(), 2, 3, 4, 2, 8, 5);
  EXPECT_FALSE(rove::overlaps_itself(q) || rove::overlaps_itself(k) || rove::overlaps_itself(v));
  EXPECT_FALSE(rove::overlaps_itself(rove::bht(&x, 2, 3, 4)));
  EXPECT_FALSE(rove::overlaps_itself(View{&x, {1, 1, 4, 6}, {24, 24, 1, 4}}));  // a transpose
  EXPECT_FALSE(rove::overlaps_itself(View{&x, {1, 1, 4, 6}, {0, 0, -6, -1}}));  // backwards
  EXPECT_FALSE(rove::overlaps_itself(View{&x, {1, 1, 3, 2}, {0, 0, 2, 3}}));    // 0 2 4 and 3 5 7
  EXPECT_FALSE(rove::overlaps_itself(rove::bhtd(&x, 1, 32, Index{1} << 20, 128)));
}

TEST(ViewChecks, overlap_of_a_view_with_itself) {
  float x = 0;
  EXPECT_TRUE(rove::overlaps_itself(View{&x, {1, 2, 3, 4}, {0, 0, 4, 1}}));   // heads share rows
  EXPECT_TRUE(rove::overlaps_itself(View{&x, {1, 1, 3, 4}, {0, 0, 3, 1}}));   // rows share a channel
  EXPECT_TRUE(rove::overlaps_itself(View{&x, {1, 1, 3, 3}, {0, 0, 2, -1}}));  // 0 and 2 - 2
  EXPECT_TRUE(rove::overlaps_itself(View{&x, {1, 1, 4, 3}, {0, 0, 2, 3}}));   // 3 · 2 = 2 · 3
  EXPECT_TRUE(rove::overlaps_itself(rove::RowView<float>{&x, {2, 2, 5}, {10, 4, 1}}));
  // One row of nothing, and dimensions of extent 1, whose strides mean nothing.
  EXPECT_FALSE(rove::overlaps_itself(View{&x, {1, 2, 0, 4}, {0, 0, 0, 0}}));
  EXPECT_FALSE(rove::overlaps_itself(View{&x, {1, 1, 1, 1}, {0, 0, 0, 0}}));
}

TEST(ViewChecks, overlap_agrees_with_a_walk_over_random_layouts) {
  std::mt19937 random(20);
  const auto below = [&](Index n) { return static_cast<Index>(random() % static_cast<unsigned>(n)); };
  int overlapping = 0, meeting = 0;
  std::vector<float> floats(8);
  for (int trial = 0; trial < 4000; ++trial) {
    View a{floats.data(), {}, {}};
    rove::TensorView<double> b{reinterpret_cast<double*>(floats.data()) + below(40) - 20, {}, {}};
    rove::TensorView<std::uint16_t> c{
        reinterpret_cast<std::uint16_t*>(floats.data()) + below(200) - 100, {}, {}};
    for (int d = 0; d < 4; ++d) {
      a.extent[d] = 1 + below(4), b.extent[d] = 1 + below(3), c.extent[d] = 1 + below(2);
      a.stride[d] = below(41) - 20, b.stride[d] = below(41) - 20, c.stride[d] = 2 * below(41) - 40;
    }
    ASSERT_EQ(rove::overlaps_itself(a), walk_finds_repeats(a));
    ASSERT_EQ(rove::overlaps_itself(b), walk_finds_repeats(b));
    ASSERT_EQ(rove::overlaps(a, b), walk_finds_shared(a, b));
    ASSERT_EQ(rove::overlaps(b, a), walk_finds_shared(a, b));
    ASSERT_EQ(rove::overlaps(a, c), walk_finds_shared(a, c));
    overlapping += walk_finds_repeats(a);
    meeting += walk_finds_shared(a, c);
  }
  // The trials are no test if they all go one way.
  EXPECT_GT(overlapping, 400);
  EXPECT_LT(overlapping, 3600);
  EXPECT_GT(meeting, 400);
  EXPECT_LT(meeting, 3600);
}

TEST(ViewChecks, interleaved_views_of_one_buffer_do_not_overlap) {
  std::vector<float> buffer(2 * 64 * 12 * 8);
  const auto [q, k, v] = rove::packed_qkv(buffer.data(), 2, 64, 4, 4, 8);
  EXPECT_FALSE(rove::overlaps(q, k) || rove::overlaps(k, v) || rove::overlaps(v, q));
  EXPECT_TRUE(rove::overlaps(q, q));
  EXPECT_TRUE(rove::overlaps(q, rove::TensorView<const float>(q.slice(1, 3, 1))));
  EXPECT_FALSE(rove::overlaps(q.slice(1, 0, 2), q.slice(1, 2, 2)));
  EXPECT_FALSE(rove::overlaps(q.slice(2, 0, 0), q));
  EXPECT_TRUE(rove::overlaps(q.slice(2, 0, 3), q.slice(2, 2, 3)));
}

TEST(ViewChecks, layouts_too_large_or_tangled_to_decide_count_as_overlapping) {
  float x = 0;
  // No two elements meet, but to know that takes a walk through millions of differences.
  const View tangled{&x, {1, 400, 400, 400}, {0, 1'000'000'000'039, 998'244'353'007, 1'003'141'592'653}};
  EXPECT_TRUE(rove::overlaps_itself(tangled));
  const Index huge = Index{1} << 62;
  EXPECT_TRUE(rove::overlaps_itself(View{&x, {1, 2, 9, 9}, {0, huge, huge, huge - 1}}));
  EXPECT_TRUE(rove::overlaps_itself(View{&x, {1, 1, 9, 9}, {0, 0, (std::numeric_limits<Index>::min)(), 3}}));
}

TEST(ViewChecks, same_storage) {
  std::vector<float> buffer(24);
  const auto view = rove::bhtd(buffer.data(), 1, 2, 3, 4);
  EXPECT_TRUE(rove::same_storage(view, view));
  EXPECT_TRUE(rove::same_storage(rove::TensorView<const float>(view), view));
  View other_batch_stride = view;
  other_batch_stride.stride[0] = 99;  // of one batch row: never taken
  EXPECT_TRUE(rove::same_storage(view, other_batch_stride));
  EXPECT_FALSE(rove::same_storage(view, view.slice(2, 0, 2)));
  EXPECT_FALSE(rove::same_storage(view, rove::bthd(buffer.data(), 1, 3, 2, 4)));
  EXPECT_FALSE(rove::same_storage(view, rove::bhtd(buffer.data() + 1, 1, 2, 3, 4)));
  EXPECT_FALSE(
      rove::same_storage(view, rove::bhtd(reinterpret_cast<const std::int32_t*>(buffer.data()), 1, 2, 3, 4)));
}

TEST(ViewChecks, check_view_accepts_what_can_be_addressed) {
  float x = 0;
  EXPECT_NO_THROW(rove::check_view(rove::bhtd(&x, 1, 32, Index{1} << 20, 128), "q"));
  EXPECT_NO_THROW(rove::check_view(View{&x, {2, 2, 2, 2}, {0, -1, 5, -9}}, "q"));
  EXPECT_NO_THROW(rove::check_view(View{nullptr, {2, 0, 2, 2}, {}}, "q"));
}

TEST(ViewChecks, check_view_messages) {
  float x = 0;
  EXPECT_EQ(error_of([&] {
              rove::check_view(View{&x, {1, 1, -2, 4}, {}}, "q");
            }),
            "q: tokens must not be negative, got -2");
  EXPECT_EQ(error_of([&] {
              rove::check_view(View{nullptr, {1, 2, 3, 4}, {}}, "out");
            }),
            "out is null but has 24 elements");
}

TEST(ViewChecks, B75_products_that_do_not_fit_in_64_bits_are_refused) {
  float x = 0;
  const Index many = Index{1} << 31;
  EXPECT_EQ(error_of([&] {
              rove::check_view(View{&x, {1, many, many, 1}, {}}, "k");
            }),
            "k: the number of bytes does not fit in 64 bits, extents 1 x 2147483648 x 2147483648 x 1");
  EXPECT_EQ(error_of([&] {
              rove::check_view(View{&x, {1, 1, 3, 1}, {1, 1, Index{1} << 60, 1}}, "v");
            }),
            "v: offsets do not fit in 64 bits, tokens has extent 3 and stride 1152921504606846976");
  EXPECT_EQ(error_of([&] {
              rove::check_view(View{&x, {1, 1, 2, 1}, {1, 1, (std::numeric_limits<Index>::min)(), 1}}, "v");
            }),
            "v: offsets do not fit in 64 bits, tokens has extent 2 and stride -9223372036854775808");
  // Strides beyond 32 bits are nothing unusual.
  EXPECT_NO_THROW(rove::check_view(View{&x, {1, 3, 3, 3}, {1, Index{1} << 40, Index{1} << 33, 1}}, "v"));
}

TEST(ViewChecks, checked_slice) {
  std::vector<float> buffer(24);
  const auto view = rove::bhtd(buffer.data(), 1, 2, 3, 4);
  EXPECT_EQ(rove::checked_slice(view, 2, 1, 2).data, view.row(0, 0, 1));
  EXPECT_TRUE(rove::checked_slice(view, 3, 4, 0).empty());
  EXPECT_EQ(error_of([&] { rove::checked_slice(view, 2, 1, 3); }),
            "slice: 3 elements from 1 on do not lie in [0, 3)");
  EXPECT_EQ(error_of([&] { rove::checked_slice(view, 2, -1, 1); }),
            "slice: 1 elements from -1 on do not lie in [0, 3)");
  EXPECT_EQ(error_of([&] { rove::checked_slice(view, 2, 1, (std::numeric_limits<Index>::max)()); }),
            "slice: 9223372036854775807 elements from 1 on do not lie in [0, 3)");
  EXPECT_EQ(error_of([&] { rove::checked_slice(view, 4, 0, 1); }), "slice: dimension must be 0 to 3, got 4");
}

}  // namespace

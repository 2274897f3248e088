#include "rove/eigen.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <unsupported/Eigen/CXX11/Tensor>
#include <utility>
#include <vector>

#include "rove/core/view_checks.hpp"
#include "support/error_of.hpp"

namespace {

using rove::Index;
using RowMajorMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using test::error_of;

template <class A>
concept Viewed = requires(A&& array) {
  rove::view(std::forward<A>(array));
};
template <class A>
concept ViewedByHeads = requires(A&& array) {
  rove::view(std::forward<A>(array), 2);
};
template <class A>
concept ViewedTokensFirst = requires(A&& array) {
  rove::view_bthd(std::forward<A>(array));
};
template <class A>
concept RowViewed = requires(A&& array) {
  rove::row_view(std::forward<A>(array));
};

/// The view is of the very elements of the matrix, tokens by channels.
template <class M, class T>
void expect_rows(const rove::TensorView<T>& view, const M& matrix) {
  ASSERT_EQ(view.batch(), 1);
  ASSERT_EQ(view.heads(), 1);
  ASSERT_EQ(view.tokens(), static_cast<Index>(matrix.rows()));
  ASSERT_EQ(view.channels(), static_cast<Index>(matrix.cols()));
  for (Eigen::Index t = 0; t < matrix.rows(); ++t)
    for (Eigen::Index c = 0; c < matrix.cols(); ++c) ASSERT_EQ(&view(0, 0, t, c), &matrix.coeffRef(t, c));
}

// ---- Matrices ----

TEST(EigenMatrices, both_storage_orders) {
  Eigen::MatrixXf columns = Eigen::MatrixXf::Random(5, 3);
  RowMajorMatrix rows = columns;
  expect_rows(rove::view(columns), columns);
  expect_rows(rove::view(rows), rows);
  EXPECT_EQ(rove::view(columns).channel_stride(), 5);
  EXPECT_EQ(rove::view(rows).channel_stride(), 1);
  static_assert(std::is_same_v<decltype(rove::view(rows)), rove::TensorView<float>>);
  static_assert(std::is_same_v<decltype(rove::view(std::as_const(rows))), rove::TensorView<const float>>);
  expect_rows(rove::view(std::as_const(rows)), rows);
}

TEST(EigenMatrices, every_scalar_and_fixed_sizes) {
  Eigen::Matrix<Eigen::bfloat16, 4, 8> brain;
  Eigen::Matrix<Eigen::half, 4, 8, Eigen::RowMajor> half;
  Eigen::Matrix<double, Eigen::Dynamic, 2> wide(3, 2);
  Eigen::ArrayXXf array(2, 6);
  expect_rows(rove::view(brain), brain);
  expect_rows(rove::view(half), half);
  expect_rows(rove::view(wide), wide);
  expect_rows(rove::view(array), array);
  static_assert(std::is_same_v<decltype(rove::view(brain)), rove::TensorView<Eigen::bfloat16>>);
  Eigen::VectorXf column(4);
  Eigen::RowVectorXf row(4);
  EXPECT_EQ(rove::view(column).tokens(), 4);
  EXPECT_EQ(rove::view(column).channels(), 1);
  EXPECT_EQ(rove::view(row).tokens(), 1);
  EXPECT_EQ(rove::view(row).channels(), 4);
}

TEST(EigenMatrices, blocks_and_transposes_of_a_matrix) {
  Eigen::MatrixXf columns = Eigen::MatrixXf::Random(7, 6);
  RowMajorMatrix rows = columns;
  auto inner = columns.block(1, 2, 4, 3);
  expect_rows(rove::view(inner), inner);
  auto right = rows.rightCols(2);
  expect_rows(rove::view(right), right);
  auto turned = rows.transpose();
  expect_rows(rove::view(turned), turned);
  EXPECT_EQ(&rove::view(rows.middleRows(2, 3))(0, 0, 1, 4), &rows(3, 4));  // a temporary block
  EXPECT_EQ(&rove::view(columns.transpose())(0, 0, 5, 2), &columns(2, 5));
  EXPECT_EQ(&rove::view(rows.row(3))(0, 0, 0, 5), &rows(3, 5));
  EXPECT_EQ(&rove::view(rows.array())(0, 0, 3, 5), &rows(3, 5));
  static_assert(std::is_same_v<decltype(rove::view(rows.topRows(2))), rove::TensorView<float>>);
  static_assert(
      std::is_same_v<decltype(rove::view(std::as_const(rows).topRows(2))), rove::TensorView<const float>>);
}

TEST(EigenMatrices, maps_with_outer_and_inner_strides) {
  std::vector<float> numbers(200);
  Eigen::Map<RowMajorMatrix, 0, Eigen::OuterStride<>> spaced(numbers.data(), 4, 6, Eigen::OuterStride<>(9));
  expect_rows(rove::view(spaced), spaced);
  EXPECT_EQ(rove::view(spaced).stride[2], 9);
  Eigen::Map<RowMajorMatrix, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>> loose(
      numbers.data(), 4, 6, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(25, 3));
  expect_rows(rove::view(loose), loose);
  EXPECT_EQ(rove::view(loose).channel_stride(), 3);
  Eigen::Map<Eigen::MatrixXf, 0, Eigen::InnerStride<2>> skipping(numbers.data(), 4, 6);
  expect_rows(rove::view(skipping), skipping);
  EXPECT_EQ(rove::view(skipping).stride[2], 2);

  const Eigen::Map<const Eigen::MatrixXf> constant(numbers.data(), 4, 6);
  static_assert(std::is_same_v<decltype(rove::view(constant)), rove::TensorView<const float>>);
  EXPECT_EQ(&rove::view(constant)(0, 0, 3, 5), &numbers[23]);
  EXPECT_EQ(&rove::view(Eigen::Map<Eigen::MatrixXf>(numbers.data(), 4, 6))(0, 0, 3, 5), &numbers[23]);
}

TEST(EigenMatrices, references) {
  Eigen::MatrixXf matrix(5, 4);
  Eigen::Ref<Eigen::MatrixXf> writable = matrix.topRows(3);
  Eigen::Ref<const Eigen::MatrixXf> constant = matrix.topRows(3);
  EXPECT_EQ(&rove::view(writable)(0, 0, 2, 3), &matrix(2, 3));
  EXPECT_EQ(&rove::view(constant)(0, 0, 2, 3), &matrix(2, 3));
  static_assert(std::is_same_v<decltype(rove::view(writable)), rove::TensorView<float>>);
  static_assert(std::is_same_v<decltype(rove::view(constant)), rove::TensorView<const float>>);
}

TEST(EigenMatrices, heads_side_by_side) {
  Eigen::MatrixXf columns(5, 12);
  RowMajorMatrix rows(5, 12);
  const auto a = rove::view(columns, 3), b = rove::view(rows, 3), c = rove::view(rows.leftCols(8), 2);
  EXPECT_EQ(a.heads(), 3);
  EXPECT_EQ(a.tokens(), 5);
  EXPECT_EQ(a.channels(), 4);
  EXPECT_EQ(c.channels(), 4);
  for (Index h = 0; h < 3; ++h)
    for (Index t = 0; t < 5; ++t)
      for (Index d = 0; d < 4; ++d) {
        EXPECT_EQ(&a(0, h, t, d), &columns(t, 4 * h + d));
        EXPECT_EQ(&b(0, h, t, d), &rows(t, 4 * h + d));
        if (h < 2) {
          EXPECT_EQ(&c(0, h, t, d), &rows(t, 4 * h + d));
        }
      }
  EXPECT_FALSE(rove::overlaps_itself(a) || rove::overlaps_itself(b));
  static_assert(std::is_same_v<decltype(rove::view(std::as_const(rows), 3)), rove::TensorView<const float>>);
}

TEST(EigenMatrices, messages) {
  Eigen::MatrixXf matrix(5, 10);
  EXPECT_EQ(error_of([&] { rove::view(matrix, 4); }),
            "view: 10 columns cannot be shared out evenly among 4 heads");
  EXPECT_EQ(error_of([&] { rove::view(matrix, 0); }),
            "view: 10 columns cannot be shared out evenly among 0 heads");
  EXPECT_EQ(error_of([&] { rove::view(matrix, -2); }),
            "view: 10 columns cannot be shared out evenly among -2 heads");
}

TEST(EigenMatrices, what_is_written_to_the_view_is_in_the_matrix) {
  RowMajorMatrix rows = RowMajorMatrix::Zero(4, 6);
  rove::view(rows, 2)(0, 1, 2, 0) = 5;
  EXPECT_EQ(rows(2, 3), 5);
  rove::view(rows.bottomRows(1))(0, 0, 0, 5) = 7;
  EXPECT_EQ(rows(3, 5), 7);
  EXPECT_EQ(rows.sum(), 12);
}

TEST(EigenMatrices, nothing_at_all) {
  Eigen::MatrixXf none(0, 4);
  EXPECT_TRUE(rove::view(none).empty());
  EXPECT_EQ(rove::view(none, 2).heads(), 2);
  EXPECT_EQ(rove::view(none, 2).channels(), 2);
}

TEST(EigenMatrices, temporaries_and_expressions_are_refused) {
  using M = Eigen::MatrixXf;
  using Sum = decltype(std::declval<M&>() + std::declval<M&>());
  using Reversed = decltype(std::declval<M&>().rowwise().reverse());
  using Product = decltype(std::declval<M&>() * std::declval<M&>());
  static_assert(Viewed<M&> && Viewed<const M&> && !Viewed<M> && !Viewed<const M>);
  static_assert(ViewedByHeads<M&> && !ViewedByHeads<M>);
  static_assert(RowViewed<Eigen::VectorXf&> && !RowViewed<Eigen::VectorXf>);
  static_assert(!Viewed<Eigen::Matrix4f> && Viewed<Eigen::Matrix4f&>);
  static_assert(!Viewed<Sum> && !Viewed<Sum&> && !Viewed<Reversed&> && !Viewed<Product&> &&
                !ViewedByHeads<Sum&>);
  static_assert(Viewed<Eigen::Ref<M>> && Viewed<Eigen::Ref<const M>&> && !Viewed<Eigen::Ref<const M>>);
  static_assert(Viewed<Eigen::Block<M>> && Viewed<Eigen::Map<M>> && Viewed<Eigen::Transpose<M>>);
  static_assert(!Viewed<std::vector<float>&> && !Viewed<int&> && !Viewed<float*> && !Viewed<std::string>);
  static_assert(!Viewed<rove::TensorView<float>&> && !ViewedTokensFirst<M&>);
}

// ---- Tensors ----

template <int Layout>
void tensors() {
  Eigen::Tensor<float, 4, Layout> four(2, 3, 4, 5);
  Eigen::Tensor<double, 3, Layout> three(3, 4, 5);
  Eigen::Tensor<float, 2, Layout> two(4, 5);
  const auto a = rove::view(four);
  const auto b = rove::view(three);
  const auto c = rove::view(two);
  const auto d = rove::view_bthd(four);
  const auto e = rove::view_bthd(std::as_const(three));
  ASSERT_EQ(a.extent[0] * 1000 + a.extent[1] * 100 + a.extent[2] * 10 + a.extent[3], 2345);
  ASSERT_EQ(b.extent[0] * 1000 + b.extent[1] * 100 + b.extent[2] * 10 + b.extent[3], 1345);
  ASSERT_EQ(c.extent[0] * 1000 + c.extent[1] * 100 + c.extent[2] * 10 + c.extent[3], 1145);
  ASSERT_EQ(d.heads(), 4);
  ASSERT_EQ(d.tokens(), 3);
  ASSERT_EQ(e.heads(), 4);
  ASSERT_EQ(e.tokens(), 3);
  for (Index i = 0; i < 2; ++i)
    for (Index j = 0; j < 3; ++j)
      for (Index k = 0; k < 4; ++k)
        for (Index l = 0; l < 5; ++l) {
          ASSERT_EQ(&a(i, j, k, l), &four(i, j, k, l));
          ASSERT_EQ(&b(0, j, k, l), &three(j, k, l));
          ASSERT_EQ(&c(0, 0, k, l), &two(k, l));
          ASSERT_EQ(&d(i, k, j, l), &four(i, j, k, l));
          ASSERT_EQ(&e(0, k, j, l), &three(j, k, l));
        }
  EXPECT_FALSE(rove::overlaps_itself(a) || rove::overlaps_itself(d));
  static_assert(std::is_same_v<decltype(rove::view(three)), rove::TensorView<double>>);
  static_assert(std::is_same_v<decltype(rove::view(std::as_const(three))), rove::TensorView<const double>>);

  using Four = Eigen::Tensor<float, 4, Layout>;
  using Constant = Eigen::Tensor<const float, 4, Layout>;
  Eigen::TensorMap<Four> map(four.data(), 2, 3, 4, 5);
  EXPECT_EQ(&rove::view(map)(1, 2, 3, 4), &four(1, 2, 3, 4));
  EXPECT_EQ(&rove::view(Eigen::TensorMap<Four>(four.data(), 2, 3, 4, 5))(1, 0, 3, 2), &four(1, 0, 3, 2));
  Eigen::TensorMap<Constant> constant(four.data(), 2, 3, 4, 5);
  static_assert(std::is_same_v<decltype(rove::view(constant)), rove::TensorView<const float>>);
  EXPECT_EQ(&rove::view(constant)(1, 2, 0, 4), &four(1, 2, 0, 4));
  Eigen::TensorFixedSize<float, Eigen::Sizes<2, 3, 4>, Layout> fixed;
  EXPECT_EQ(&rove::view(fixed)(0, 1, 2, 3), &fixed(1, 2, 3));

  rove::view(four)(1, 1, 1, 1) = 42;
  EXPECT_EQ(four(1, 1, 1, 1), 42);

  static_assert(!Viewed<Four> && Viewed<Four&> && Viewed<Eigen::TensorMap<Four>> && !ViewedTokensFirst<Four>);
  static_assert(!Viewed<decltype(fixed)> && Viewed<Eigen::TensorMap<Constant>>);
  static_assert(!Viewed<Eigen::Tensor<float, 5, Layout>&> && !Viewed<Eigen::Tensor<float, 1, Layout>&>);
  static_assert(!ViewedTokensFirst<Eigen::Tensor<float, 2, Layout>&>);
  static_assert(!Viewed<decltype(four + four)&>);
}

TEST(EigenTensors, both_layouts_and_every_rank) {
  tensors<Eigen::ColMajor>();
  tensors<Eigen::RowMajor>();
}

// ---- mdspan-like arrays ----

/// The members of std::mdspan that matter, over any strides.
template <class T, std::size_t Rank>
struct Span {
  using rank_type = std::size_t;
  T* first;
  std::array<std::size_t, Rank> extents;
  std::array<std::ptrdiff_t, Rank> strides;

  static constexpr std::size_t rank() { return Rank; }
  T* data_handle() const { return first; }
  std::size_t extent(std::size_t d) const { return extents[d]; }
  std::ptrdiff_t stride(std::size_t d) const { return strides[d]; }
};

/// As Kokkos::View has it: `data()`, constness shallow.
struct DataSpan {
  float* first;
  static constexpr unsigned rank() { return 2; }
  float* data() const { return first; }
  int extent(int d) const { return d == 0 ? 4 : 5; }
  long stride(int d) const { return d == 0 ? 1 : 4; }
};

/// An owner with the same members, constness deep.
struct DataArray {
  std::vector<float> numbers = std::vector<float>(20);
  static constexpr unsigned rank() { return 2; }
  float* data() { return numbers.data(); }
  const float* data() const { return numbers.data(); }
  int extent(int d) const { return d == 0 ? 4 : 5; }
  int stride(int d) const { return d == 0 ? 5 : 1; }
};

TEST(MdspanLike, every_rank_and_stride) {
  std::vector<float> numbers(400);
  const Span<float, 4> four{numbers.data() + 9, {2, 3, 4, 5}, {100, -3, 1, 20}};
  const auto a = rove::view(four);
  EXPECT_EQ(&a(1, 2, 3, 4), numbers.data() + 9 + 100 - 6 + 3 + 80);
  EXPECT_EQ(a.heads(), 3);
  const auto b = rove::view_bthd(four);
  EXPECT_EQ(&b(1, 3, 2, 4), &a(1, 2, 3, 4));
  EXPECT_EQ(b.heads(), 4);
  const auto c = rove::view(Span<const double, 3>{nullptr, {0, 4, 5}, {20, 5, 1}});  // temporary, borrowing
  static_assert(std::is_same_v<decltype(c), const rove::TensorView<const double>>);
  EXPECT_EQ(c.batch(), 1);
  EXPECT_EQ(c.heads(), 0);
  EXPECT_EQ(c.channels(), 5);
  const auto d = rove::view(Span<float, 2>{numbers.data(), {4, 5}, {0, 2}});
  EXPECT_EQ(&d(0, 0, 3, 4), numbers.data() + 8);

  const auto e = rove::view(DataSpan{numbers.data()});
  EXPECT_EQ(&e(0, 0, 3, 4), numbers.data() + 19);
  DataArray owner;
  EXPECT_EQ(&rove::view(owner)(0, 0, 3, 4), owner.numbers.data() + 19);
  static_assert(std::is_same_v<decltype(rove::view(std::as_const(owner))), rove::TensorView<const float>>);
  static_assert(Viewed<DataArray&> && !Viewed<DataArray> && Viewed<DataSpan>);
  static_assert(!Viewed<Span<float, 1>&> && !Viewed<Span<float, 5>&> && !ViewedTokensFirst<Span<float, 2>&>);

  a(0, 0, 0, 0) = 3;
  EXPECT_EQ(numbers[9], 3);
}

// ---- One number a row ----

TEST(RowViews, of_vectors_matrices_tensors_and_spans) {
  Eigen::VectorXf vector(6);
  Eigen::RowVectorXd row(6);
  RowMajorMatrix rows(3, 6);
  Eigen::MatrixXf columns(6, 3);
  const auto a = rove::row_view(vector);
  const auto b = rove::row_view(row);
  const auto c = rove::row_view(rows);
  const auto d = rove::row_view(columns.transpose());
  const auto e = rove::row_view(std::as_const(rows).row(1));
  static_assert(std::is_same_v<decltype(b), const rove::RowView<double>>);
  static_assert(std::is_same_v<decltype(e), const rove::RowView<const float>>);
  for (Index t = 0; t < 6; ++t) {
    EXPECT_EQ(&a(0, 0, t), &vector(t));
    EXPECT_EQ(&b(0, 0, t), &row(t));
    EXPECT_EQ(&e(0, 0, t), &rows(1, t));
    for (Index h = 0; h < 3; ++h) {
      EXPECT_EQ(&c(0, h, t), &rows(h, t));
      EXPECT_EQ(&d(0, h, t), &columns(t, h));
    }
  }
  EXPECT_EQ(c.heads(), 3);
  EXPECT_EQ(c.tokens(), 6);
  EXPECT_EQ(rove::row_view(columns.col(1)).tokens(), 6);
  EXPECT_EQ(&rove::row_view(rows.col(2))(0, 0, 1), &rows(1, 2));

  Eigen::Tensor<float, 3, Eigen::RowMajor> three(2, 3, 4);
  Eigen::Tensor<float, 1> one(4);
  EXPECT_EQ(&rove::row_view(three)(1, 2, 3), &three(1, 2, 3));
  EXPECT_EQ(&rove::row_view(one)(0, 0, 3), &one(3));
  EXPECT_EQ(&rove::row_view(Span<float, 2>{one.data(), {2, 2}, {1, 2}})(0, 1, 0), &one(1));
  static_assert(!RowViewed<Eigen::Tensor<float, 4>&> && !RowViewed<Eigen::Tensor<float, 3>>);
}

}  // namespace

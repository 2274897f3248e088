/// \file
/// Eigen's matrices and tensors, and mdspan-like arrays, as views: nothing is copied, and what is written to
/// a view is written to the matrix.
///
/// | array | `view` |
/// |---|---|
/// | matrix, block, map of tokens × channels | `[1, 1, tokens, channels]` |
/// | the same of tokens × (heads · channels), with `heads` | `[1, heads, tokens, channels]` |
/// | tensor or mdspan of rank 2, 3, 4 | the last dimensions of `[batch, heads, tokens, channels]` |
/// | the same through `view_bthd` | the last dimensions of `[batch, tokens, heads, channels]` |
///
/// Every storage order and every stride is honoured. An array that is const, or a const view of one, gives a
/// `TensorView` of const elements. Temporaries that own their elements are refused, as are expressions that
/// have no elements in memory (`a + b`); temporary blocks and maps (of what lives on) are welcome.
///
/// Eigen's tensor header is not included: its types are known by their members.
#pragma once

#include <Eigen/Core>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/tensor_view.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

// ---- Matrices ----

// Found by deduction: asking std::is_base_of would instantiate Eigen's bases for types that are none of its
// own.
template <class Derived>
std::true_type is_dense(const Eigen::DenseBase<Derived>*);
std::false_type is_dense(const void*);

template <class Derived>
std::true_type is_plain(const Eigen::PlainObjectBase<Derived>*);
std::false_type is_plain(const void*);

/// A Ref to const may hold a copy that it made of its argument.
template <class T>
inline constexpr bool may_hold_copy = false;
template <class Plain, int Options, class Stride>
inline constexpr bool may_hold_copy<Eigen::Ref<const Plain, Options, Stride>> = true;

template <class M, class T = std::remove_cvref_t<M>>
inline constexpr bool owns_elements =
    decltype(is_plain(static_cast<const T*>(nullptr)))::value || may_hold_copy<T>;

template <class M>
concept EigenMatrix =
    decltype(is_dense(static_cast<const std::remove_cvref_t<M>*>(nullptr)))::value&& requires(M&& matrix) {
  {*matrix.data()};
  { matrix.rowStride() } -> std::convertible_to<Index>;
  { matrix.colStride() } -> std::convertible_to<Index>;
  requires(std::remove_cvref_t<M>::Flags & Eigen::DirectAccessBit) != 0;
};

// ---- Tensors and mdspan-like arrays ----

/// Eigen::Tensor, TensorFixedSize, TensorMap.
template <class A>
concept EigenTensor = requires(A&& tensor) {
  {*tensor.data()};
  { tensor.dimensions()[0] } -> std::convertible_to<Index>;
  { std::remove_cvref_t<A>::NumIndices } -> std::convertible_to<Index>;
  { std::remove_cvref_t<A>::Layout } -> std::convertible_to<int>;
};

template <class A>
concept StridedArray = requires(A&& array) {
  { array.extent(0) } -> std::convertible_to<Index>;
  { array.stride(0) } -> std::convertible_to<Index>;
  { std::remove_cvref_t<A>::rank() } -> std::convertible_to<Index>;
};

/// std::mdspan and its kind: `data_handle()`, a plain pointer.
template <class A>
concept HandledArray = StridedArray<A> && requires(A&& array) {
  requires std::is_pointer_v<std::remove_cvref_t<decltype(array.data_handle())>>;
};

/// Kokkos::View and its kind: `data()`.
template <class A>
concept DataArray = StridedArray<A> && !HandledArray<A> && requires(A && array) {
  requires std::is_pointer_v<std::remove_cvref_t<decltype(array.data())>>;
};

template <class A>
concept ViewableArray = EigenTensor<A> || HandledArray<A> || DataArray<A>;

/// A container's constness reaches its elements; a view's does not. That tells Tensor from TensorMap.
template <class A>
inline constexpr bool owns_array = !HandledArray<A>;
template <class A>
requires(!HandledArray<A>) &&
    requires(std::remove_cvref_t<A>& array, const std::remove_cvref_t<A>& constant) {
  requires std::same_as<decltype(array.data()), decltype(constant.data())>;
}
inline constexpr bool owns_array<A> = false;

template <ViewableArray A>
constexpr Index rank_of() {
  using T = std::remove_cvref_t<A>;
  if constexpr (EigenTensor<A>) {
    return static_cast<Index>(T::NumIndices);
  } else {
    return static_cast<Index>(T::rank());
  }
}

template <class A>
concept OutlivesCall = std::is_lvalue_reference_v<A> ||(EigenMatrix<A> && !owns_elements<A>) ||
                       (ViewableArray<A> && !owns_array<A>);

template <class A>
auto* elements_of(A& array) {
  if constexpr (HandledArray<A&>) {
    return array.data_handle();
  } else {
    return array.data();
  }
}

/// The extents and strides of an array, as the last `Rank` of those of a view.
template <std::size_t Rank, class A>
void describe(const A& array, Index (&extent)[Rank], Index (&stride)[Rank]) {
  constexpr std::size_t rank = static_cast<std::size_t>(rank_of<const A&>()), skipped = Rank - rank;
  for (std::size_t d = 0; d < skipped; ++d) extent[d] = 1;
  // Constants as indices, whatever integer type the array takes them in.
  [&]<std::size_t... d>(std::index_sequence<d...>) {
    if constexpr (EigenTensor<const A&>) {
      ((extent[skipped + d] = static_cast<Index>(array.dimensions()[d])), ...);
    } else {
      ((extent[skipped + d] = static_cast<Index>(array.extent(d))), ...);
      ((stride[skipped + d] = static_cast<Index>(array.stride(d))), ...);
    }
  }
  (std::make_index_sequence<rank>{});
  if constexpr (EigenTensor<const A&>) {
    Index step = 1;
    for (std::size_t i = 0; i < rank; ++i) {
      const std::size_t d = skipped + (static_cast<int>(A::Layout) == Eigen::RowMajor ? rank - 1 - i : i);
      stride[d] = step;
      step *= extent[d];
    }
  }
}

template <class Pointer>
using pointee_t = std::remove_pointer_t<std::remove_cvref_t<Pointer>>;

}  // namespace detail

/// A matrix of tokens × channels as `[1, 1, tokens, channels]`.
template <class M>
requires detail::EigenMatrix<M> && detail::OutlivesCall<M>
auto view(M&& matrix) {
  const Index rows = static_cast<Index>(matrix.rows()), cols = static_cast<Index>(matrix.cols());
  return TensorView<detail::pointee_t<decltype(matrix.data())>>{
      matrix.data(),
      {1, 1, rows, cols},
      {0, 0, static_cast<Index>(matrix.rowStride()), static_cast<Index>(matrix.colStride())}};
}

/// A matrix of tokens × (heads · channels), a projection's output, as `[1, heads, tokens, channels]`.
///
/// Throws `Error` unless the columns can be shared out evenly.
template <class M>
requires detail::EigenMatrix<M> && detail::OutlivesCall<M>
auto view(M&& matrix, Index heads) {
  const Index rows = static_cast<Index>(matrix.rows()), cols = static_cast<Index>(matrix.cols());
  ROVE_EXPECT(heads > 0 && cols % heads == 0, "view: ", cols, " columns cannot be shared out evenly among ",
              heads, " heads");
  const Index channels = cols / heads, step = static_cast<Index>(matrix.colStride());
  return TensorView<detail::pointee_t<decltype(matrix.data())>>{
      matrix.data(),
      {1, heads, rows, channels},
      {0, channels * step, static_cast<Index>(matrix.rowStride()), step}};
}

/// An Eigen tensor, tensor map or mdspan-like array of rank 2, 3 or 4, whose dimensions are the last of
/// `[batch, heads, tokens, channels]`.
template <class A>
requires detail::ViewableArray<A> && detail::OutlivesCall<A> &&
    (detail::rank_of<A>() >= 2 && detail::rank_of<A>() <= 4) auto view(A&& array) {
  TensorView<detail::pointee_t<decltype(detail::elements_of(array))>> seen{
      detail::elements_of(array), {}, {}};
  detail::describe(array, seen.extent, seen.stride);
  return seen;
}

/// The same for arrays of rank 3 or 4 whose dimensions are the last of `[batch, tokens, heads, channels]`.
template <class A>
requires detail::ViewableArray<A> && detail::OutlivesCall<A> &&
    (detail::rank_of<A>() >= 3 && detail::rank_of<A>() <= 4) auto view_bthd(A&& array) {
  auto seen = view(std::forward<A>(array));
  std::swap(seen.extent[1], seen.extent[2]);
  std::swap(seen.stride[1], seen.stride[2]);
  return seen;
}

/// One number per row, for log-sum-exps: a vector as `[1, 1, tokens]`, a matrix of heads × tokens as
/// `[1, heads, tokens]` (one of tokens × heads goes by its `transpose()`).
template <class M>
requires detail::EigenMatrix<M> && detail::OutlivesCall<M>
auto row_view(M&& matrix) {
  using T = detail::pointee_t<decltype(matrix.data())>;
  const Index rows = static_cast<Index>(matrix.rows()), cols = static_cast<Index>(matrix.cols());
  const Index row_step = static_cast<Index>(matrix.rowStride()),
              col_step = static_cast<Index>(matrix.colStride());
  if constexpr (std::remove_cvref_t<M>::ColsAtCompileTime == 1) {
    return RowView<T>{matrix.data(), {1, 1, rows}, {0, 0, row_step}};
  } else {
    return RowView<T>{matrix.data(), {1, rows, cols}, {0, row_step, col_step}};
  }
}

/// The same from an Eigen tensor or mdspan-like array of rank 1, 2 or 3, whose dimensions are the last of
/// `[batch, heads, tokens]`.
template <class A>
requires detail::ViewableArray<A> && detail::OutlivesCall<A> &&
    (detail::rank_of<A>() >= 1 && detail::rank_of<A>() <= 3) auto row_view(A&& array) {
  RowView<detail::pointee_t<decltype(detail::elements_of(array))>> seen{detail::elements_of(array), {}, {}};
  detail::describe(array, seen.extent, seen.stride);
  return seen;
}

ROVE_END_TAGGED

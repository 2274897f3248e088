/// \file
/// What a view owes before it is used: extents and offsets that fit in 64 bits, and, for an output, elements
/// that share memory with nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/tensor_view.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// sum += a · b for numbers ≥ 0; false, and sum as it was, where the result has no 64-bit form.
[[nodiscard]] constexpr bool add_product(Index& sum, Index a, Index b) {
  constexpr Index most = (std::numeric_limits<Index>::max)();
  if (a != 0 && b > (most - sum) / a) return false;
  sum += a * b;
  return true;
}

/// |stride|; the one stride without an absolute value becomes the largest number.
constexpr Index magnitude(Index stride) {
  if (stride == (std::numeric_limits<Index>::min)()) return (std::numeric_limits<Index>::max)();
  return stride < 0 ? -stride : stride;
}

/// Does Σ s_k x_k = target have a solution with 0 ≤ x_k ≤ n_k? Found by depth-first search over descending
/// strides, bounded by what the finer ones can still reach and by their common divisor. Nested layouts leave
/// at most two values a stride; a search that branches beyond the budget answers yes.
class BoundedSum {
 public:
  /// Adds s · x with 0 ≤ x ≤ n. A negative s counts down from n.
  void add(Index s, Index n) {
    if (s == 0 || n <= 0) return;
    if (s < 0) {
      s = magnitude(s);
      undecided_ |= !add_product(base_, s, n);
    }
    int at = 0;
    while (at < count_ && terms_[at].stride > s) ++at;
    if (at < count_ && terms_[at].stride == s) {
      undecided_ |= !add_product(terms_[at].most, 1, n);
      return;
    }
    for (int i = count_++; i > at; --i) terms_[i] = terms_[i - 1];
    terms_[at] = {s, n, 0, 0};
  }

  bool reaches(Index target) {
    if (undecided_ || target > (std::numeric_limits<Index>::max)() - base_) return true;
    target += base_;
    Index reach = 0, divisor = 0;
    for (int i = count_; i-- > 0;) {
      if (!add_product(reach, terms_[i].stride, terms_[i].most)) return true;
      divisor = std::gcd(divisor, terms_[i].stride);
      terms_[i].reach = reach;
      terms_[i].divisor = divisor;
    }
    budget_ = 20'000;
    return search(0, target);
  }

 private:
  struct Term {
    Index stride, most;
    Index reach, divisor;  ///< of this term and all finer ones
  };

  bool search(int level, Index target) {
    if (target == 0) return true;
    if (target < 0 || level == count_) return false;
    const Term& term = terms_[level];
    if (target > term.reach || target % term.divisor != 0) return false;
    const Index finer = level + 1 < count_ ? terms_[level + 1].reach : 0;
    const Index quotient = target / term.stride;
    const Index high = quotient < term.most ? quotient : term.most;
    const Index low = target <= finer ? 0 : (target - finer - 1) / term.stride + 1;
    for (Index x = high; x >= low; --x) {
      if (--budget_ < 0 || search(level + 1, target - x * term.stride)) return true;
    }
    return false;
  }

  Term terms_[10] = {};
  int count_ = 0;
  Index base_ = 0;  ///< what the falling terms add when they are counted upwards
  int budget_ = 0;
  bool undecided_ = false;
};

/// Two different index tuples of one view meet in one place.
template <std::size_t Rank>
bool meets_itself(const Index (&extent)[Rank], const Index (&stride)[Rank]) {
  for (std::size_t d = 0; d < Rank; ++d) {
    if (extent[d] <= 0) return false;
  }
  // Take the first dimension in which the tuples differ. Whichever way round, it differs by 1 … extent − 1
  // there, and by anything up to extent − 1 either way in those that follow.
  for (std::size_t first = 0; first < Rank; ++first) {
    if (extent[first] == 1) continue;
    if (stride[first] == 0) return true;
    const Index step = magnitude(stride[first]);
    BoundedSum differences;
    differences.add(step, extent[first] - 2);
    for (std::size_t d = first + 1; d < Rank; ++d) {
      differences.add(magnitude(stride[d]), extent[d] - 1);
      differences.add(-magnitude(stride[d]), extent[d] - 1);
    }
    if (differences.reaches(-step)) return true;
  }
  return false;
}

}  // namespace detail

/// Checks that a view can be addressed: no negative extent, a pointer unless there is nothing to point at,
/// and sizes and offsets, in bytes too, that fit in 64 bits. Throws `Error` naming the view.
template <class T>
void check_view(const TensorView<T>& view, const char* name) {
  constexpr const char* names[4] = {"batch", "heads", "tokens", "channels"};
  for (int d = 0; d < 4; ++d) {
    ROVE_EXPECT(view.extent[d] >= 0, name, ": ", names[d], " must not be negative, got ", view.extent[d]);
  }
  if (view.empty()) return;
  Index size = static_cast<Index>(sizeof(T)), offset = size;
  for (int d = 0; d < 4; ++d) {
    Index larger = 0;
    ROVE_EXPECT(detail::add_product(larger, size, view.extent[d]), name,
                ": the number of bytes does not fit in 64 bits, extents ", view.extent[0], " x ",
                view.extent[1], " x ", view.extent[2], " x ", view.extent[3]);
    size = larger;
    Index bytes = 0;
    ROVE_EXPECT(
        detail::add_product(bytes, detail::magnitude(view.stride[d]), static_cast<Index>(sizeof(T))) &&
            detail::add_product(offset, bytes, view.extent[d] - 1),
        name, ": offsets do not fit in 64 bits, ", names[d], " has extent ", view.extent[d], " and stride ",
        view.stride[d]);
  }
  ROVE_EXPECT(view.data != nullptr, name, " is null but has ", view.size(), " elements");
}

/// The part [first, first + count) of one dimension (0 batch … 3 channels), checked.
template <class T>
TensorView<T> checked_slice(const TensorView<T>& view, int dimension, Index first, Index count) {
  ROVE_EXPECT(dimension >= 0 && dimension < 4, "slice: dimension must be 0 to 3, got ", dimension);
  const Index extent = view.extent[dimension];
  ROVE_EXPECT(first >= 0 && count >= 0 && first <= extent && count <= extent - first, "slice: ", count,
              " elements from ", first, " on do not lie in [0, ", extent, ")");
  return view.slice(dimension, first, count);
}

/// Whether two elements of a view share one place, so that it cannot be an output. Exact; a layout so tangled
/// that the search for a clash runs out of steps counts as overlapping.
template <class T>
bool overlaps_itself(const TensorView<T>& view) {
  return detail::meets_itself(view.extent, view.stride);
}
template <class T>
bool overlaps_itself(const RowView<T>& rows) {
  return detail::meets_itself(rows.extent, rows.stride);
}

/// Whether two views are the same elements in the same order: element type, data, extents, and the strides of
/// dimensions longer than 1 agree. The one way in which an output may share an input's memory.
template <class A, class B>
bool same_storage(const TensorView<A>& a, const TensorView<B>& b) {
  if (!std::is_same_v<std::remove_const_t<A>, std::remove_const_t<B>>) return false;
  bool same = static_cast<const void*>(a.data) == static_cast<const void*>(b.data);
  for (int d = 0; d < 4; ++d) {
    same = same && a.extent[d] == b.extent[d] && (a.extent[d] <= 1 || a.stride[d] == b.stride[d]);
  }
  return same;
}

/// Whether some element of one view shares a byte with some element of the other. Exact, interleaved views of
/// one buffer (the parts of a packed QKV) included; see `overlaps_itself` for tangled layouts. Both views
/// have passed `check_view`.
template <class A, class B>
bool overlaps(const TensorView<A>& a, const TensorView<B>& b) {
  if (a.empty() || b.empty()) return false;
  const Index a_size = static_cast<Index>(sizeof(A)), b_size = static_cast<Index>(sizeof(B));
  // a's byte − b's byte = Σ a_stride i − Σ b_stride j + (byte within a) − (byte within b).
  detail::BoundedSum difference;
  difference.add(1, a_size - 1);
  difference.add(-1, b_size - 1);
  for (int d = 0; d < 4; ++d) {
    difference.add(a.stride[d] * a_size, a.extent[d] - 1);
    difference.add(b.stride[d] * -b_size, b.extent[d] - 1);
  }
  const auto address = [](const void* data) {
    return static_cast<Index>(reinterpret_cast<std::uintptr_t>(data));
  };
  return difference.reaches(address(b.data) - address(a.data));
}

ROVE_END_TAGGED

/// \file
/// Working memory with scoped release: taken in order, given back in reverse, kept for the next call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/huge_pages.hpp"

namespace rove {

/// Every piece of working memory starts on a multiple of this many bytes and fills it up: whole cache lines
/// and, since prefetchers (Intel) and caches (Apple) join two lines, whole pairs of them. So no two pieces,
/// and no two workers' slices, share a line.
inline constexpr Index workspace_alignment = 128;

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

inline constexpr Index largest_index = (std::numeric_limits<Index>::max)();

/// count · size rounded up to whole alignments, checked for overflow.
inline Index padded_bytes(Index count, Index size) {
  ROVE_EXPECT(count >= 0, "count is ", count, ", at least 0 is needed");
  ROVE_EXPECT(size == 0 || count <= (largest_index - workspace_alignment) / size, "count is ", count,
              ", too many elements of ", size, " bytes for a 64-bit size");
  return (count * size + (workspace_alignment - 1)) / workspace_alignment * workspace_alignment;
}

/// a + b for sizes, checked for overflow.
inline Index sum_of_bytes(Index a, Index b) {
  ROVE_EXPECT(a <= largest_index - b, "working memory of ", a, " and ", b, " bytes exceeds a 64-bit size");
  return a + b;
}

/// workers · bytes, checked for overflow.
inline Index bytes_of_all(Index bytes, int workers) {
  ROVE_EXPECT(workers >= 1, "workers is ", workers, ", at least 1 is needed");
  ROVE_EXPECT(bytes <= largest_index / workers, "working memory of ", bytes, " bytes for each of ", workers,
              " workers exceeds a 64-bit size");
  return bytes * workers;
}

template <class T>
concept WorkspaceElement = std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> &&
                           alignof(T) <= workspace_alignment;

}  // namespace detail

/// Adds up working memory by the rules of the arena, without touching any: what a kernel answers when it is
/// asked for its workspace. A context over `bytes()` bytes of any alignment holds it; one byte less does not.
class WorkspaceSize {
 public:
  /// `scope.allocate<T>(count)`, live together with all that was added before.
  template <detail::WorkspaceElement T>
  WorkspaceSize& add(Index count) {
    live_ = detail::sum_of_bytes(live_, detail::padded_bytes(count, sizeof(T)));
    return *this;
  }

  /// `scope.per_worker<T>(count)` on a context of that many workers.
  template <detail::WorkspaceElement T>
  WorkspaceSize& add_per_worker(Index count, int workers) {
    live_ =
        detail::sum_of_bytes(live_, detail::bytes_of_all(detail::padded_bytes(count, sizeof(T)), workers));
    return *this;
  }

  /// What a nested scope takes: live together with all that was added before.
  WorkspaceSize& add(const WorkspaceSize& nested) {
    live_ = detail::sum_of_bytes(live_, nested.live_);
    return *this;
  }

  /// The larger one: of scopes that follow each other.
  friend WorkspaceSize larger(const WorkspaceSize& a, const WorkspaceSize& b) {
    return a.live_ < b.live_ ? b : a;
  }

  /// Bytes to own, with room to find the first aligned one.
  Index bytes() const { return live_ == 0 ? 0 : detail::sum_of_bytes(live_, workspace_alignment - 1); }

 private:
  Index live_ = 0;
};

/// One slice of T for each worker; no two share a cache line.
template <class T>
class PerWorker {
 public:
  PerWorker(std::byte* data, Index count, Index stride_bytes, int workers)
      : data_(data), count_(count), stride_bytes_(stride_bytes), workers_(workers) {}

  /// The worker's own slice: `count` elements, uninitialised at first, then whatever its earlier tasks left.
  std::span<T> operator()(int worker) const {
    ROVE_ASSERT(worker >= 0 && worker < workers_);
    return {reinterpret_cast<T*>(data_ + worker * stride_bytes_), static_cast<std::size_t>(count_)};
  }

  int workers() const { return workers_; }

 private:
  std::byte* data_;
  Index count_;
  Index stride_bytes_;
  int workers_;
};

namespace detail {

/// A stack of bytes, in blocks. Growth adds a block and moves nothing; when all is given back and there are
/// several blocks, one takes their place, so that the next call of that size finds its memory. Over memory of
/// the caller's it never allocates. Not thread-safe: `Context` sees to that.
class Arena {
  struct Block {
    Block* next;
    Index capacity;
  };
  static_assert(sizeof(Block) <= workspace_alignment);

 public:
  struct Mark {
    Block* block;
    Index used;
    Index live;
  };

  Arena() = default;

  explicit Arena(std::span<std::byte> memory) : fixed_(true), reserved_(static_cast<Index>(memory.size())) {
    // The slack counts as lost wherever the memory happens to start: what fits must not depend on that.
    const Index slack = workspace_alignment - 1;
    if (reserved_ <= slack) return;
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    const auto multiple = static_cast<std::uintptr_t>(workspace_alignment);
    data_ = memory.data() + (multiple - address % multiple) % multiple;
    capacity_ = reserved_ - slack;
  }

  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    Arena(std::move(other)).swap(*this);
    return *this;
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { free_blocks(); }

  Mark mark() const { return {current_, used_, live_}; }

  /// `bytes` is a multiple of the alignment.
  std::byte* allocate(Index bytes) {
    if (bytes > capacity_ - used_) grow(bytes);
    std::byte* const result = data_ + used_;
    used_ += bytes;
    live_ += bytes;
    high_water_ = (std::max)(high_water_, live_);
    return result;
  }

  /// Gives back all that was allocated since the mark.
  void release(const Mark& mark) noexcept {
    live_ = mark.live;
    if (!fixed_ && mark.block != current_) enter(mark.block);
    used_ = mark.used;
    if (live_ == 0 && first_ != nullptr && first_->next != nullptr) coalesce();
  }

  Index allocations() const { return allocations_; }
  Index reserved() const { return reserved_; }
  Index high_water() const { return high_water_; }

 private:
  /// What a block takes from the system.
  static std::size_t bytes_of(Index capacity) {
    return whole_pages(static_cast<std::size_t>(sum_of_bytes(capacity, workspace_alignment)));
  }
  static std::align_val_t alignment_of(std::size_t bytes) {
    return page_alignment(bytes, static_cast<std::size_t>(workspace_alignment));
  }
  static std::byte* data_of(Block* block) {
    return reinterpret_cast<std::byte*>(block) + workspace_alignment;
  }

  void enter(Block* block) noexcept {
    current_ = block;
    data_ = block != nullptr ? data_of(block) : nullptr;
    capacity_ = block != nullptr ? block->capacity : 0;
    used_ = 0;
  }

  /// Goes on to the next block that has room; makes one, as large as all so far, at the end of the list.
  ROVE_NO_INLINE void grow(Index bytes) {
    const Index needed = sum_of_bytes(sum_of_bytes(live_, bytes), workspace_alignment - 1);
    ROVE_EXPECT(!fixed_, "the context's memory has ", reserved_, " bytes, at least ", needed, " are needed");
    Block** link = current_ != nullptr ? &current_->next : &first_;
    while (*link != nullptr && (*link)->capacity < bytes) link = &(*link)->next;
    if (*link == nullptr) *link = new_block((std::max)(bytes, reserved_));
    enter(*link);
  }

  /// Null only where `nothrow` is asked for and there is no memory.
  template <class... NoThrow>
  Block* new_block(Index capacity, const NoThrow&... nothrow) {
    const std::size_t bytes = bytes_of(capacity);
    void* const memory = ::operator new(bytes, alignment_of(bytes), nothrow...);
    if (memory == nullptr) return nullptr;
    advise_huge_pages(memory, bytes);
    ++allocations_;
    reserved_ += capacity;
    return ::new (memory) Block{nullptr, capacity};
  }

  void free_blocks() noexcept {
    while (first_ != nullptr) {
      Block* const next = first_->next;
      ::operator delete(first_, alignment_of(bytes_of(first_->capacity)));
      first_ = next;
    }
    if (!fixed_) reserved_ = 0;
  }

  /// One block for all. A quarter more than was ever needed, so that sizes that creep up, as a cache that
  /// gains a token a call does, seldom need a new one; pages never touched cost nothing.
  ROVE_NO_INLINE void coalesce() noexcept {
    free_blocks();
    const Index quarter = high_water_ / 4 / workspace_alignment * workspace_alignment;
    first_ = new_block(high_water_ <= largest_index / 2 ? high_water_ + quarter : high_water_, std::nothrow);
    enter(nullptr);
  }

  void swap(Arena& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(current_, other.current_);
    std::swap(data_, other.data_);
    std::swap(fixed_, other.fixed_);
    std::swap(capacity_, other.capacity_);
    std::swap(used_, other.used_);
    std::swap(live_, other.live_);
    std::swap(high_water_, other.high_water_);
    std::swap(reserved_, other.reserved_);
    std::swap(allocations_, other.allocations_);
  }

  Block* first_ = nullptr;     // blocks before the current one are in use, those after it are empty
  Block* current_ = nullptr;   // null before the first allocation, and always over the caller's memory
  std::byte* data_ = nullptr;  // of the current block, or the caller's
  bool fixed_ = false;         // over the caller's memory
  Index capacity_ = 0;
  Index used_ = 0;
  Index live_ = 0;  // in all blocks
  Index high_water_ = 0;
  Index reserved_ = 0;
  Index allocations_ = 0;
};

}  // namespace detail

ROVE_END_TAGGED

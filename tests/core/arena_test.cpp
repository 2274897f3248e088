#include "rove/core/arena.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "rove/core/context.hpp"
#include "support/count_allocations.hpp"
#include "support/error_of.hpp"

namespace {

using rove::Context;
using rove::Index;
using rove::PerWorker;
using rove::workspace_alignment;
using rove::WorkspaceSize;

static_assert(rove::detail::WorkspaceElement<float> && rove::detail::WorkspaceElement<std::complex<double>>);
static_assert(rove::detail::WorkspaceElement<Eigen::half> && rove::detail::WorkspaceElement<Eigen::bfloat16>);
static_assert(!rove::detail::WorkspaceElement<std::string>);

constexpr Index largest = std::numeric_limits<Index>::max();

struct Workers {
  int count;
  int concurrency() const { return count; }
  void for_each(Index n, rove::TaskRef task) const {
    for (Index index = 0; index < n; ++index) task(index, static_cast<int>(index % count));
  }
};

template <class T>
bool is_aligned(std::span<T> piece) {
  return reinterpret_cast<std::uintptr_t>(piece.data()) % static_cast<std::uintptr_t>(workspace_alignment) ==
         0;
}

TEST(Arena, pieces_are_aligned_and_apart) {
  const Context context;
  Context::Scope scope(context);
  const std::byte* end = nullptr;
  for (const Index count : {0, 1, 127, 128, 129, 7, 0, 1000}) {
    const std::span<std::byte> piece = scope.allocate<std::byte>(count);
    EXPECT_EQ(static_cast<Index>(piece.size()), count);
    if (count == 0) continue;
    EXPECT_TRUE(is_aligned(piece));
    EXPECT_NE(piece.data() + 1, end);
    std::memset(piece.data(), 0xAB, piece.size());
    end = piece.data() + piece.size();
  }
  EXPECT_TRUE(is_aligned(scope.allocate<double>(3)));
  EXPECT_TRUE(is_aligned(scope.allocate<Eigen::bfloat16>(3)));
}

TEST(Arena, growth_moves_nothing) {
  const Context context;
  Context::Scope scope(context);
  std::vector<std::span<Index>> pieces;
  for (Index piece = 0; piece < 60; ++piece) {
    pieces.push_back(scope.allocate<Index>(piece * piece));
    for (Index& element : pieces.back()) element = piece;
  }
  EXPECT_GT(context.allocations(), 1);
  EXPECT_LT(context.allocations(), 20) << "blocks double";
  for (Index piece = 0; piece < 60; ++piece) {
    ASSERT_EQ(static_cast<Index>(pieces[static_cast<std::size_t>(piece)].size()), piece * piece);
    for (const Index element : pieces[static_cast<std::size_t>(piece)]) ASSERT_EQ(element, piece);
  }
}

TEST(Arena, a_scope_gives_back_what_it_took) {
  const Context context;
  Context::Scope outer(context);
  const std::span<float> kept = outer.allocate<float>(100);
  kept[99] = 5.0f;
  float* first = nullptr;
  for (int round = 0; round < 3; ++round) {
    Context::Scope inner(context);
    const std::span<float> piece = inner.allocate<float>(1000);
    if (round == 0) first = piece.data();
    EXPECT_EQ(piece.data(), first) << "the next scope finds the same memory";
    for (float& element : piece) element = -1.0f;
    {
      Context::Scope innermost(context);
      innermost.allocate<float>(100000);
    }
    EXPECT_EQ(piece[999], -1.0f);
  }
  EXPECT_EQ(kept[99], 5.0f);
  EXPECT_EQ(context.allocations(), 3);
  EXPECT_EQ(context.high_water(), 512 + 4096 + 400000);
}

TEST(Arena, blocks_become_one_and_the_second_call_allocates_nothing) {
  const Context context;
  const auto call = [&context] {
    Context::Scope scope(context);
    scope.allocate<float>(1000);
    scope.allocate<float>(3000);
    Context::Scope inner(context);
    inner.allocate<float>(5000);
    inner.per_worker<double>(77);
  };
  call();
  const Index first = context.allocations();
  EXPECT_EQ(first, 5) << "four blocks, then one in their place";
  EXPECT_GE(context.bytes_reserved(), context.high_water());
  EXPECT_LE(context.bytes_reserved(), context.high_water() / 4 * 5);
  const test::CountedAllocations allocations;
  for (int again = 0; again < 10; ++again) call();
  EXPECT_EQ(context.allocations(), first);
  EXPECT_EQ(allocations(), 0);
}

TEST(Arena, one_block_that_was_enough_is_kept) {
  const Context context;
  const auto call = [&context](Index count) { Context::Scope(context).allocate<float>(count); };
  call(1000);
  EXPECT_EQ(context.allocations(), 1);
  EXPECT_EQ(context.bytes_reserved(), 4096);
  call(1000);
  call(10);
  EXPECT_EQ(context.allocations(), 1);
  EXPECT_EQ(context.high_water(), 4096);
}

TEST(Arena, large_blocks_are_whole_large_pages) {
  using rove::detail::huge_page;
  const Index threshold = static_cast<Index>(rove::detail::huge_page_threshold);
  // The block's own head is counted with what is asked for.
  for (const Index bytes :
       {threshold - 2 * 128, threshold - 128, threshold, static_cast<Index>(huge_page) - 128,
        static_cast<Index>(huge_page), static_cast<Index>(3 * huge_page)}) {
    SCOPED_TRACE(bytes);
    const Context context;
    const test::CountedAllocations allocations;
    test::largest_allocation = {};
    Context::Scope scope(context);
    const std::span<std::byte> piece = scope.allocate<std::byte>(bytes);
    std::memset(piece.data(), 0xAB, piece.size());
    EXPECT_EQ(context.bytes_reserved(), bytes) << "what is added to fill a page is not counted";
#if !defined(ROVE_TEST_COUNTS_NOTHING)
    EXPECT_EQ(allocations(), 1);
    const bool large = bytes + 128 >= threshold;
    const std::size_t needed = static_cast<std::size_t>(bytes + 128);
    EXPECT_EQ(test::largest_allocation.alignment, large ? huge_page : std::size_t{128});
    EXPECT_EQ(test::largest_allocation.bytes,
              large ? (needed + huge_page - 1) / huge_page * huge_page : needed);
#endif
    if (bytes + 128 >= threshold) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.data()) % huge_page, 128U);
    }
  }
}

TEST(HugePages, only_large_memory_takes_whole_ones) {
  using rove::detail::huge_page, rove::detail::page_alignment, rove::detail::whole_pages;
  constexpr std::size_t threshold = rove::detail::huge_page_threshold, most = ~std::size_t{0};
  EXPECT_EQ(whole_pages(0), 0U);
  EXPECT_EQ(whole_pages(threshold - 1), threshold - 1);
  EXPECT_EQ(whole_pages(threshold), huge_page);
  EXPECT_EQ(whole_pages(huge_page), huge_page);
  EXPECT_EQ(whole_pages(huge_page + 1), 2 * huge_page);
  EXPECT_EQ(whole_pages(most), most) << "rounding up would wrap around";
  EXPECT_EQ(page_alignment(0, 64), std::align_val_t{64});
  EXPECT_EQ(page_alignment(threshold - 1, 64), std::align_val_t{64});
  EXPECT_EQ(page_alignment(3 * huge_page, 64), std::align_val_t{huge_page});
}

TEST(Arena, large_blocks_join_and_are_found_again) {
  const Context context;
  const auto call = [&context] {
    Context::Scope scope(context);
    const std::span<float> first = scope.allocate<float>(600000);
    Context::Scope inner(context);
    const std::span<float> second = inner.allocate<float>(700000);
    first[599999] = 1;
    second[699999] = 2;
    return reinterpret_cast<std::uintptr_t>(first.data()) % rove::detail::huge_page;
  };
  EXPECT_EQ(call(), 128U);
  const Index first = context.allocations();
  EXPECT_EQ(first, 3) << "two blocks, then one in their place";
  const test::CountedAllocations allocations;
  for (int again = 0; again < 3; ++again) EXPECT_EQ(call(), 128U);
  EXPECT_EQ(context.allocations(), first);
  EXPECT_EQ(allocations(), 0);
}

TEST(Arena, memory_that_is_not_there_is_an_error_that_changes_nothing) {
  const Context context;
  Context::Scope scope(context);
  // More than any system has, and more than can be rounded up to a page.
  for (const Index bytes : {Index{1} << 60, largest - 1023, largest - 128 - 127}) {
    EXPECT_THROW(scope.allocate<std::byte>(bytes), std::bad_alloc) << bytes;
  }
  EXPECT_EQ(context.bytes_reserved(), 0);
  EXPECT_EQ(scope.allocate<float>(5).size(), 5u);
}

TEST(Arena, sizes_that_creep_up_seldom_allocate) {
  const Context context;
  for (Index tokens = 1000; tokens < 3000; ++tokens) {
    Context::Scope scope(context);
    scope.allocate<float>(64 * tokens);
  }
  EXPECT_LT(context.allocations(), 20);
}

TEST(Arena, a_smaller_block_is_passed_over) {
  const Context context;
  Context::Scope outer(context);
  outer.allocate<std::byte>(128);
  {
    Context::Scope inner(context);
    inner.allocate<std::byte>(256);
    inner.allocate<std::byte>(5000);
  }
  EXPECT_EQ(context.allocations(), 3);
  const std::span<std::byte> piece = outer.allocate<std::byte>(4000);  // into the third block
  EXPECT_EQ(context.allocations(), 3);
  std::memset(piece.data(), 1, piece.size());
}

TEST(Arena, slices_of_workers_share_no_line) {
  const Context context{Workers{3}};
  Context::Scope scope(context);
  const PerWorker<float> slices = scope.per_worker<float>(33);
  EXPECT_EQ(slices.workers(), 3);
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(slices(worker).size(), 33u);
    EXPECT_TRUE(is_aligned(slices(worker)));
    for (float& element : slices(worker)) element = static_cast<float>(worker);
    if (worker > 0) {
      EXPECT_EQ(slices(worker).data() - slices(worker - 1).data(), 64);
    }
  }
  EXPECT_EQ(slices(0)[32], 0.0f);
  EXPECT_EQ(slices(1)[0], 1.0f);
  EXPECT_EQ(slices(1)[32], 1.0f);
  EXPECT_EQ(context.high_water(), 3 * 256);
  EXPECT_EQ(scope.per_worker<float>(0)(2).size(), 0u);
}

TEST(Arena, impossible_sizes_are_errors_that_change_nothing) {
  const Context context{Workers{4}};
  Context::Scope scope(context);
  EXPECT_EQ(test::error_of([&] { scope.allocate<float>(-1); }), "count is -1, at least 0 is needed");
  EXPECT_EQ(test::error_of([&] { scope.per_worker<float>(-7); }), "count is -7, at least 0 is needed");
  EXPECT_EQ(test::error_of([&] { scope.allocate<double>(largest / 8); }),
            "count is 1152921504606846975, too many elements of 8 bytes for a 64-bit size");
  EXPECT_EQ(test::error_of([&] { scope.allocate<double>(largest); }),
            "count is 9223372036854775807, too many elements of 8 bytes for a 64-bit size");
  EXPECT_EQ(test::error_of([&] { scope.per_worker<std::byte>(largest / 2); }),
            "working memory of 4611686018427387904 bytes for each of 4 workers exceeds a 64-bit size");
  scope.allocate<std::byte>(128);
  EXPECT_EQ(test::error_of([&] { scope.allocate<std::byte>(largest - 200); }),
            "working memory of 128 and 9223372036854775680 bytes exceeds a 64-bit size");
  EXPECT_EQ(context.high_water(), 128);
  EXPECT_EQ(scope.allocate<float>(5).size(), 5u);
}

TEST(WorkspaceSize, adds_up_by_the_arenas_rules) {
  EXPECT_EQ(WorkspaceSize().bytes(), 0);
  EXPECT_EQ(WorkspaceSize().add<float>(0).bytes(), 0);
  EXPECT_EQ(WorkspaceSize().add<float>(1).bytes(), 128 + 127);
  EXPECT_EQ(WorkspaceSize().add<float>(32).add<float>(33).bytes(), 128 + 256 + 127);
  EXPECT_EQ(WorkspaceSize().add_per_worker<double>(17, 3).bytes(), 3 * 256 + 127);
  const WorkspaceSize small = WorkspaceSize().add<float>(1);
  const WorkspaceSize big = WorkspaceSize().add<float>(1000);
  EXPECT_EQ(larger(small, big).bytes(), big.bytes());
  EXPECT_EQ(larger(big, small).bytes(), big.bytes());
  EXPECT_EQ(WorkspaceSize(small).add(larger(small, big)).bytes(), 128 + 4096 + 127);
}

TEST(WorkspaceSize, impossible_sizes_are_errors) {
  EXPECT_EQ(test::error_of([] { WorkspaceSize().add<float>(-1); }), "count is -1, at least 0 is needed");
  EXPECT_EQ(test::error_of([] { WorkspaceSize().add_per_worker<float>(1, 0); }),
            "workers is 0, at least 1 is needed");
  EXPECT_EQ(
      test::error_of([] { WorkspaceSize().add<std::byte>(largest / 2 + 1).add<std::byte>(largest / 2 + 1); }),
      "working memory of 4611686018427387904 and 4611686018427387904 bytes exceeds a 64-bit size");
}

/// A call of two scopes, and its size.
constexpr int call_workers = 3;

void work(const Context& context) {
  Context::Scope scope(context);
  scope.allocate<float>(33);
  const PerWorker<double> slices = scope.per_worker<double>(10);
  for (int worker = 0; worker < call_workers; ++worker) slices(worker)[9] = 1.0;
  {
    Context::Scope inner(context);
    for (Eigen::half& element : inner.allocate<Eigen::half>(100)) element = Eigen::half(1.0f);
  }
  Context::Scope inner(context);
  for (double& element : inner.allocate<double>(200)) element = 1.0;
}

WorkspaceSize work_size() {
  const WorkspaceSize first = WorkspaceSize().add<Eigen::half>(100);
  const WorkspaceSize second = WorkspaceSize().add<double>(200);
  return WorkspaceSize().add<float>(33).add_per_worker<double>(10, call_workers).add(larger(first, second));
}

TEST(CallersMemory, exactly_enough_is_enough_and_one_byte_less_is_not_at_any_address) {
  const Index needed = work_size().bytes();
  EXPECT_EQ(needed, 256 + 3 * 128 + 1664 + 127);
  constexpr std::byte guard{0xC3};
  std::vector<std::byte> memory(static_cast<std::size_t>(needed + 3 * workspace_alignment));
  for (Index offset = 0; offset < workspace_alignment; ++offset) {
    SCOPED_TRACE("offset " + std::to_string(offset));
    std::fill(memory.begin(), memory.end(), guard);
    const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(offset + workspace_alignment);
    const std::span<std::byte> exact(begin, static_cast<std::size_t>(needed));
    const test::CountedAllocations allocations;
    {
      const Context context{Workers{call_workers}, exact};
      const long construction = allocations();
      EXPECT_LE(construction, 1) << "of the executor alone";
      work(context);
      work(context);
      EXPECT_EQ(allocations(), construction);
      EXPECT_EQ(context.allocations(), 0);
      EXPECT_EQ(context.bytes_reserved(), needed);
      EXPECT_EQ(context.high_water(), needed - 127);
    }
    for (auto byte = memory.begin(); byte != begin; ++byte) ASSERT_EQ(*byte, guard);
    for (auto byte = begin + static_cast<std::ptrdiff_t>(needed); byte != memory.end(); ++byte) {
      ASSERT_EQ(*byte, guard);
    }
    const Context less{Workers{call_workers}, exact.first(static_cast<std::size_t>(needed - 1))};
    EXPECT_EQ(test::error_of([&] { work(less); }),
              "the context's memory has 2430 bytes, at least 2431 are needed");
  }
}

TEST(CallersMemory, an_error_leaves_the_context_usable) {
  std::vector<std::byte> memory(1000);
  const Context context{memory};
  EXPECT_EQ(context.concurrency(), 1);
  EXPECT_EQ(test::error_of([&] { Context::Scope(context).allocate<std::byte>(874); }),
            "the context's memory has 1000 bytes, at least 1023 are needed");
  Context::Scope scope(context);
  EXPECT_EQ(scope.allocate<std::byte>(768).size(), 768u);
  EXPECT_EQ(test::error_of([&] { scope.allocate<std::byte>(1); }),
            "the context's memory has 1000 bytes, at least 1023 are needed");
}

TEST(CallersMemory, too_little_for_anything) {
  for (const std::size_t size : {0u, 1u, 127u, 254u}) {
    std::vector<std::byte> memory(size);
    const Context context{memory};
    Context::Scope scope(context);
    EXPECT_EQ(scope.allocate<float>(0).size(), 0u);
    EXPECT_EQ(test::error_of([&] { scope.allocate<float>(1); }),
              "the context's memory has " + std::to_string(size) + " bytes, at least 255 are needed");
  }
}

}  // namespace

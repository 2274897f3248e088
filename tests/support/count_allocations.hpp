/// Replaces the global operators new and delete by ones that count. In at most one file of a program. Clang's
/// thread sanitizer brings its own, which cannot be replaced: there nothing is counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ROVE_TEST_COUNTS_NOTHING
#endif
#endif

namespace test {

inline std::atomic<long> allocation_count{0};

/// Allocations by operator new since it was made, on all threads.
class CountedAllocations {
 public:
  long operator()() const { return allocation_count.load() - start_; }

 private:
  long start_ = allocation_count.load();
};

/// The thread's largest allocation since this was reset, as it was asked for.
struct Allocation {
  std::size_t bytes = 0;
  std::size_t alignment = 0;
};
inline thread_local Allocation largest_allocation;

inline void* counted(std::size_t bytes, std::size_t alignment) noexcept {
  allocation_count.fetch_add(1);
  if (bytes > largest_allocation.bytes) largest_allocation = {bytes, alignment};
  if (bytes > std::size_t{1} << 40) return nullptr;  // where the address sanitizer would end the program
  const std::size_t size = bytes == 0 ? 1 : bytes;
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

inline void* counted_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* const memory = counted(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

// Not inlined: GCC would otherwise take the pair new and free for a mistake.
__attribute__((noinline)) inline void release(void* memory) noexcept {
  std::free(memory);
}

}  // namespace test

#if !defined(ROVE_TEST_COUNTS_NOTHING)
// clang-format off
void* operator new(std::size_t n) { return test::counted_or_throw(n, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](std::size_t n) { return test::counted_or_throw(n, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t n, std::align_val_t a) { return test::counted_or_throw(n, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return test::counted_or_throw(n, static_cast<std::size_t>(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return test::counted(n, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return test::counted(n, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return test::counted(n, static_cast<std::size_t>(a)); }
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return test::counted(n, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { test::release(p); }
void operator delete[](void* p) noexcept { test::release(p); }
void operator delete(void* p, std::size_t) noexcept { test::release(p); }
void operator delete[](void* p, std::size_t) noexcept { test::release(p); }
void operator delete(void* p, std::align_val_t) noexcept { test::release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { test::release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { test::release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { test::release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { test::release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { test::release(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { test::release(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { test::release(p); }
// clang-format on
#endif

/// \file
/// Large working memory on large pages, where the system has them.
#pragma once

#include <cstddef>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// The usual size of a large page; memory for one starts at a multiple of it.
inline constexpr std::size_t huge_page = std::size_t{2} * 1024 * 1024;

/// Memory from here on goes to whole large pages: packed keys and values and rotation tables are read over
/// and over from end to end, and prefetchers stop at the end of a page; on pages of 4 KiB attention loses up
/// to a tenth of its speed.
inline constexpr std::size_t huge_page_threshold = huge_page / 2;

/// What memory of `bytes` takes from the system: whole large pages where it is large.
constexpr std::size_t whole_pages(std::size_t bytes) {
  if (bytes < huge_page_threshold || bytes > ~std::size_t{0} - huge_page) return bytes;
  return (bytes + (huge_page - 1)) / huge_page * huge_page;
}

/// Where such memory starts: at a large page if it is whole ones, otherwise at a multiple of `least`.
constexpr std::align_val_t page_alignment(std::size_t bytes, std::size_t least) {
  return std::align_val_t{bytes >= huge_page && bytes % huge_page == 0 ? huge_page : least};
}

/// Asks for large pages where there are `bytes` for one; a hint, without effect on systems without.
inline void advise_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes >= huge_page) static_cast<void>(::madvise(memory, bytes, MADV_HUGEPAGE));
#endif
}

}  // namespace detail

ROVE_END_TAGGED

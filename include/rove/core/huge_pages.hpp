/// \file
/// Large working memory on large pages, where the system has them.
#pragma once

#include <cstddef>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// The usual size of a large page; memory for one starts at a multiple of it.
inline constexpr std::size_t huge_page = std::size_t{2} * 1024 * 1024;

/// Blocks from here on go to whole large pages: packed keys and values are read over and over from end to
/// end, and prefetchers stop at the end of a page; on pages of 4 KiB attention loses up to a tenth of its
/// speed.
inline constexpr std::size_t huge_page_threshold = huge_page / 2;

/// Asks for large pages; a hint, without effect where there are none.
inline void advise_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  static_cast<void>(::madvise(memory, bytes, MADV_HUGEPAGE));
#endif
}

}  // namespace detail

ROVE_END_TAGGED

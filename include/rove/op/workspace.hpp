/// \file
/// How much working memory a call takes, and what it is going to do, said before it does it.
#pragma once

#include <sstream>
#include <string>
#include <type_traits>

#include "rove/attention/kernel.hpp"
#include "rove/attention/key_blocks.hpp"
#include "rove/attention/row_transform.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"
#include "rove/op/attention.hpp"
#include "rove/op/frame_transforms.hpp"
#include "rove/op/frames.hpp"
#include "rove/op/materialise.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

template <class T>
inline constexpr bool is_frames = false;
template <Frame Q, Frame K, Frame V, Frame O>
inline constexpr bool is_frames<Frames<Q, K, V, O>> = true;

/// Where a kernel may stand there may also be frames, or a number of workers.
template <class K>
concept NamesKernel = !is_frames<K> && !std::is_integral_v<K>;

template <class Problem, class K>
WorkspaceSize kernel_workspace(const Problem& problem, const K& kernel, int workers) {
  if constexpr (requires { kernel.workspace(problem, workers); }) {
    return kernel.workspace(problem, workers);
  } else {
    return {};
  }
}

template <class Problem, class Transforms, class K>
WorkspaceSize call_workspace(const Problem& problem, const Transforms& transforms, const K& kernel,
                             int workers) {
  if (problem.out.empty()) return {};
  if constexpr (FusingKernel<K, Problem, Transforms>) {
    return kernel_workspace(problem, kernel, workers);
  } else {
    const MaterialisedCall<K, Problem, Transforms> call(problem, transforms);
    WorkspaceSize size;
    call.add_to(size, workers);
    return size.add(kernel_workspace(call.turned(), kernel, workers));
  }
}

inline std::string isa_name() {
  std::ostringstream name;
#define ROVE_DETAIL_STRING(x) #x
#define ROVE_DETAIL_NAME(x) ROVE_DETAIL_STRING(x)
  name << ROVE_DETAIL_NAME(ROVE_TAG_ISA) << (ROVE_HAS_FMA ? " with fma" : " without fma");
#undef ROVE_DETAIL_NAME
#undef ROVE_DETAIL_STRING
#if defined(EIGEN_DONT_VECTORIZE)
  name << ", vectorisation off";
#endif
  return name.str();
}

/// Tiles of one row by one key block, and how many of them the mask rules out.
struct TileCount {
  Index all = 0;
  Index skipped = 0;
};
template <class Problem>
TileCount count_tiles(const Problem& problem) {
  const KeyBlocks<Problem> blocks(problem);
  TileCount count;
  for (Index b = 0; b < problem.batch(); ++b) {
    const SlotRange touched = blocks.of(b);
    for (Index head = 0; head < problem.heads(); ++head) {
      for (Index row = 0; row < problem.q_len(); ++row) {
        for (Index block = touched.first; block < touched.last; ++block) {
          const SlotRange slots = blocks.slots(b, block);
          const Site site = problem.site(b, head, row, slots.first);
          const Index key_last = problem.kv.indices(b, slots.last - 1).first + 1;
          ++count.all;
          if (mask_tile(problem.mask, TileRange{b, head, row, row + 1, slots.first, slots.last, site.query,
                                                site.query + 1, site.key, key_last}) ==
              TileVisibility::none) {
            ++count.skipped;
          }
        }
      }
    }
  }
  return count;
}

template <class Problem, class Transforms, class K>
std::string explain_call(const Problem& problem, const Transforms& transforms, const K& kernel, int workers) {
  std::ostringstream line;
  if constexpr (requires {
                  { kernel.describe(problem) } -> std::convertible_to<std::string>;
                }) {
    line << kernel.describe(problem);
  } else {
    line << "a kernel of the caller's";
  }
  line << " on " << isa_name() << "; rows ";
  if constexpr (FusingKernel<K, Problem, Transforms>) {
    constexpr bool turns =
        !(decltype(Transforms::query)::is_identity && decltype(Transforms::key)::is_identity &&
          decltype(Transforms::value)::is_identity && decltype(Transforms::output)::is_identity);
    line << (turns ? "turned as they are read and written" : "as they are");
  } else {
    line << "turned in memory first";
  }
  const TileCount tiles = count_tiles(problem);
  line << "; " << tiles.skipped << " of " << tiles.all << " row tiles masked out; workspace "
       << call_workspace(problem, transforms, kernel, workers).bytes() << " bytes for " << workers
       << (workers == 1 ? " worker" : " workers");
  return line.str();
}

}  // namespace detail

/// Bytes of working memory that `attention(problem, context, kernel)` takes from a context of `workers`
/// workers: a context over that much memory of the caller's, of any alignment, serves the call without
/// allocating. A kernel that has no `WorkspaceSize workspace(problem, workers) const` counts as taking none
/// of its own. Throws `Error` as the call would.
template <class Problem, detail::NamesKernel K = DefaultKernel>
Index workspace_bytes(const Problem& problem, const K& kernel = {}, int workers = 1) {
  problem.check();
  return detail::call_workspace(problem, RowTransforms<>{}, kernel, workers).bytes();
}

/// The same for `attention(problem, frames, context, kernel)`.
template <class Problem, Frame FQ, Frame FK, Frame FV, Frame FO, detail::NamesKernel K = DefaultKernel>
Index workspace_bytes(const Problem& problem, const Frames<FQ, FK, FV, FO>& frames, const K& kernel = {},
                      int workers = 1) {
  problem.check();
  detail::check_frames(problem, frames);
  return detail::call_workspace(problem, detail::frame_transforms(frames), kernel, workers).bytes();
}

/// The same for `attention(problem, context)`: the kernel of a call that names none.
template <class Problem>
Index workspace_bytes(const Problem& problem, int workers) {
  return workspace_bytes(problem, DefaultKernel{}, workers);
}

/// The same for `attention(problem, frames, context)`, `rove_attention` and `rope_attention`.
template <class Problem, Frame FQ, Frame FK, Frame FV, Frame FO>
Index workspace_bytes(const Problem& problem, const Frames<FQ, FK, FV, FO>& frames, int workers) {
  return workspace_bytes(problem, frames, DefaultKernel{}, workers);
}

/// One line on how `attention(problem, context, kernel)` will run: kernel, ISA, path, tiles that the mask
/// rules out, bytes of workspace. For people; its wording is no interface.
template <class Problem, detail::NamesKernel K = DefaultKernel>
std::string explain(const Problem& problem, const K& kernel = {}, int workers = 1) {
  problem.check();
  return detail::explain_call(problem, RowTransforms<>{}, kernel, workers);
}

/// The same for `attention(problem, frames, context, kernel)`.
template <class Problem, Frame FQ, Frame FK, Frame FV, Frame FO, detail::NamesKernel K = DefaultKernel>
std::string explain(const Problem& problem, const Frames<FQ, FK, FV, FO>& frames, const K& kernel = {},
                    int workers = 1) {
  problem.check();
  detail::check_frames(problem, frames);
  return detail::explain_call(problem, detail::frame_transforms(frames), kernel, workers);
}

/// The same for `attention(problem, context)`.
template <class Problem>
std::string explain(const Problem& problem, int workers) {
  return explain(problem, DefaultKernel{}, workers);
}

/// The same for `attention(problem, frames, context)`.
template <class Problem, Frame FQ, Frame FK, Frame FV, Frame FO>
std::string explain(const Problem& problem, const Frames<FQ, FK, FV, FO>& frames, int workers) {
  return explain(problem, frames, DefaultKernel{}, workers);
}

ROVE_END_TAGGED

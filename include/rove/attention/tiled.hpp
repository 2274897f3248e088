/// \file
/// The fast kernel: packed operands, register tiles, an online softmax between two tile products.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <type_traits>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/kernel.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/row_io.hpp"
#include "rove/attention/row_transform.hpp"
#include "rove/attention/softmax_rows.hpp"
#include "rove/attention/softmax_state.hpp"
#include "rove/attention/tiled/pack.hpp"
#include "rove/attention/tiled/tile.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_math.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// One tiled call: packs the heads of a wave, then runs tiles of query rows over them.
template <class Problem, class Transforms>
class TiledRun {
  using Acc = typename Problem::accumulator;
  using P = simd::packet_t<Acc>;
  using Shape = TileShape<Acc>;
  static constexpr Acc minus_infinity = -std::numeric_limits<Acc>::infinity();
  static constexpr bool has_score = !is_no_score<typename Problem::score_type>;
  static constexpr int width = simd::width<P>;
  static constexpr int tile_rows = Shape::rows;
  static constexpr int tile_keys = Shape::packets * width;
  static constexpr Index longest_block = 256;
  // A constant, so that a tile's rows are at constant distances; no power of two, so that they lie in
  // different sets of a cache.
  static constexpr Index weights_stride = longest_block + 16;

 public:
  TiledRun(const Problem& problem, const Transforms& transforms)
      : problem_(problem),
        transforms_(transforms),
        layout_(problem.channels(), problem.value_channels()),
        query_factor_(static_cast<Acc>(problem.effective_scale() * (has_score ? 1 : std::numbers::log2e))) {
    // Rows to a task: enough that a key block read from the second-level cache serves many, few enough for 1
    // MiB.
    const Index row_bytes = static_cast<Index>(sizeof(Acc)) * (layout_.channels + 2 * layout_.value_width);
    tiles_ = (std::max)(
        Index{1}, (std::min)(Index{tile_rows > 8 ? 8 : 16}, (Index{700} * 1024) / (row_bytes * tile_rows)));
    rows_ = tiles_ * tile_rows;
  }

  Index key_elements(Index heads) const { return heads * most_blocks() * layout_.key_block(); }
  Index value_elements(Index heads) const { return heads * most_blocks() * layout_.value_block(); }
  Index flag_elements(Index heads) const { return heads * most_blocks(); }
  Index worker_elements() const {
    const Index packing = 16 * (std::max)(layout_.channels, layout_.value_width);
    const Index attending = rows_ * (layout_.channels + 2 * layout_.value_width) +
                            tile_rows * weights_stride + (std::max)(layout_.channels, layout_.value_width);
    return (std::max)(packing, attending) + 64;
  }
  const PackedLayout<Acc>& layout() const { return layout_; }
  Index tasks_per_head() const { return problem_.group() * ((problem_.q_len() + rows_ - 1) / rows_); }

  /// Key/value heads that are packed at a time: one, or as many as give every worker some tasks.
  Index heads_in_flight(int workers) const {
    const Index all = problem_.batch() * problem_.kv_heads();
    if (workers == 1) return (std::min)(all, Index{1});
    const Index wanted = Index{16} * workers;
    return (std::min)(all, (std::max)(Index{1}, wanted / (std::max)(Index{1}, tasks_per_head())));
  }

  void operator()(const Context& context) {
    const Index all = problem_.batch() * problem_.kv_heads();
    const Index wave = heads_in_flight(context.concurrency());
    Context::Scope scope(context);
    keys_ = scope.template allocate<Acc>(key_elements(wave));
    values_ = scope.template allocate<Acc>(value_elements(wave));
    finite_ = scope.template allocate<std::uint8_t>(flag_elements(wave));
    const auto scratch = scope.template per_worker<Acc>(worker_elements());
    const Index blocks = most_blocks(), tasks = tasks_per_head();
    for (Index first = 0; first < all; first += wave) {
      const Index heads = (std::min)(wave, all - first);
      context.for_each(heads * blocks, [&](Index task, int worker) {
        const Index place = task / blocks, head = first + place;
        pack(head / problem_.kv_heads(), head % problem_.kv_heads(), place, task % blocks, scratch(worker));
      });
      // The last rows come first: under a causal mask they are the longest tasks.
      context.for_each(heads * tasks, [&](Index task, int worker) {
        const Index place = task % heads, head = first + place;
        attend(head / problem_.kv_heads(), head % problem_.kv_heads(), place, tasks - 1 - task / heads,
               scratch(worker));
      });
    }
  }

 private:
  SlotRange blocks_of(Index b) const {
    const SlotRange slots = problem_.slots(b);
    if (slots.empty()) return {0, 0};
    return {slots.first / layout_.block, (slots.last + layout_.block - 1) / layout_.block};
  }
  Index most_blocks() const {
    Index most = 0;
    for (Index b = 0; b < problem_.batch(); ++b) most = (std::max)(most, blocks_of(b).count());
    return most;
  }
  SlotRange slots_of(Index b, Index block) const {
    const SlotRange used = problem_.slots(b);
    return {(std::max)(used.first, block * layout_.block),
            (std::min)(used.last, (block + 1) * layout_.block)};
  }

  void pack(Index b, Index kv_head, Index place, Index nth, std::span<Acc> scratch) {
    const SlotRange all = blocks_of(b);
    if (nth >= all.count()) return;
    const Index block = all.first + nth;
    const Index at = place * most_blocks() + nth;
    const SlotRange used = slots_of(b, block);
    pack_keys(
        layout_, block * layout_.block, used, keys_.data() + at * layout_.key_block(), scratch.data(),
        [&](Index slot, std::span<Acc> row) { read_key(problem_, transforms_.key, b, kv_head, slot, row); });
    finite_[static_cast<std::size_t>(at)] =
        pack_values(layout_, block * layout_.block, used, values_.data() + at * layout_.value_block(),
                    scratch.data(), [&](Index slot, std::span<Acc> row) {
                      read_value(problem_, transforms_.value, b, kv_head, slot, row);
                    });
  }

  /// One tile of query rows.
  struct Tile {
    Index first;  ///< row of the problem
    int rows;
    Acc* query;   ///< [channels][rows]
    Acc* output;  ///< [rows][value_width], of the chunk
    Acc* total;   ///< the same, of the chunks before
    SoftmaxState<Acc>* chunk_state;
    SoftmaxState<Acc>* total_state;
  };

  void attend(Index b, Index kv_head, Index place, Index task, std::span<Acc> scratch) {
    const Index slices = tasks_per_head() / problem_.group();
    const Index head = kv_head * problem_.group() + task / slices;
    const Index first = task % slices * rows_;
    const Index count = (std::min)(rows_, problem_.q_len() - first);
    const SlotRange all = blocks_of(b);
    const Index blocks_per_chunk = chunk_length / layout_.block;

    Acc* memory = scratch.data();
    Acc* const queries = memory;
    memory += rows_ * layout_.channels;
    Acc* const outputs = memory;
    memory += rows_ * layout_.value_width;
    Acc* const totals = memory;
    memory += rows_ * layout_.value_width;
    Acc* const weights = memory;
    memory += tile_rows * weights_stride;
    const std::span<Acc> row(memory,
                             static_cast<std::size_t>((std::max)(layout_.channels, layout_.value_width)));
    SoftmaxState<Acc> chunk_state[std::size_t{max_rows}], total_state[std::size_t{max_rows}];

    const bool several = all.last > (all.first / blocks_per_chunk + 1) * blocks_per_chunk;
    std::fill_n(outputs, count * layout_.value_width, Acc(0));
    if (several) std::fill_n(totals, count * layout_.value_width, Acc(0));
    const auto tile_at = [&](Index t) {
      const Index at = t * tile_rows;
      return Tile{first + at,
                  static_cast<int>((std::min)(Index{tile_rows}, count - at)),
                  queries + at * layout_.channels,
                  outputs + at * layout_.value_width,
                  totals + at * layout_.value_width,
                  chunk_state + at,
                  total_state + at};
    };
    const Index tiles = (count + tile_rows - 1) / tile_rows;
    for (Index t = 0; t < tiles; ++t) read_queries(b, head, tile_at(t), row);

    for (Index block = all.first; block < all.last; ++block) {
      const Index at = place * most_blocks() + (block - all.first);
      for (Index t = 0; t < tiles; ++t) add_block(b, head, tile_at(t), block, at, weights);
      if (several && ((block + 1) % blocks_per_chunk == 0 || block + 1 == all.last)) {
        for (Index t = 0; t < tiles; ++t) merge_chunk(tile_at(t));
      }
    }
    for (Index r = 0; r < count; ++r) {
      const Acc* sums = (several ? totals : outputs) + r * layout_.value_width;
      finish_row(problem_, transforms_.output, b, head, first + r, sums,
                 several ? total_state[r] : chunk_state[r],
                 row.first(static_cast<std::size_t>(problem_.value_channels())));
    }
  }

  void read_queries(Index b, Index head, const Tile& tile, std::span<Acc> row) {
    const auto query = row.first(static_cast<std::size_t>(layout_.channels));
    for (int r = 0; r < tile.rows; ++r) {
      read_query(problem_, transforms_.query, b, head, tile.first + r, query);
      for (Index c = 0; c < layout_.channels; ++c) {
        tile.query[c * tile.rows + r] = query[static_cast<std::size_t>(c)] * query_factor_;
      }
    }
  }

  void merge_chunk(const Tile& tile) {
    for (int r = 0; r < tile.rows; ++r) {
      const auto merged = merge(tile.total_state[r], tile.chunk_state[r]);
      Acc* total = tile.total + r * layout_.value_width;
      Acc* chunk = tile.output + r * layout_.value_width;
      for (Index c = 0; c < layout_.value_width; ++c) {
        total[c] = mul_add(chunk[c], merged.weight_b, total[c] * merged.weight_a);
        chunk[c] = 0;
      }
      tile.total_state[r] = merged.state;
      tile.chunk_state[r] = {};
    }
  }

  /// What the rows of a tile see of a block.
  struct View {
    bool all = false;           ///< every key of [first, last) by every row
    Index first = 0, last = 0;  ///< places in the block that any row sees
    std::uint64_t bits[std::size_t{tile_rows}][std::size_t{longest_block / 64}];
  };

  void look(Index b, Index head, const Tile& tile, Index block, View& view) const {
    const SlotRange used = slots_of(b, block);
    const Index origin = block * layout_.block;
    const Index query = problem_.first_query(b) + tile.first;
    const IndexRun run = problem_.kv.indices(b, used.first);
    if (run.count >= used.count()) {
      const TileRange range{b,          head,
                            tile.first, tile.first + tile.rows,
                            used.first, used.last,
                            query,      query + tile.rows,
                            run.first,  run.first + used.count()};
      switch (mask_tile(problem_.mask, range)) {
        case TileVisibility::none:
          return;
        case TileVisibility::all:
          view.all = true;
          view.first = used.first - origin;
          view.last = used.last - origin;
          return;
        case TileVisibility::some:
          break;
      }
    }
    std::uint64_t any[longest_block / 64] = {};
    for (int r = 0; r < tile.rows; ++r) {
      for (std::uint64_t& word : view.bits[r]) word = 0;
      visible_slots(problem_, Site{b, head, tile.first + r, 0, query + r, 0}, origin, used, view.bits[r]);
      for (int w = 0; w < static_cast<int>(longest_block / 64); ++w) any[w] |= view.bits[r][w];
    }
    view.first = layout_.block;
    for (int w = 0; w < static_cast<int>(longest_block / 64); ++w) {
      if (any[w] == 0) continue;
      view.first = (std::min)(view.first, Index{64} * w + std::countr_zero(any[w]));
      view.last = Index{64} * w + 64 - std::countl_zero(any[w]);
    }
  }

  void add_block(Index b, Index head, const Tile& tile, Index block, Index at, Acc* weights) {
    View view;
    look(b, head, tile, block, view);
    if (view.first >= view.last) return;
    const Acc* keys = keys_.data() + at * layout_.key_block();
    const Acc* values = values_.data() + at * layout_.value_block();
    const Index first = view.first / tile_keys * tile_keys;
    const Index last = (view.last + tile_keys - 1) / tile_keys * tile_keys;
    in_parts(tile.rows,
             [&](auto rows, int r) ROVE_INLINE_LAMBDA { scores<rows>(tile, r, keys, first, last, weights); });
    if constexpr (has_score) score(b, head, tile, block, view, weights);
    Acc rescale[std::size_t{tile_rows}];
    for (int r = 0; r < tile.rows; ++r) {
      rescale[r] = softmax(weights + r * weights_stride, first, last, view, r, tile.chunk_state[r]);
    }
    if (!view.all && finite_[static_cast<std::size_t>(at)] == 0) {
      selecting_product(tile, values, view, weights, rescale);
      return;
    }
    in_parts(tile.rows, [&](auto rows, int r) ROVE_INLINE_LAMBDA {
      product<rows>(tile, r, values, view.first, view.last, weights, rescale);
    });
  }

  /// Calls f(rows, first) with a number of rows that is a constant: a whole tile at once, the last one of a
  /// head in parts of 8, 4, 2 and 1.
  template <class F>
  static void in_parts(int rows, const F& f) {
    if (rows == tile_rows) return f(std::integral_constant<int, tile_rows>{}, 0);
    int r = 0;
    if constexpr (tile_rows > 8) {
      if (rows & 8) f(std::integral_constant<int, 8>{}, r), r += 8;
    }
    if (rows & 4) f(std::integral_constant<int, 4>{}, r), r += 4;
    if (rows & 2) f(std::integral_constant<int, 2>{}, r), r += 2;
    if (rows & 1) f(std::integral_constant<int, 1>{}, r);
  }

  template <int rows>
  ROVE_NO_INLINE void scores(const Tile& tile, int part, const Acc* keys, Index first, Index last,
                             Acc* weights) const {
    for (Index key = first; key < last; key += tile_keys) {
      const Acc* right = keys + key / 16 * 16 * layout_.channels + key % 16;
      Acc* const to = weights + part * weights_stride + key;
      tile_product<rows, Shape::packets, P>(tile.query + part, 1, tile.rows, right,
                                            width == 16 ? layout_.channels * 16 : width, 16, layout_.channels,
                                            [&](auto r, auto p, P sum) ROVE_INLINE_LAMBDA {
                                              simd::store<P>(to + r * weights_stride + p * width, sum);
                                            });
    }
  }

  template <int rows>
  ROVE_NO_INLINE void product(const Tile& tile, int part, const Acc* values, Index first, Index last,
                              const Acc* weights, const Acc* rescale) const {
    Index c = 0;
    const auto panel = [&](auto packets) ROVE_INLINE_LAMBDA {
      constexpr int n = packets;
      const Acc* right = values + c * layout_.block + first * n * width;
      Acc* const to = tile.output + part * layout_.value_width + c;
      tile_product<rows, n, P>(
          weights + part * weights_stride + first, weights_stride, 1, right, width, n * width, last - first,
          [&](auto r, auto p, P sum) ROVE_INLINE_LAMBDA {
            Acc* const o = to + r * layout_.value_width + p * width;
            simd::store<P>(o, simd::mul_add(simd::load<P>(o), simd::broadcast<P>(rescale[part + r]), sum));
          });
    };
    for (; c + Shape::packets * width <= layout_.value_width; c += Shape::packets * width) {
      panel(std::integral_constant<int, Shape::packets>{});
    }
    for (; c < layout_.value_width; c += width) panel(std::integral_constant<int, 1>{});
  }

  /// The row's weights from its scores, in place; returns the factor that what was summed before takes.
  Acc softmax(Acc* weights, Index first, Index last, const View& view, int r,
              SoftmaxState<Acc>& state) const {
    P top = simd::broadcast<P>(minus_infinity);
    if (view.all && view.first == first && view.last == last) {
      for (Index j = first; j < last; j += width) top = simd::maximum<P>(top, simd::load<P>(weights + j));
    } else {
      for (Index j = first; j < last; j += width) {
        std::uint64_t bits =
            view.all ? bit_range(view.first - j, view.last - j, width) : view.bits[r][j / 64] >> (j % 64);
        const P x = simd::select<P>(simd::mask_from_bits<P>(static_cast<std::uint32_t>(bits)),
                                    simd::load<P>(weights + j), simd::broadcast<P>(minus_infinity));
        simd::store<P>(weights + j, x);
        top = simd::maximum<P>(top, x);
      }
    }
    Acc largest = minus_infinity;
    for (int i = 0; i < width; ++i) largest = simd::lane(top, i) > largest ? simd::lane(top, i) : largest;
    const Acc rescale = state.raise(largest);
    const P reference = simd::broadcast<P>(state.reference());
    P lanes[simd::parts<P>];
    for (P& lane : lanes) lane = simd::broadcast<P>(0);
    // 16 at a time; the ends of a range that starts or stops between are zeros already or become so here.
    for (Index j = first / 16 * 16; j < last; j += 16) {
      for (int i = 0; i < simd::parts<P>; ++i) {
        const Index k = j + i * width;
        if (k < first || k >= last) continue;
        const P x = simd::exp2_kernel<P>(simd::load<P>(weights + k) - reference);
        simd::store<P>(weights + k, x);
        lanes[i] = lanes[i] + x;
      }
    }
    state.add(rescale, simd::reduce_add<P>(lanes));
    return rescale;
  }

  void score(Index b, Index head, const Tile& tile, Index block, const View& view, Acc* weights) const {
    for (int r = 0; r < tile.rows; ++r) {
      Site site{b, head, tile.first + r, 0, problem_.first_query(b) + tile.first + r, 0};
      for (Index j = view.first; j < view.last; ++j) {
        if (!view.all && (view.bits[r][j / 64] >> (j % 64) & 1U) == 0) continue;
        site.slot = block * layout_.block + j;
        site.key = problem_.kv.indices(b, site.slot).first;
        Acc& x = weights[r * weights_stride + j];
        x = problem_.score(x, site) * std::numbers::log2e_v<Acc>;
      }
    }
  }

  /// A block with NaN or infinities that not every row sees: each row multiplies the keys that it sees and no
  /// others.
  void selecting_product(const Tile& tile, const Acc* values, const View& view, const Acc* weights,
                         const Acc* rescale) const {
    for (int r = 0; r < tile.rows; ++r) {
      for (Index c = 0; c < problem_.value_channels(); ++c) {
        Acc sum = 0;
        for (Index j = view.first; j < view.last; ++j) {
          if ((view.bits[r][j / 64] >> (j % 64) & 1U) == 0) continue;
          sum = mul_add(weights[r * weights_stride + j], values[layout_.value_at(j, c)], sum);
        }
        Acc& o = tile.output[r * layout_.value_width + c];
        o = mul_add(o, rescale[r], sum);
      }
    }
  }

  static constexpr Index max_rows = tile_rows * 16;

  const Problem& problem_;
  const Transforms& transforms_;
  PackedLayout<Acc> layout_;
  Acc query_factor_;
  Index tiles_ = 1;
  Index rows_ = 1;
  std::span<Acc> keys_;
  std::span<Acc> values_;
  std::span<std::uint8_t> finite_;
};

}  // namespace detail

/// Attention by register tiles, in the library's fixed arithmetic (see arithmetic.hpp): bit for bit
/// `NaiveKernel`'s results.
///
/// Keys are packed into panels of 16, channel-major, and values into panels as wide as a tile, once for all
/// query heads of their group; row transforms are applied on the way. A tile of query rows passes over the
/// key blocks: scores by one tile product, an online softmax over a block's worth of them, Σ A v by another.
/// Blocks that the mask rules out are skipped, blocks that it leaves whole carry no test, and of the others
/// only the part that some row sees is computed. A block with NaN or infinities that not every row sees goes
/// key by key, so that a hidden one stays hidden.
///
/// Workers share packing, then query tiles. Workspace: the packed keys and values of the kv heads in flight
/// (one with one worker, otherwise as many as give every worker tasks) and less than 1 MiB a worker for usual
/// widths.
struct TiledKernel {
  /// Throws `Error` where the problem does not fit together, before anything is written.
  template <class Problem>
  void operator()(const Problem& problem, const Context& context = {}) const {
    fused(problem, RowTransforms<>{}, context);
  }

  /// The same with rows passing through `transforms` as they are read and written.
  template <class Problem, class Transforms>
  void fused(const Problem& problem, const Transforms& transforms, const Context& context) const {
    problem.check();
    if (problem.out.empty()) return;
    detail::TiledRun<Problem, Transforms> run(problem, transforms);
    run(context);
  }

  /// What a call takes from a context of `workers` workers, with or without transforms.
  template <class Problem>
  WorkspaceSize workspace(const Problem& problem, int workers) const {
    using Acc = typename Problem::accumulator;
    WorkspaceSize size;
    if (problem.out.empty()) return size;
    const RowTransforms<> none{};
    const detail::TiledRun<Problem, RowTransforms<>> run(problem, none);
    const Index heads = run.heads_in_flight(workers);
    size.add<Acc>(run.key_elements(heads));
    size.add<Acc>(run.value_elements(heads));
    size.add<std::uint8_t>(run.flag_elements(heads));
    size.add_per_worker<Acc>(run.worker_elements(), workers);
    return size;
  }

  /// For `explain`.
  template <class Problem>
  std::string describe(const Problem& problem) const {
    using Acc = typename Problem::accumulator;
    using Shape = detail::TileShape<Acc>;
    return "tiled kernel, tiles of " + std::to_string(Shape::rows) + " rows by " +
           std::to_string(Shape::packets * Shape::width) + " keys, key blocks of " +
           std::to_string(detail::key_block_length<Acc>(problem.channels(), problem.value_channels()));
  }
};

ROVE_END_TAGGED

/// \file
/// One call of the tiled kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <optional>
#include <span>
#include <type_traits>

#include "rove/attention/arithmetic.hpp"
#include "rove/attention/key_blocks.hpp"
#include "rove/attention/row_io.hpp"
#include "rove/attention/row_prefetch.hpp"
#include "rove/attention/score.hpp"
#include "rove/attention/softmax_rows.hpp"
#include "rove/attention/softmax_state.hpp"
#include "rove/attention/tiled/ahead.hpp"
#include "rove/attention/tiled/pack.hpp"
#include "rove/attention/tiled/score.hpp"
#include "rove/attention/tiled/softmax.hpp"
#include "rove/attention/tiled/tile.hpp"
#include "rove/attention/tiled/view.hpp"
#include "rove/core/config.hpp"
#include "rove/core/context.hpp"
#include "rove/core/row_block.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Packs the key/value heads of a wave in one phase, then runs tiles of query rows over them in the next.
template <class Problem, class Transforms>
class TiledRun {
  using Acc = typename Problem::accumulator;
  using P = simd::packet_t<Acc>;
  using Shape = TileShape<Acc>;
  static constexpr bool has_score = !is_no_score<typename Problem::score_type>;
  static constexpr int width = simd::width<P>;
  static constexpr int tile_rows = Shape::rows;
  static constexpr int tile_keys = Shape::packets * width;
  using View = BlockView<tile_rows>;
  // Tiles to a task: enough rows that a key block that comes from memory serves many.
  static constexpr Index most_tiles = tile_rows > 8 ? 16 : 32;
  // Operands tend to start with a page, and packed they run abreast of themselves: half a page and a line
  // aside, since a load waits for a store before it whose address has the same low 12 bits.
  static constexpr std::size_t off_page = (2048 + 64) / sizeof(Acc);

 public:
  TiledRun(const Problem& problem, const Transforms& transforms, int workers)
      : problem_(problem),
        transforms_(transforms),
        workers_(workers),
        blocks_(problem_),
        layout_(problem.channels(), problem.value_channels()),
        query_factor_(static_cast<Acc>(problem.effective_scale() * (has_score ? 1 : std::numbers::log2e))) {
    // Fewer rows where that is what it takes to keep within 1 MiB, or to give every worker some tasks.
    const Index row_bytes =
        static_cast<Index>(sizeof(Acc)) * (layout_.query_tile() / tile_rows + 2 * layout_.value_width);
    Index tiles = (std::min)(most_tiles, Index{700} * 1024 / (row_bytes * tile_rows));
    if (workers > 1) {
      const Index all = (problem.q_len() + tile_rows - 1) / tile_rows * problem.batch() * problem.heads();
      tiles = (std::min)(tiles, all / (Index{4} * workers));
    }
    rows_ = (std::max)(Index{1}, tiles) * tile_rows;
    slices_ = (problem.q_len() + rows_ - 1) / rows_;
    // Key/value heads that are packed at a time: one, or as many as give every worker some tasks.
    const Index kv_heads = problem.batch() * problem.kv_heads();
    const Index wanted = workers == 1 ? 1 : (Index{16} * workers) / (std::max)(Index{1}, tasks_per_head());
    wave_ = (std::min)(kv_heads, (std::max)(Index{1}, wanted));
    waves_ = wave_ == 0 ? 0 : (kv_heads + wave_ - 1) / wave_;
  }
  TiledRun(const TiledRun&) = delete;
  TiledRun& operator=(const TiledRun&) = delete;

  WorkspaceSize workspace() const {
    WorkspaceSize size;
    size.add<Acc>(packed_elements());
    size.add<std::uint8_t>(wave_ * blocks_.most());
    size.add_per_worker<Acc>(worker_elements(), workers_);
    return size;
  }
  void allocate(Context::Scope& scope) {
    packed_ = scope.template allocate<Acc>(packed_elements()).subspan(off_page);
    finite_ = scope.template allocate<std::uint8_t>(wave_ * blocks_.most());
    scratch_.emplace(scope.template per_worker<Acc>(worker_elements()));
  }

  /// Even phases pack a wave, odd ones attend to it.
  Index phases() const { return 2 * waves_; }
  Index tasks(Index phase) const {
    return heads_of(phase / 2) * (phase % 2 == 0 ? blocks_.most() : tasks_per_head());
  }
  void run(Index phase, Index task, int worker) {
    const Index heads = heads_of(phase / 2);
    const std::span<Acc> scratch = (*scratch_)(worker);
    // Packing goes head by head; of the rows the last ones of all heads come first: under a causal mask they
    // are the longest tasks.
    const Index place = phase % 2 == 0 ? task / blocks_.most() : task % heads;
    const Index head = phase / 2 * wave_ + place;
    const Index b = head / problem_.kv_heads(), kv_head = head % problem_.kv_heads();
    if (phase % 2 == 0) {
      pack(b, kv_head, place, task % blocks_.most(), scratch);
    } else {
      attend(b, kv_head, place, tasks_per_head() - 1 - task / heads, scratch);
    }
  }

 private:
  Index tasks_per_head() const { return problem_.group() * slices_; }
  Index heads_of(Index wave) const {
    return (std::min)(wave_, problem_.batch() * problem_.kv_heads() - wave * wave_);
  }
  Index packed_elements() const {
    return static_cast<Index>(off_page) + wave_ * blocks_.most() * layout_.elements();
  }
  Index worker_elements() const {
    return rows_ / tile_rows * layout_.query_tile() + 2 * rows_ * layout_.value_width +
           tile_rows * weights_stride + layout_.scratch();
  }
  Index block_bytes() const { return layout_.elements() * static_cast<Index>(sizeof(Acc)); }
  Acc* keys_at(Index at) const { return packed_.data() + at * layout_.elements(); }
  Acc* values_at(Index at) const { return keys_at(at) + layout_.key_block(); }

  void pack(Index b, Index kv_head, Index place, Index nth, std::span<Acc> scratch) {
    const SlotRange all = blocks_.of(b);
    if (nth >= all.count()) return;
    const Index block = all.first + nth, origin = block * layout_.block;
    const Index at = place * blocks_.most() + nth;
    const SlotRange used = blocks_.slots(b, block);
    const Index end = problem_.slots(b).last;
    pack_keys(
        layout_, origin, used, keys_at(at), scratch.data(),
        [&](Index slot, RowBlock<Acc> rows) {
          return read_keys(problem_, transforms_.key, b, kv_head, slot, rows);
        },
        [&](Index slot) {
          const Index next = slot + rows_ahead;
          return next < end ? problem_.kv.keys(b, kv_head, next) : RowRun<typename Problem::key_storage>{};
        });
    finite_[static_cast<std::size_t>(at)] = pack_values(
        layout_, origin, used, values_at(at), scratch.data(),
        [&](Index slot, RowBlock<Acc> rows) {
          return read_values(problem_, transforms_.value, b, kv_head, slot, rows);
        },
        [&](Index slot) {
          const Index next = slot + rows_ahead;
          return next < end ? problem_.kv.values(b, kv_head, next)
                            : RowRun<typename Problem::value_storage>{};
        });
  }

  /// One tile of query rows.
  struct Tile {
    Index first;  ///< row of the problem
    int rows;
    Acc* query;   ///< packed
    Acc* output;  ///< [rows][value_width], of the chunk
    Acc* total;   ///< the same, of the chunks before
    SoftmaxTile<Acc>* chunk_state;
    SoftmaxTile<Acc>* total_state;
  };

  void attend(Index b, Index kv_head, Index place, Index task, std::span<Acc> scratch) {
    const Index head = kv_head * problem_.group() + task / slices_;
    const Index first = task % slices_ * rows_;
    const Index count = (std::min)(rows_, problem_.q_len() - first);
    const SlotRange all = blocks_.of(b);

    Acc* memory = scratch.data();
    const auto take = [&memory](Index elements) {
      Acc* const taken = memory;
      memory += elements;
      return taken;
    };
    Acc* const outputs = take(rows_ * layout_.value_width);
    Acc* const totals = take(rows_ * layout_.value_width);
    Acc* const weights = take(tile_rows * weights_stride);
    Acc* const queries = take(rows_ / tile_rows * layout_.query_tile());
    Acc* const scratch_rows = memory;
    SoftmaxTile<Acc> chunk_state[std::size_t{most_tiles}], total_state[std::size_t{most_tiles}];

    const bool several = all.last > (all.first / blocks_.to_a_chunk() + 1) * blocks_.to_a_chunk();
    std::fill_n(outputs, count * layout_.value_width, Acc(0));
    if (several) std::fill_n(totals, count * layout_.value_width, Acc(0));
    const RowTiles<Acc> cut(count);
    const Index tiles = cut.count();
    const auto tile_at = [&](Index t) {
      const Index at = cut.first(t);
      return Tile{first + at,
                  cut.rows(t),
                  queries + t * layout_.query_tile(),
                  outputs + at * layout_.value_width,
                  totals + at * layout_.value_width,
                  chunk_state + t,
                  total_state + t};
    };
    for (Index t = 0; t < tiles; ++t) {
      const Tile tile = tile_at(t);
      tile.chunk_state->clear();
      tile.total_state->clear();
      const Index next = tile.first + rows_ahead;
      pack_queries(
          layout_, tile.rows, query_factor_, tile.query, scratch_rows,
          [&](RowBlock<Acc> rows) {
            return read_queries(problem_, transforms_.query, b, head, tile.first, rows);
          },
          RowsAhead(next < first + count ? query_run(problem_, b, head, next)
                                         : RowRun<typename Problem::query_storage>{},
                    tile.rows, layout_.channels));
    }
    const auto seen_from = [&](Index block) {  // the next block of which some row sees something
      while (block < all.last) {
        const SlotRange used = blocks_.slots(b, block);
        if (visibility(problem_, b, head, first, count, used, used) != TileVisibility::none) break;
        ++block;
      }
      return block;
    };
    const Index start = seen_from(all.first);
    const Index place_of_0 = place * blocks_.most() - all.first;
    for (Index block = start; block < all.last;) {
      const Index following = seen_from(block + 1);
      const bool ends = following >= all.last;
      MemoryAhead ahead(layout_, tiles, keys_at(place_of_0 + block));
      if (!ends) {
        ahead.add(keys_at(place_of_0 + following), block_bytes());
      } else {
        ahead.add(output_run(problem_, b, head, first), count, layout_.value_channels);
        // The next rows are likely to begin with these rows' first block.
        if (start != block) ahead.add(keys_at(place_of_0 + start), block_bytes());
        if (workers_ == 1) add_next(ahead, b, kv_head, task);
      }
      for (Index t = 0; t < tiles; ++t) {
        const bool last = t + 1 == tiles;
        const Next next{tile_at(last ? 0 : t + 1), last ? following : block};
        add_block(b, head, tile_at(t), block, place_of_0 + block, weights, ahead.part(t),
                  last && ends ? nullptr : &next);
      }
      if (several && (ends || following / blocks_.to_a_chunk() != block / blocks_.to_a_chunk())) {
        for (Index t = 0; t < tiles; ++t) merge_chunk(tile_at(t));
      }
      block = following;
    }
    for (Index t = 0; t < tiles; ++t) finish(b, head, tile_at(t), several, scratch_rows);
  }

  /// What one worker alone reads after a task: the queries of the next one; after the last one of a key/value
  /// head keys, values and first queries of the next.
  void add_next(MemoryAhead& ahead, Index b, Index kv_head, Index task) const {
    if (task == 0) {
      if (++kv_head == problem_.kv_heads()) kv_head = 0, ++b;
      if (b == problem_.batch()) return;
      const SlotRange slots = problem_.slots(b);
      if (slots.empty()) return;
      ahead.add(problem_.kv.keys(b, kv_head, slots.first), slots.count(), layout_.channels);
      ahead.add(problem_.kv.values(b, kv_head, slots.first), slots.count(), layout_.value_channels);
      task = tasks_per_head();
    }
    --task;
    const Index head = kv_head * problem_.group() + task / slices_;
    ahead.add(query_run(problem_, b, head, task % slices_ * rows_), rows_, layout_.channels);
  }

  /// A tile's output.
  void finish(Index b, Index head, const Tile& tile, bool several, Acc* memory) {
    using Transform = std::remove_cvref_t<decltype(transforms_.output)>;
    const RowBlock<Acc> rows = place_of_outputs<Transform>(
        problem_, b, head, tile.first,
        RowBlock<Acc>{memory, tile.rows, layout_.value_channels, layout_.value_width});
    const Acc* const sums = several ? tile.total : tile.output;
    const SoftmaxTile<Acc>& state = several ? *tile.total_state : *tile.chunk_state;
    for (int r = 0; r < tile.rows; ++r) {
      if (tile.first + r + rows_ahead < problem_.q_len()) {
        prefetch_row(problem_.out.row(b, head, tile.first + r + rows_ahead), layout_.value_channels,
                     problem_.out.channel_stride());
      }
      settle_row(problem_, b, head, tile.first + r, sums + r * layout_.value_width, state.row(r),
                 rows.row(r));
    }
    if (rows.data == memory) write_outputs(problem_, transforms_.output, b, head, tile.first, rows);
  }

  void merge_chunk(const Tile& tile) {
    for (int r = 0; r < tile.rows; ++r) {
      const auto merged = merge(tile.total_state->row(r), tile.chunk_state->row(r));
      Acc* total = tile.total + r * layout_.value_width;
      Acc* chunk = tile.output + r * layout_.value_width;
      const P a = simd::broadcast<P>(merged.weight_a), b = simd::broadcast<P>(merged.weight_b);
      for (Index c = 0; c < layout_.value_width; c += width) {
        simd::store<P>(total + c, simd::mul_add(simd::load<P>(chunk + c), b, simd::load<P>(total + c) * a));
        simd::store<P>(chunk + c, simd::broadcast<P>(0));
      }
      tile.total_state->set(r, merged.state);
    }
    tile.chunk_state->clear();
  }

  /// What comes after a tile and a block.
  struct Next {
    Tile tile;
    Index block;
  };
  static constexpr bool has_prefetch =
      mask_prefetches<typename Problem::mask_type>() || score_prefetches<typename Problem::score_type>();

  /// Asks for what mask and score will read, a part of `parts` of it.
  void prefetch(Index b, Index head, const Next& next, int part, int parts) const {
    const SlotRange used = blocks_.slots(b, next.block);
    for (int r = part; r < next.tile.rows; r += parts) {
      const Site site{b, head, next.tile.first + r, used.first, 0, 0};
      if constexpr (mask_prefetches<typename Problem::mask_type>())
        problem_.mask.prefetch(site, used.count());
      if constexpr (score_prefetches<typename Problem::score_type>())
        problem_.score.prefetch(site, used.count());
    }
  }

  void add_block(Index b, Index head, const Tile& tile, Index block, Index at, Acc* weights, Ahead ahead,
                 const Next* next) {
    View view;
    const SlotRange used = blocks_.slots(b, block);
    look(problem_, b, head, tile.first, tile.rows, block * layout_.block, used, view);
    if (view.first >= view.last) return;
    const Index first = view.first / tile_keys * tile_keys;
    const Index last = (view.last + tile_keys - 1) / tile_keys * tile_keys;
    // With a tensor over the logits to read, by eighths: what the next tile needs is asked for a little at a
    // time, or loads of keys would queue behind it.
    constexpr int parts = has_prefetch ? 8 : 1;
    for (int part = 0; part < parts; ++part) {
      if constexpr (has_prefetch) {
        if (next != nullptr) prefetch(b, head, *next, part, parts);
      }
      const Index tiles = (last - first) / tile_keys;
      const Index from = first + tiles * part / parts * tile_keys;
      const Index to = first + tiles * (part + 1) / parts * tile_keys;
      in_parts<Acc>(tile.rows, [&](auto rows, int r) ROVE_INLINE_LAMBDA {
        score_tiles<rows>(tile.query + r * query_panel, keys_at(at), layout_.channels, from, to,
                          weights + r * weights_stride, ahead);
      });
    }
    if constexpr (has_score) {
      score_logits(problem_, b, head, tile.first, tile.rows, block * layout_.block, used, view, weights);
    }
    Acc rescale[std::size_t{SoftmaxTile<Acc>::rows}];
    softmax_tile(weights, first, last, view, tile.rows, *tile.chunk_state, rescale);
    if (!view.all && finite_[static_cast<std::size_t>(at)] == 0) {
      selecting_product(tile, values_at(at), view, weights, rescale);
      return;
    }
    in_parts<Acc>(tile.rows, [&](auto rows, int r) ROVE_INLINE_LAMBDA {
      value_tiles<rows>(weights + r * weights_stride, values_at(at), layout_.block, view.first,
                        view.last - view.first, rescale + r, tile.output + r * layout_.value_width,
                        layout_.value_width);
    });
  }

  /// A block with NaN or infinities that not every row sees: each row multiplies the keys that it sees and no
  /// others.
  void selecting_product(const Tile& tile, const Acc* values, const View& view, const Acc* weights,
                         const Acc* rescale) const {
    for (int r = 0; r < tile.rows; ++r) {
      for (Index c = 0; c < layout_.value_channels; ++c) {
        Acc sum = 0;
        for (Index j = view.first; j < view.last; ++j) {
          if (!view.sees(r, j)) continue;
          sum = mul_add(weights[r * weights_stride + j], values[layout_.value_at(j, c)], sum);
        }
        Acc& o = tile.output[r * layout_.value_width + c];
        o = mul_add(o, rescale[r], sum);
      }
    }
  }

  const Problem problem_;
  const Transforms transforms_;
  int workers_;
  KeyBlocks<Problem> blocks_;
  PackedLayout<Acc> layout_;
  Acc query_factor_;
  Index rows_ = 1;    // of a task
  Index slices_ = 1;  // tasks to a query head
  Index wave_ = 1;    // kv heads to a wave
  Index waves_ = 0;
  std::span<Acc> packed_;
  std::span<std::uint8_t> finite_;
  std::optional<PerWorker<Acc>> scratch_;
};

}  // namespace detail

ROVE_END_TAGGED

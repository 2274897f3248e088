/// \file
/// Keys and values as a kernel sees them: rows that are found by their slot, wherever and however they are
/// stored.
///
/// A key has two numbers. Its *slot* is its place in order of appending: the first key ever appended to a
/// batch row has slot 0, and it keeps that number when older keys are dropped. Its absolute *index* rises
/// with the slot, but may be displaced. A model of `KeyValues` says which slots a batch row still holds
/// (`slots`), where their rows lie (`keys`, `values`) and which indices they carry (`indices`), each as a run
/// of consecutive slots, so that a kernel walks memory and not a table.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/simd_convert.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/core/view_checks.hpp"

namespace rove {

/// Slots [first, last).
struct SlotRange {
  Index first = 0;
  Index last = 0;

  ROVE_ALWAYS_INLINE constexpr Index count() const { return last - first; }
  ROVE_ALWAYS_INLINE constexpr bool empty() const { return last <= first; }
};

/// The absolute indices first, first + 1, … of `count` consecutive slots, beginning with the one asked for.
struct IndexRun {
  Index first = 0;
  Index count = 0;
};

/// The rows of `count` consecutive slots, beginning with the one asked for.
///
/// Element e of row r is `data[r * row_stride + e * channel_stride]`, times `scale[r * scale_stride]` where
/// `scale` is not null. Strides count elements and may be anything, zero and negative included: row stride 1
/// with channel stride 16 is a packed panel of 16 rows.
template <class Storage>
struct RowRun {
  const Storage* data = nullptr;  ///< first element of the first row
  Index count = 0;                ///< rows
  Index row_stride = 0;
  Index channel_stride = 1;
  const float* scale = nullptr;  ///< factor of the first row; null: every factor is 1
  Index scale_stride = 0;

  ROVE_ALWAYS_INLINE constexpr const Storage* row(Index r) const { return data + r * row_stride; }
  ROVE_ALWAYS_INLINE constexpr float row_scale(Index r) const {
    return scale == nullptr ? 1.0F : scale[r * scale_stride];
  }
};

/// Channels that one element of a storage holds: 1, unless the storage is a block of several numbers. To be
/// specialised beside `RowCodec` (32 for ggml's q8_0).
template <class Storage>
inline constexpr Index channels_per_element = 1;

/// The accumulator of sums over rows of these storages: double if one of them is double, otherwise float.
template <class... Storages>
using row_accumulator_t =
    std::conditional_t<(std::is_same_v<std::remove_cv_t<Storages>, double> || ...), double, float>;

namespace untagged {

/// The largest of the numbers of the batch rows, or the one that they share.
ROVE_ALWAYS_INLINE Index longest(Index shared, const IntegerSpan& by_row) {
  if (!by_row) return shared;
  Index most = 0;
  for (Index b = 0; b < by_row.size(); ++b) most = by_row[b] > most ? by_row[b] : most;
  return most;
}

}  // namespace untagged

}  // namespace rove

ROVE_BEGIN_TAGGED

namespace detail {

/// Keys and values stand in two addressable tensors of one shape but for their channels; the models call the
/// first and third dimension by names of their own.
template <class Key, class Value>
void check_extents_agree(const TensorView<Key>& k, const TensorView<Value>& v,
                         const char* rows = "batch rows", const char* tokens = "tokens") {
  check_view(k, "k");
  check_view(v, "v");
  const char* const names[3] = {rows, "heads", tokens};
  for (int d = 0; d < 3; ++d) {
    ROVE_EXPECT(k.extent[d] == v.extent[d], "k has ", k.extent[d], ' ', names[d], ", v has ", v.extent[d]);
  }
}

/// Slots per batch row, shared or one by one, are numbers ≥ 0 and of the right count.
inline void check_row_counts(Index shared, const IntegerSpan& by_row, Index batch, const char* name) {
  ROVE_EXPECT(shared >= 0, name, " must not be negative, got ", shared);
  if (!by_row) return;
  ROVE_EXPECT(by_row.size() == batch, name, " has ", by_row.size(), " entries for ", batch, " batch rows");
  for (Index b = 0; b < batch; ++b) {
    ROVE_EXPECT(by_row[b] >= 0, name, '[', b, "] must not be negative, got ", by_row[b]);
  }
}

}  // namespace detail

/// How a stored row becomes numbers: `read(run, row, out)` writes the channels of one row of a run.
///
/// Storages of one's own are added by a specialisation with that static function, for float and double spans;
/// a block format reads its factor from inside the row:
///
///     template <> struct rove::RowCodec<q8_0_block> {
///       template <rove::Accumulator Acc>
///       static void read(const rove::RowRun<q8_0_block>& run, rove::Index row, std::span<Acc> out);
///     };
///     template <> inline constexpr rove::Index rove::channels_per_element<q8_0_block> = 32;
template <class Storage>
struct RowCodec;

/// Rows of numbers: float, double, bfloat16, half, or 8-bit integers with a factor per row.
template <class Storage>
requires(Scalar<Storage> || std::same_as<Storage, std::int8_t>) struct RowCodec<Storage> {
  /// out[c] = row[c], exactly, or scale · row[c] rounded once to Acc; `out` has one number per channel.
  template <Accumulator Acc>
  requires(!(std::same_as<Acc, float> &&
             std::same_as<Storage, double>)) static void read(const RowRun<Storage>& run, Index row,
                                                              std::span<Acc> out) {
    const Storage* ROVE_RESTRICT source = run.row(row);
    Acc* ROVE_RESTRICT target = out.data();
    const Index channels = static_cast<Index>(out.size());
    using P = simd::packet_t<Acc>;
    Index c = 0;
    if constexpr (Scalar<Storage>) {
      if (run.channel_stride == 1) {
        for (; c + simd::width<P> <= channels; c += simd::width<P>) {
          simd::store<P>(target + c, simd::load<P>(source + c));
        }
      }
    } else if (run.channel_stride == 1) {  // stands alone so that it vectorises
      for (; c < channels; ++c) target[c] = number<Acc>(source + c);
    }
    for (; c < channels; ++c) target[c] = number<Acc>(source + c * run.channel_stride);
    if (run.scale != nullptr) {
      const Acc scale = static_cast<Acc>(run.row_scale(row));
      for (c = 0; c < channels; ++c) target[c] *= scale;
    }
  }

 private:
  template <class Acc>
  ROVE_ALWAYS_INLINE static Acc number(const Storage* element) {
    if constexpr (std::is_same_v<Storage, std::int8_t>) {
      return static_cast<Acc>(*element);
    } else {
      return load_widened<Acc>(element);
    }
  }
};

/// A storage whose rows a kernel can read: `RowCodec` knows it.
template <class Storage>
concept RowStorage = requires(const RowRun<Storage>& run, Index row, std::span<double> out) {
  RowCodec<Storage>::read(run, row, out);
};

/// A cheap, copyable view of keys and values (caches that own memory hand one out by `view()`).
///
/// | member | meaning |
/// |---|---|
/// | `key_storage`, `value_storage` | element types of the rows |
/// | `batch()`, `heads()` | batch rows; kv heads |
/// | `key_channels()`, `value_channels()` | true widths of a key and of a value |
/// | `length()` | one past the last slot of any batch row |
/// | `slots(b)` | the slots that batch row b holds, [first, last) |
/// | `keys(b, h, slot)`, `values(b, h, slot)` | rows from `slot` on, at least one; need not reach the end |
/// | `indices(b, slot)` | absolute indices from `slot` on, at least one; rising with the slot |
/// | `check()` | optional: throws `Error` if the view contradicts itself |
/// | `overlaps(out)` | optional: whether an output `TensorView` shares memory with the rows |
///
/// `keys`, `values` and `indices` are asked only for slots in `slots(b)`, by all workers at once; what their
/// runs say of later slots than those is not used. Rows stay as they are until the call ends.
template <class KV>
concept KeyValues = std::copy_constructible<KV> && RowStorage<typename KV::key_storage> &&
    RowStorage<typename KV::value_storage> && requires(const KV& kv, Index i) {
  { kv.batch() } -> std::convertible_to<Index>;
  { kv.heads() } -> std::convertible_to<Index>;
  { kv.key_channels() } -> std::convertible_to<Index>;
  { kv.value_channels() } -> std::convertible_to<Index>;
  { kv.length() } -> std::convertible_to<Index>;
  { kv.slots(i) } -> std::same_as<SlotRange>;
  { kv.keys(i, i, i) } -> std::same_as<RowRun<typename KV::key_storage>>;
  { kv.values(i, i, i) } -> std::same_as<RowRun<typename KV::value_storage>>;
  { kv.indices(i, i) } -> std::same_as<IndexRun>;
};

/// The accumulator that keys and values ask for.
template <KeyValues KV>
using key_value_accumulator_t = row_accumulator_t<typename KV::key_storage, typename KV::value_storage>;

/// The key of one slot, widened; `out` has `key_channels()` numbers.
template <KeyValues KV, Accumulator Acc>
void read_key(const KV& kv, Index b, Index h, Index slot, std::span<Acc> out) {
  RowCodec<typename KV::key_storage>::read(kv.keys(b, h, slot), 0, out);
}

/// The value of one slot, widened; `out` has `value_channels()` numbers.
template <KeyValues KV, Accumulator Acc>
void read_value(const KV& kv, Index b, Index h, Index slot, std::span<Acc> out) {
  RowCodec<typename KV::value_storage>::read(kv.values(b, h, slot), 0, out);
}

/// Checks a view once a call: its own `check()`, where it has one, then that its extents are no negative
/// numbers and that `slots(b)` lie in [0, length()].
template <KeyValues KV>
void check_key_values(const KV& kv) {
  if constexpr (requires { kv.check(); }) kv.check();
  const Index batch = kv.batch(), length = kv.length();
  ROVE_EXPECT(batch >= 0 && kv.heads() >= 0 && kv.key_channels() >= 0 && kv.value_channels() >= 0,
              "key-values: negative extent in [batch, heads, key channels, value channels] = [", batch, ", ",
              kv.heads(), ", ", kv.key_channels(), ", ", kv.value_channels(), "]");
  for (Index b = 0; b < batch; ++b) {
    const SlotRange held = kv.slots(b);
    ROVE_EXPECT(held.first >= 0 && held.first <= held.last && held.last <= length, "key-values: batch row ",
                b, " holds the slots [", held.first, ", ", held.last, "), which do not lie in [0, ", length,
                ")");
  }
}

ROVE_END_TAGGED

/// \file
/// Models of keys and values behind one type, filled.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "masks_and_scores.hpp"
#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/key_values/int8.hpp"
#include "rove/attention/key_values/paged.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/key_values/tensor.hpp"
#include "tensors.hpp"

namespace rove_fuzz {

/// Any model with these storages; `Out` and `Acc` are the outputs that it is asked about.
template <class Key, class Value, class Out, class Acc>
class AnyKeyValues {
 public:
  using key_storage = Key;
  using value_storage = Value;

  template <class KV>
  requires(!std::same_as<KV, AnyKeyValues> && rove::KeyValues<KV>) explicit AnyKeyValues(KV kv)
      : model_(std::make_shared<const Model<KV>>(std::move(kv))) {}

  Index batch() const { return model_->batch(); }
  Index heads() const { return model_->heads(); }
  Index key_channels() const { return model_->key_channels(); }
  Index value_channels() const { return model_->value_channels(); }
  Index length() const { return model_->length(); }
  rove::SlotRange slots(Index b) const { return model_->slots(b); }
  rove::RowRun<Key> keys(Index b, Index h, Index slot) const { return model_->keys(b, h, slot); }
  rove::RowRun<Value> values(Index b, Index h, Index slot) const { return model_->values(b, h, slot); }
  rove::IndexRun indices(Index b, Index slot) const { return model_->indices(b, slot); }
  void check() const { model_->check(); }
  bool overlaps(const rove::TensorView<Out>& out) const { return model_->overlaps_out(out); }
  bool overlaps(const rove::TensorView<Acc>& lse) const requires(!std::same_as<Out, Acc>) {
    return model_->overlaps_lse(lse);
  }

 private:
  struct Interface {
    Interface() = default;
    Interface(const Interface&) = delete;
    Interface& operator=(const Interface&) = delete;
    virtual ~Interface() = default;
    virtual Index batch() const = 0;
    virtual Index heads() const = 0;
    virtual Index key_channels() const = 0;
    virtual Index value_channels() const = 0;
    virtual Index length() const = 0;
    virtual rove::SlotRange slots(Index b) const = 0;
    virtual rove::RowRun<Key> keys(Index b, Index h, Index slot) const = 0;
    virtual rove::RowRun<Value> values(Index b, Index h, Index slot) const = 0;
    virtual rove::IndexRun indices(Index b, Index slot) const = 0;
    virtual void check() const = 0;
    virtual bool overlaps_out(const rove::TensorView<Out>& out) const = 0;
    virtual bool overlaps_lse(const rove::TensorView<Acc>& lse) const = 0;
  };
  template <class KV>
  struct Model final : Interface {
    explicit Model(KV model) : kv(std::move(model)) {}
    Index batch() const override { return kv.batch(); }
    Index heads() const override { return kv.heads(); }
    Index key_channels() const override { return kv.key_channels(); }
    Index value_channels() const override { return kv.value_channels(); }
    Index length() const override { return kv.length(); }
    rove::SlotRange slots(Index b) const override { return kv.slots(b); }
    rove::RowRun<Key> keys(Index b, Index h, Index slot) const override { return kv.keys(b, h, slot); }
    rove::RowRun<Value> values(Index b, Index h, Index slot) const override { return kv.values(b, h, slot); }
    rove::IndexRun indices(Index b, Index slot) const override { return kv.indices(b, slot); }
    void check() const override { rove::check_key_values(kv); }
    bool overlaps_out(const rove::TensorView<Out>& out) const override { return kv.overlaps(out); }
    bool overlaps_lse(const rove::TensorView<Acc>& lse) const override { return kv.overlaps(lse); }
    KV kv;
  };

  std::shared_ptr<const Interface> model_;
};

/// The extents of one cache.
struct CacheShape {
  Index batch, heads, channels, value_channels;
  bool may_be_long = false;  ///< many slots that are no longer held
};

/// A number as it is stored; 8-bit integers take as much of it as they can.
template <class T>
T stored(double number) {
  if constexpr (std::is_same_v<T, std::int8_t>) {
    return static_cast<std::int8_t>(std::clamp(number * 30, -127.0, 127.0));
  } else {
    return static_cast<T>(static_cast<float>(number));
  }
}

/// Random rows in every slot that is in use; all others keep their guards, NaN.
template <class KV>
void fill_rows(const KV& kv, const CacheShape& shape, rove::IntegerSpan key_lengths, Numbers& numbers) {
  using Key = typename KV::key_storage;
  using Value = typename KV::value_storage;
  for (Index b = 0; b < shape.batch; ++b) {
    rove::SlotRange slots = kv.slots(b);
    if (key_lengths) slots.last = std::min(slots.last, key_lengths[b]);
    for (Index h = 0; h < shape.heads; ++h) {
      for (Index slot = slots.first; slot < slots.last; ++slot) {
        const auto key = kv.keys(b, h, slot);
        const auto value = kv.values(b, h, slot);
        for (Index c = 0; c < shape.channels; ++c) {
          const_cast<Key&>(key.data[c * key.channel_stride]) = stored<Key>(numbers());
        }
        for (Index c = 0; c < shape.value_channels; ++c) {
          const_cast<Value&>(value.data[c * value.channel_stride]) = stored<Value>(numbers());
        }
        for (const float* scale : {key.scale, value.scale}) {
          if (scale != nullptr) {
            const_cast<float&>(*scale) = static_cast<float>(0.01 + 0.04 * numbers.random().uniform());
          }
        }
      }
    }
  }
}

/// Tokens of a sequence: mostly few, sometimes enough for several key blocks.
inline Index token_count(Bytes& bytes) {
  const Index kind = bytes.below(16);
  if (kind == 15) return bytes.between(250, 300);
  return kind < 8 ? bytes.below(10) : bytes.below(41);
}

/// The erased models of keys and values in numbers, and of 8-bit integers with scales.
template <class Any>
class CacheMaker {
  using Key = typename Any::key_storage;
  using Value = typename Any::value_storage;

 public:
  CacheMaker(Bytes& bytes, const CacheShape& shape, Store& store)
      : bytes_(bytes), shape_(shape), store_(store) {}

  Any make(Index tokens) {
    if constexpr (std::is_same_v<Key, std::int8_t>) {
      return maybe_displaced(int8(tokens));
    } else {
      switch (bytes_.below(3)) {
        case 1:
          return maybe_displaced(ring());
        case 2:
          return maybe_displaced(paged());
        default:
          return maybe_displaced(rove::key_values(keys(tokens), values(tokens)));
      }
    }
  }

 private:
  rove::TensorView<Key> keys(Index tokens) { return pool<Key>(shape_.batch, tokens, shape_.channels); }
  rove::TensorView<Value> values(Index tokens) {
    return pool<Value>(shape_.batch, tokens, shape_.value_channels);
  }
  template <class T>
  rove::TensorView<T> pool(Index batch, Index tokens, Index channels) {
    return store_.keep(Tensor<T>(bytes_, {batch, shape_.heads, tokens, channels}, Use::input)).view();
  }

  rove::Int8KeyValues int8(Index tokens) {
    const auto scales = [&]() -> rove::RowView<const float> {
      const auto all = pool<float>(shape_.batch, tokens, 1);
      return {all.data,
              {all.extent[0], all.extent[1], all.extent[2]},
              {all.stride[0], all.stride[1], all.stride[2]}};
    };
    const auto k = keys(tokens);
    const auto k_scale = scales();
    const auto v = values(tokens);
    return {k, v, k_scale, scales()};
  }

  rove::RingKeyValues<Key, Value> ring() {
    const Index capacity = bytes_.between(1, 20);
    const auto k = keys(capacity);
    const auto v = values(capacity);
    const auto appended = [&] {
      return shape_.may_be_long && bytes_.one_in(8) ? bytes_.between(4080, 4110) : bytes_.below(60);
    };
    if (!bytes_.one_in(2)) return rove::ring_key_values(k, v, appended());
    auto& by_row = store_.keep(std::vector<std::int64_t>());
    for (Index b = 0; b < shape_.batch; ++b) by_row.push_back(appended());
    if (by_row.empty()) return rove::ring_key_values(k, v, Index{0});
    return rove::ring_key_values(k, v, by_row);
  }

  rove::PagedKeyValues<Key, Value> paged() {
    const Index pages = bytes_.between(1, 8), page_size = bytes_.between(1, 9), most = bytes_.between(1, 5);
    const auto k = pool<Key>(pages, page_size, shape_.channels);
    const auto v = pool<Value>(pages, page_size, shape_.value_channels);
    auto& table = store_.keep(std::vector<std::int32_t>());
    auto& lengths = store_.keep(std::vector<std::int64_t>());
    for (Index b = 0; b < shape_.batch; ++b) {
      for (Index page = 0; page < most; ++page)
        table.push_back(static_cast<std::int32_t>(bytes_.below(pages)));
      lengths.push_back(bytes_.below(most * page_size + 1));
      // Entries past the last page in use are not read.
      for (Index page = (lengths.back() + page_size - 1) / page_size; page < most; ++page) {
        table[static_cast<std::size_t>(b * most + page)] = -1;
      }
    }
    return rove::paged_key_values(k, v, rove::page_table(table, shape_.batch), lengths);
  }

  template <class KV>
  Any maybe_displaced(const KV& kv) {
    switch (bytes_.below(6)) {
      case 3:
        return Any(rove::displaced(kv, bytes_.between(-20, 20)));
      case 4: {
        auto& by = store_.keep(std::vector<std::int64_t>());
        for (Index b = 0; b < shape_.batch; ++b) by.push_back(bytes_.between(-20, 20));
        return Any(rove::displaced(kv, rove::IntegerSpan(by)));
      }
      case 5: {
        auto& shifts = store_.keep(std::vector<rove::IndexShift>());
        Index slot = bytes_.below(4), by = slot == 0 ? -3 : 0;
        for (Index n = bytes_.below(4); n > 0; --n) {
          shifts.push_back({slot, by});
          slot += bytes_.between(1, 9);
          by += bytes_.below(6);
        }
        return Any(rove::displaced(kv, std::span<const rove::IndexShift>(shifts)));
      }
      default:
        return Any(kv);
    }
  }

  Bytes& bytes_;
  const CacheShape& shape_;
  Store& store_;
};

}  // namespace rove_fuzz

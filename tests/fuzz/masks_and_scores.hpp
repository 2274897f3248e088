/// \file
/// Masks and scores of every kind, joined.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bytes.hpp"
#include "rove/attention/any_mask.hpp"
#include "rove/attention/any_score.hpp"
#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/masks_documents.hpp"
#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/scores_alibi.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/scores_lambda.hpp"
#include "rove/attention/scores_soft_cap.hpp"
#include "tensors.hpp"

namespace rove_fuzz {

using rove::AnyMask;
using rove::AnyScore;

/// Keeps what masks, scores and problems borrow.
class Store {
 public:
  template <class T>
  T& keep(T value) {
    auto held = std::make_shared<T>(std::move(value));
    kept_.push_back(held);
    return *held;
  }

 private:
  std::vector<std::shared_ptr<void>> kept_;
};

/// Each extent of the call, or 1.
inline std::array<Index, 4> full_or_one(Bytes& bytes, const rove::AttentionShape& shape) {
  std::array<Index, 4> extent{shape.batch, shape.heads, shape.q_len, shape.kv_len};
  for (Index& n : extent) n = bytes.one_in(2) ? 1 : n;
  return extent;
}

inline std::vector<std::int64_t> cumulative_lengths(Bytes& bytes, Index documents) {
  std::vector<std::int64_t> sums{0};
  for (Index n = 0; n < documents; ++n) sums.push_back(sums.back() + bytes.below(20));
  return sums;
}

inline AnyMask make_mask(Bytes& bytes, const rove::AttentionShape& shape, Store& store, int depth = 2) {
  const Index joined = depth > 0 ? 3 : 0;
  switch (bytes.below(10 + joined)) {
    case 1:
      return rove::causal();
    case 2:
      return rove::window(bytes.between(1, 12));
    case 3:
      return rove::window(bytes.pick({Index{3}, Index{0}, rove::unbounded}),
                          bytes.pick({Index{0}, Index{2}, rove::unbounded}));
    case 4:
      return rove::prefix(bytes.below(30));
    case 5: {
      auto& lengths = store.keep(std::vector<std::int32_t>());
      for (Index b = 0; b < shape.batch; ++b) lengths.push_back(static_cast<std::int32_t>(bytes.below(30)));
      return rove::prefix(lengths);
    }
    case 6: {
      const Index documents = bytes.below(5);
      auto& queries = store.keep(cumulative_lengths(bytes, documents));
      if (bytes.one_in(2)) return rove::documents(queries);
      return rove::documents(queries, store.keep(cumulative_lengths(bytes, documents)));
    }
    case 7: {
      const Index rows = bytes.one_in(2) && shape.batch > 0 ? shape.batch : 1, tokens = bytes.below(40);
      auto& ids = store.keep(std::vector<std::int64_t>());
      for (Index n = 0; n < rows * tokens; ++n) ids.push_back(bytes.below(3));
      return rove::document_ids(ids, rows);
    }
    case 8: {
      auto& seen = store.keep(Tensor<unsigned char>(bytes, full_or_one(bytes, shape), Use::input));
      Random random(bytes.seed());
      const Index share = bytes.between(2, 5);
      seen.for_each_element([&](unsigned char* element) {
        *element = static_cast<unsigned char>(random.below(share) == 0 ? 0 : 1 + random.below(255));
      });
      return rove::boolean_mask(seen.view());
    }
    case 9: {
      const Index salt = bytes.below(100);
      return rove::mask([salt](Index b, Index head, Index query, Index key) {
        return (b * 3 + head * 5 + query * 7 + key * 11 + salt) % 4 != 0;
      });
    }
    case 10: {
      const AnyMask left = make_mask(bytes, shape, store, depth - 1);
      return left & make_mask(bytes, shape, store, depth - 1);
    }
    case 11: {
      const AnyMask left = make_mask(bytes, shape, store, depth - 1);
      return left | make_mask(bytes, shape, store, depth - 1);
    }
    case 12:
      return !make_mask(bytes, shape, store, depth - 1);
    default:
      return AnyMask();
  }
}

template <class T>
AnyScore make_bias(Bytes& bytes, const rove::AttentionShape& shape, Store& store) {
  auto& bias = store.keep(Tensor<T>(bytes, full_or_one(bytes, shape), Use::input));
  Random random(bytes.seed());
  const double rare = bytes.pick({0.0, -std::numeric_limits<double>::infinity(), -1e4});
  bias.for_each_element([&](T* element) {
    const double number = random.below(4) == 0 ? rare : 4 * random.normal();
    *element = static_cast<T>(static_cast<float>(number));
  });
  return rove::additive_bias(bias.view());
}

inline AnyScore make_score(Bytes& bytes, const rove::AttentionShape& shape, Store& store, int depth = 2) {
  switch (bytes.below(depth > 0 ? 9 : 7)) {
    case 1:
      return rove::soft_cap(bytes.pick({2.0, 0.5, 50.0}));
    case 2:
      return rove::alibi(shape.heads);
    case 3:
      return make_bias<float>(bytes, shape, store);
    case 4:
      return make_bias<Eigen::half>(bytes, shape, store);
    case 5:
      return rove::score([](auto s) { return s / 2; });
    case 6:
      return rove::score([]<class Acc>(Acc s, const rove::Site& site) {
        return s + static_cast<Acc>((site.query * 5 + site.key * 3 + site.head) & 7) / 4;
      });
    case 7:
    case 8: {
      const AnyScore first = make_score(bytes, shape, store, depth - 1);
      return first | make_score(bytes, shape, store, depth - 1);
    }
    default:
      return AnyScore();
  }
}

}  // namespace rove_fuzz

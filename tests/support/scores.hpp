/// \file
/// Where scores are asked, and the call that they are checked against.
#pragma once

#include <string>

#include "rove/attention/score.hpp"
#include "support/error_of.hpp"

namespace test {

inline constexpr rove::AttentionShape scored_shape{
    .batch = 2, .heads = 3, .kv_heads = 1, .q_len = 5, .kv_len = 7};

template <rove::Score S>
std::string check_error(const S& score) {
  return error_of([&] { rove::score_check(score, scored_shape); });
}

constexpr rove::Site at(rove::Index head, rove::Index query, rove::Index key) {
  return {.head = head, .query = query, .key = key};
}

}  // namespace test

/// \file
/// The golden cases of tests/data/rope, as the types under test take them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "rove/position/rotary_frequencies.hpp"

namespace rove_test {

using Json = nlohmann::json;

inline Json load_json(const std::string& name) {
  std::ifstream file(std::string(ROVE_TEST_DATA) + "/rope/" + name);
  if (!file) throw std::runtime_error(name + " cannot be opened");
  return Json::parse(file);
}

inline const Json& cases() {
  static const Json all = load_json("cases.json");
  return all;
}

inline const Json& golden(const std::string& name) {
  const auto found =
      std::find_if(cases().begin(), cases().end(), [&](const Json& c) { return c["name"] == name; });
  if (found == cases().end()) throw std::runtime_error("no case " + name);
  return *found;
}

/// Moves a parameter of the case into a field, unless the case leaves it to the defaults.
class Parameters {
 public:
  explicit Parameters(const Json& c) : case_(c) {}

  bool has(const char* key) const {
    const Json& left = case_["left_to_defaults"];
    return case_.contains(key) && std::find(left.begin(), left.end(), key) == left.end();
  }
  template <class T>
  void set(const char* key, T& field) const {
    if (has(key)) field = case_[key].get<T>();
  }
  template <class T>
  void set(const char* key, std::optional<T>& field) const {
    if (has(key)) field = case_[key].get<T>();
  }

 private:
  const Json& case_;
};

inline rove::RopeScaling scaling_of(const Json& c) {
  const Parameters given(c);
  const std::string type = c["type"];
  if (type == "default") return rove::DefaultRope{};
  if (type == "linear") {
    rove::Linear s;
    given.set("factor", s.factor);
    return s;
  }
  if (type == "dynamic") {
    rove::DynamicNtk s;
    given.set("factor", s.factor);
    given.set("max_position_embeddings", s.max_position_embeddings);
    return s;
  }
  if (type == "yarn") {
    rove::Yarn s;
    given.set("factor", s.factor);
    given.set("original_max_position_embeddings", s.original_max_position_embeddings);
    given.set("max_position_embeddings", s.max_position_embeddings);
    given.set("beta_fast", s.beta_fast);
    given.set("beta_slow", s.beta_slow);
    given.set("truncate", s.truncate);
    given.set("mscale", s.mscale);
    given.set("mscale_all_dim", s.mscale_all_dim);
    given.set("explicit_attention_factor", s.attention_factor);
    return s;
  }
  if (type == "longrope") {
    rove::LongRope s;
    given.set("short_factor", s.short_factor);
    given.set("long_factor", s.long_factor);
    given.set("original_max_position_embeddings", s.original_max_position_embeddings);
    given.set("factor", s.factor);
    given.set("max_position_embeddings", s.max_position_embeddings);
    given.set("explicit_attention_factor", s.attention_factor);
    return s;
  }
  if (type == "llama3") {
    rove::Llama3 s;
    given.set("factor", s.factor);
    given.set("low_freq_factor", s.low_freq_factor);
    given.set("high_freq_factor", s.high_freq_factor);
    given.set("original_max_position_embeddings", s.original_max_position_embeddings);
    return s;
  }
  if (type == "proportional") {
    rove::Proportional s;
    given.set("factor", s.factor);
    given.set("partial_rotary_factor", s.partial_rotary_factor);
    return s;
  }
  throw std::runtime_error("no scaling " + type);
}

inline rove::RotaryOptions options_of(const Json& c) {
  rove::RotaryOptions options;
  options.rotary_dim = c["rotary_dim"].get<rove::Index>();
  if (c.contains("partial_rotary_factor") && c["type"] != "proportional") {
    options.rotary_dim =
        rove::partial_rotary_dim(c["head_dim"].get<rove::Index>(), c["partial_rotary_factor"].get<double>());
  }
  const Parameters given(c);
  given.set("base", options.rope_theta);
  options.scaling = scaling_of(c);
  given.set("seq_len", options.seq_len);
  return options;
}

inline rove::RotaryFrequencies frequencies_of(const std::string& name) {
  return rove::rotary_frequencies(options_of(golden(name)));
}

/// The message of the rove::Error that `call` throws; "" and a failure if it throws none.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const rove::Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no rove::Error was thrown";
  return {};
}

}  // namespace rove_test

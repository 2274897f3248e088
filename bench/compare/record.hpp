/// \file
/// One measured case, as it is printed and as it is written to results.json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "bench/compare/race.hpp"
#include "bench/compare/statistics.hpp"
#include "bench/support/attention_case.hpp"
#include "rove/core/config.hpp"

namespace bench {

/// What does not apply to a case is left out of its JSON object. Figures are of the best draw; the ratios
/// vs_stream, rove_over_rope and over_plain are medians over adjacent pairs, with their intervals.
struct Record {
  std::string name;  ///< "case": section/what/how
  std::string scalar;
  std::optional<rove::Index> head_dim = {}, q_len = {}, kv_len = {}, heads = {}, kv_heads = {};
  std::optional<bool> causal = {};
  int threads = 1;
  Draws draws = {};
  std::optional<double> gflops = {}, gbps = {};  ///< 10⁹ flops, 10⁹ bytes read and written, a second
  std::optional<double> vs_sgemm = {};           ///< gflops over OpenBLAS sgemm's
  std::optional<double> vs_peak = {};            ///< gflops over the measured FMA peak's
  std::optional<Ratio> vs_stream = {};           ///< gbps over memcpy's of as many bytes
  std::optional<double> vs_long = {};            ///< gflops over those of 4096 tokens that all see each other
  std::optional<double> speedup = {};            ///< time with one thread over time with these
  std::optional<Ratio> rove_over_rope = {};      ///< RoVE's time over RoPE's
  std::optional<Ratio> over_plain = {};  ///< time over that of plain attention in float, same operands

  void set_shape(const AttentionShape& shape) {
    head_dim = shape.head_dim;
    q_len = shape.q_len;
    kv_len = shape.kv_len;
    heads = shape.heads;
    kv_heads = shape.kv_heads;
    causal = shape.causal;
  }
  void set_flops(double flops) { gflops = flops / draws.best() * 1e-9; }
  void set_bytes(double bytes) { gbps = bytes / draws.best() * 1e-9; }
};

inline nlohmann::ordered_json to_json(const Record& record) {
  nlohmann::ordered_json json;
  const auto put = [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  const auto put_ratio = [&](const std::string& key, const std::optional<Ratio>& ratio) {
    if (!ratio) return;
    json[key] = ratio->median;
    json[key + "_interval"] = {ratio->interval.low, ratio->interval.high};
    json[key + "_of_bests"] = ratio->of_bests;
  };
  json["case"] = record.name;
  json["scalar"] = record.scalar;
  put("head_dim", record.head_dim);
  put("q_len", record.q_len);
  put("kv_len", record.kv_len);
  put("heads", record.heads);
  put("kv_heads", record.kv_heads);
  put("causal", record.causal);
  json["threads"] = record.threads;
  put("gflops", record.gflops);
  put("gbps", record.gbps);
  put("vs_sgemm", record.vs_sgemm);
  put("vs_peak", record.vs_peak);
  put("vs_long", record.vs_long);
  put("speedup", record.speedup);
  put_ratio("vs_stream", record.vs_stream);
  put_ratio("rove_over_rope", record.rove_over_rope);
  put_ratio("over_plain", record.over_plain);
  json["draws"] = record.draws.seconds.size();
  json["best_ms"] = record.draws.best() * 1e3;
  json["median_ms"] = record.draws.median() * 1e3;
  return json;
}

}  // namespace bench

#include "attend/run.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <rove/rove.hpp>
#include <vector>

#if __has_include(<Eigen/ThreadPool>)
#include <Eigen/ThreadPool>
#else
#include <unsupported/Eigen/CXX11/ThreadPool>
#endif

#include "attend/layer.hpp"
#include "attend/options.hpp"

namespace attend {
namespace {

rove::Pairing of(Pairing pairing) {
  return pairing == Pairing::half_split ? rove::Pairing::half_split : rove::Pairing::interleaved;
}

rove::AnyMask mask_of(const Options& options) {
  if (options.window) return rove::window(*options.window);
  if (options.causal) return rove::causal();
  return {};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Time summary(const std::vector<double>& times) {
  return times.empty() ? Time{} : Time{*std::min_element(times.begin(), times.end()), median(times)};
}

template <class F>
double milliseconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Both in turn, the one that goes first changing from round to round, until the time for it is spent.
template <class Rope, class Rove>
void measure(Run& run, const Options& options, const Rope& rope, const Rove& rove) {
  constexpr int fewest = 3, most = 101;
  const double enough = 1000 * options.seconds;
  std::vector<double> rope_times, rove_times, ratios;
  double spent = 0;
  for (; run.rounds < most && (run.rounds < fewest || spent < enough); ++run.rounds) {
    const bool rove_first = run.rounds % 2 == 1;
    if (options.rove() && rove_first) rove_times.push_back(milliseconds(rove));
    if (options.rope()) rope_times.push_back(milliseconds(rope));
    if (options.rove() && !rove_first) rove_times.push_back(milliseconds(rove));
    if (options.rope()) spent += rope_times.back();
    if (options.rove()) spent += rove_times.back();
    if (options.rope() && options.rove()) ratios.push_back(rove_times.back() / rope_times.back());
  }
  run.rope = summary(rope_times);
  run.rove = summary(rove_times);
  if (!ratios.empty()) run.ratio = median(ratios);
}

}  // namespace

Run run(const Layer& layer, const Options& options) {
  // Rotations of all tokens; the queries are the last ones.
  const auto frequencies = rove::rotary_frequencies(
      {.rotary_dim = options.rotary_dim.value_or(layer.channels), .rope_theta = options.rope_theta});
  const rove::RotationTable<float> table(frequencies,
                                         rove::consecutive_positions(layer.kv_len, options.position_offset));
  const rove::RotaryFrame at_keys(table, of(options.pairing));
  const rove::RotaryFrame at_values(table, of(options.value_pairing));
  const auto at_queries = rove::rows(at_keys, layer.first_query(), layer.q_len);
  const auto at_outputs = rove::rows(at_values, layer.first_query(), layer.q_len);
  const auto rope_frames = rove::rope_frames(at_queries, at_keys);
  const auto rove_frames = rove::rove_frames(at_queries, at_keys, at_values, at_outputs);

  Run run;
  const auto out_size =
      static_cast<std::size_t>(layer.batch * layer.heads * layer.q_len * layer.value_channels);
  if (options.rope()) run.results.rope.resize(out_size);
  if (options.rove()) run.results.rove.resize(out_size);
  run.results.lse.resize(static_cast<std::size_t>(layer.batch * layer.heads * layer.q_len));
  const auto out = [&](std::vector<float>& values) {
    return rove::bhtd(values.data(), layer.batch, layer.heads, layer.q_len, layer.value_channels);
  };
  const auto problem_into = [&](std::vector<float>& values) {
    return rove::attention_problem(
               rove::bhtd(layer.q.values.data(), layer.batch, layer.heads, layer.q_len, layer.channels),
               rove::bhtd(layer.k.values.data(), layer.batch, layer.kv_heads, layer.kv_len, layer.channels),
               rove::bhtd(layer.v.values.data(), layer.batch, layer.kv_heads, layer.kv_len,
                          layer.value_channels),
               out(values))
        .with_mask(mask_of(options))
        .with_query_offset(rove::align_last())
        .with_lse(rove::bht(run.results.lse.data(), layer.batch, layer.heads, layer.q_len));
  };

  // The caller takes part, so the pool is one thread smaller.
  const std::unique_ptr<Eigen::ThreadPool> pool =
      options.threads > 1 ? std::make_unique<Eigen::ThreadPool>(options.threads - 1) : nullptr;
  const rove::Context context = pool ? rove::Context(rove::on(*pool)) : rove::Context();

  const auto rope = [&] { rove::attention(problem_into(run.results.rope), rope_frames, context); };
  const auto rove = [&] { rove::attention(problem_into(run.results.rove), rove_frames, context); };
  if (options.rope()) rope();
  if (options.rove()) rove();
  measure(run, options, rope, rove);
  run.explanation = options.rove() ? rove::explain(problem_into(run.results.rove), rove_frames,
                                                   rove::DefaultKernel(), options.threads)
                                   : rove::explain(problem_into(run.results.rope), rope_frames,
                                                   rove::DefaultKernel(), options.threads);
  return run;
}

}  // namespace attend

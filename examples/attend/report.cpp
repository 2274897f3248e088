#include "attend/report.hpp"

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "attend/layer.hpp"
#include "attend/mixers.hpp"
#include "attend/options.hpp"
#include "attend/oracle.hpp"
#include "attend/run.hpp"

namespace attend {
namespace {

std::string count(Index n, const std::string& thing) {
  return std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

std::string positions(Index first, Index n) {
  return n == 1 ? std::to_string(first) : std::to_string(first) + " .. " + std::to_string(first + n - 1);
}

/// How far RoVE's output is from RoPE's: ‖RoVE − RoPE‖ / ‖RoPE‖ over all elements.
double distance(const Results& results) {
  double apart = 0, size = 0;
  for (std::size_t i = 0; i < results.rope.size(); ++i) {
    const auto rope = static_cast<double>(results.rope[i]);
    apart += std::pow(static_cast<double>(results.rove[i]) - rope, 2);
    size += rope * rope;
  }
  return std::sqrt(apart / size);
}

void print_head(const Layer& layer, const Options& options, const Run& run) {
  const auto line = [](const char* label, const std::string& text) {
    std::printf("  %-11s %s\n", label, text.c_str());
  };
  line("input", options.sample ? "SmolLM2-135M, layer 14, on the first 128 tokens of a text (" +
                                     options.data.string() + ")"
                               : options.q.string() + ", " + options.k.string() + ", " + options.v.string());
  line("shape", count(layer.batch, "batch row") + "; " + count(layer.heads, "query head") + " on " +
                    count(layer.kv_heads, "key/value head") + "; " + count(layer.q_len, "query token") +
                    " on " + count(layer.kv_len, "key token") + "; " + count(layer.channels, "channel") +
                    ", values " + std::to_string(layer.value_channels));
  line("mask", options.window   ? "window of " + count(*options.window, "key") + ", the query's own included"
               : options.causal ? std::string("causal")
                                : std::string("none"));
  char base[32];
  std::snprintf(base, sizeof base, "%.10g", options.rope_theta);
  line("rotary", "base " + std::string(base) + "; " +
                     count(options.rotary_dim.value_or(layer.channels), "channel") + ", " +
                     name(options.pairing) +
                     (options.value_pairing == options.pairing
                          ? std::string()
                          : std::string(", values ") + name(options.value_pairing)) +
                     "; positions " + positions(options.position_offset, layer.kv_len));
  line("call", run.explanation);
  for (const auto& [file, array] :
       {std::pair{&options.q, &layer.q}, {&options.k, &layer.k}, {&options.v, &layer.v}}) {
    if (array->descr != "<f4")
      line("note", file->string() + " is float64: rounded to float32, and judged as that");
  }
}

void print_errors(const Layer& layer, const Oracle& oracle, const std::vector<Verdict>& verdicts) {
  std::printf("\n  %-38s %13s %13s %15s\n", "", "largest error", "bound there", "error / bound");
  for (const Verdict& verdict : verdicts) {
    std::printf("  %-38s %13.2e %13.2e %15.2f   %s\n", verdict.subject.c_str(), verdict.error, verdict.bound,
                verdict.worst_share, verdict.holds ? "ok" : "TOO LARGE");
  }
  const auto rows = static_cast<Index>(oracle.rows().size());
  std::printf("  %s of each of %s, by element; the last column is the worst of all\n",
              rows == layer.q_len
                  ? ("all " + count(rows, "row")).c_str()
                  : (std::to_string(rows) + " fixed rows of " + std::to_string(layer.q_len)).c_str(),
              count(layer.batch * layer.heads, "head").c_str());
}

void print_times(const Options& options, const Run& run) {
  std::printf("\n  %-38s %13s %13s %15s\n", "", "best", "median", "");
  const auto line = [](const char* what, const Time& time, const std::string& rest) {
    std::printf("  %-38s %10.3f ms %10.3f ms %15s\n", what, time.best, time.median, rest.c_str());
  };
  if (options.rope()) line("RoPE", run.rope, "");
  if (!options.rove()) return;
  char ratio[32] = "";
  if (options.rope()) std::snprintf(ratio, sizeof ratio, "%.3f x RoPE", run.ratio);
  line("RoVE", run.rove, ratio);
  std::printf("  %d rounds%s on %s\n", run.rounds,
              options.rope() ? ", in turn; the ratio is the median over rounds" : "",
              count(options.threads, "thread").c_str());
}

}  // namespace

void print_report(const Layer& layer, const Options& options, const Run& run, const Oracle& oracle,
                  const std::vector<Verdict>& verdicts, const Mixers* mixers) {
  print_head(layer, options, run);
  print_errors(layer, oracle, verdicts);
  print_times(options, run);
  std::printf("\n");
  if (options.rope() && options.rove()) {
    std::printf(
        "  RoVE moves this output by %.0f %% of its size (norms): for models trained with it, and no "
        "others.\n",
        100 * distance(run.results));
  }
  if (mixers != nullptr) {
    std::printf(
        "  As matrices over %s, RoPE's mixer is %s, RoVE's %s (%s).\n",
        count(mixers->picture.weights.rows(), "token").c_str(),
        count(mixers->kronecker_rank, "Kronecker product").c_str(),
        mixers->toeplitz_rank == 1 ? "too" : ("a sum of " + std::to_string(mixers->toeplitz_rank)).c_str(),
        count(mixers->offsets, "offset").c_str());
  }
  for (const std::filesystem::path* file : {&options.out, &options.lse, &options.picture}) {
    if (!file->empty()) std::printf("  wrote %s\n", file->string().c_str());
  }
}

}  // namespace attend

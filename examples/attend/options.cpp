#include "attend/options.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

namespace attend {
namespace {

Pairing pairing_named(const std::string& option, const std::string& text) {
  if (text == "half-split" || text == "half_split") return Pairing::half_split;
  if (text == "interleaved") return Pairing::interleaved;
  throw UsageError(option + " is half-split (Llama, GPT-NeoX) or interleaved (GPT-J, GGUF), not '" + text +
                   "'");
}

}  // namespace

const char* name(Pairing pairing) {
  return pairing == Pairing::half_split ? "half-split" : "interleaved";
}

std::optional<Options> parse(int argc, const char* const* argv) {
  Options options;
  options.data = ROVE_EXAMPLE_DATA;
  std::string pairing, value_pairing;
  bool rope = false, rove = false;

  CLI::App app(
      "RoPE and RoVE attention of q, k, v out of .npy files, judged against attention in double.\n"
      "Without --q, --k, --v: one real layer of SmolLM2-135M, whose own RoPE output is the reference, and "
      "the\n"
      "picture goes to mixers.svg.");
  app.option_defaults()->always_capture_default(false);
  app.add_option("--q", options.q, "queries: float32 .npy [batch, heads, tokens, channels]")
      ->type_name("FILE");
  app.add_option("--k", options.k, "keys: [batch, kv heads, tokens, channels]")->type_name("FILE");
  app.add_option("--v", options.v, "values: [batch, kv heads, tokens, value channels]")->type_name("FILE");
  app.add_option("--reference", options.reference,
                 "RoPE's output as a model computed it in float32 (with --rove: RoVE's)")
      ->type_name("FILE");
  app.add_option("--out", options.out, "write the output: RoVE's, or with --rope RoPE's")->type_name("FILE");
  app.add_option("--lse", options.lse, "write the log-sum-exp of each row: [batch, heads, tokens]")
      ->type_name("FILE");
  app.add_option("--picture", options.picture, "draw the two mixers of one head (SVG)")->type_name("FILE");
  app.add_option("--data", options.data, "folder of the layer that comes with the program")
      ->type_name("FOLDER");

  auto* theta = app.add_option("--rope-theta", options.rope_theta,
                               "base of the frequencies; 10000, and 100000 for the layer above");
  auto* rotary_dim =
      app.add_option("--rotary-dim", options.rotary_dim, "channels that turn, the first ones; all");
  app.add_option("--pairing", pairing, "half-split or interleaved; to be given with files of your own")
      ->type_name("NAME");
  auto* value =
      app.add_option("--value-pairing", value_pairing, "pairing of the values and the output; as --pairing")
          ->type_name("NAME");
  app.add_option("--position-offset", options.position_offset, "position of the first key; 0");
  app.add_flag("--causal", options.causal, "key <= query; always so for the layer above");
  app.add_option("--window", options.window, "each query sees this many keys, its own and those before it");

  app.add_flag("--rope", rope, "RoPE alone");
  app.add_flag("--rove", rove, "RoVE alone");
  app.add_option("--threads", options.threads, "threads at work; 1");
  app.add_option("--seconds", options.seconds, "time to spend on measuring; 2");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }

  const int files = !options.q.empty() + !options.k.empty() + !options.v.empty();
  if (files != 0 && files != 3)
    throw UsageError("give all of --q, --k and --v, or none for the layer that comes along");
  options.sample = files == 0;
  if (rope && rove) throw UsageError("--rope and --rove exclude each other; without either both run");
  options.operators = rope ? Operators::rope : rove ? Operators::rove : Operators::both;
  if (options.threads < 1 || options.threads > 1024) {
    throw UsageError("--threads must be from 1 to 1024, got " + std::to_string(options.threads));
  }
  if (!(options.seconds >= 0)) throw UsageError("--seconds must not be negative");

  const bool own_pairing = !pairing.empty();
  if (own_pairing) {
    options.pairing = pairing_named("--pairing", pairing);
  } else if (!options.sample) {
    throw UsageError("say --pairing half-split (Llama, GPT-NeoX) or --pairing interleaved (GPT-J, GGUF)");
  }
  options.value_pairing =
      value->count() == 0 ? options.pairing : pairing_named("--value-pairing", value_pairing);

  if (options.sample) {
    options.q = options.data / "layer14_q.npy";
    options.k = options.data / "layer14_k.npy";
    options.v = options.data / "layer14_v.npy";
    options.causal = true;
    const bool as_captured = theta->count() == 0 && rotary_dim->count() == 0 && !options.window &&
                             options.pairing == Pairing::half_split;
    if (theta->count() == 0) options.rope_theta = 1e5;
    // What the model computed is no reference for another mask or other frequencies, and it is RoPE's.
    if (options.reference.empty() && as_captured && options.rope()) {
      options.reference = options.data / "layer14_attention.npy";
    }
    if (options.picture.empty()) options.picture = "mixers.svg";
  }
  return options;
}

}  // namespace attend

/// \file
/// What the command line of `attend` says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

namespace attend {

using Index = std::int64_t;

/// A mistake on the command line: one line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Pairing { half_split, interleaved };
enum class Operators { both, rope, rove };

struct Options {
  bool sample = false;         ///< the layer that comes with the program, not the user's files
  std::filesystem::path data;  ///< folder of that layer
  std::filesystem::path q, k, v;
  std::filesystem::path reference;  ///< empty: none
  std::filesystem::path out, lse, picture;

  double rope_theta = 1e4;
  std::optional<Index> rotary_dim;  ///< left out: all channels
  Pairing pairing = Pairing::half_split;
  Pairing value_pairing = Pairing::half_split;
  Index position_offset = 0;
  bool causal = false;
  std::optional<Index> window;

  Operators operators = Operators::both;
  int threads = 1;
  double seconds = 2;  ///< to spend on measuring

  bool rope() const { return operators != Operators::rove; }
  bool rove() const { return operators != Operators::rope; }
};

const char* name(Pairing pairing);

/// Nothing if the user asked for help, which has then been printed. Throws `UsageError`.
std::optional<Options> parse(int argc, const char* const* argv);

}  // namespace attend

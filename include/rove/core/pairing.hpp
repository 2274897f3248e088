/// \file
/// Which two channels turn together, and which way.
#pragma once

namespace rove {

/// How the channels [0, r) of a row form r/2 pairs.
///
/// Both are in wide use and give the same numbers at position 0 only. Files tell one from the other by who
/// wrote them: Hugging Face's Llama is half-split; GGUF stores the same model's queries and keys permuted to
/// interleaved pairs, and its values not permuted at all.
enum class Pairing {
  half_split,  ///< (i, i + r/2): Llama, GPT-NeoX, Qwen in their published layout ("rotate_half")
  interleaved  ///< (2i, 2i + 1): GPT-J, RoFormer, ggml's NORM
};

/// Which way pairs turn.
enum class Direction {
  forward,  ///< by +pω
  inverse   ///< by −pω, the transpose
};

}  // namespace rove

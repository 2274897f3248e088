/// \file
/// The storages that are fuzzed, each in a translation unit of its own.
#pragma once

#include "bytes.hpp"

namespace rove_fuzz {

void fuzz_floats(Bytes& bytes);
void fuzz_doubles(Bytes& bytes);
void fuzz_halves(Bytes& bytes);
void fuzz_integers(Bytes& bytes);

}  // namespace rove_fuzz

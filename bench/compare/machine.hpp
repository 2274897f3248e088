/// \file
/// What was measured on: without it no figure means anything.
#pragma once

#include <nlohmann/json.hpp>

namespace bench {

/// CPU, instruction set of this build, compiler, library versions, OpenBLAS's core.
nlohmann::ordered_json describe_machine();

}  // namespace bench

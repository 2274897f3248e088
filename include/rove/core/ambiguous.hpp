/// \file
/// For asking whether a class names a member, callable or not.
#pragma once

#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

namespace detail {

/// Of a member template there is no address to ask for. But a member of the same name makes the look-up in a
/// class that inherits T and Probe ambiguous; final classes cannot be asked so.
template <class T, class Probe>
struct Ambiguous : T, Probe {};

}  // namespace detail

ROVE_END_TAGGED

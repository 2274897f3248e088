/// \file
/// The whole oracle: attention in double, its error bounds, its mixers.
#pragma once

#include "rove/dense/attention.hpp"
#include "rove/dense/convolution.hpp"
#include "rove/dense/error_bound.hpp"
#include "rove/dense/mixer.hpp"
#include "rove/dense/rotation.hpp"
#include "rove/dense/structure.hpp"

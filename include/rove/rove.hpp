/// \file
/// The whole library, but for the dense oracle (`rove/dense/...`) and the views of Eigen's own containers
/// (`rove/eigen.hpp`).
#pragma once

#include "rove/attention/site.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/tensor_view.hpp"

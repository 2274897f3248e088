/// Eigen's thread pool, which changed its place with Eigen 5.
#pragma once

#if __has_include(<Eigen/ThreadPool>)
#include <Eigen/ThreadPool>
#else
#include <unsupported/Eigen/CXX11/ThreadPool>
#endif

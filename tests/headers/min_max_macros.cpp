// B80: macros named min and max, as <windows.h> defines them, do not reach into the headers. Those of others
// that cannot bear the macros come first.
#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <complex>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))

#include "rove/rove.hpp"

// The macros are still those above.
static_assert(max(1, 2) == 2 && min(1, 2) == 1);

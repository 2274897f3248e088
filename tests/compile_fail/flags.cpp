// Flags under which an online softmax is wrong, and an older standard, are refused in words.
#include "rove/core/config.hpp"

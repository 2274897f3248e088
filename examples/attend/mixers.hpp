/// \file
/// The two mixers of one head, over a few tokens, and what their structure is.
#pragma once

#include "attend/layer.hpp"
#include "attend/options.hpp"
#include "attend/oracle.hpp"
#include "attend/picture.hpp"

namespace attend {

struct Mixers {
  MixerPicture picture;
  Index kronecker_rank = 0;  ///< how many Kronecker products RoPE's mixer is a sum of
  Index toeplitz_rank = 0;   ///< and RoVE's
  Index offsets = 0;         ///< offsets between tokens that see each other
};

/// Up to eight consecutive tokens of one head. The layer that comes along has that head's W_O and W_V, cut to
/// eight model channels; for a user's files both are the identity, cut to eight value channels that turn
/// among themselves.
Mixers mixers(const Layer& layer, const Options& options, const Oracle& oracle);

}  // namespace attend

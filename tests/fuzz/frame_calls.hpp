/// \file
/// Frames of a whole call in every form, with the matrices of each role.
#pragma once

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>
#include <variant>

#include "bounds.hpp"
#include "bytes.hpp"
#include "frames.hpp"
#include "rove/op/frames.hpp"
#include "support/oracle.hpp"

namespace rove_fuzz {

/// A call without frames.
struct NoFrames {};

/// The frames of a call, with their matrices.
///
/// \tparam rope  whether values may be without frames: one more path to compile
template <class Acc, bool rope>
struct FrameCall {
  using Any = rove_test::AnyFrame<Acc>;
  using Rove = rove::Frames<Any, Any, Any, Any>;
  std::conditional_t<rope, std::variant<NoFrames, Rove, rove::Frames<Any, Any>>, std::variant<NoFrames, Rove>>
      frames;
  rove_test::FrameMatrices matrices;
  FrameSizes sizes;
  double logit_factor = 1;
  bool broken = false;  ///< they do not fit the problem
  const char* form = "no frames";
};

template <class Problem, bool rope>
class FrameMaker {
  using Acc = typename Problem::accumulator;
  using Planned = PlannedFrame<Acc>;

 public:
  FrameMaker(Bytes& bytes, const Problem& problem) : bytes_(bytes), problem_(problem) {}

  /// \param breaks  whether they should not fit
  FrameCall<Acc, rope> make(bool breaks) {
    FrameCall<Acc, rope> call;
    const bool one_sequence = problem_.q_len() == problem_.kv_len();
    const Index form = bytes_.below(one_sequence ? (rope ? 7 : 5) : (rope ? 4 : 3));
    if (form == 0) return call;
    Index queries = problem_.q_len(), keys = problem_.kv_len(), wider = 0;
    Index batch = problem_.batch();
    if (breaks) {
      switch (bytes_.below(4)) {
        case 0:
          if (keys > 0) --keys, call.broken = true;
          break;
        case 1:
          ++queries, call.broken = true;
          break;
        case 2:
          wider = 2;
          break;
        default:
          batch += 2;
      }
    }
    const Index width = problem_.channels() + wider, value_width = problem_.value_channels() + wider;
    const Index common = std::min(width, value_width);
    const auto make = [&](Index tokens, Index row) {
      Planned frame = make_frame<Acc>(bytes_, {batch, tokens, row});
      call.broken |= (frame.frame.channels() > row - wider) ||
                     (frame.frame.batch() != 1 && frame.frame.batch() != problem_.batch());
      return frame;
    };
    const auto factor = bytes_.pick({rove::KeyFactor::in_queries, rove::KeyFactor::already_in_keys});
    const auto query_role = [&](const Planned& frame) {
      const double m = frame.attention_factor;
      const double s = factor == rove::KeyFactor::in_queries ? m * m : m;
      call.logit_factor = frame.logit_factor;
      call.matrices.query = with_width(frame.matrix, s, problem_.channels());
      call.sizes.query = [size = with_width(frame.inverse_size, s, problem_.channels())](
                             Index b, Index t) -> MatrixXd { return size(b, t).transpose(); };
    };
    const auto key_role = [&](const Planned& frame) {
      call.matrices.key = with_width(frame.matrix, 1, problem_.channels());
      call.sizes.key = with_width(frame.size, 1, problem_.channels());
    };
    const auto value_roles = [&](const Planned& at_keys, const Planned& at_queries) {
      call.matrices.value = with_width(at_keys.matrix, 1, problem_.value_channels());
      call.sizes.value = with_width(at_keys.size, 1, problem_.value_channels());
      call.matrices.output = with_width(at_queries.matrix, 1, problem_.value_channels());
      call.sizes.output = with_width(at_queries.inverse_size, 1, problem_.value_channels());
    };
    if constexpr (rope) {
      if (form == 3) {
        call.form = "rope, two frames";
        const Planned q = make(queries, width), k = make(keys, width);
        query_role(q), key_role(k);
        call.frames = rove::rope_frames(q.frame, k.frame, factor);
        return call;
      }
      if (form == 4) {
        call.form = "rope, one frame";
        const Planned f = make(call.broken ? queries + 1 : queries, width);
        query_role(f), key_role(f);
        call.frames = rove::rope_frames(f.frame, factor);
        return call;
      }
    }
    switch (rope && form > 4 ? form - 2 : form) {
      case 1: {
        call.form = "rove, two frames";
        const Planned q = make(queries, common), k = make(keys, common);
        query_role(q), key_role(k), value_roles(k, q);
        call.frames = rove::rove_frames(q.frame, k.frame, factor);
        break;
      }
      case 2: {
        call.form = "rove, four frames";
        const Planned q = make(queries, width), k = make(keys, width);
        const Planned v = make(keys, value_width), o = make(queries, value_width);
        query_role(q), key_role(k), value_roles(v, o);
        call.frames = rove::rove_frames(q.frame, k.frame, v.frame, o.frame, factor);
        break;
      }
      case 3: {
        call.form = "rove, one frame";
        const Planned f = make(call.broken ? queries + 1 : queries, common);
        query_role(f), key_role(f), value_roles(f, f);
        call.frames = rove::rove_frames(f.frame, factor);
        break;
      }
      default: {
        call.form = "rove, three frames";
        const Planned q = make(queries, width), k = make(keys, width), v = make(keys, value_width);
        query_role(q), key_role(k), value_roles(v, v);
        call.frames = rove::rove_frames(q.frame, k.frame, v.frame, factor);
      }
    }
    return call;
  }

 private:
  /// The matrix of rows `width` wide, whose last channels the frame may leave alone.
  static std::function<MatrixXd(Index, Index)> with_width(typename Planned::Matrix matrix, double s,
                                                          Index width) {
    return [=](Index b, Index t) { return embedded(matrix(b, t, s), width); };
  }

  Bytes& bytes_;
  const Problem& problem_;
};

}  // namespace rove_fuzz

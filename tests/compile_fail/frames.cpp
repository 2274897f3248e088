// Rotations: no 16-bit tables, no pairing by default, no float table under double rows. Frames: an inverse
// that would lose a factor, rows of a type that the frame does not take, a form for many rows that is named
// and cannot be called.
#include "rove/frame/adaptors.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/frame/rotate.hpp"
#include "rove/op/attention.hpp"
#include "rove/position/rotation_table.hpp"

#if ROVE_PROBE == 1
using Table = rove::RotationTable<Eigen::bfloat16>;
#else
using Table = rove::RotationTable<float>;
#endif
#if ROVE_PROBE == 3
using Row = std::span<double>;
#else
using Row = std::span<float>;
#endif

void turn(const rove::RotaryFrequencies& frequencies, Row row) {
  const Table table(frequencies, rove::consecutive_positions(4));
#if ROVE_PROBE == 2
  const rove::RotaryFrame frame(table);
#else
  const rove::RotaryFrame frame(table, rove::Pairing::half_split);
#endif
  frame.apply(0, 0, row);
#if ROVE_PROBE == 4
  const auto backwards = rove::inverse_frame(rove::rows(frame, 1, 2));
#else
  const auto backwards = rove::rows(rove::inverse_frame(frame), 1, 2);
#endif
  (void)query_frame(backwards, rove::KeyFactor::in_queries);
}

struct FloatFrame {
  rove::Index batch() const { return 1; }
  rove::Index tokens() const { return 4; }
  rove::Index channels() const { return 0; }
  void apply(rove::Index, rove::Index, std::span<float>) const {}
  void inverse(rove::Index, rove::Index, std::span<float>) const {}
  void transpose(rove::Index, rove::Index, std::span<float>) const {}
  void inverse_transpose(rove::Index, rove::Index, std::span<float>) const {}
#if ROVE_PROBE == 6
  using Rows = rove::RowBlock<float>;
#else
  using Rows = rove::RowBlock<const float>;
#endif
  template <rove::Action>
  void act_rows(rove::Index, rove::Index, Rows, rove::RowBlock<float>) const {}
};

#if ROVE_PROBE == 5
using Element = double;
#else
using Element = float;
#endif

void turn_all(Element* data) {
  rove::rotate(FloatFrame{}, rove::bhtd(data, 1, 1, 4, 8));
}

void attend(const float* in, float* out) {
  const auto view = rove::bhtd(in, 1, 1, 4, 8);
  rove::rove_attention(rove::attention_problem(view, view, view, rove::bhtd(out, 1, 1, 4, 8)), FloatFrame{});
}

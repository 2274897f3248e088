// Rotations: no 16-bit tables, no pairing by default, no float table under double rows.
#include "rove/frame/rotary.hpp"
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
}

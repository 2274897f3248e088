/// \file
/// The captured layers of tests/data/smollm2 (see its README), whole and as matrices of one head.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "support/npy.hpp"

namespace rove_test {

/// One captured layer: q, attention, rove [1, 9, n, 64], k, v [1, 3, n, 64], lse [1, 9, n].
struct CapturedLayer {
  NpyArray q, k, v, attention, rove, lse;

  std::int64_t tokens() const { return q.shape[2]; }
  std::int64_t heads() const { return q.shape[1]; }
  std::int64_t kv_heads() const { return k.shape[1]; }
};

inline constexpr double smollm2_rope_base = 100000;

inline NpyArray smollm2_array(const std::string& name) {
  return load_npy(std::string(ROVE_TEST_DATA) + "/smollm2/" + name + ".npy");
}

/// \param layer  0, 14 or 29
inline CapturedLayer captured_layer(int layer) {
  const std::string stem = "layer" + std::to_string(layer) + "_";
  return {smollm2_array(stem + "q"),         smollm2_array(stem + "k"),    smollm2_array(stem + "v"),
          smollm2_array(stem + "attention"), smollm2_array(stem + "rove"), smollm2_array(stem + "lse")};
}

/// Plane `head` of [1, heads, rows, cols], or all of [1, rows, cols] with head 0, in double. An lse,
/// [1, heads, rows], so gives all heads, one a row.
inline Eigen::MatrixXd head_matrix(const NpyArray& array, std::int64_t head) {
  const std::size_t rank = array.shape.size();
  if (rank < 3 || array.shape[0] != 1) throw std::invalid_argument("no [1, ...] array of rank 3 or 4");
  const std::int64_t rows = array.shape[rank - 2];
  const std::int64_t cols = array.shape[rank - 1];
  const std::int64_t heads = rank == 4 ? array.shape[1] : 1;
  if (head < 0 || head >= heads) throw std::invalid_argument("no such head");
  using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  return Eigen::Map<const Rows>(array.values.data() + head * rows * cols, rows, cols).cast<double>();
}

}  // namespace rove_test

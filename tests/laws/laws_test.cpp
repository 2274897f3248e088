// What every frame under every kernel must keep: the laws of attention in a moving frame.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/op/attention.hpp"
#include "support/frames.hpp"
#include "support/judge.hpp"
#include "support/plain_kernel.hpp"

namespace rove_test {
namespace {

using Eigen::MatrixXd;
using rove::Index;
using rove::unbounded;
using rove::window;
using Positions = std::vector<Index>;

constexpr Index width = 16;

/// The fast kernel, the plain one on operands in memory, and one of a user's own.
enum class Path { fused, materialised, lambda };

template <class Problem, class Frames>
void attend(Path path, const Problem& problem, const Frames& frames) {
  switch (path) {
    case Path::fused:
      return rove::attention(problem, frames);
    case Path::materialised:
      return rove::attention(problem, frames, rove::Context{}, rove::materialised(rove::NaiveKernel{}));
    case Path::lambda:
      return rove::attention(problem, frames, rove::Context{}, plain_kernel);
  }
}

/// R of each role, key tokens at `keys`, query tokens at `queries`.
FrameMatrices matrices(const FrameCase& c, Positions queries, Positions keys, bool turn_values = true) {
  const auto at = [](std::function<MatrixXd(Index)> matrix, Positions positions) {
    return [=](Index, Index t) { return matrix(positions[static_cast<std::size_t>(t)]); };
  };
  FrameMatrices m{.query = at(c.query_matrix, queries), .key = at(c.matrix, keys), .value = {}, .output = {}};
  if (turn_values) {
    m.value = at(c.matrix, keys);
    m.output = at(c.matrix, queries);
  }
  return m;
}

/// The bound of every element of `problem.out`, [batch, heads, q_len, value channels].
template <class Problem>
std::vector<double> bounds(const Problem& problem, const FrameMatrices& frames) {
  std::vector<double> all;
  for (Index b = 0; b < problem.batch(); ++b) {
    for (Index h = 0; h < problem.heads(); ++h) {
      const auto bound =
          rove::dense::error_bound(rove::dense::attention(dense_input(problem, b, h, frames)),
                                   rove::dense::Precision::float32, rove::dense::Storage::float32);
      for (Index i = 0; i < problem.q_len(); ++i) {
        for (Index e = 0; e < problem.value_channels(); ++e) all.push_back(bound(i, e));
      }
    }
  }
  return all;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, const std::vector<double>& bound_a,
                 const std::vector<double>& bound_b, const char* law) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])), bound_a[i] + bound_b[i])
        << law << ", element " << i;
  }
}

class Laws : public ::testing::TestWithParam<std::tuple<FrameCase, Path>> {
 protected:
  const FrameCase& c() const { return std::get<0>(GetParam()); }
  Path path() const { return std::get<1>(GetParam()); }
  bool one_parameter() const { return c().at({0}).one_parameter(); }
};

TEST_P(Laws, operator_is_the_oracle) {
  double largest = 0;
  for (const Index first : {0, 100}) {
    const Positions here = positions_from(first, 19);
    const AnyFrame<float> frame = c().at(here);
    Operands<float> x(2, 4, 2, 19, 19, width, width, 11);
    const auto causal = x.problem().with_mask(window(unbounded, 0));
    attend(path(), causal, rove::rove_frames(frame));
    largest = std::max(largest, judge(causal, matrices(c(), here, here)).out);
    attend(path(), causal, rove::rope_frames(frame));
    largest = std::max(largest, judge(causal, matrices(c(), here, here, false)).out);
    const auto both_ways = x.problem().with_mask(window(6, 3));
    attend(path(), both_ways, rove::rove_frames(frame));
    judge(both_ways, matrices(c(), here, here));
  }
  EXPECT_GT(largest, 0.01) << "so close that something was compared with itself";
}

TEST_P(Laws, queries_at_the_end_of_a_cache) {
  const Positions keys = positions_from(100, 21), queries = positions_from(116, 5);
  Operands<float> x(2, 2, 1, 5, 21, width, width, 12);
  const auto problem = x.problem().with_mask(window(unbounded, 0)).with_query_offset(rove::align_last());
  const AnyFrame<float> at_queries = c().at(queries), at_keys = c().at(keys);
  attend(path(), problem, rove::rove_frames(at_queries, at_keys));
  judge(problem, matrices(c(), queries, keys));
  attend(path(), problem, rove::rope_frames(at_queries, at_keys));
  judge(problem, matrices(c(), queries, keys, false));
  // Three and four frames, of the same kind: the two-frame form written out.
  attend(path(), problem, rove::rove_frames(at_queries, at_keys, at_keys, at_queries));
  judge(problem, matrices(c(), queries, keys));
}

TEST_P(Laws, B49_weights_of_the_identity_give_v) {
  const Positions here = positions_from(100, 9);
  Operands<float> x(1, 2, 2, 9, 9, width, width, 13);
  const auto problem = x.problem().with_mask(window(1));
  attend(path(), problem, rove::rove_frames(c().at(here)));
  const std::vector<double> bound = bounds(problem, matrices(c(), here, here));
  for (std::size_t i = 0; i < x.out.size(); ++i) {
    ASSERT_NEAR(x.out[i], x.v[i], bound[i]) << "element " << i;
  }
}

TEST_P(Laws, B50_shifting_all_positions_changes_nothing) {
  if (!one_parameter()) return;
  const Positions here = positions_from(3, 17), there = positions_from(1003, 17),
                  near = positions_from(10, 17);
  // A shear grows with its position, and its bound with it.
  for (const Positions& moved : {near, there}) {
    Operands<float> x(1, 2, 1, 17, 17, width, width, 14), y = x;
    attend(path(), x.problem().with_mask(window(unbounded, 0)), rove::rove_frames(c().at(here)));
    attend(path(), y.problem().with_mask(window(unbounded, 0)), rove::rove_frames(c().at(moved)));
    const auto problem = x.problem().with_mask(window(unbounded, 0));
    expect_near(x.out, y.out, bounds(problem, matrices(c(), here, here)),
                bounds(problem, matrices(c(), moved, moved)), "shift");
    EXPECT_NE(0, std::memcmp(x.out.data(), y.out.data(), x.out.size() * sizeof(float)));
  }
}

TEST_P(Laws, zero_positions_are_plain_attention) {
  if (!one_parameter() || !c().query_matrix(0).isIdentity()) return;
  Operands<float> x(1, 2, 1, 11, 11, width, width, 15), y = x;
  attend(path(), x.problem().with_mask(window(4, 2)), rove::rove_frames(c().at(Positions(11, 0))));
  attend(path(), y.problem().with_mask(window(4, 2)), rove::Frames<>{});
  EXPECT_EQ(x.out, y.out);
  EXPECT_EQ(x.lse, y.lse);
}

TEST_P(Laws, a_common_left_factor_changes_nothing) {
  const Positions here = positions_from(100, 13);
  const MatrixXd g = random_frame_matrix(width, 5);
  const auto after = [&g](const std::function<MatrixXd(Index)>& matrix) {
    return [matrix, g](Index p) -> MatrixXd { return product(g, matrix(p)); };
  };
  const FrameCase moved{c().name, width, {}, after(c().matrix), after(c().query_matrix)};
  const AnyFrame<float> frame = c().at(here);
  Operands<float> x(1, 2, 2, 13, 13, width, width, 16), y = x;
  const auto problem = x.problem().with_mask(window(unbounded, 0));
  attend(path(), problem, rove::rove_frames(frame));
  attend(path(), y.problem().with_mask(window(unbounded, 0)),
         rove::rove_frames(AnyFrame<float>(rove::left_factor(MatrixFrame<>({g}), frame))));
  expect_near(x.out, y.out, bounds(problem, matrices(c(), here, here)),
              bounds(problem, matrices(moved, here, here)), "left factor");
  judge(y.problem().with_mask(window(unbounded, 0)), matrices(moved, here, here));
}

TEST_P(Laws, keys_may_come_in_any_order) {
  const Positions queries = positions_from(100, 5), keys = positions_from(100, 20);
  std::vector<std::size_t> order(20);
  for (std::size_t j = 0; j < 20; ++j) order[j] = (j * 7 + 3) % 20;
  Operands<float> x(1, 2, 1, 5, 20, width, width, 17), y = x;
  Positions permuted;
  for (std::size_t j = 0; j < 20; ++j) {
    permuted.push_back(keys[order[j]]);
    for (std::size_t e = 0; e < width; ++e) {
      y.k[j * width + e] = x.k[order[j] * width + e];
      y.v[j * width + e] = x.v[order[j] * width + e];
    }
  }
  const auto problem = x.problem().with_mask(window(unbounded, unbounded)).with_query_offset(0);
  attend(path(), problem, rove::rove_frames(c().at(queries), c().at(keys)));
  attend(path(), y.problem().with_mask(window(unbounded, unbounded)).with_query_offset(0),
         rove::rove_frames(c().at(queries), c().at(permuted)));
  const std::vector<double> bound = bounds(problem, matrices(c(), queries, keys));
  expect_near(x.out, y.out, bound, bound, "key order");
}

TEST_P(Laws, the_future_does_not_reach_a_causal_row) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Positions here = positions_from(100, 18);
  const auto frames = rove::rove_frames(c().at(here));
  Operands<float> x(1, 2, 1, 18, 18, width, width, 18);
  attend(path(), x.problem().with_mask(window(unbounded, 0)), frames);
  for (const std::size_t from : {1U, 7U, 17U}) {
    for (const bool poison : {false, true}) {
      Operands<float> y(1, 2, 1, 18, 18, width, width, 18);
      for (std::size_t at = from * width; at < y.k.size(); ++at) {
        y.k[at] = poison ? nan : y.k[at] + 1;
        y.v[at] = poison ? nan : 3 - y.v[at];
      }
      attend(path(), y.problem().with_mask(window(unbounded, 0)), frames);
      for (std::size_t h = 0; h < 2; ++h) {
        EXPECT_EQ(0, std::memcmp(x.out.data() + h * 18 * width, y.out.data() + h * 18 * width,
                                 from * width * sizeof(float)))
            << "rows before " << from << " of head " << h << (poison ? ", NaN behind them" : "");
        EXPECT_NE(0, std::memcmp(x.out.data() + (h * 18 + from) * width,
                                 y.out.data() + (h * 18 + from) * width, width * sizeof(float)));
      }
    }
  }
}

std::string path_name(Path path) {
  return path == Path::fused ? "fused" : path == Path::materialised ? "materialised" : "lambda";
}

INSTANTIATE_TEST_SUITE_P(Frames, Laws,
                         ::testing::Combine(::testing::ValuesIn(frame_cases()),
                                            ::testing::Values(Path::fused, Path::materialised, Path::lambda)),
                         [](const auto& chosen) {
                           return std::get<0>(chosen.param).name + "_" + path_name(std::get<1>(chosen.param));
                         });

}  // namespace
}  // namespace rove_test

// Frames over whole tensors: the same numbers as row by row, in place or not, by both code paths.
#include "rove/frame/rotate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "rove/position/factored_rotation_table.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "support/eigen_thread_pool.hpp"
#include "support/error_of.hpp"
#include "support/executors.hpp"
#include "support/frames.hpp"

namespace rove_test {
namespace {

using rove::Action;
using rove::bhtd;
using rove::Context;
using rove::Index;
using rove::Pairing;
using rove::TensorView;
using test::error_of;

using Table = rove::RotationTable<float>;

template <class T = float>
rove::RotaryFrame<rove::RotationTable<T>> rotary(Index rotary_dim, const rove::Positions& positions,
                                                 Pairing pairing = Pairing::half_split, Index first = 0) {
  return {rove::RotationTable<T>(rove::rotary_frequencies({.rotary_dim = rotary_dim}), positions), pairing,
          first};
}

/// The same frame without the fast path: `rotate` does not know that it is a rotary one.
template <class F>
class Disguised {
 public:
  explicit Disguised(F frame) : frame_(std::move(frame)) {}
  Index batch() const { return frame_.batch(); }
  Index tokens() const { return frame_.tokens(); }
  Index channels() const { return frame_.channels(); }
  template <rove::Accumulator Acc>
  void apply(Index b, Index t, std::span<Acc> row) const {
    frame_.apply(b, t, row);
  }
  template <rove::Accumulator Acc>
  void inverse(Index b, Index t, std::span<Acc> row) const {
    frame_.inverse(b, t, row);
  }
  template <rove::Accumulator Acc>
  void transpose(Index b, Index t, std::span<Acc> row) const {
    frame_.transpose(b, t, row);
  }
  template <rove::Accumulator Acc>
  void inverse_transpose(Index b, Index t, std::span<Acc> row) const {
    frame_.inverse_transpose(b, t, row);
  }

 private:
  F frame_;
};

/// A tensor whose elements lie apart from each other by strides of its own, over memory that is filled with a
/// number that nothing else has; `guards_hold` says whether only elements were written.
template <class T>
struct Strided {
  std::vector<T> memory;
  TensorView<T> view;

  Strided(std::array<Index, 4> extent, std::array<Index, 4> order, Index channel_step, Index padding)
      : view{nullptr, {extent[0], extent[1], extent[2], extent[3]}, {}} {
    Index stride = channel_step;
    for (const Index d : order) {  // innermost first
      view.stride[d] = stride;
      stride = stride * extent[static_cast<std::size_t>(d)] + padding;
    }
    memory.assign(static_cast<std::size_t>(stride + 9), guard());
    view.data = memory.data() + 5;
  }
  // One moves no view.
  Strided(const Strided&) = delete;
  Strided& operator=(const Strided&) = delete;

  static T guard() { return static_cast<T>(-1234.0F); }

  template <class F>
  void for_each(const F& f) const {
    for (Index b = 0; b < view.batch(); ++b) {
      for (Index h = 0; h < view.heads(); ++h) {
        for (Index t = 0; t < view.tokens(); ++t) {
          for (Index c = 0; c < view.channels(); ++c) f(b, h, t, c);
        }
      }
    }
  }
  void fill() {
    for_each([&](Index b, Index h, Index t, Index c) {
      const double x = std::sin(1.3 * static_cast<double>(((b * 7 + h) * 11 + t) * 13 + c) + 0.5);
      view(b, h, t, c) = static_cast<T>(static_cast<float>(x));
    });
  }
  bool guards_hold() const {
    std::vector<T> rest = memory;
    const Index base = view.data - memory.data();
    for_each([&](Index b, Index h, Index t, Index c) {
      rest[static_cast<std::size_t>(base + (&view(b, h, t, c) - view.data))] = guard();
    });
    return std::all_of(rest.begin(), rest.end(),
                       [](T x) { return std::memcmp(&x, &rest_guard(), sizeof x) == 0; });
  }

 private:
  static const T& rest_guard() {
    static const T value = guard();
    return value;
  }
};

/// What `rotate` promises, spelled out: each row widened, turned by the frame, rounded once.
template <class F, class From, class To>
void expect_turned(const F& frame, Action action, const TensorView<From>& from, const TensorView<To>& to,
                   const std::string& where) {
  using Acc = rove::accumulator_t<From, To>;
  for (Index b = 0; b < from.batch(); ++b) {
    for (Index h = 0; h < from.heads(); ++h) {
      for (Index t = 0; t < from.tokens(); ++t) {
        std::vector<Acc> row;
        for (Index c = 0; c < from.channels(); ++c) row.push_back(rove::load_widened<Acc>(&from(b, h, t, c)));
        const std::span<Acc> span(row);
        const Index batch = frame.batch() == 1 ? 0 : b;
        if (action == Action::apply) frame.apply(batch, t, span);
        if (action == Action::inverse) frame.inverse(batch, t, span);
        if (action == Action::transpose) frame.transpose(batch, t, span);
        if (action == Action::inverse_transpose) frame.inverse_transpose(batch, t, span);
        for (Index c = 0; c < from.channels(); ++c) {
          To should;
          rove::store_rounded(&should, row[static_cast<std::size_t>(c)]);
          ASSERT_EQ(0, std::memcmp(&should, &to(b, h, t, c), sizeof should))
              << where << " at " << b << ", " << h << ", " << t << ", " << c;
        }
      }
    }
  }
}

constexpr std::array<Action, 4> actions = {Action::apply, Action::inverse, Action::transpose,
                                           Action::inverse_transpose};

/// Out of place and in place, contiguous, tokens outside of heads, channels apart; guards round everything.
template <class From, class To, class F>
void expect_everywhere(const F& frame, std::array<Index, 4> extent, const std::string& name) {
  const std::array<std::array<Index, 4>, 2> orders = {{{3, 2, 1, 0}, {3, 1, 2, 0}}};
  for (const Action action : actions) {
    for (const auto& from_order : orders) {
      for (const Index step : {1, 3}) {
        const std::string where = name + ", action " + std::to_string(static_cast<int>(action)) +
                                  ", channel stride " + std::to_string(step);
        Strided<From> from(extent, from_order, step, 2);
        from.fill();
        const std::vector<From> before = from.memory;
        for (const Index to_step : {1, 2}) {
          Strided<To> to(extent, orders[0], to_step, 1);
          rove::rotate(frame, from.view, to.view, action);
          expect_turned(frame, action, from.view, to.view, where);
          EXPECT_TRUE(to.guards_hold()) << where;
        }
        EXPECT_EQ(0, std::memcmp(before.data(), from.memory.data(), before.size() * sizeof(From)))
            << "input changed";
        if constexpr (std::is_same_v<From, To>) {
          Strided<From> in_place(extent, from_order, step, 2);
          in_place.fill();
          rove::rotate(frame, in_place.view, action);
          expect_turned(frame, action, from.view, in_place.view, where + ", in place");
          EXPECT_TRUE(in_place.guards_hold()) << where;
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Rotate, B26_B27_B73_every_pairing_stride_and_width_in_place_and_not) {
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const std::string name = pairing == Pairing::half_split ? "half_split" : "interleaved";
    expect_everywhere<float, float>(rotary(16, rove::consecutive_positions(5, 100), pairing), {2, 3, 5, 16},
                                    name);
    expect_everywhere<float, float>(rotary(38, rove::consecutive_positions(4, 100), pairing, 3),
                                    {1, 2, 4, 48}, name + " partial");
    expect_everywhere<float, float>(rotary(96, rove::consecutive_positions(2, 100), pairing), {1, 1, 2, 96},
                                    name + " 96");
  }
}

TEST(Rotate, every_scalar) {
  using Eigen::bfloat16;
  using Eigen::half;
  const auto single = rotary(12, rove::consecutive_positions(6, 100), Pairing::half_split, 2);
  const auto wide = rotary<double>(12, rove::consecutive_positions(6, 100), Pairing::interleaved, 1);
  const std::array<Index, 4> extent = {1, 2, 6, 15};
  expect_everywhere<bfloat16, bfloat16>(single, extent, "bfloat16");
  expect_everywhere<half, half>(single, extent, "half");
  expect_everywhere<double, double>(wide, extent, "double");
  expect_everywhere<float, bfloat16>(single, extent, "float to bfloat16");
  expect_everywhere<half, float>(wide, extent, "half to float, double table");
  expect_everywhere<bfloat16, double>(wide, extent, "bfloat16 to double");
}

template <class T, class F>
void expect_both_paths_agree(const F& frame, const std::string& name) {
  for (const Action action : actions) {
    Strided<T> fast({2, 2, 70, 44}, {3, 2, 1, 0}, 1, 0), general({2, 2, 70, 44}, {3, 2, 1, 0}, 1, 0);
    fast.fill();
    general.fill();
    rove::rotate(frame, fast.view, action);
    rove::rotate(Disguised<F>(frame), general.view, action);
    EXPECT_EQ(0, std::memcmp(fast.memory.data(), general.memory.data(), fast.memory.size() * sizeof(T)))
        << name;
  }
}

TEST(Rotate, the_fast_path_has_the_bits_of_the_general_one) {
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const auto frame = rotary(40, rove::consecutive_positions(70, 100), pairing, 2);
    expect_both_paths_agree<float>(frame, "float");
    expect_both_paths_agree<Eigen::bfloat16>(frame, "bfloat16");
    expect_both_paths_agree<Eigen::half>(frame, "half");
    expect_both_paths_agree<double>(rotary<double>(40, rove::consecutive_positions(70, 100), pairing, 2),
                                    "double");
    expect_both_paths_agree<float>(rotary<double>(40, rove::consecutive_positions(70, 100), pairing, 2),
                                   "float by a double table");
    expect_both_paths_agree<float>(
        rove::RotaryFrame(rove::FactoredRotationTable<float>(rove::rotary_frequencies({.rotary_dim = 40}),
                                                             rove::consecutive_positions(70, 100)),
                          pairing, 2),
        "factored");
  }
}

TEST(Rotate, frames_of_ones_own_and_frames_per_batch_row) {
  std::vector<Eigen::MatrixXd> matrices;
  for (std::uint32_t i = 0; i < 6; ++i) matrices.push_back(random_frame_matrix(10, i));
  expect_everywhere<float, float>(MatrixFrame<>(matrices), {2, 2, 5, 12}, "matrices");
  expect_everywhere<float, float>(MatrixFrame<>(matrices, 2), {2, 2, 3, 12}, "matrices per batch row");
  const std::array<Index, 2> starts = {-7, 100};
  expect_everywhere<float, float>(rotary(8, rove::consecutive_positions(3, starts)), {2, 2, 3, 8},
                                  "per batch row");
  // The identity is a copy.
  Strided<float> from({1, 2, 3, 4}, {3, 2, 1, 0}, 1, 0), to({1, 2, 3, 4}, {3, 1, 2, 0}, 2, 1);
  from.fill();
  rove::rotate(rove::IdentityFrame{}, from.view, to.view);
  from.for_each(
      [&](Index b, Index h, Index t, Index c) { EXPECT_EQ(from.view(b, h, t, c), to.view(b, h, t, c)); });
}

TEST(Rotate, inverse_undoes_apply_within_rounding) {
  const auto frame = rotary(32, rove::consecutive_positions(50, 1000));
  Strided<float> x({1, 2, 50, 32}, {3, 2, 1, 0}, 1, 0), before({1, 2, 50, 32}, {3, 2, 1, 0}, 1, 0);
  x.fill();
  before.fill();
  rove::rotate(frame, x.view);
  rove::rotate(frame, x.view, Action::inverse);
  x.for_each([&](Index b, Index h, Index t, Index c) {
    EXPECT_NEAR(x.view(b, h, t, c), before.view(b, h, t, c), 0x1p-21);
  });
}

TEST(Rotate, B72_the_same_bits_for_every_executor_and_number_of_workers) {
  const auto frame = rotary(16, rove::consecutive_positions(133, 100), Pairing::interleaved);
  std::vector<Eigen::MatrixXd> matrices(133, random_frame_matrix(16, 3));
  const MatrixFrame<> own(matrices);
  const auto check = [&](const auto& turned) {
    Strided<float> serial({2, 3, 133, 16}, {3, 2, 1, 0}, 1, 0);
    serial.fill();
    rove::rotate(turned, serial.view);
    const auto same = [&](const Context& context, const std::string& name) {
      Strided<float> x({2, 3, 133, 16}, {3, 2, 1, 0}, 1, 0);
      x.fill();
      rove::rotate(turned, x.view, Action::apply, context);
      EXPECT_EQ(0, std::memcmp(x.memory.data(), serial.memory.data(), x.memory.size() * sizeof(float)))
          << name;
    };
    for (const int workers : {1, 2, 3, 8}) {
      Eigen::ThreadPool pool(workers);
      same(Context(rove::on(pool)), "pool of " + std::to_string(workers));
      test::StridedThreads threads(workers);
      same(Context(rove::on(threads)), "threads " + std::to_string(workers));
    }
  };
  check(frame);
  check(own);
}

TEST(Rotate, shapes_of_nothing_write_nothing) {
  std::vector<float> memory(64, 3);
  const auto frame = rotary(4, rove::consecutive_positions(4, 100));
  rove::rotate(frame, bhtd(memory.data(), 0, 2, 4, 4));
  rove::rotate(frame, bhtd(memory.data(), 1, 0, 4, 4));
  rove::rotate(frame, bhtd(memory.data(), 1, 2, 0, 4));
  rove::rotate(rove::IdentityFrame{}, bhtd(memory.data(), 1, 2, 4, 0));
  rove::rotate(frame, bhtd(static_cast<float*>(nullptr), 1, 2, 0, 4));
  EXPECT_EQ(memory, std::vector<float>(64, 3));
}

TEST(Rotate, B75_strides_are_multiplied_in_64_bits) {
  // Two rows 2^33 elements apart in address arithmetic, of which only the one at token 0 exists: the other is
  // never touched because the view has one token.
  std::vector<float> memory(8, 1);
  TensorView<float> x{memory.data(), {1, 1, 1, 8}, {Index{1} << 40, Index{1} << 36, Index{1} << 33, 1}};
  rove::rotate(rotary(8, rove::consecutive_positions(1, 100)), x);
  EXPECT_NE(memory, std::vector<float>(8, 1));
  x.extent[2] = Index{1} << 30;
  EXPECT_EQ(error_of([&] { rove::rotate(rotary(8, rove::consecutive_positions(1, 100)), x); }),
            "the input: offsets do not fit in 64 bits, tokens has extent 1073741824 and stride 8589934592");
}

TEST(Rotate, mistakes_are_named_with_their_numbers_before_anything_is_written) {
  const auto frame = rotary(8, rove::consecutive_positions(4));
  const std::array<Index, 3> starts = {0, 1, 2};
  const auto per_batch = rotary(8, rove::consecutive_positions(4, starts));
  std::vector<float> from(256, 1), to(256, 2);
  const auto in = bhtd(from.data(), 2, 2, 4, 10);
  const auto out = bhtd(to.data(), 2, 2, 4, 10);
  const auto check = [&](const auto& f, const TensorView<float>& a, const TensorView<float>& b,
                         const char* message) {
    EXPECT_EQ(error_of([&] { rove::rotate(f, a, b); }), message);
    EXPECT_EQ(error_of([&] { rove::rotate(Disguised(f), a, b); }), message);
    EXPECT_EQ(from, std::vector<float>(256, 1));
    EXPECT_EQ(to, std::vector<float>(256, 2));
  };
  check(frame, in, bhtd(to.data(), 1, 2, 4, 10), "the tensors have batch 2 and 1");
  check(frame, in, bhtd(to.data(), 2, 1, 4, 10), "the tensors have heads 2 and 1");
  check(frame, in, bhtd(to.data(), 2, 2, 3, 10), "the tensors have tokens 4 and 3");
  check(frame, in, bhtd(to.data(), 2, 2, 4, 8), "the tensors have channels 10 and 8");
  check(frame, bhtd(from.data(), 2, -2, 4, 10), bhtd(to.data(), 2, -2, 4, 10),
        "the input: heads must not be negative, got -2");
  check(frame, bhtd(static_cast<float*>(nullptr), 2, 2, 4, 10), out,
        "the input is null but has 160 elements");
  check(frame, in, bhtd(static_cast<float*>(nullptr), 2, 2, 4, 10),
        "the output is null but has 160 elements");
  check(per_batch, in, out, "the frame has batch 3, the tensor has 2");
  check(frame, bhtd(from.data(), 2, 2, 5, 10), bhtd(to.data(), 2, 2, 5, 10),
        "the frame has 4 tokens, the tensor has 5");
  check(frame, bhtd(from.data(), 2, 2, 4, 6), bhtd(to.data(), 2, 2, 4, 6),
        "the frame turns 8 channels of rows that have 6");
  TensorView<float> stacked = out;
  stacked.stride[1] = 0;
  check(frame, in, stacked, "the output overlaps itself: two of its elements share one place");
  const char* const shared =
      "the output may share the input's memory only with its element type, data, extents and strides";
  check(frame, in, bhtd(from.data() + 10, 2, 2, 4, 10), shared);
  check(frame, in, rove::bthd(from.data(), 2, 4, 2, 10), shared);
  std::vector<float> words(256, 1);
  auto* const halves = reinterpret_cast<Eigen::half*>(words.data());
  EXPECT_EQ(error_of([&] { rove::rotate(frame, bhtd(words.data(), 1, 1, 4, 8), bhtd(halves, 1, 1, 4, 8)); }),
            shared);
}

TEST(Rotate, views_that_interleave_do_not_overlap) {
  // Packed [tokens, (q | k)]: k is made from q.
  std::vector<float> packed(4 * 16);
  for (std::size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<float>(i % 7);
  const std::vector<float> before = packed;
  const TensorView<float> q{packed.data(), {1, 1, 4, 8}, {64, 64, 16, 1}},
      k{packed.data() + 8, {1, 1, 4, 8}, {64, 64, 16, 1}};
  const auto frame = rotary(8, rove::consecutive_positions(4, 100));
  rove::rotate(frame, q, k);
  expect_turned(frame, Action::apply, q, k, "packed");
  for (std::size_t t = 0; t < 4; ++t) {
    for (std::size_t c = 0; c < 8; ++c) EXPECT_EQ(packed[t * 16 + c], before[t * 16 + c]);
  }
}

}  // namespace
}  // namespace rove_test

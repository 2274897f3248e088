// The same bits, wherever the operands lie: strides, pages, a ring, keys that moved, rows under a factor; and
// no step outside of their memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/key_values/paged.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/key_values/tensor.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/core/simd.hpp"
#include "rove/core/tensor_view.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/op/attention.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"
#include "support/bits.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::Context;
using rove::Index;
using rove::TensorView;
using rove::unbounded;
using rove::window;

TEST(Bits, B27_B28_strides_of_every_operand) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Call plain;
  const auto source = plain.problem();
  // A copy of one operand with its dimensions in another order, channels apart, and NaN in between.
  const auto copied = [&](const TensorView<const float>& from, std::vector<float>& memory,
                          std::array<int, 4> order, Index step) {
    TensorView<float> to{nullptr, {from.extent[0], from.extent[1], from.extent[2], from.extent[3]}, {}};
    Index stride = step;
    for (const int d : order) {
      to.stride[d] = stride;
      stride = stride * from.extent[d] + 1;
    }
    memory.assign(static_cast<std::size_t>(stride), nan);
    to.data = memory.data();
    for (Index b = 0; b < from.batch(); ++b) {
      for (Index h = 0; h < from.heads(); ++h) {
        for (Index t = 0; t < from.tokens(); ++t) {
          for (Index c = 0; c < from.channels(); ++c) to(b, h, t, c) = from(b, h, t, c);
        }
      }
    }
    return to;
  };
  const std::array<int, 4> transposed = {2, 3, 1, 0}, heads_inside = {3, 1, 2, 0};
  for (int which = 0; which < 5; ++which) {
    std::vector<float> memory;
    Call call;
    auto problem = call.problem();
    if (which == 0) problem.q = copied(source.q, memory, transposed, 3);
    if (which == 1) problem.kv.k = copied(source.kv.k, memory, heads_inside, 2);
    if (which == 2) problem.kv.v = copied(source.kv.v, memory, transposed, 1);  // B28: V alone transposed
    if (which == 3) problem.out = copied(problem.out, memory, transposed, 2);
    if (which == 4) {
      // Tokens backwards.
      problem.kv.k = copied(source.kv.k, memory, {3, 2, 1, 0}, 1);
      TensorView<float> backwards{
          memory.data(),
          {3, 2, 300, 16},
          {problem.kv.k.stride[0], problem.kv.k.stride[1], -problem.kv.k.stride[2], 1}};
      backwards.data += 299 * problem.kv.k.stride[2];
      for (Index b = 0; b < 3; ++b) {
        for (Index h = 0; h < 2; ++h) {
          for (Index t = 0; t < 300; ++t) {
            for (Index c = 0; c < 16; ++c) backwards(b, h, t, c) = source.kv.k(b, h, t, c);
          }
        }
      }
      problem.kv.k = backwards;
    }
    for (const bool fused : {true, false}) {
      if (fused) {
        rove::attention(problem, Call::frames());
      } else {
        rove::attention(problem, Call::frames(), Context{}, rove::materialised(rove::NaiveKernel{}));
      }
      std::vector<unsigned char> bits = bits_of(problem.out);
      const auto lse = bits_of(as_tensor(problem.lse));
      bits.insert(bits.end(), lse.begin(), lse.end());
      EXPECT_EQ(bits, expected()) << "operand " << which;
    }
  }
}

// ---- Other storages of the keys -----------------------------------------------------------------

TEST(Bits, one_row_has_any_stride) {
  constexpr Index far = std::numeric_limits<Index>::min() / 8;
  constexpr Index width = 2 * rove::simd::native_width<float>;
  const auto frames = rove::rove_frames(
      rove::RotaryFrame(rove::RotationTable<float>(rove::rotary_frequencies({.rotary_dim = 2 * width}),
                                                   rove::consecutive_positions(1)),
                        rove::Pairing::half_split));
  const auto check = [&](const auto& kernel, const auto& turned) {
    Operands<float> operands(1, 1, 1, 1, 1, 2 * width, 2 * width, 57);
    auto problem = operands.problem();
    rove::attention(problem, turned, Context{}, kernel);
    const std::vector<float> right = operands.out;
    problem.q.stride[2] = problem.kv.k.stride[2] = problem.kv.v.stride[2] = problem.out.stride[2] = far;
    operands.out.assign(operands.out.size(), 7.0F);
    rove::attention(problem, turned, Context{}, kernel);
    EXPECT_EQ(operands.out, right);
  };
  check(rove::TiledKernel{}, rove::Frames<>{});
  check(rove::NaiveKernel{}, rove::Frames<>{});
  check(rove::TiledKernel{}, frames);
  check(rove::NaiveKernel{}, frames);
}

TEST(Bits, pages_are_tensors) {
  Call call;
  const auto source = call.problem();
  constexpr Index size = 7, pages = (300 + size - 1) / size;
  std::vector<float> k(static_cast<std::size_t>(3 * pages * 2 * size * width), -5), v = k;
  std::vector<std::int32_t> table;
  const auto k_pages = rove::bhtd(k.data(), 3 * pages, 2, size, width),
             v_pages = rove::bhtd(v.data(), 3 * pages, 2, size, width);
  for (Index b = 0; b < 3; ++b) {
    for (Index p = 0; p < pages; ++p) {
      const Index page = (p * 3 + b) * 11 % (3 * pages);
      table.push_back(static_cast<std::int32_t>(page));
      for (Index h = 0; h < 2; ++h) {
        for (Index t = 0; t < size && p * size + t < 300; ++t) {
          for (Index c = 0; c < width; ++c) {
            k_pages(page, h, t, c) = source.kv.k(b, h, p * size + t, c);
            v_pages(page, h, t, c) = source.kv.v(b, h, p * size + t, c);
          }
        }
      }
    }
  }
  const std::vector<Index> lengths = {300, 300, 300};
  const auto paged = source.with_key_values(
      rove::paged_key_values(k_pages, v_pages, rove::page_table(table, 3), rove::IntegerSpan(lengths)));
  rove::attention(paged, Call::frames());
  EXPECT_EQ(call.bits(), expected());
  Call again;
  auto materialised = paged;
  materialised.out = again.problem().out;
  materialised.lse = again.problem().lse;
  rove::attention(materialised, Call::frames(), Context{}, rove::materialised(rove::NaiveKernel{}));
  EXPECT_EQ(again.bits(), expected());
}

// B59: a mask goes by absolute position, never by the place in the ring.
TEST(Bits, B59_a_ring_is_the_tensor_under_a_window) {
  Operands<float> whole(1, 2, 1, 3, 300, width, width, 6), ring = whole;
  constexpr Index places = 40;
  const auto source = whole.problem().with_query_offset(297).with_mask(window(38));
  const auto frames = rove::rove_frames(frame_at(397, 3), frame_at(100, 300));
  rove::attention(source, frames);
  std::vector<float> k(static_cast<std::size_t>(places * width), -5), v = k;
  const auto k_ring = rove::bhtd(k.data(), 1, 1, places, width),
             v_ring = rove::bhtd(v.data(), 1, 1, places, width);
  for (Index t = 0; t < 300; ++t) {
    for (Index c = 0; c < width; ++c) {
      k_ring(0, 0, t % places, c) = source.kv.k(0, 0, t, c);
      v_ring(0, 0, t % places, c) = source.kv.v(0, 0, t, c);
    }
  }
  const auto problem = ring.problem()
                           .with_query_offset(297)
                           .with_mask(window(38))
                           .with_key_values(rove::ring_key_values(k_ring, v_ring, 300));
  rove::attention(problem, frames);
  EXPECT_EQ(bits_of(problem.out), bits_of(source.out));
  EXPECT_EQ(bits_of(as_tensor(problem.lse)), bits_of(as_tensor(source.lse)));
  rove::attention(problem, frames, Context{}, rove::materialised(rove::NaiveKernel{}));
  EXPECT_EQ(bits_of(problem.out), bits_of(source.out));
}

/// Rows of floats under a factor each.
struct WithFactors : rove::TensorKeyValues<float, float> {
  const float* factors;  ///< [slots], of keys and values of all heads

  rove::RowRun<float> keys(Index b, Index h, Index slot) const {
    return with_factor(TensorKeyValues::keys(b, h, slot), slot);
  }
  rove::RowRun<float> values(Index b, Index h, Index slot) const {
    return with_factor(TensorKeyValues::values(b, h, slot), slot);
  }

 private:
  rove::RowRun<float> with_factor(rove::RowRun<float> run, Index slot) const {
    run.scale = factors + slot;
    run.scale_stride = 1;
    return run;
  }
};

TEST(Bits, floats_under_a_factor_are_the_products) {
  Call call, scaled;
  std::vector<float> factors;
  for (Index t = 0; t < Call::kv_len; ++t) factors.push_back(t % 3 == 0 ? 0.5F : t % 3 == 1 ? 1.0F : 4.0F);
  for (std::size_t i = 0; i < scaled.x.k.size(); ++i) {
    const std::size_t slot = i / width % Call::kv_len;
    scaled.x.k[i] *= factors[slot];
    scaled.x.v[i] *= factors[slot];
  }
  const auto problem = call.problem();
  rove::attention(problem.with_key_values(WithFactors{problem.kv, factors.data()}), Call::frames());
  rove::attention(scaled.problem(), Call::frames());
  EXPECT_EQ(call.bits(), scaled.bits());
}

TEST(Bits, a_displacement_moves_indices_and_no_block) {
  Call call;
  const auto moved = call.problem()
                         .with_key_values(rove::displaced(call.problem().kv, -1000))
                         .with_query_offset(Call::kv_len - Call::q_len - 1000);
  rove::attention(moved, Call::frames());
  EXPECT_EQ(call.bits(), expected());
}

// ---- Memory -------------------------------------------------------------------------------------

/// `count` elements at the very end of a heap block, or at its very beginning, off by `shift` elements from
/// its alignment: reads or writes past them are seen by the sanitizer on one side or the other, and by the
/// guard.
template <class T>
class Guarded {
 public:
  Guarded(const std::vector<T>& values, std::size_t shift)
      : shift_(shift), count_(values.size()), memory_(new T[shift + values.size()]) {
    for (std::size_t i = 0; i < shift; ++i) memory_[i] = static_cast<T>(-99.0F);
    std::copy(values.begin(), values.end(), data());
  }
  T* data() { return memory_.get() + shift_; }
  std::size_t size() const { return count_; }
  bool guard_holds() const {
    for (std::size_t i = 0; i < shift_; ++i) {
      if (static_cast<float>(memory_[i]) != -99.0F) return false;
    }
    return true;
  }

 private:
  std::size_t shift_, count_;
  std::unique_ptr<T[]> memory_;
};

template <class T>
void expect_no_step_outside() {
  for (const Index d : {1, 2, 5, 19, 33}) {
    for (const Index n : {1, 3, 17}) {
      Operands<T> x(1, 2, 1, n, n, d, d == 19 ? 13 : d, static_cast<unsigned>(100 * d + n));
      rove::attention(x.problem().with_mask(window(unbounded, 0)));
      for (const std::size_t shift : {0U, 1U, 2U, 3U}) {
        Guarded<T> q(x.q, shift), k(x.k, shift), v(x.v, shift), out(x.out, shift);
        Guarded<typename Operands<T>::Acc> lse(x.lse, shift);
        const auto problem =
            rove::attention_problem(rove::bhtd(q.data(), 1, 2, n, d), rove::bhtd(k.data(), 1, 1, n, d),
                                    rove::bhtd(v.data(), 1, 1, n, x.value_channels),
                                    rove::bhtd(out.data(), 1, 2, n, x.value_channels))
                .with_lse(rove::bht(lse.data(), 1, 2, n))
                .with_mask(window(unbounded, 0));
        std::fill(out.data(), out.data() + out.size(), static_cast<T>(-77.0F));
        rove::attention(problem);
        EXPECT_TRUE(q.guard_holds() && k.guard_holds() && v.guard_holds() && out.guard_holds() &&
                    lse.guard_holds());
        EXPECT_EQ(bits_of(problem.out), bits_of(x.problem().out))
            << "d " << d << ", n " << n << ", shift " << shift;
        EXPECT_EQ(0, std::memcmp(q.data(), x.q.data(), x.q.size() * sizeof(T))) << "an input changed";
      }
    }
  }
}

TEST(Bits, B25_B74_no_step_outside_of_a_buffer_at_any_address) {
  expect_no_step_outside<float>();
  expect_no_step_outside<Eigen::bfloat16>();
  expect_no_step_outside<double>();
}

// B75: the one row that exists of each view lies where 64-bit products put it.
TEST(Bits, B75_strides_are_multiplied_in_64_bits) {
  Operands<float> x(1, 1, 1, 1, 1, 8, 8, 8), y = x;
  rove::attention(x.problem());
  auto problem = y.problem();
  // Row 70000 of a view whose rows are 70000 elements apart and whose base lies that far before the memory;
  // sliced down to that row, so that none of the others is touched.
  const auto far = [](auto view) {
    using T = std::remove_pointer_t<decltype(view.data)>;
    constexpr Index apart = 70000;
    const auto before =
        reinterpret_cast<std::uintptr_t>(view.data) - sizeof(T) * std::uintptr_t{apart} * apart;
    TensorView<T> whole{reinterpret_cast<T*>(before), {1, 1, apart + 1, 8}, {1, 1, apart, 1}};
    return whole.slice(2, apart, 1);
  };
  problem.q = far(problem.q);
  problem.kv.k = far(problem.kv.k);
  problem.kv.v = far(problem.kv.v);
  problem.out = far(problem.out);
  rove::attention(problem);
  EXPECT_EQ(x.out, y.out);
}

}  // namespace
}  // namespace rove_test

// The same bits: a row's result depends on its own inputs alone, not on batch, slicing, workers, executor,
// strides, storage of the keys, path, or which tiles are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rove/attention/key_values/displaced.hpp"
#include "rove/attention/key_values/paged.hpp"
#include "rove/attention/key_values/ring.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/scores_bias.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/op/attention.hpp"
#include "support/eigen_thread_pool.hpp"
#include "support/executors.hpp"
#include "support/frames.hpp"
#include "support/judge.hpp"

namespace rove_test {
namespace {

using rove::Context;
using rove::Index;
using rove::TensorView;
using rove::unbounded;
using rove::window;

constexpr Index width = 16;

/// The frames of the interleaved rotary case, one type for all calls.
AnyFrame<float> frame_at(Index first, Index tokens) {
  static const FrameCase interleaved = [] {
    for (FrameCase& c : frame_cases()) {
      if (c.name == "interleaved_partial") return c;
    }
    throw std::logic_error("no such case");
  }();
  return interleaved.at(positions_from(first, tokens));
}

template <class T>
std::vector<unsigned char> bits_of(const TensorView<T>& view) {
  std::vector<unsigned char> bits;
  for (Index b = 0; b < view.batch(); ++b) {
    for (Index h = 0; h < view.heads(); ++h) {
      for (Index t = 0; t < view.tokens(); ++t) {
        for (Index c = 0; c < view.channels(); ++c) {
          unsigned char bytes[sizeof(T)];
          std::memcpy(bytes, static_cast<const void*>(&view(b, h, t, c)), sizeof(T));
          bits.insert(bits.end(), bytes, bytes + sizeof(T));
        }
      }
    }
  }
  return bits;
}

template <class T>
TensorView<T> as_tensor(const rove::RowView<T>& rows) {
  return {rows.data,
          {rows.extent[0], rows.extent[1], rows.extent[2], 1},
          {rows.stride[0], rows.stride[1], rows.stride[2], 1}};
}

/// One call over 300 keys, more than a key block, and 33 queries at their end: causal, from position 100 on.
struct Call {
  static constexpr Index batch = 3, heads = 4, kv_heads = 2, q_len = 33, kv_len = 300;
  Operands<float> x{batch, heads, kv_heads, q_len, kv_len, width, width, 1};

  auto problem() { return x.problem().with_query_offset(kv_len - q_len).with_mask(window(unbounded, 0)); }
  static auto frames() {
    return rove::rove_frames(frame_at(100 + kv_len - q_len, q_len), frame_at(100, kv_len));
  }

  std::vector<unsigned char> bits() {
    std::vector<unsigned char> all = bits_of(problem().out);
    const auto lse = bits_of(as_tensor(problem().lse));
    all.insert(all.end(), lse.begin(), lse.end());
    return all;
  }
};

const std::vector<unsigned char>& expected() {
  static const std::vector<unsigned char> bits = [] {
    Call call;
    rove::attention(call.problem(), Call::frames());
    return call.bits();
  }();
  return bits;
}

TEST(Bits, fused_and_materialised_by_either_kernel) {
  const auto check = [](const auto& kernel) {
    Call call;
    rove::attention(call.problem(), Call::frames(), Context{}, kernel);
    EXPECT_EQ(call.bits(), expected());
  };
  check(rove::NaiveKernel{});
  check(rove::materialised(rove::NaiveKernel{}));
  check(rove::TiledKernel{});
  check(rove::materialised(rove::TiledKernel{}));
}

// B72: 33 tokens were wrong with more than one thread.
TEST(Bits, B72_workers_and_executors) {
  const auto check = [](const Context& context, const std::string& name) {
    for (const bool fused : {true, false}) {
      Call call;
      if (fused) {
        rove::attention(call.problem(), Call::frames(), context);
      } else {
        rove::attention(call.problem(), Call::frames(), context, rove::materialised(rove::NaiveKernel{}));
      }
      EXPECT_EQ(call.bits(), expected()) << name << (fused ? ", fused" : ", materialised");
    }
  };
  check(Context{}, "serial");
  for (const int workers : {1, 2, 3, 8}) {
    Eigen::ThreadPool pool(workers);
    check(Context(rove::on(pool)), "pool of " + std::to_string(workers));
    test::StridedThreads threads(workers);
    check(Context(rove::on(threads)), "threads " + std::to_string(workers));
#if defined(_OPENMP)
    check(Context(rove::on_openmp(workers)), "OpenMP " + std::to_string(workers));
#endif
  }
}

TEST(Bits, a_second_call_in_the_same_memory) {
  // Whatever the first call left there.
  const Context context;
  Call first;
  rove::attention(first.problem(), Call::frames(), context);
  Operands<float> other(1, 2, 2, 7, 7, width, width, 2);
  rove::attention(other.problem().with_mask(window(unbounded, 0)), context);
  Call second;
  rove::attention(second.problem(), Call::frames(), context);
  EXPECT_EQ(second.bits(), expected());
}

TEST(Bits, slices_of_the_batch_the_heads_and_the_queries) {
  Call call;
  const auto whole = call.problem();
  const auto part = [&](Index b, Index kv_head, Index first, Index count) {
    const auto slice = [&](const auto& view, Index head, Index heads) {
      return view.slice(0, b, 1).slice(1, head, heads);
    };
    auto lse = whole.lse;
    lse.data = &whole.lse(b, 2 * kv_head, first);
    lse.extent[0] = 1;
    lse.extent[1] = 2;
    lse.extent[2] = count;
    const auto problem = rove::attention_problem(slice(whole.q, 2 * kv_head, 2).slice(2, first, count),
                                                 slice(whole.kv.k, kv_head, 1), slice(whole.kv.v, kv_head, 1),
                                                 slice(whole.out, 2 * kv_head, 2).slice(2, first, count))
                             .with_lse(lse)
                             .with_query_offset(Call::kv_len - Call::q_len + first)
                             .with_mask(window(unbounded, 0));
    rove::attention(problem, rove::rove_frames(
                                 AnyFrame<float>(rove::rows(
                                     frame_at(100 + Call::kv_len - Call::q_len, Call::q_len), first, count)),
                                 frame_at(100, Call::kv_len)));
  };
  for (Index b = 0; b < 3; ++b) {
    for (Index kv_head = 0; kv_head < 2; ++kv_head) {
      for (const auto& [first, count] : {std::pair<Index, Index>{0, 1}, {1, 15}, {16, 16}, {32, 1}}) {
        part(b, kv_head, first, count);
      }
    }
  }
  EXPECT_EQ(call.bits(), expected());
}

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

// ---- Masks and lengths --------------------------------------------------------------------------

/// A mask that answers one pair at a time: no tile is ever skipped or taken whole.
template <class M>
struct OneByOne {
  M mask;
  bool visible(const rove::Site& site) const { return mask.visible(site); }
};

TEST(Bits, tiles_that_are_skipped_and_tiles_that_are_looked_into) {
  Operands<float> x(1, 2, 1, 300, 300, width, width, 3), y = x;
  const auto frames = rove::rove_frames(frame_at(100, 300));
  for (const auto& mask : {window(unbounded, 0), window(40), window(3, 70), window(299, 0), window(1)}) {
    rove::attention(x.problem().with_mask(mask), frames);
    rove::attention(y.problem().with_mask(OneByOne<rove::Window>{mask}), frames);
    EXPECT_EQ(bits_of(x.problem().out), bits_of(y.problem().out));
    EXPECT_EQ(bits_of(as_tensor(x.problem().lse)), bits_of(as_tensor(y.problem().lse)));
  }
}

TEST(Bits, keys_beyond_the_causal_edge_need_not_be_there) {
  // Row i of the whole is the last row over i + 1 keys.
  Operands<float> x(1, 2, 1, 300, 300, width, width, 4), y = x;
  rove::attention(x.problem().with_mask(window(unbounded, 0)), rove::rove_frames(frame_at(100, 300)));
  for (const Index i : {0, 1, 15, 16, 31, 254, 255, 256, 299}) {
    const auto base = y.problem();
    auto lse = base.lse;
    lse.data = &base.lse(0, 0, i);
    lse.extent[2] = 1;
    const auto problem = rove::attention_problem(base.q.slice(2, i, 1), base.kv.k.slice(2, 0, i + 1),
                                                 base.kv.v.slice(2, 0, i + 1), base.out.slice(2, i, 1))
                             .with_lse(lse)
                             .with_query_offset(i)
                             .with_mask(window(unbounded, 0));
    rove::attention(problem, rove::rove_frames(frame_at(100 + i, 1), frame_at(100, i + 1)));
    EXPECT_EQ(bits_of(problem.out), bits_of(x.problem().out.slice(2, i, 1))) << "row " << i;
    EXPECT_EQ(bits_of(as_tensor(problem.lse)), bits_of(as_tensor(x.problem().lse).slice(2, i, 1)))
        << "row " << i;
  }
}

TEST(Bits, key_lengths_are_shorter_tensors) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Call call;
  const std::vector<std::int32_t> lengths = {300, 256, 7};
  for (Index b = 0; b < 3; ++b) {
    for (Index h = 0; h < 2; ++h) {
      for (Index t = lengths[static_cast<std::size_t>(b)]; t < 300; ++t) {
        for (Index c = 0; c < width; ++c) {
          const auto at = static_cast<std::size_t>(((b * 2 + h) * 300 + t) * width + c);
          call.x.k[at] = call.x.v[at] = nan;
        }
      }
    }
  }
  const auto problem = call.problem().with_key_lengths(lengths).with_mask(window(unbounded, unbounded));
  rove::attention(problem, Call::frames());
  for (Index b = 0; b < 3; ++b) {
    Call alone;
    const Index n = lengths[static_cast<std::size_t>(b)];
    const auto one = alone.problem();
    const auto shorter =
        rove::attention_problem(one.q.slice(0, b, 1), problem.kv.k.slice(0, b, 1).slice(2, 0, n),
                                problem.kv.v.slice(0, b, 1).slice(2, 0, n), one.out.slice(0, b, 1))
            .with_query_offset(0)
            .with_mask(window(unbounded, unbounded));
    rove::attention(shorter, rove::rove_frames(frame_at(100 + 267, 33), frame_at(100, n)));
    EXPECT_EQ(bits_of(shorter.out), bits_of(problem.out.slice(0, b, 1))) << "batch row " << b;
  }
}

TEST(Bits, rows_that_see_the_same_keys_in_other_chunks_of_4096) {
  // Two chunks: a query over all of the keys, alone and among others.
  Operands<float> x(1, 1, 1, 3, 4200, 4, 4, 5), y = x;
  rove::attention(x.problem().with_query_offset(4197).with_mask(window(unbounded, 0)));
  const auto base = y.problem();
  rove::attention(
      rove::attention_problem(base.q.slice(2, 1, 1), base.kv.k, base.kv.v, base.out.slice(2, 1, 1))
          .with_query_offset(4198)
          .with_mask(window(unbounded, 0)));
  EXPECT_EQ(bits_of(base.out.slice(2, 1, 1)), bits_of(x.problem().out.slice(2, 1, 1)));
}

// ---- Other storages of the keys -----------------------------------------------------------------

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

TEST(Bits, a_displacement_moves_indices_and_no_block) {
  Call call;
  const auto moved = call.problem()
                         .with_key_values(rove::displaced(call.problem().kv, -1000))
                         .with_query_offset(Call::kv_len - Call::q_len - 1000);
  rove::attention(moved, Call::frames());
  EXPECT_EQ(call.bits(), expected());
}

// B54: decoding one token with a bias of zeros for all heads and rows.
TEST(Bits, B54_one_token_with_a_broadcast_zero_bias_is_the_full_forward) {
  Operands<float> full(1, 4, 2, 33, 33, width, width, 7), one = full;
  const std::vector<float> zeros(33, 0);
  rove::attention(full.problem()
                      .with_mask(window(unbounded, 0))
                      .with_score(rove::additive_bias(rove::bhtd(zeros.data(), 1, 1, 1, 33))),
                  rove::rove_frames(frame_at(100, 33)));
  const auto base = one.problem();
  rove::attention(rove::attention_problem(base.q.slice(2, 32, 1), base.kv, base.out.slice(2, 32, 1))
                      .with_query_offset(rove::align_last())
                      .with_mask(window(unbounded, 0))
                      .with_score(rove::additive_bias(rove::bhtd(zeros.data(), 1, 1, 1, 33))),
                  rove::rove_frames(frame_at(132, 1), frame_at(100, 33)));
  EXPECT_EQ(bits_of(base.out.slice(2, 32, 1)), bits_of(full.problem().out.slice(2, 32, 1)));
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

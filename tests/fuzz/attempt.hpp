/// \file
/// One random problem, run by every kernel and held against the oracle.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "bounds.hpp"
#include "bytes.hpp"
#include "frame_calls.hpp"
#include "masks_and_scores.hpp"
#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/naive.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/core/context.hpp"
#include "rove/op/attention.hpp"
#include "rove/op/weights.hpp"
#include "rove/op/workspace.hpp"
#include "support/eigen_thread_pool.hpp"
#include "support/oracle.hpp"
#include "tensors.hpp"

namespace rove_fuzz {

/// The kernels under test, a line each. All of them promise the first one's bits.
template <class F>
void for_each_kernel(const F& f) {
  f("naive", rove::NaiveKernel{});
  f("tiled", rove::TiledKernel{});
}

/// Whether a kernel runs on materialised rows too. One is enough: those rows are the operators' work, and
/// every further kernel on them takes long to compile.
template <class Kernel>
inline constexpr bool runs_materialised = !std::is_same_v<Kernel, rove::NaiveKernel>;

/// Ends the program, which keeps the input.
[[noreturn]] inline void fail(const std::string& what, const std::string& problem) {
  std::fprintf(stderr, "attention_fuzz: %s\n  in %s\n", what.c_str(), problem.c_str());
  std::abort();
}

/// Three workers, one at a time, tasks in any order: results must not depend on either.
class ScrambledExecutor {
 public:
  explicit ScrambledExecutor(std::uint64_t seed) : random_(seed) {}
  int concurrency() const { return 3; }
  void for_each(Index n, rove::TaskRef task) {
    const Index step = coprime(n), first = random_.below(n);
    for (Index i = 0; i < n; ++i) task((first + i * step) % n, static_cast<int>(random_.below(3)));
  }

 private:
  Index coprime(Index n) {
    Index step = 1 + random_.below(n);
    while (std::gcd(step, n) != 1) ++step;
    return step;
  }
  Random random_;
};

/// The same numbers, bit for bit; one NaN is as good as another.
template <class T>
bool same_numbers(const std::vector<T>& a, const std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) == 0) continue;
    if (!(std::isnan(static_cast<double>(a[i])) && std::isnan(static_cast<double>(b[i])))) return false;
  }
  return a.size() == b.size();
}

/// A problem with everything around it: borrowed memory, frames, expected results.
///
/// \tparam rope  see `FrameCall`
template <class Problem, bool rope>
class Attempt {
  using Acc = typename Problem::accumulator;
  using Out = typename Problem::output_storage;

 public:
  /// \param in_place  the queries where `problem.out` is them
  Attempt(Bytes& bytes, Problem problem, Tensor<Out>& out, Tensor<Acc>& lse, bool in_place)
      : bytes_(bytes), problem_(std::move(problem)), out_(out), lse_(lse), in_place_(in_place) {}

  void run() {
    const bool breaks_frames = bytes_.one_in(16);
    const auto call = FrameMaker<Problem, rope>(bytes_, problem_).make(breaks_frames);
    form_ = call.form;
    std::visit([&](const auto& frames) { with_frames(call, frames); }, call.frames);
  }

 private:
  using Call = FrameCall<Acc, rope>;

  template <class F>
  void with_frames(const Call& call, const F& frames) {
    constexpr bool has_frames = !std::is_same_v<F, NoFrames>;
    const auto attend = [&](const Problem& problem, const rove::Context& context, const auto& kernel) {
      if constexpr (has_frames) {
        rove::attention(problem, frames, context, kernel);
      } else {
        rove::attention(problem, context, kernel);
      }
    };
    if (call.broken) return expect_refusal(problem_, attend, "frames that do not fit");
    if (bytes_.one_in(8)) {
      Problem spoiled = problem_;
      if (const char* const what = spoil(spoiled)) expect_refusal(spoiled, attend, what);
      return;
    }
    const auto workspace = [&](const auto& kernel, int workers) {
      if constexpr (has_frames) {
        return rove::workspace_bytes(problem_, frames, kernel, workers);
      } else {
        return rove::workspace_bytes(problem_, kernel, workers);
      }
    };
    const rove_test::Expectation expected = expect(call);
    const std::uint64_t seed = bytes_.seed();
    const bool on_a_pool = bytes_.one_in(16);
    std::string reference;  // the first kernel's name, and what it gave
    std::vector<Out> out;
    std::vector<Acc> lse;
    for_each_kernel([&](const char* name, const auto& kernel) {
      reset();
      attend(problem_, rove::Context{}, kernel);
      judge(expected, name);
      if (reference.empty()) {
        reference = name;
        out = out_.memory();
        lse = lse_.memory();
      } else if (!same_numbers(out, out_.memory()) || !same_numbers(lse, lse_.memory())) {
        fail(std::string(name) + ": other bits than " + reference, description());
      }

      const auto again = [&](const char* how, const auto& other, auto executor) {
        reset();
        const int workers = static_cast<int>(executor.concurrency());
        std::vector<std::byte> memory(static_cast<std::size_t>(workspace(other, workers)));
        attend(problem_, rove::Context(std::move(executor), std::span<std::byte>(memory)), other);
        if (!same_numbers(out, out_.memory()) || !same_numbers(lse, lse_.memory())) {
          fail(std::string(name) + ": other bits " + how, description());
        }
      };
      again("with three workers", kernel, ScrambledExecutor(seed));
      if constexpr (runs_materialised<std::remove_cvref_t<decltype(kernel)>>) {
        again("materialised", rove::materialised(kernel), rove::SerialExecutor());
        again("materialised with three workers", rove::materialised(kernel), ScrambledExecutor(seed + 1));
      }
      if (on_a_pool) again("on a thread pool", kernel, rove::on(pool()));
    });
    if (problem_.q_len() * problem_.kv_len() <= 2000) {
      reset();
      judge_weights(expected, [&](const rove::TensorView<Acc>& weights) {
        if constexpr (has_frames) {
          rove::attention_weights(problem_, frames, weights);
        } else {
          rove::attention_weights(problem_, weights);
        }
      });
    }
  }

  static Eigen::ThreadPool& pool() {
    static Eigen::ThreadPool threads(2);
    return threads;
  }

  void reset() {
    if (in_place_) {
      if (queries_.empty()) queries_ = out_.memory();
      out_.restore(queries_);
    } else {
      out_.clear();
    }
    lse_.clear();
  }

  /// The oracle's results, with bounds for frames that cancel.
  rove_test::Expectation expect(const Call& call) {
    constexpr Rounding rounding{rove_test::dense_precision<Problem>(), rove_test::dense_storage<Out>()};
    Problem seen = problem_;
    seen.logit_factor *= call.logit_factor;
    rove_test::Expectation expected;
    for (Index b = 0; b < problem_.batch(); ++b) {
      for (Index h = 0; h < problem_.heads(); ++h) {
        const auto in = rove_test::dense_input(seen, b, h, call.matrices);
        expected.heads.push_back(expected_head(in, call.sizes, b, rounding, constant));
      }
    }
    return expected;
  }

  void judge(const rove_test::Expectation& expected, const std::string& name) {
    const auto found = rove_test::compare(problem_, expected);
    if (!found.fault.empty()) fail(name + ": " + found.fault, description());
    if (!in_place_ && !out_.guards_stand()) fail(name + ": wrote beside out", description());
    if (!lse_.guards_stand()) fail(name + ": wrote beside lse", description());
  }

  template <class Weigh>
  void judge_weights(const rove_test::Expectation& expected, const Weigh& weigh) {
    constexpr double epsilon = std::numeric_limits<Acc>::epsilon() / 2;
    Tensor<Acc> weights(bytes_, {problem_.batch(), problem_.heads(), problem_.q_len(), problem_.kv_len()},
                        Use::output);
    weigh(weights.view());
    if (!weights.guards_stand()) fail("wrote beside the weights", description());
    for (Index b = 0; b < problem_.batch(); ++b) {
      for (Index h = 0; h < problem_.heads(); ++h) {
        const auto& result = expected.heads[static_cast<std::size_t>(b * problem_.heads() + h)].result;
        for (Index i = 0; i < problem_.q_len(); ++i) {
          const Index n = result.visible_keys[static_cast<std::size_t>(i)];
          using namespace rove::dense::detail;
          // e^(s − lse): the errors of two logits, its own and the row's largest.
          const double relative = constant * epsilon * (1 + 2 * logit_error(result, i) + sum_growth(n));
          for (Index j = 0; j < problem_.kv_len(); ++j) {
            const double is = static_cast<double>(weights.view()(b, h, i, j)), should = result.weights(i, j);
            if (is == should || (std::isnan(is) && std::isnan(should))) continue;
            if (!(std::abs(is - should) <= relative * should + std::exp(-58.0))) {
              std::ostringstream what;
              what << "weight (" << b << ", " << h << ", " << i << ", " << j << ") is " << is
                   << ", should be " << should;
              fail(what.str(), description());
            }
          }
        }
      }
    }
  }

  /// A call that must throw before it writes anything.
  template <class Attend>
  void expect_refusal(const Problem& spoiled, const Attend& attend, const char* what) {
    for_each_kernel([&](const char* name, const auto& kernel) {
      const auto refuses = [&](const auto& other) {
        reset();
        try {
          attend(spoiled, rove::Context{}, other);
        } catch (const rove::Error&) {
          const bool untouched = in_place_ ? same_numbers(out_.memory(), queries_) : out_.is_clear();
          if (!untouched || !lse_.is_clear()) {
            fail(std::string(name) + ": wrote before it refused " + what, description());
          }
          return;
        }
        fail(std::string(name) + ": takes " + what, description());
      };
      refuses(kernel);
      if constexpr (runs_materialised<std::remove_cvref_t<decltype(kernel)>>) {
        refuses(rove::materialised(kernel));
      }
    });
  }

  /// Breaks the problem in one place and says how; null where this problem has no such place.
  const char* spoil(Problem& p) {
    const auto dimension = static_cast<std::size_t>(bytes_.below(4));
    const Index by = bytes_.pick<Index>({1, -1});
    switch (bytes_.below(18)) {
      case 0:
        p.q.extent[3] += by;
        return "another width of queries than of keys";
      case 1:
        p.out.extent[dimension] += by;
        return "an output of another shape";
      case 2:
        p.q.extent[dimension] = -1;
        return "a negative extent";
      case 3:
        if (p.out.empty() || p.out.extent[dimension] == 1) return nullptr;
        p.out.stride[dimension] = 0;
        return "an output that overlaps itself";
      case 4: {
        const auto used = p.batch() > 0 ? p.kv.slots(0) : rove::SlotRange{};
        if (used.empty() || p.kv_heads() == 0 || p.out.empty()) return nullptr;
        p.out.data = reinterpret_cast<Out*>(
            const_cast<typename Problem::value_storage*>(p.kv.values(0, 0, used.first).data));
        return "an output in the memory of the values";
      }
      case 5:
        if (p.lse.extent[0] * p.lse.extent[1] * p.lse.extent[2] == 0 || dimension == 3) return nullptr;
        p.lse.extent[dimension] += by;
        return "log-sum-exps of another shape";
      case 6:
        if (p.out.empty() || dimension == 3 || p.lse.extent[dimension] == 1) return nullptr;
        p.lse.stride[dimension] = 0;
        return "log-sum-exps that overlap themselves";
      case 7:
        if (p.out.empty()) return nullptr;
        p.lse.data = reinterpret_cast<Acc*>(p.out.data);
        return "log-sum-exps in the memory of the output";
      case 8:
        sinks_.assign(static_cast<std::size_t>(p.heads() + 1), Acc(0));
        p.sinks = sinks_;
        return "more sinks than heads";
      case 9:
        p.scale =
            bytes_.pick({std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()});
        return "a scale that is not finite";
      case 10:
        lengths_.assign(static_cast<std::size_t>(p.batch()), by < 0 ? -1 : p.kv_len() + 1);
        if (p.batch() == 0) return nullptr;
        p.key_lengths = lengths_;
        return "key lengths outside of the cache";
      case 11:
        lengths_.assign(static_cast<std::size_t>(p.batch() + 1), 0);
        p.key_lengths = lengths_;
        return "more key lengths than batch rows";
      case 12:
        lengths_.assign(static_cast<std::size_t>(p.batch() + 1), 0);
        p.query_offset = {rove::QueryOffset::Kind::per_batch, 0, lengths_};
        return "more query offsets than batch rows";
      case 13:
        if (p.q.empty()) return nullptr;
        p.q.data = nullptr;
        return "queries that are nowhere";
      case 14:
        if (p.q.empty() || p.q.extent[dimension] == 1) return nullptr;
        p.q.stride[dimension] = Index{1} << 62;
        return "strides beyond 64 bits";
      default:
        return spoil_mask_or_score(p);
    }
  }

  const char* spoil_mask_or_score(Problem& p) {
    if constexpr (std::is_same_v<typename Problem::mask_type, AnyMask>) {
      const Index kind = bytes_.below(4);
      if (kind == 0 && p.q_len() != p.kv_len()) {
        p.mask = rove::causal();
        p.query_offset = {};
        return "a causal mask without an offset";
      }
      if (kind == 1) {
        p.mask = p.mask & AnyMask(rove::boolean_mask(
                              rove::TensorView<const unsigned char>{&seen_, {1, 1, 1, p.kv_len() + 2}, {}}));
        return "a boolean mask with more columns than keys";
      }
      if (kind == 2) {
        lengths_.assign(static_cast<std::size_t>(p.batch() + 1), 0);
        p.mask = rove::prefix(lengths_);
        return "more prefix lengths than batch rows";
      }
    }
    if constexpr (std::is_same_v<typename Problem::score_type, AnyScore>) {
      p.score = AnyScore(rove::alibi(p.heads() + 1));
      return "more slopes than heads";
    }
    return nullptr;
  }

  std::string description() const {
    std::ostringstream text;
    text << form_ << ", batch " << problem_.batch() << ", heads " << problem_.heads() << " over "
         << problem_.kv_heads() << ", queries " << problem_.q_len() << ", keys " << problem_.kv_len()
         << ", channels " << problem_.channels() << " and " << problem_.value_channels()
         << (in_place_ ? ", in place" : "") << (problem_.key_lengths ? ", key lengths" : "")
         << (problem_.sinks.data() != nullptr ? ", sinks" : "") << ", scale " << problem_.effective_scale();
    return text.str();
  }

  /// Inputs are searched for the worst, and bytes for data may agree: a third more than the usual 3.
  static constexpr double constant = 4;

  Bytes& bytes_;
  Problem problem_;
  Tensor<Out>& out_;
  Tensor<Acc>& lse_;
  bool in_place_;
  const char* form_ = "";
  std::vector<Out> queries_;
  std::vector<Acc> sinks_;
  std::vector<std::int64_t> lengths_;
  unsigned char seen_ = 1;
};

}  // namespace rove_fuzz

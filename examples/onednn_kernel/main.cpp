// A third party's kernel in the library's frames: oneDNN's matmul, softmax and matmul. What it gives is held
// against a model's own output, the library's kernel and attention in double; then both are timed.
//
//   onednn_kernel [tokens [seconds a case]]
#if __has_include(<Eigen/ThreadPool>)
#include <Eigen/ThreadPool>
#else
#include <unsupported/Eigen/CXX11/ThreadPool>  // Eigen 3.4
#endif

#include "onednn_kernel/onednn_kernel.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <rove/dense/dense.hpp>
#include <rove/rove.hpp>
#include <vector>

#include "support/real_layer.hpp"

namespace {

namespace dense = rove::dense;
using onednn::OneDnnKernel;
using rove::Index;

// ---- A real layer: 9 heads, three to a head of keys and values ----------------------------------

bool report(const char* what, double difference) {
  const bool good = difference < 1e-5;  // values reach 3.7; NaN is not good
  std::printf("%-64s %.1e  %s\n", what, difference, good ? "ok" : "WRONG");
  return good;
}

template <class F>
bool refused(const char* why, const F& call) {
  try {
    call();
  } catch (const rove::Error& error) {
    const bool good = std::strstr(error.what(), why) != nullptr;
    std::printf("refused%s: %s\n", good ? "" : " FOR ANOTHER REASON", error.what());
    return good;
  }
  std::printf("NOT REFUSED: %s\n", why);
  return false;
}

bool on_a_real_layer() {
  const support::RealLayer layer;
  const Index heads = layer.heads(), tokens = layer.tokens();
  const auto frame = layer.frame();
  std::vector<float> theirs(layer.q.values.size()), ours(theirs.size()), lse(theirs.size());
  const auto problem_into = [&](std::vector<float>& out) {
    return rove::attention_problem(support::view(layer.q), support::view(layer.k), support::view(layer.v),
                                   rove::bhtd(out.data(), 1, heads, tokens, layer.channels()))
        .with_mask(rove::AnyMask(rove::causal()));  // one type for all masks: less to compile
  };
  const auto causal = problem_into(theirs);
  const rove::Context context;
  bool good = true;

  rove::rope_attention(causal, frame, context, OneDnnKernel());
  good &= report("RoPE, from what the model computed",
                 support::largest_difference(theirs, layer.attention.values));

  const auto both = [&](const auto& with_options, const rove::Context& on) {
    theirs.assign(theirs.size(), std::numeric_limits<float>::quiet_NaN());
    rove::rove_attention(with_options(problem_into(theirs)), frame, on, OneDnnKernel());
    rove::rove_attention(with_options(problem_into(ours)), frame, on, rove::TiledKernel());
    return support::largest_difference(theirs, ours);
  };
  good &=
      report("RoVE, from the library's kernel", both([](const auto& problem) { return problem; }, context));

  // Rows from 100 + 32 − 1 on would see nothing; here queries stand 10 later, so 121 is the first of them.
  const std::vector<int> key_lengths{100};
  const auto window = [&](const auto& problem) {
    return problem.with_mask(rove::AnyMask(rove::window(32)))
        .with_key_lengths(key_lengths)
        .with_query_offset(10);
  };
  good &= report("window, key length, offset, rows that see nothing", both(window, context));
  Eigen::ThreadPool pool(2);
  good &= report("the same by 3 workers", both(window, rove::Context(rove::on(pool))));
  // The first head sees every key behind it, the second every other, and so on.
  const rove::AnyMask by_head = rove::mask([](Index, Index head, Index query, Index key) {
    return key <= query && (query - key) % (head + 1) == 0;
  });
  const auto thinned = [&](const auto& problem) { return problem.with_mask(by_head); };
  good &= report("a mask that differs from head to head", both(thinned, context));

  // In memory of one's own, as much as the kernel says it takes.
  const std::vector<float> expected = theirs;
  const auto problem = thinned(problem_into(theirs));
  std::vector<std::byte> memory(static_cast<std::size_t>(
      rove::workspace_bytes(problem, rove::rove_frames(frame), OneDnnKernel(), context.concurrency())));
  rove::rove_attention(problem, frame, rove::Context(memory), OneDnnKernel());
  good &= report("the same in memory of one's own", support::largest_difference(theirs, expected));

  // Without frames it reads tensors where they lie, here [tokens, heads, channels], and may write over q.
  const auto strided = [&](const std::vector<float>& q, std::vector<float>& out) {
    const auto at = [&](const std::vector<float>& values) {
      return rove::bthd(values.data(), 1, tokens, layer.kv_heads(), layer.channels());
    };
    return rove::attention_problem(rove::bthd(q.data(), 1, tokens, heads, layer.channels()),
                                   at(layer.k.values), at(layer.v.values),
                                   rove::bthd(out.data(), 1, tokens, heads, layer.channels()));
  };
  rove::attention(strided(layer.q.values, theirs), context, OneDnnKernel());
  rove::attention(strided(layer.q.values, ours), context, rove::TiledKernel());
  good &= report("no frames, no mask, strided tensors", support::largest_difference(theirs, ours));
  theirs = layer.q.values;
  rove::attention(strided(theirs, theirs), context, OneDnnKernel());
  good &= report("the same in the place of q", support::largest_difference(theirs, ours));

  // What it cannot do it refuses, before it writes; doubles do not compile.
  const std::vector<float> sinks(static_cast<std::size_t>(heads), 0.5F);
  const auto attend = [&](const auto& what) { rove::rove_attention(what, frame, context, OneDnnKernel()); };
  good &= refused("no place for a score", [&] { attend(causal.with_score(rove::soft_cap(20))); });
  good &= refused("takes no sinks, got 9", [&] { attend(causal.with_sinks(sinks)); });
  good &=
      refused("no log-sum-exps", [&] { attend(causal.with_lse(rove::bht(lse.data(), 1, heads, tokens))); });
  auto every_other = causal;
  every_other.kv.k.extent[3] = every_other.q.extent[3] = layer.channels() / 2;
  every_other.kv.k.stride[3] = 2;
  good &= refused("the channels of k must lie side by side, their stride is 2",
                  [&] { rove::attention(every_other, context, OneDnnKernel()); });
  auto shared = causal;
  shared.kv.v.stride[2] = 0;
  good &= refused("the tokens of v must be at least 64 elements apart, their stride is 0",
                  [&] { rove::attention(shared, context, OneDnnKernel()); });
  std::printf("%s\n", rove::explain(causal, rove::rove_frames(frame), OneDnnKernel()).c_str());
  return good;
}

template <class T>
using ProblemOf = decltype(rove::attention_problem(rove::TensorView<T>(), rove::TensorView<T>(),
                                                   rove::TensorView<T>(), rove::TensorView<T>()));
static_assert(rove::Kernel<OneDnnKernel, ProblemOf<float>>);
static_assert(!rove::Kernel<OneDnnKernel, ProblemOf<double>>);

// ---- Values and speed on one shape --------------------------------------------------------------

constexpr Index heads = 8, channels = 64;
constexpr double rope_theta = 1e4;

struct Case {
  const char* name;
  bool rove, causal;
};

struct Tensor {
  std::vector<float> values;
  Index tokens;

  Tensor(Index n, unsigned seed) : values(static_cast<std::size_t>(heads * n * channels)), tokens(n) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& x : values) x = normal(random);
  }
  auto view() const { return rove::bhtd(values.data(), 1, heads, tokens, channels); }
  auto view() { return rove::bhtd(values.data(), 1, heads, tokens, channels); }

  Eigen::MatrixXd rows(Index head, const std::vector<Index>& which) const {
    Eigen::MatrixXd matrix(static_cast<Index>(which.size()), channels);
    for (Index r = 0; r < matrix.rows(); ++r)
      for (Index c = 0; c < channels; ++c)
        matrix(r, c) = static_cast<double>(view()(0, head, which[static_cast<std::size_t>(r)], c));
    return matrix;
  }
};

struct Operands {
  Tensor q, k, v;
};

// The largest share that an error has of its bound, over some rows of every head; at most 1 is right.
class Judge {
 public:
  Judge(const Operands& operands, const Case& what) {
    const Index n = operands.q.tokens;
    for (Index r = 0; r < rows_to_judge; ++r) rows_.push_back(r * (n - 1) / (rows_to_judge - 1));
    std::vector<Index> all;
    for (Index t = 0; t < n; ++t) all.push_back(t);
    const Eigen::VectorXd frequencies = dense::inverse_frequencies(channels, rope_theta);
    const auto at_key = [&](Index t) {
      return dense::rotation_matrix(channels, frequencies, static_cast<double>(t),
                                    dense::Pairing::half_split);
    };
    const auto at_query = [&](Index i) { return at_key(rows_[static_cast<std::size_t>(i)]); };
    for (Index head = 0; head < heads; ++head) {
      dense::AttentionInput in;
      in.q = operands.q.rows(head, rows_);
      in.k = operands.k.rows(head, all);
      in.v = operands.v.rows(head, all);
      if (what.causal) in.visible = [&](Index i, Index j) { return j <= rows_[static_cast<std::size_t>(i)]; };
      in.query_frame = at_query;
      in.key_frame = at_key;
      if (what.rove) in.value_frame = at_key;
      if (what.rove) in.output_frame = at_query;
      exact_.push_back(dense::attention(in));
    }
  }

  double operator()(const Tensor& out) const {
    double largest = 0;
    for (Index head = 0; head < heads; ++head) {
      const auto& exact = exact_[static_cast<std::size_t>(head)];
      const Eigen::MatrixXd bound =
          dense::error_bound(exact, dense::Precision::float32, dense::Storage::float32);
      const Eigen::ArrayXXd share = (out.rows(head, rows_) - exact.out).array().abs() / bound.array();
      if (share.isNaN().any()) return std::numeric_limits<double>::infinity();
      largest = (std::max)(largest, share.maxCoeff());
    }
    return largest;
  }

 private:
  static constexpr Index rows_to_judge = 8;  // the first and the last among them
  std::vector<Index> rows_;
  std::vector<dense::AttentionResult> exact_;
};

struct Subject {
  double seconds = std::numeric_limits<double>::infinity();  // the best
  double share = 0;
};

// Both in turn, so that what slows the machine slows both, for at least that long.
template <class Theirs, class Ours>
bool compare(const Case& what, const Operands& operands, double seconds, const Theirs& run_theirs,
             const Ours& run_ours) {
  const Index n = operands.q.tokens;
  Tensor out(n, 0);
  const Judge judge(operands, what);
  Subject theirs, ours;
  const auto first = [&](Subject& subject, const auto& run) {  // not timed: it compiles, fills caches
    out.values.assign(out.values.size(), std::numeric_limits<float>::quiet_NaN());
    run(out);
    subject.share = judge(out);
  };
  first(theirs, run_theirs);
  first(ours, run_ours);

  using Clock = std::chrono::steady_clock;
  const auto timed = [&](Subject& subject, const auto& run) {
    const auto begin = Clock::now();
    run(out);
    subject.seconds =
        (std::min)(subject.seconds, std::chrono::duration<double>(Clock::now() - begin).count());
  };
  constexpr int fewest = 5;
  const auto begin = Clock::now();
  for (int round = 0; round < fewest || Clock::now() - begin < std::chrono::duration<double>(seconds);
       ++round) {
    timed(theirs, run_theirs);
    timed(ours, run_ours);
  }
  const double pairs =
      what.causal ? static_cast<double>(n * (n + 1) / 2) : static_cast<double>(n * n);  // that count
  const double work = 1e-9 * 4 * static_cast<double>(heads * channels) * pairs;
  const auto print = [&](const Subject& subject) {
    std::printf("  %9.3f %8.1f %8.2f", 1e3 * subject.seconds, work / subject.seconds, subject.share);
  };
  std::printf("%-12s", what.name);
  print(theirs);
  print(ours);
  const bool good = theirs.share <= 1 && ours.share <= 1;
  std::printf("  %8.2f  %s\n", theirs.seconds / ours.seconds, good ? "ok" : "WRONG");
  return good;
}

bool on_random_numbers(Index tokens, double seconds) {
  const Operands operands{{tokens, 1}, {tokens, 2}, {tokens, 3}};
  const auto frequencies = rove::rotary_frequencies({.rotary_dim = channels, .rope_theta = rope_theta});
  const rove::RotationTable<float> table(frequencies, rove::consecutive_positions(tokens));
  const rove::RotaryFrame frame(table, rove::Pairing::half_split);
  const rove::Context context;

  std::printf("\n%lld heads, %lld tokens, %lld channels, float, 1 thread; best of many, in turn\n",
              static_cast<long long>(heads), static_cast<long long>(tokens),
              static_cast<long long>(channels));
  std::printf("%-12s  %-27s  %-27s  oneDNN's\n", "", "oneDNN, all scores in memory", "rove::TiledKernel");
  std::printf("%-12s  %9s %8s %8s  %9s %8s %8s  time over\n", "", "ms", "GFLOP/s", "error*", "ms", "GFLOP/s",
              "error*");
  bool good = true;
  for (const Case& what : {Case{"RoPE", false, false}, Case{"RoVE", true, false},
                           Case{"RoPE, causal", false, true}, Case{"RoVE, causal", true, true}}) {
    const auto by = [&](const auto& kernel) {
      return [&](Tensor& out) {
        const auto problem =
            rove::attention_problem(operands.q.view(), operands.k.view(), operands.v.view(), out.view())
                .with_mask(what.causal ? rove::AnyMask(rove::causal()) : rove::AnyMask());
        if (what.rove) {
          rove::rove_attention(problem, frame, context, kernel);
        } else {
          rove::rope_attention(problem, frame, context, kernel);
        }
      };
    };
    const OneDnnKernel theirs;
    const rove::TiledKernel ours;
    good &= compare(what, operands, seconds, by(theirs), by(ours));
  }
  std::printf("* largest error of some rows, as a share of its bound\n");
  return good;
}

}  // namespace

int main(int count, char** arguments) {
  const Index tokens = count > 1 ? std::atol(arguments[1]) : 256;
  const double seconds = count > 2 ? std::atof(arguments[2]) : 0.1;
  if (count > 3 || tokens < 8 || tokens > 32768) {
    std::fprintf(stderr, "usage: %s [tokens, 8 to 32768 [seconds a case]]\n", arguments[0]);
    return 2;
  }
  bool good = on_a_real_layer();
  good &= on_random_numbers(tokens, seconds);
  return good ? 0 : 1;
}

// librove_bench: what bench/peers.py calls through ctypes, so that the library, OpenBLAS and the peers of
// other languages take turns in one process. Functions of C, no header: rivals/library.py declares them once
// more.
//
// A function that can fail returns 0 or a null pointer, and rove_bench_error() says why. One call at a time.

#include <Eigen/Core>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "bench/compare/machine.hpp"
#include "bench/compare/openblas.hpp"
#include "bench/compare/openblas_core.hpp"
#include "bench/compare/peak.hpp"
#include "bench/support/workers.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/attention/problem.hpp"
#include "rove/attention/tiled.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/op/attention.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"

namespace {

using rove::Index;

std::string last_error;

template <class Result, class F>
Result guarded(const F& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "unknown exception";
  }
  return Result{};
}

const char* kept(std::string text) {
  static std::string storage;
  storage = std::move(text);
  return storage.c_str();
}

/// One sequence over itself by TiledKernel; the caller's arrays, contiguous [heads, tokens, channels].
class Attention {
 public:
  using Frame = rove::RotaryFrame<rove::RotationTable<float>>;

  Attention(Index heads, Index kv_heads, Index tokens, Index head_dim, bool causal, int threads,
            const float* q, const float* k, const float* v, float* out)
      : workers_(threads),
        frame_(rove::RotationTable<float>(rove::rotary_frequencies({.rotary_dim = head_dim}),
                                          rove::consecutive_positions(tokens)),
               rove::Pairing::half_split) {
    const auto problem = rove::attention_problem(
        rove::bhtd(q, 1, heads, tokens, head_dim), rove::bhtd(k, 1, kv_heads, tokens, head_dim),
        rove::bhtd(v, 1, kv_heads, tokens, head_dim), rove::bhtd(out, 1, heads, tokens, head_dim));
    if (causal) {
      bind(problem.with_mask(rove::causal()));
    } else {
      bind(problem);
    }
  }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  void plain() const { plain_(); }
  void rope() const { rope_(); }
  void rove() const { rove_(); }

 private:
  template <class Problem>
  void bind(const Problem& problem) {
    plain_ = [this, problem] { rove::attention(problem, workers_.context(), rove::TiledKernel{}); };
    rope_ = [this, problem] {
      rove::rope_attention(problem, frame_, workers_.context(), rove::TiledKernel{});
    };
    rove_ = [this, problem] {
      rove::rove_attention(problem, frame_, workers_.context(), rove::TiledKernel{});
    };
  }

  bench::Workers workers_;
  Frame frame_;
  std::function<void()> plain_, rope_, rove_;
};

/// The FMA burst on each of some threads.
struct Peak {
  bench::Workers workers;
  bench::FmaBurst burst;
};

struct Product {
  bench::Sgemm sgemm;
  int threads;
};

template <class F>
int succeeds(const F& body) {
  return guarded<int>([&] {
    body();
    return 1;
  });
}

}  // namespace

extern "C" {

/// Of the last call that failed. Valid until the next call.
const char* rove_bench_error() {
  return last_error.c_str();
}

/// CPU, instruction set, compiler and versions, as a JSON object. Valid until the next call.
const char* rove_bench_machine() {
  return guarded<const char*>([] { return kept(bench::describe_machine().dump()); });
}

/// What OPENBLAS_CORETYPE should be when this library is loaded; empty where OpenBLAS's choice will do. Valid
/// until the next call.
const char* rove_bench_core_to_ask_for() {
  return guarded<const char*>(
      [] { return kept(bench::core_to_ask_for(bench::this_cpu(), bench::openblas_core())); });
}

/// The arrays, `[heads, tokens, head_dim]` and `[kv_heads, tokens, head_dim]`, stay the caller's and must
/// outlive the problem. Table built here, pairs half-split, theta 10000.
Attention* rove_bench_attention(std::int64_t heads, std::int64_t kv_heads, std::int64_t tokens,
                                std::int64_t head_dim, int causal, int threads, const float* q,
                                const float* k, const float* v, float* out) {
  return guarded<Attention*>([&] {
    return std::make_unique<Attention>(heads, kv_heads, tokens, head_dim, causal != 0, threads, q, k, v, out)
        .release();
  });
}
int rove_bench_plain(const Attention* attention) {
  return succeeds([&] { attention->plain(); });
}
int rove_bench_rope(const Attention* attention) {
  return succeeds([&] { attention->rope(); });
}
int rove_bench_rove(const Attention* attention) {
  return succeeds([&] { attention->rove(); });
}
void rove_bench_attention_free(Attention* attention) {
  delete attention;
}

Peak* rove_bench_peak(int threads, std::int64_t steps) {
  return guarded<Peak*>([&] { return new Peak{bench::Workers(threads), bench::FmaBurst(steps)}; });
}
/// Of one run, all threads together.
double rove_bench_peak_flops(const Peak* peak) {
  return peak->burst.flops() * peak->workers.threads();
}
int rove_bench_peak_run(const Peak* peak) {
  return succeeds([&] { peak->burst(peak->workers); });
}
void rove_bench_peak_free(Peak* peak) {
  delete peak;
}

/// OpenBLAS's product of two n × n matrices.
Product* rove_bench_sgemm(int n, int threads) {
  return guarded<Product*>([&] { return new Product{bench::Sgemm(n), threads}; });
}
double rove_bench_sgemm_flops(const Product* product) {
  return product->sgemm.flops();
}
int rove_bench_sgemm_run(Product* product) {
  return succeeds([&] { product->sgemm(product->threads); });
}
/// Whether the last product is one, by rows in double.
int rove_bench_sgemm_is_right(const Product* product) {
  return guarded<int>([&] { return product->sgemm.is_right() ? 1 : 0; });
}
void rove_bench_sgemm_free(Product* product) {
  delete product;
}

}  // extern "C"

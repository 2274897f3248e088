// attend: RoPE and RoVE attention of one layer's real q, k, v, judged against attention in double and against
// what the model itself computed.
//
//     attend                                       the layer in examples/data
//     attend --q q.npy --k k.npy --v v.npy --pairing half-split --rope-theta 1e5 --causal --out y.npy
//
// Exit code: 0; 1 if an error exceeds its bound; 2 if there is nothing to judge (a file, an option, a shape),
// after one line on stderr.

#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "attend/layer.hpp"
#include "attend/mixers.hpp"
#include "attend/options.hpp"
#include "attend/oracle.hpp"
#include "attend/report.hpp"
#include "attend/run.hpp"
#include "support/atomic_file.hpp"
#include "support/npy.hpp"

namespace {

using attend::Index;

/// The files that a run writes. All are opened before it starts, so that a place that cannot be written costs
/// no work, and all are complete before the first one appears.
class Outputs {
 public:
  explicit Outputs(const attend::Options& options) {
    if (!options.out.empty()) out_.emplace(options.out);
    if (!options.lse.empty()) lse_.emplace(options.lse);
    if (!options.picture.empty()) picture_.emplace(options.picture);
  }

  void write(const attend::Layer& layer, const attend::Options& options, const attend::Results& results,
             const std::string& picture) {
    if (out_) npy::write(*out_, layer.out_shape(), options.rove() ? results.rove : results.rope);
    if (lse_) npy::write(*lse_, {layer.batch, layer.heads, layer.q_len}, results.lse);
    if (picture_) picture_->write(picture);
    for (auto* file : {&out_, &lse_, &picture_}) {
      if (*file) (*file)->close();
    }
    for (auto* file : {&out_, &lse_, &picture_}) {
      if (*file) (*file)->commit();
    }
  }

 private:
  std::optional<support::AtomicFile> out_, lse_, picture_;
};

int judged_run(const attend::Options& options) {
  const attend::Layer layer = attend::load(options);
  Outputs outputs(options);
  const attend::Run run = attend::run(layer, options);
  const attend::Oracle oracle(layer, options);
  const std::vector<attend::Verdict> verdicts = oracle.judge(run.results);
  std::optional<attend::Mixers> mixers;
  if (!options.picture.empty()) mixers = attend::mixers(layer, options, oracle);
  outputs.write(layer, options, run.results, mixers ? attend::draw(mixers->picture) : "");

  attend::print_report(layer, options, run, oracle, verdicts, mixers ? &*mixers : nullptr);
  for (const attend::Verdict& verdict : verdicts) {
    if (!verdict.holds) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<attend::Options> options = attend::parse(argc, argv);
    return options ? judged_run(*options) : 0;
  } catch (const std::bad_alloc&) {
    std::fputs("attend: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attend: %s\n", error.what());
  }
  return 2;
}

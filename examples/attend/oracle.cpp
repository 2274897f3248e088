#include "attend/oracle.hpp"

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <rove/dense/dense.hpp>
#include <vector>

#include "attend/layer.hpp"
#include "attend/options.hpp"

namespace attend {
namespace {

namespace dense = rove::dense;

dense::Pairing of(Pairing pairing) {
  return pairing == Pairing::half_split ? dense::Pairing::half_split : dense::Pairing::interleaved;
}

/// Row `row` of [.., rows, width], as the `block`-th matrix of it.
const float* row_of(const std::vector<float>& values, Index block, Index rows, Index row, Index width) {
  return values.data() + (block * rows + row) * width;
}

Eigen::MatrixXd matrix(const std::vector<float>& values, Index block, Index all_rows,
                       const std::vector<Index>& rows, Index width) {
  Eigen::MatrixXd m(static_cast<Index>(rows.size()), width);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const float* const row = row_of(values, block, all_rows, rows[r], width);
    for (Index c = 0; c < width; ++c) m(static_cast<Index>(r), c) = static_cast<double>(row[c]);
  }
  return m;
}

std::vector<Index> first_n(Index n) {
  std::vector<Index> all(static_cast<std::size_t>(n));
  std::iota(all.begin(), all.end(), Index{0});
  return all;
}

std::vector<Index> judged_rows(Index q_len) {
  constexpr Index all_up_to = 512, some = 64;
  if (q_len <= all_up_to) return first_n(q_len);
  std::vector<Index> rows;
  for (Index r = 0; r < some; ++r) rows.push_back(r * (q_len - 1) / (some - 1));
  return rows;
}

void add_rows(Verdict& verdict, const std::vector<float>& computed, Index block, Index all_rows,
              const std::vector<Index>& rows, const Eigen::MatrixXd& exact, const Eigen::MatrixXd& bound) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const float* const row = row_of(computed, block, all_rows, rows[r], exact.cols());
    const auto i = static_cast<Index>(r);
    for (Index c = 0; c < exact.cols(); ++c)
      verdict.add(static_cast<double>(row[c]), exact(i, c), bound(i, c));
  }
}

}  // namespace

void Verdict::add(double computed, double exact, double allowed) {
  if (computed == exact || (std::isnan(computed) && std::isnan(exact))) return;
  double distance = std::abs(computed - exact);
  if (std::isnan(distance)) distance = std::numeric_limits<double>::infinity();
  if (!(distance <= allowed)) holds = false;
  const double share = distance / allowed;
  worst_share = std::isnan(share) ? std::numeric_limits<double>::infinity() : (std::fmax)(worst_share, share);
  if (distance > error) {
    error = distance;
    bound = allowed;
  }
}

Oracle::Oracle(const Layer& layer, const Options& options)
    : layer_(layer),
      options_(options),
      inv_freq_(dense::inverse_frequencies(options.rotary_dim.value_or(layer.channels), options.rope_theta)),
      pairing_(of(options.pairing)),
      value_pairing_(of(options.value_pairing)),
      rows_(judged_rows(layer.q_len)) {}

dense::AttentionInput Oracle::input(Index batch, Index head, const std::vector<Index>& rows,
                                    bool turn_values) const {
  const Layer& layer = layer_;
  const Index kv_block = batch * layer.kv_heads + layer.kv_head(head);
  const std::vector<Index> keys = first_n(layer.kv_len);
  dense::AttentionInput in;
  in.q = matrix(layer.q.values, batch * layer.heads + head, layer.q_len, rows, layer.channels);
  in.k = matrix(layer.k.values, kv_block, layer.kv_len, keys, layer.channels);
  in.v = matrix(layer.v.values, kv_block, layer.kv_len, keys, layer.value_channels);

  const Index first_query = layer.first_query();
  if (options_.window) {
    in.visible = [rows, first_query, size = *options_.window](Index i, Index j) {
      const Index query = first_query + rows[static_cast<std::size_t>(i)];
      return j <= query && query - j < size;
    };
  } else if (options_.causal) {
    in.visible = [rows, first_query](Index i, Index j) {
      return j <= first_query + rows[static_cast<std::size_t>(i)];
    };
  }

  const auto frame = [this](Index width, dense::Pairing pairing, Index token) {
    const double position = static_cast<double>(options_.position_offset) + static_cast<double>(token);
    return dense::rotation_matrix(width, inv_freq_, position, pairing);
  };
  const auto query_token = [rows, first_query](Index i) {
    return first_query + rows[static_cast<std::size_t>(i)];
  };
  in.query_frame = [=, this](Index i) { return frame(layer_.channels, pairing_, query_token(i)); };
  in.key_frame = [=, this](Index j) { return frame(layer_.channels, pairing_, j); };
  if (turn_values) {
    in.value_frame = [=, this](Index j) { return frame(layer_.value_channels, value_pairing_, j); };
    in.output_frame = [=, this](Index i) {
      return frame(layer_.value_channels, value_pairing_, query_token(i));
    };
  }
  return in;
}

Eigen::MatrixXd Oracle::value_rotation(double delta) const {
  return dense::rotation_matrix(layer_.value_channels, inv_freq_, delta, value_pairing_);
}

Eigen::MatrixXd Oracle::reference_phases(const std::vector<Index>& tokens) const {
  // The layer that comes along was captured from position 0, whatever the user turns it by.
  const Index first = options_.sample ? 0 : options_.position_offset;
  Eigen::VectorXd positions(static_cast<Index>(tokens.size()));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    positions(static_cast<Index>(t)) = static_cast<double>(first) + static_cast<double>(tokens[t]);
  }
  return dense::float32_phase_error(positions, inv_freq_);
}

std::vector<Verdict> Oracle::judge(const Results& results) const {
  Verdict rope_model{"RoPE, against the model's own output"}, rope{"RoPE, against double"};
  Verdict rove_model{"RoVE, against the reference"}, rove{"RoVE, against double"};
  Verdict lse{"log-sum-exp, against double"};
  const auto bound = [](const dense::AttentionResult& exact) {
    return dense::error_bound(exact, dense::Precision::float32, dense::Storage::float32);
  };
  std::vector<Index> query_tokens = rows_;
  for (Index& token : query_tokens) token += layer_.first_query();

  for (Index b = 0; b < layer_.batch; ++b) {
    for (Index h = 0; h < layer_.heads; ++h) {
      const Index block = b * layer_.heads + h;
      const auto add = [&](Verdict& verdict, const std::vector<float>& computed, const Eigen::MatrixXd& exact,
                           const Eigen::MatrixXd& allowed) {
        add_rows(verdict, computed, block, layer_.q_len, rows_, exact, allowed);
      };
      const auto reference = [&] {
        return matrix(layer_.reference->values, block, layer_.q_len, rows_, layer_.value_channels);
      };
      dense::AttentionResult exact;
      if (options_.rope()) {
        const dense::AttentionInput in = input(b, h, rows_, false);
        exact = dense::attention(in);
        const Eigen::MatrixXd allowed = bound(exact);
        add(rope, results.rope, exact.out, allowed);
        if (layer_.reference) {
          // Two float32 computations lie apart by both their errors, and the model's angles are float32 too.
          const Eigen::MatrixXd angles = dense::phase_error_bound(
              in, exact, reference_phases(query_tokens), reference_phases(first_n(layer_.kv_len)), pairing_);
          add(rope_model, results.rope, reference(), 2 * allowed + angles);
        }
      }
      if (options_.rove()) {
        exact = dense::attention(input(b, h, rows_, true));
        const Eigen::MatrixXd allowed = bound(exact);
        add(rove, results.rove, exact.out, allowed);
        if (layer_.reference && !options_.rope()) add(rove_model, results.rove, reference(), 2 * allowed);
      }
      add(lse, results.lse, exact.lse, dense::lse_error_bound(exact, dense::Precision::float32));
    }
  }

  std::vector<Verdict> verdicts;
  if (options_.rope() && layer_.reference) verdicts.push_back(rope_model);
  if (options_.rope()) verdicts.push_back(rope);
  if (options_.rove() && layer_.reference && !options_.rope()) verdicts.push_back(rove_model);
  if (options_.rove()) verdicts.push_back(rove);
  verdicts.push_back(lse);
  return verdicts;
}

}  // namespace attend

/// \file
/// Frames for tests: matrices of one's own, any frame behind one type, and the frames that the laws run over,
/// each with its matrix beside it.
#pragma once

#include <Eigen/Core>
#include <Eigen/LU>
#include <cmath>
#include <concepts>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rove/core/row_block.hpp"
#include "rove/dense/rotation.hpp"
#include "rove/frame/adaptors.hpp"
#include "rove/frame/frame.hpp"
#include "rove/frame/rotary.hpp"
#include "rove/position/factored_rotation_table.hpp"
#include "rove/position/rotary_frequencies.hpp"
#include "rove/position/rotation_table.hpp"

namespace rove_test {

// One instantiation of Eigen's products and inverses for all: they are what compiling a test takes.

inline Eigen::MatrixXd product(const Eigen::MatrixXd& a, const Eigen::MatrixXd& b) {
  return a * b;
}

inline Eigen::MatrixXd inverse_of(const Eigen::MatrixXd& m) {
  return m.inverse();
}

/// R_t from any invertible matrices, one per token (and batch row). Rows are turned in double and rounded
/// once.
///
/// \tparam one_parameter  the caller says that token t's matrix is exp(t N)
template <bool one_parameter = false>
class MatrixFrame {
 public:
  static constexpr bool is_orthogonal = false;
  static constexpr bool is_one_parameter = one_parameter;

  /// \param matrices  [batch, tokens], all of one size
  explicit MatrixFrame(std::vector<Eigen::MatrixXd> matrices, rove::Index batch = 1)
      : data_(std::make_shared<Data>()), batch_(batch) {
    for (const Eigen::MatrixXd& r : matrices) data_->inverses.push_back(inverse_of(r));
    data_->matrices = std::move(matrices);
  }

  rove::Index batch() const { return batch_; }
  rove::Index tokens() const { return static_cast<rove::Index>(data_->matrices.size()) / batch_; }
  rove::Index channels() const { return data_->matrices.empty() ? 0 : data_->matrices.front().rows(); }

  template <rove::Accumulator Acc>
  void apply(rove::Index b, rove::Index t, std::span<Acc> row) const {
    turn(data_->matrices[place(b, t)], row);
  }
  template <rove::Accumulator Acc>
  void inverse(rove::Index b, rove::Index t, std::span<Acc> row) const {
    turn(data_->inverses[place(b, t)], row);
  }
  template <rove::Accumulator Acc>
  void transpose(rove::Index b, rove::Index t, std::span<Acc> row) const {
    turn_transposed(data_->matrices[place(b, t)], row);
  }
  template <rove::Accumulator Acc>
  void inverse_transpose(rove::Index b, rove::Index t, std::span<Acc> row) const {
    turn_transposed(data_->inverses[place(b, t)], row);
  }

 private:
  struct Data {
    std::vector<Eigen::MatrixXd> matrices, inverses;
  };

  std::size_t place(rove::Index b, rove::Index t) const { return static_cast<std::size_t>(b * tokens() + t); }

  template <class Acc>
  static void turn(const Eigen::MatrixXd& m, std::span<Acc> row) {
    const std::vector<double> x(row.begin(), row.begin() + m.cols());
    for (rove::Index r = 0; r < m.rows(); ++r) {
      double sum = 0;
      for (rove::Index c = 0; c < m.cols(); ++c) sum += m(r, c) * x[static_cast<std::size_t>(c)];
      row[static_cast<std::size_t>(r)] = static_cast<Acc>(sum);
    }
  }
  template <class Acc>
  static void turn_transposed(const Eigen::MatrixXd& m, std::span<Acc> row) {
    const std::vector<double> x(row.begin(), row.begin() + m.rows());
    for (rove::Index c = 0; c < m.cols(); ++c) {
      double sum = 0;
      for (rove::Index r = 0; r < m.rows(); ++r) sum += m(r, c) * x[static_cast<std::size_t>(r)];
      row[static_cast<std::size_t>(c)] = static_cast<Acc>(sum);
    }
  }

  std::shared_ptr<Data> data_;
  rove::Index batch_;
};

/// Any frame on rows of Acc behind one type, so that a law is compiled once.
template <class Acc>
class AnyFrame {
 public:
  template <class F>
  requires(!std::same_as<F, AnyFrame> && rove::FrameOn<F, Acc>) explicit AnyFrame(F frame)
      : held_(std::make_shared<Holder<F>>(std::move(frame))) {}

  rove::Index batch() const { return held_->batch(); }
  rove::Index tokens() const { return held_->tokens(); }
  rove::Index channels() const { return held_->channels(); }
  double logit_factor() const { return held_->logit_factor(); }
  bool orthogonal() const { return held_->orthogonal(); }
  bool one_parameter() const { return held_->one_parameter(); }
  void apply(rove::Index b, rove::Index t, std::span<Acc> row) const { held_->act(0, b, t, row); }
  void inverse(rove::Index b, rove::Index t, std::span<Acc> row) const { held_->act(1, b, t, row); }
  void transpose(rove::Index b, rove::Index t, std::span<Acc> row) const { held_->act(2, b, t, row); }
  void inverse_transpose(rove::Index b, rove::Index t, std::span<Acc> row) const { held_->act(3, b, t, row); }
  template <rove::Action action>
  void act_rows(rove::Index b, rove::Index t, rove::RowBlock<const Acc> from, rove::RowBlock<Acc> to) const {
    held_->act_rows(action, b, t, from, to);
  }

  friend AnyFrame query_frame(const AnyFrame& frame, rove::KeyFactor keys) {
    return frame.held_->for_queries(keys);
  }

 private:
  struct Interface {
    Interface() = default;
    Interface(const Interface&) = delete;
    Interface& operator=(const Interface&) = delete;
    virtual ~Interface() = default;
    virtual rove::Index batch() const = 0;
    virtual rove::Index tokens() const = 0;
    virtual rove::Index channels() const = 0;
    virtual double logit_factor() const = 0;
    virtual bool orthogonal() const = 0;
    virtual bool one_parameter() const = 0;
    virtual void act(int action, rove::Index b, rove::Index t, std::span<Acc> row) const = 0;
    virtual void act_rows(rove::Action action, rove::Index b, rove::Index t, rove::RowBlock<const Acc> from,
                          rove::RowBlock<Acc> to) const = 0;
    virtual AnyFrame for_queries(rove::KeyFactor keys) const = 0;
  };

  template <class F>
  struct Holder final : Interface {
    explicit Holder(F f) : frame(std::move(f)) {}
    rove::Index batch() const override { return frame.batch(); }
    rove::Index tokens() const override { return frame.tokens(); }
    rove::Index channels() const override { return frame.channels(); }
    double logit_factor() const override { return rove::frame_logit_factor(frame); }
    bool orthogonal() const override { return rove::is_orthogonal_v<F>; }
    bool one_parameter() const override { return rove::is_one_parameter_v<F>; }
    void act(int action, rove::Index b, rove::Index t, std::span<Acc> row) const override {
      if (action == 0) return frame.apply(b, t, row);
      if (action == 1) return frame.inverse(b, t, row);
      if (action == 2) return frame.transpose(b, t, row);
      frame.inverse_transpose(b, t, row);
    }
    void act_rows(rove::Action action, rove::Index b, rove::Index t, rove::RowBlock<const Acc> from,
                  rove::RowBlock<Acc> to) const override {
      using rove::Action, rove::detail::act_rows;
      if (action == Action::apply) return act_rows<Action::apply>(frame, b, t, from, to);
      if (action == Action::inverse) return act_rows<Action::inverse>(frame, b, t, from, to);
      if (action == Action::transpose) return act_rows<Action::transpose>(frame, b, t, from, to);
      act_rows<Action::inverse_transpose>(frame, b, t, from, to);
    }
    AnyFrame for_queries(rove::KeyFactor keys) const override {
      using rove::query_frame;
      return AnyFrame(query_frame(frame, keys));
    }
    F frame;
  };

  std::shared_ptr<const Interface> held_;
};

/// One kind of frame: made for any list of positions, and as a plain matrix at one position.
struct FrameCase {
  std::string name;
  rove::Index channels;  ///< of the rows that it turns
  std::function<AnyFrame<float>(const std::vector<rove::Index>& positions)> at;
  std::function<Eigen::MatrixXd(rove::Index position)> matrix;
  /// What queries use: other than `matrix` where a model scales its logits through the rotation.
  std::function<Eigen::MatrixXd(rove::Index position)> query_matrix;

  friend void PrintTo(const FrameCase& c, std::ostream* out) { *out << c.name; }
};

inline rove::dense::Pairing dense_pairing(rove::Pairing pairing) {
  return pairing == rove::Pairing::half_split ? rove::dense::Pairing::half_split
                                              : rove::dense::Pairing::interleaved;
}

inline std::vector<rove::Index> positions_from(rove::Index first, rove::Index count) {
  std::vector<rove::Index> positions;
  for (rove::Index t = 0; t < count; ++t) positions.push_back(first + t);
  return positions;
}

/// A well-conditioned matrix without any symmetry, the same for a seed on every machine.
inline Eigen::MatrixXd random_frame_matrix(rove::Index size, std::uint32_t seed) {
  std::mt19937 engine(seed * 2654435761U + 17U);
  const auto uniform = [&] { return static_cast<double>(engine()) / 4294967296.0 - 0.5; };
  return Eigen::MatrixXd::Identity(size, size) +
         Eigen::MatrixXd::NullaryExpr(size, size, [&] { return 0.6 * uniform(); });
}

/// exp(p N), N² = 0: channel c takes p/50 times channel c + half.
inline Eigen::MatrixXd shear_matrix(rove::Index size, double position) {
  Eigen::MatrixXd r = Eigen::MatrixXd::Identity(size, size);
  for (rove::Index c = 0; c < size / 2; ++c) {
    r(c, c + size / 2) = position * (0.01 * static_cast<double>(c) + 0.02);
  }
  return r;
}

/// The frames that the laws run over, rows of 16 channels.
inline std::vector<FrameCase> frame_cases() {
  using rove::Index;
  using rove::Pairing;
  constexpr Index width = 16;
  using Positions = const std::vector<Index>&;
  const auto table = [](Index rotary_dim, Positions positions, double m = 1) {
    auto frequencies = rove::rotary_frequencies({.rotary_dim = rotary_dim, .rope_theta = 100});
    frequencies.attention_factor = m;
    return rove::RotationTable<float>(frequencies, rove::Positions(std::span<const Index>(positions)));
  };
  const auto dense = [](Index rotary_dim, Index position, Pairing pairing, Index offset = 0) {
    return rove::dense::rotation_matrix(width, rove::dense::inverse_frequencies(rotary_dim, 100),
                                        static_cast<double>(position), dense_pairing(pairing), offset);
  };
  // R / s on the channels that turn.
  const auto divided = [](Eigen::MatrixXd r, double s, Index first, Index count) {
    r.middleRows(first, count) /= s;
    return r;
  };
  const auto general = [](Index position) {
    return random_frame_matrix(width, static_cast<std::uint32_t>(position));
  };

  std::vector<FrameCase> cases;
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const std::string name = pairing == Pairing::half_split ? "half_split" : "interleaved";
    cases.push_back(
        {name,
         width,
         [=](Positions p) { return AnyFrame<float>(rove::RotaryFrame(table(width, p), pairing)); },
         [=](Index p) { return dense(width, p, pairing); },
         {}});
    cases.push_back({name + "_partial",
                     width,
                     [=](Positions p) { return AnyFrame<float>(rove::RotaryFrame(table(6, p), pairing, 4)); },
                     [=](Index p) { return dense(6, p, pairing, 4); },
                     {}});
    // A model's factor m on the rotation: m² on the queries' rotary channels, values pure.
    cases.push_back(
        {name + "_yarn", width,
         [=](Positions p) { return AnyFrame<float>(rove::RotaryFrame(table(8, p, 1.25), pairing)); },
         [=](Index p) { return dense(8, p, pairing); },
         [=](Index p) { return divided(dense(8, p, pairing), 1.25 * 1.25, 0, 8); }});
  }
  cases.push_back({"scaled",
                   width,
                   [=](Positions p) {
                     return AnyFrame<float>(rove::ScaledRotaryFrame<rove::RotationTable<float>>(
                         rove::RotaryFrame(table(8, p), Pairing::half_split, 4), 1.5));
                   },
                   [=](Index p) { return divided(dense(8, p, Pairing::half_split, 4), 1.5, 4, 8); },
                   {}});
  cases.push_back(
      {"factored",
       width,
       [](Positions p) {
         const auto frequencies = rove::rotary_frequencies({.rotary_dim = 16, .rope_theta = 100});
         return AnyFrame<float>(rove::RotaryFrame(
             rove::FactoredRotationTable<float>(frequencies, rove::Positions(std::span<const Index>(p))),
             Pairing::interleaved));
       },
       [=](Index p) { return dense(width, p, Pairing::interleaved); },
       {}});
  cases.push_back({"position_ids",
                   width,
                   [](Positions p) {
                     const auto frequencies = rove::rotary_frequencies({.rotary_dim = 16, .rope_theta = 100});
                     return AnyFrame<float>(rove::RotaryFrame(
                         rove::RotationTable<float>(frequencies, rove::consecutive_positions(2048)), p,
                         Pairing::half_split));
                   },
                   [=](Index p) { return dense(width, p, Pairing::half_split); },
                   {}});
  cases.push_back({"shear",
                   width,
                   [](Positions p) {
                     std::vector<Eigen::MatrixXd> matrices;
                     for (const Index at : p)
                       matrices.push_back(shear_matrix(width, static_cast<double>(at)));
                     return AnyFrame<float>(MatrixFrame<true>(std::move(matrices)));
                   },
                   [](Index p) { return shear_matrix(width, static_cast<double>(p)); },
                   {}});
  cases.push_back({"matrices",
                   width,
                   [=](Positions p) {
                     std::vector<Eigen::MatrixXd> matrices;
                     for (const Index at : p) matrices.push_back(general(at));
                     return AnyFrame<float>(MatrixFrame<>(std::move(matrices)));
                   },
                   general,
                   {}});
  cases.push_back({"rows",
                   width,
                   [=](Positions p) {
                     std::vector<Index> longer = {7, 7, 7};
                     longer.insert(longer.end(), p.begin(), p.end());
                     longer.push_back(9);
                     return AnyFrame<float>(
                         rove::rows(rove::RotaryFrame(table(width, longer), Pairing::half_split), 3,
                                    static_cast<Index>(p.size())));
                   },
                   [=](Index p) { return dense(width, p, Pairing::half_split); },
                   {}});
  cases.push_back(
      {"inverse", width,
       [=](Positions p) {
         return AnyFrame<float>(
             rove::inverse_frame(rove::RotaryFrame(table(width, p, 1.25), Pairing::interleaved)));
       },
       [=](Index p) { return dense(width, -p, Pairing::interleaved); },
       [=](Index p) { return divided(dense(width, -p, Pairing::interleaved), 1.25 * 1.25, 0, width); }});
  cases.push_back({"inverse_matrices",
                   width,
                   [=](Positions p) {
                     std::vector<Eigen::MatrixXd> matrices;
                     for (const Index at : p) matrices.push_back(general(at));
                     return AnyFrame<float>(rove::inverse_frame(MatrixFrame<>(std::move(matrices))));
                   },
                   [=](Index p) { return inverse_of(general(p)); },
                   {}});
  cases.push_back({"left_factor", width,
                   [=](Positions p) {
                     return AnyFrame<float>(
                         rove::left_factor(MatrixFrame<>({random_frame_matrix(width, 99)}),
                                           rove::RotaryFrame(table(6, p, 1.25), Pairing::half_split, 2)));
                   },
                   [=](Index p) -> Eigen::MatrixXd {
                     return product(random_frame_matrix(width, 99), dense(6, p, Pairing::half_split, 2));
                   },
                   [=](Index p) -> Eigen::MatrixXd {
                     return product(random_frame_matrix(width, 99),
                                    divided(dense(6, p, Pairing::half_split, 2), 1.25 * 1.25, 2, 6));
                   }});
  for (FrameCase& c : cases) {
    if (!c.query_matrix) c.query_matrix = c.matrix;
  }
  return cases;
}

}  // namespace rove_test

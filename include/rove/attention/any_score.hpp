/// \file
/// A score chosen at run time.
#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include "rove/attention/score.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/check.hpp"
#include "rove/core/config.hpp"
#include "rove/core/scalar.hpp"
#include "rove/core/simd.hpp"

ROVE_BEGIN_TAGGED

class AnyScore;

namespace detail {

/// Clang 14 asks itself without end whether an AnyScore is a Score unless that is ruled out first.
template <class S>
concept ErasableScore = !std::same_as<S, AnyScore> && Score<S>;

}  // namespace detail

/// Any score behind one type, for choices made at run time; copies share it. Answers as the score inside
/// does, at a virtual call for each packet where that one has the form, otherwise for each logit. Default:
/// the logit as it is.
class AnyScore {
 public:
  AnyScore() : AnyScore(NoScore{}) {}

  /// Implicit, so that a variable may be assigned any score.
  template <detail::ErasableScore S>
  AnyScore(S score) : score_(std::make_shared<const Model<S>>(std::move(score))) {}

  template <Accumulator Acc>
  Acc operator()(Acc s, const Site& site) const {
    return score_->apply(s, site);
  }
  /// Packets of the target, and numbers. Throws `Error` if the score inside has no such form: ask
  /// `takes_packets()` before.
  template <simd::PacketLike P>
  requires(simd::is_scalar<P> || std::same_as<P, simd::packet_t<simd::lane_t<P>>>) P
      packet(P s, const Site& first)
  const {
    if constexpr (simd::is_scalar<P>) {
      return score_->apply(s, first);
    } else {
      return score_->packet(s, first);
    }
  }
  bool takes_packets() const { return score_->takes_packets(); }
  /// The derivative of the score inside. Throws `Error` if it has none: ask `differentiable()` before.
  template <Accumulator Acc>
  Acc dscore(Acc s_in, Acc s_out, const Site& site) const {
    return score_->derivative(s_in, s_out, site);
  }
  void check(const AttentionShape& shape) const { score_->check(shape); }
  bool order_aware() const { return score_->order_aware(); }
  bool differentiable() const { return score_->differentiable(); }

 private:
  struct Interface {
    Interface() = default;
    Interface(const Interface&) = delete;
    Interface& operator=(const Interface&) = delete;
    virtual ~Interface() = default;
    virtual float apply(float s, const Site& site) const = 0;
    virtual double apply(double s, const Site& site) const = 0;
    virtual simd::packet_t<float> packet(simd::packet_t<float> s, const Site& first) const = 0;
    virtual simd::packet_t<double> packet(simd::packet_t<double> s, const Site& first) const = 0;
    virtual float derivative(float s_in, float s_out, const Site& site) const = 0;
    virtual double derivative(double s_in, double s_out, const Site& site) const = 0;
    virtual void check(const AttentionShape& shape) const = 0;
    virtual bool order_aware() const = 0;
    virtual bool takes_packets() const = 0;
    virtual bool differentiable() const = 0;
  };

  template <class S>
  struct Model final : Interface {
    explicit Model(S&& score) : score_(std::move(score)) {}
    float apply(float s, const Site& site) const override { return score_(s, site); }
    double apply(double s, const Site& site) const override { return score_(s, site); }
    simd::packet_t<float> packet(simd::packet_t<float> s, const Site& first) const override {
      return scored(s, first);
    }
    simd::packet_t<double> packet(simd::packet_t<double> s, const Site& first) const override {
      return scored(s, first);
    }
    float derivative(float s_in, float s_out, const Site& site) const override {
      return slope(s_in, s_out, site);
    }
    double derivative(double s_in, double s_out, const Site& site) const override {
      return slope(s_in, s_out, site);
    }
    void check(const AttentionShape& shape) const override { score_check(score_, shape); }
    bool order_aware() const override { return score_order_aware(score_); }
    bool takes_packets() const override {
      if constexpr (has_packets) {
        return score_packets_ready(score_);
      } else {
        return false;
      }
    }
    bool differentiable() const override { return score_differentiable(score_); }

    static constexpr bool has_packets =
        score_takes_packets<S, simd::packet_t<float>> && score_takes_packets<S, simd::packet_t<double>>;
    template <simd::PacketLike P>
    P scored(P s, const Site& first) const {
      if constexpr (has_packets) {
        return score_.packet(s, first);
      } else {
        ROVE_EXPECT(false, "AnyScore: the score inside has no packet form");
        return s;
      }
    }

    template <Accumulator Acc>
    Acc slope(Acc s_in, Acc s_out, const Site& site) const {
      if constexpr (DifferentiableScore<S>) {
        return score_.dscore(s_in, s_out, site);
      } else {
        ROVE_EXPECT(false, "AnyScore: the score inside has no derivative");
        return s_in;
      }
    }
    S score_;
  };

  std::shared_ptr<const Interface> score_;
};

ROVE_END_TAGGED

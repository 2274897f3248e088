/// \file
/// A mask chosen at run time.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>

#include "rove/attention/mask.hpp"
#include "rove/attention/site.hpp"
#include "rove/core/config.hpp"

ROVE_BEGIN_TAGGED

class AnyMask;

namespace detail {

/// What may become an AnyMask. Less than `Mask`: whether a Not<AnyMask> can be copied depends on what becomes
/// an AnyMask, so that to ask for it here would never end.
template <class M>
concept ErasableMask = !std::same_as<M, AnyMask> && requires(const M& mask, const Site& site) {
  { mask.visible(site) } -> std::convertible_to<bool>;
};

}  // namespace detail

/// Any mask behind one type, for choices made at run time; copies share it. Answers as the mask inside does;
/// each question costs a virtual call, so kernels that ask by tile and by bits lose little. Default:
/// everything visible.
class AnyMask {
 public:
  AnyMask() : AnyMask(AllVisible{}) {}

  /// Implicit, so that a variable may be assigned any mask.
  template <detail::ErasableMask M>
  AnyMask(M mask) : mask_(std::make_shared<const Model<M>>(std::move(mask))) {
    static_assert(Mask<M>);
  }

  bool visible(const Site& site) const { return mask_->visible(site); }
  void check(const AttentionShape& shape) const { mask_->check(shape); }
  bool order_aware() const { return mask_->order_aware(); }
  TileVisibility tile(const TileRange& range) const { return mask_->tile(range); }
  std::uint64_t bits(const Site& first, int count) const { return mask_->bits(first, count); }

 private:
  struct Interface {
    Interface() = default;
    Interface(const Interface&) = delete;
    Interface& operator=(const Interface&) = delete;
    virtual ~Interface() = default;
    virtual bool visible(const Site& site) const = 0;
    virtual void check(const AttentionShape& shape) const = 0;
    virtual bool order_aware() const = 0;
    virtual TileVisibility tile(const TileRange& range) const = 0;
    virtual std::uint64_t bits(const Site& first, int count) const = 0;
  };

  template <class M>
  struct Model final : Interface {
    explicit Model(M&& mask) : mask_(std::move(mask)) {}
    bool visible(const Site& site) const override { return static_cast<bool>(mask_.visible(site)); }
    void check(const AttentionShape& shape) const override { mask_check(mask_, shape); }
    bool order_aware() const override { return mask_order_aware(mask_); }
    TileVisibility tile(const TileRange& range) const override { return mask_tile(mask_, range); }
    std::uint64_t bits(const Site& first, int count) const override { return mask_bits(mask_, first, count); }
    M mask_;
  };

  std::shared_ptr<const Interface> mask_;
};

ROVE_END_TAGGED

// Masks site by site, bit by bit and tile by tile against formulas; how they join; what they refuse.
#include "rove/attention/mask.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "rove/attention/any_mask.hpp"
#include "rove/attention/masks_boolean.hpp"
#include "rove/attention/masks_documents.hpp"
#include "rove/attention/masks_lambda.hpp"
#include "rove/attention/masks_order.hpp"
#include "rove/core/tensor_view.hpp"
#include "support/error_of.hpp"
#include "support/masks.hpp"

namespace outside {

struct NoMask {
  int visible = 1;
};

template <class T>
concept Joins = requires(const T& t) {
  t& t;
}
|| requires(const T& t) {
  t | t;
}
|| requires(const T& t) {
  !t;
};

static_assert(rove::Mask<EvenKeys> && !Joins<EvenKeys>, "operators need one operand of rove's own");
static_assert(!Joins<NoMask> && !Joins<rove::Site> && !Joins<rove::TileVisibility>);
static_assert(!Joins<rove::TensorView<float>>);

}  // namespace outside

namespace {

using rove::AnyMask;
using rove::AttentionShape;
using rove::Index;
using rove::Mask;
using rove::Site;
using rove::TileRange;
using rove::TileVisibility;
using test::error_of;

constexpr AttentionShape shape{.batch = 2, .heads = 3, .kv_heads = 1, .q_len = 13, .kv_len = 70};

static_assert(Mask<rove::AllVisible> && Mask<rove::Causal> && Mask<rove::Window> && Mask<rove::Prefix>);
static_assert(Mask<rove::Documents> && Mask<rove::DocumentIds> && Mask<rove::BooleanMask<bool>>);
static_assert(Mask<AnyMask> && Mask<rove::And<AnyMask, outside::EvenKeys>>);
static_assert(!Mask<int> && !Mask<outside::NoMask> && !Mask<std::unique_ptr<outside::EvenKeys>>);
static_assert(std::is_trivially_copyable_v<rove::And<rove::Causal, rove::Not<rove::Window>>>);
static_assert(std::is_trivially_copyable_v<rove::Documents> && std::is_trivially_copyable_v<rove::Prefix>);
static_assert(std::is_trivially_copyable_v<rove::BooleanMask<bool>>);
static_assert(sizeof(rove::Not<rove::Causal>) == 1);
static_assert(rove::detail::is_all_visible<const rove::AllVisible&> &&
              !rove::detail::is_all_visible<AnyMask>);
// A mask known at compile time answers at compile time.
static_assert(((rove::causal() & rove::window(2, 3)) | !rove::causal()).visible(Site{.query = 4, .key = 5}));
static_assert(!(rove::causal() & rove::window(4)).visible(Site{.query = 5, .key = 1}));
static_assert(rove::mask_bits(rove::causal(), Site{.query = 2}, 64) == 7);

/// The keys, by index, that query sees of [0, n).
template <Mask M>
std::vector<Index> seen(const M& mask, Index query, Index n) {
  std::vector<Index> keys;
  for (Index key = 0; key < n; ++key) {
    if (mask.visible(Site{.row = query, .slot = key, .query = query, .key = key})) keys.push_back(key);
  }
  return keys;
}

using Keys = std::vector<Index>;

// ---- Every mask and composition against a formula written here, one site at a time --------------

using Truth = std::function<bool(const Site&)>;

const std::vector<std::int32_t> packed{0, 0, 5, 5, 17, 40, 40};
const std::vector<std::int64_t> packed_queries{0, 4, 4, 9, 13};
const std::vector<std::int64_t> packed_keys{0, 11, 30, 30, 64};
const std::vector<std::int64_t> prefixes{3, 50};
const std::vector<std::int32_t> ids = [] {
  std::vector<std::int32_t> of(80);
  for (std::size_t i = 0; i < of.size(); ++i) of[i] = static_cast<std::int32_t>(i / 9 % 4);
  return of;
}();
const std::vector<std::int64_t> ids_per_row = [] {
  std::vector<std::int64_t> of(160);
  for (std::size_t i = 0; i < of.size(); ++i) of[i] = i < 80 ? 7 : static_cast<std::int64_t>(100 - i / 20);
  return of;
}();
// A vector<bool> has no elements to view; the first is [2, 1, 13, 70], the second [1, 3, 1, 70].
const auto dense_booleans = [] {
  auto of = std::make_unique<bool[]>(2 * 13 * 70);
  std::mt19937 random(5);
  for (int i = 0; i < 2 * 13 * 70; ++i) of[static_cast<std::size_t>(i)] = random() % 3 != 0;
  return of;
}();
const std::vector<unsigned char> padding = [] {
  std::vector<unsigned char> of(3 * 70, 0);
  for (std::size_t i = 0; i < 20; ++i) of[70 + i] = 2;
  for (std::size_t i = 0; i < 70; ++i) of[140 + i] = static_cast<unsigned char>(i < 40 || i % 3 == 0);
  return of;
}();

rove::TensorView<const bool> dense_view() {
  return rove::bhtd<const bool>(dense_booleans.get(), 2, 1, 13, 70);
}
rove::TensorView<const unsigned char> padding_view() {
  return rove::bhtd(padding.data(), 1, 3, 1, 70);
}

bool same_document(const std::vector<Index>& queries, const std::vector<Index>& keys, const Site& site) {
  for (std::size_t s = 0; s + 1 < queries.size(); ++s) {
    const bool query_in = queries[s] <= site.query && site.query < queries[s + 1];
    const bool key_in = keys[s] <= site.key && site.key < keys[s + 1];
    if (query_in && key_in) return true;
  }
  return false;
}

bool same_id(const std::vector<Index>& of, const Site& site) {
  const Index n = static_cast<Index>(of.size());
  return site.query >= 0 && site.query < n && site.key >= 0 && site.key < n &&
         of[static_cast<std::size_t>(site.query)] == of[static_cast<std::size_t>(site.key)];
}

/// Calls f(name, mask, truth, exact): exact where tile() must find the very answer on consecutive keys.
template <class F>
void for_each_mask(F&& f) {
  const std::vector<Index> packed_wide(packed.begin(), packed.end());
  const Truth causal = [](const Site& s) { return s.key <= s.query; };
  const Truth window4 = [](const Site& s) { return s.query - 4 < s.key && s.key <= s.query; };
  const Truth window_2_3 = [](const Site& s) { return s.query - 2 <= s.key && s.key <= s.query + 3; };
  const Truth left = [](const Site& s) { return s.key >= s.query - 5; };
  const Truth prefix = [](const Site& s) { return s.key < 7; };
  const Truth own_prefix = [](const Site& s) { return s.key < (s.batch == 0 ? 3 : 50); };
  const Truth documents = [packed_wide](const Site& s) { return same_document(packed_wide, packed_wide, s); };
  const Truth two_lists = [](const Site& s) { return same_document(packed_queries, packed_keys, s); };
  const Truth by_id = [](const Site& s) { return same_id({ids.begin(), ids.end()}, s); };
  const Truth by_row_id = [](const Site& s) {
    const auto first = ids_per_row.begin() + (s.batch == 0 ? 0 : 80);
    return same_id({first, first + 80}, s);
  };
  const Truth dense = [](const Site& s) {
    return dense_booleans[static_cast<std::size_t>((s.batch * 13 + s.row) * 70 + s.slot)];
  };
  const Truth padded = [](const Site& s) {
    return padding[static_cast<std::size_t>(s.head * 70 + s.slot)] != 0;
  };
  const Truth even = [](const Site& s) { return s.key % 2 == 0; };
  const Truth odd_sum = [](const Site& s) { return (s.batch + s.head + s.query + s.key) % 2 != 0; };

  f("all", rove::AllVisible{}, Truth([](const Site&) { return true; }), true);
  f("causal", rove::causal(), causal, true);
  f("window(4)", rove::window(4), window4, true);
  f("window(1)", rove::window(1), Truth([](const Site& s) { return s.key == s.query; }), true);
  f("window(2, 3)", rove::window(2, 3), window_2_3, true);
  f("window(5, unbounded)", rove::window(5, rove::unbounded), left, true);
  f("window(max, 0)", rove::window(std::numeric_limits<Index>::max(), 0), causal, true);
  f("prefix(7)", rove::prefix(7), prefix, true);
  f("prefix(0)", rove::prefix(0), Truth([](const Site& s) { return s.key < 0; }), true);
  f("prefix per row", rove::prefix(prefixes), own_prefix, true);
  f("documents", rove::documents(packed), documents, false);
  f("documents of two lists", rove::documents(packed_queries, packed_keys), two_lists, false);
  f("document_ids", rove::document_ids(ids), by_id, false);
  f("document_ids per row", rove::document_ids(ids_per_row, 2), by_row_id, false);
  f("boolean", rove::boolean_mask(dense_view()), dense, false);
  f("padding", rove::boolean_mask(padding_view()), padded, true);
  f("a struct", outside::EvenKeys{}, even, false);
  f("lambda by index",
    rove::mask([](Index b, Index h, Index q, Index k) { return (b + h + q + k) % 2 != 0; }), odd_sum, false);
  f("lambda by site", rove::mask([](const Site& s) { return s.slot % 2 == 0; }),
    Truth([](const Site& s) { return s.slot % 2 == 0; }), false);
  f("causal & window(2, 3)", rove::causal() & rove::window(2, 3),
    Truth([=](const Site& s) { return causal(s) && window_2_3(s); }), false);
  f("causal | prefix", rove::causal() | rove::prefix(7),
    Truth([=](const Site& s) { return causal(s) || prefix(s); }), false);
  f("!causal", !rove::causal(), Truth([=](const Site& s) { return !causal(s); }), true);
  f("!(boolean)", !rove::boolean_mask(dense_view()), Truth([=](const Site& s) { return !dense(s); }), false);
  f("causal & documents", rove::causal() & rove::documents(packed),
    Truth([=](const Site& s) { return causal(s) && documents(s); }), false);
  f("struct | causal", outside::EvenKeys{} | rove::causal(),
    Truth([=](const Site& s) { return even(s) || causal(s); }), false);
  f("Not(struct)", rove::Not(outside::EvenKeys{}), Truth([=](const Site& s) { return !even(s); }), false);
  f("padding & !(prefix | window) | ids",
    (rove::boolean_mask(padding_view()) & !(rove::prefix(7) | rove::window(4))) | rove::document_ids(ids),
    Truth([=](const Site& s) { return (padded(s) && !(prefix(s) || window4(s))) || by_id(s); }), false);
  f("AnyMask", AnyMask(rove::causal() | rove::prefix(7)),
    Truth([=](const Site& s) { return causal(s) || prefix(s); }), false);
  f("AnyMask & padding", AnyMask(rove::window(4)) & rove::boolean_mask(padding_view()),
    Truth([=](const Site& s) { return window4(s) && padded(s); }), false);
  f("AnyMask(!AnyMask)", AnyMask(!AnyMask(rove::causal())), Truth([=](const Site& s) { return !causal(s); }),
    true);
}

TEST(Mask, visible_is_the_formula) {
  for_each_mask([](const char* name, const auto& mask, const Truth& truth, bool) {
    rove::mask_check(mask, shape);
    for (const Index offset : {0, 57, -3, 30}) {
      for (const Index moved : {0, 4, -20}) {
        for (Site s; s.batch < shape.batch; ++s.batch) {
          for (s.head = 0; s.head < shape.heads; ++s.head) {
            for (s.row = 0; s.row < shape.q_len; ++s.row) {
              for (s.slot = 0; s.slot < shape.kv_len; ++s.slot) {
                s.query = offset + s.row;
                s.key = moved + s.slot;
                ASSERT_EQ(mask.visible(s), truth(s))
                    << name << " query " << s.query << " key " << s.key << " slot " << s.slot;
              }
            }
          }
        }
      }
    }
  });
}

TEST(Mask, bits_are_visible_by_the_slot) {
  for_each_mask([](const char* name, const auto& mask, const Truth& truth, bool) {
    std::mt19937 random(11);
    const auto below = [&](Index n) { return static_cast<Index>(random() % static_cast<std::uint32_t>(n)); };
    for (int trial = 0; trial < 600; ++trial) {
      const int count = trial % 65;
      Site first{.batch = below(2), .head = below(3), .row = below(13), .slot = below(70 - count + 1)};
      first.query = first.row + below(140) - 50;
      first.key = first.slot + below(60) - 30;
      if (first.slot == 70) first.slot = 69;
      std::uint64_t expected = 0;
      Site site = first;
      for (int i = 0; i < count; ++i, ++site.slot, ++site.key) {
        if (truth(site)) expected |= std::uint64_t{1} << i;
      }
      ASSERT_EQ(rove::mask_bits(mask, first, count), expected)
          << name << ", " << count << " from key " << first.key << ", query " << first.query;
    }
  });
}

TEST(Mask, tile_agrees_with_visible) {
  for_each_mask([](const char* name, const auto& mask, const Truth& truth, bool exact) {
    std::mt19937 random(13);
    const auto below = [&](Index n) { return static_cast<Index>(random() % static_cast<std::uint32_t>(n)); };
    std::array<int, 3> answers{};
    for (int trial = 0; trial < 3000; ++trial) {
      // A third of the tiles are consecutive keys moved as a whole, a third have a gap inside.
      TileRange t{.batch = below(2), .head = below(3)};
      t.row_first = below(13);
      t.row_last = t.row_first + 1 + below(13 - t.row_first);
      t.slot_first = below(70);
      t.slot_last = t.slot_first + 1 + below((std::min)(Index{40}, 70 - t.slot_first));
      const Index offset = below(100) - 20;
      const Index moved = trial % 3 == 0 ? 0 : below(60) - 30;
      const Index gap = trial % 3 == 2 ? below(40) : 0;
      const Index gap_at = t.slot_first + below(t.slot_last - t.slot_first);
      const auto key = [&](Index slot) { return slot + moved + (slot > gap_at ? gap : 0); };
      t.query_first = offset + t.row_first;
      t.query_last = offset + t.row_last;
      t.key_first = key(t.slot_first);
      t.key_last = key(t.slot_last - 1) + 1;
      Index visible = 0;
      for (Index row = t.row_first; row < t.row_last; ++row) {
        for (Index slot = t.slot_first; slot < t.slot_last; ++slot) {
          visible += truth(Site{t.batch, t.head, row, slot, offset + row, key(slot)}) ? 1 : 0;
        }
      }
      const Index whole = (t.row_last - t.row_first) * (t.slot_last - t.slot_first);
      const TileVisibility answer = rove::mask_tile(mask, t);
      ++answers[static_cast<std::size_t>(answer)];
      ASSERT_TRUE(answer != TileVisibility::none || visible == 0) << name << ": " << visible << " visible";
      ASSERT_TRUE(answer != TileVisibility::all || visible == whole)
          << name << ": " << visible << " of " << whole;
      const bool consecutive = t.key_last - t.key_first == t.slot_last - t.slot_first;
      if (exact && consecutive && answer == TileVisibility::some) {
        ASSERT_TRUE(visible != 0 && visible != whole)
            << name << ": " << visible << " of " << whole << " visible";
      }
    }
    // Masks that know their tiles find some to skip and some to leave untested.
    if (std::string(name) == "causal & documents" || std::string(name) == "document_ids") {
      for (const int count : answers) EXPECT_GT(count, 5) << name;
    }
  });
}

TEST(Mask, tile_of_one_key_and_one_query_is_exact_for_orders_and_documents) {
  const auto exact = [](const auto& mask) {
    for (Index query = -3; query < 60; ++query) {
      for (Index key = -3; key < 60; ++key) {
        const TileRange t{0, 0, 0, 1, 0, 1, query, query + 1, key, key + 1};
        ASSERT_EQ(mask.tile(t),
                  mask.visible(Site{.query = query, .key = key}) ? TileVisibility::all : TileVisibility::none)
            << query << ", " << key;
      }
    }
  };
  exact(rove::causal());
  exact(rove::window(4));
  exact(rove::documents(packed));
  exact(rove::documents(packed_queries, packed_keys));
  exact(rove::document_ids(ids));
  exact(rove::causal() & rove::documents(packed));
  exact(!(rove::causal() | rove::prefix(9)));
}

// ---- Joins --------------------------------------------------------------------------------------

/// Says of every tile what it is told.
struct Fixed {
  TileVisibility answer;
  bool sees;
  bool visible(const Site&) const { return sees; }
  TileVisibility tile(const TileRange&) const { return answer; }
};

TEST(Mask, joined_tiles_follow_the_three_valued_tables) {
  constexpr auto none = TileVisibility::none, some = TileVisibility::some, all = TileVisibility::all;
  constexpr TileVisibility values[3] = {none, some, all};
  constexpr TileVisibility both[3][3] = {{none, none, none}, {none, some, some}, {none, some, all}};
  constexpr TileVisibility either[3][3] = {{none, some, all}, {some, some, all}, {all, all, all}};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      const Fixed a{values[i], true}, b{values[j], true};
      EXPECT_EQ((rove::And<Fixed, Fixed>(a, b)).tile({}), both[i][j]) << i << j;
      EXPECT_EQ((rove::Or<Fixed, Fixed>(a, b)).tile({}), either[i][j]) << i << j;
    }
    EXPECT_EQ(rove::Not(Fixed{values[i], true}).tile({}), values[2 - i]);
  }
}

TEST(Mask, B70_masks_join_as_booleans) {
  const auto hidden = rove::mask([](const Site&) { return false; });
  const auto shown = rove::mask([](const Site&) { return true; });
  EXPECT_FALSE((hidden & hidden).visible({}));
  EXPECT_FALSE((hidden & shown).visible({}));
  EXPECT_TRUE((shown & shown).visible({}));
  EXPECT_FALSE((hidden | hidden).visible({}));
  EXPECT_TRUE((hidden | shown).visible({}));
  EXPECT_TRUE((!hidden).visible({}));
  EXPECT_TRUE((!!shown).visible({}));
}

TEST(Mask, joining_with_all_visible_leaves_the_other) {
  static_assert(std::is_same_v<decltype(rove::AllVisible{} & rove::causal()), rove::Causal>);
  static_assert(std::is_same_v<decltype(rove::causal() & rove::AllVisible{}), rove::Causal>);
  static_assert(std::is_same_v<decltype(rove::AllVisible{} & outside::EvenKeys{}), outside::EvenKeys>);
  EXPECT_TRUE((rove::AllVisible{} | rove::causal()).visible(Site{.query = 0, .key = 1}));
}

TEST(Mask, order_aware_where_the_query_index_matters) {
  EXPECT_TRUE(rove::mask_order_aware(rove::causal()));
  EXPECT_TRUE(rove::mask_order_aware(rove::window(4)));
  EXPECT_TRUE(rove::mask_order_aware(rove::documents(packed)));
  EXPECT_TRUE(rove::mask_order_aware(rove::document_ids(ids)));
  EXPECT_TRUE(rove::mask_order_aware(rove::mask([](const Site&) { return true; })));
  EXPECT_TRUE(rove::mask_order_aware(outside::EvenKeys{}));
  EXPECT_FALSE(rove::mask_order_aware(rove::AllVisible{}));
  EXPECT_FALSE(rove::mask_order_aware(rove::prefix(3)));
  EXPECT_FALSE(rove::mask_order_aware(rove::boolean_mask(dense_view())));
  EXPECT_FALSE(rove::mask_order_aware(rove::boolean_mask(dense_view()) & !rove::prefix(3)));
  EXPECT_TRUE(rove::mask_order_aware(rove::boolean_mask(dense_view()) & rove::causal()));
  EXPECT_TRUE(rove::mask_order_aware(rove::causal() | rove::prefix(3)));
  EXPECT_TRUE(rove::mask_order_aware(rove::prefix(2) | !rove::causal()));
  EXPECT_FALSE(AnyMask().order_aware());
  EXPECT_TRUE(AnyMask(rove::causal()).order_aware());
}

// ---- Faults known from elsewhere ----------------------------------------------------------------

TEST(Mask, B01_B02_a_row_may_see_nothing) {
  const auto nothing = std::make_unique<bool[]>(6);
  const auto mask = rove::boolean_mask(rove::bhtd<const bool>(nothing.get(), 1, 1, 1, 6));
  EXPECT_EQ(seen(mask, 0, 6), Keys{});
  const TileRange tile{0, 0, 0, 6, 0, 6, 0, 6, 0, 6};
  EXPECT_EQ(rove::mask_tile(mask, tile), TileVisibility::none);
  // Left-padding: the first three keys are hidden, so causal rows 0 to 2 see nothing.
  const bool padded[6] = {false, false, false, true, true, true};
  const auto causal_padded = rove::causal() & rove::boolean_mask(rove::bhtd<const bool>(padded, 1, 1, 1, 6));
  EXPECT_EQ(seen(causal_padded, 2, 6), Keys{});
  EXPECT_EQ(seen(causal_padded, 4, 6), (Keys{3, 4}));
}

TEST(Mask, B05_nothing_visible_is_no_number) {
  const auto nothing = rove::causal() & !rove::causal();
  EXPECT_EQ(seen(nothing, 3, 6), Keys{});
  EXPECT_EQ(rove::mask_bits(nothing, Site{.query = 3}, 6), 0U);
}

TEST(Mask, B08_causal_goes_by_absolute_index) {
  // Two queries at the end of five keys: offset 3.
  EXPECT_EQ(seen(rove::causal(), 3, 5).size(), 4U);
  EXPECT_EQ(seen(rove::causal(), 4, 5).size(), 5U);
  // Five queries at the end of two keys: offset -3.
  for (const Index query : {-3, -2, -1}) EXPECT_EQ(seen(rove::causal(), query, 2), Keys{});
  EXPECT_EQ(seen(rove::causal(), 0, 2), Keys{0});
  EXPECT_EQ(seen(rove::causal(), 1, 2), (Keys{0, 1}));
}

TEST(Mask, B09_a_window_counts_the_own_key) {
  EXPECT_EQ(seen(rove::window(4), 5, 9), (Keys{2, 3, 4, 5}));
  EXPECT_EQ(seen(rove::window(1), 5, 9), Keys{5});
  EXPECT_EQ(seen(rove::window(3, 0), 5, 9), (Keys{2, 3, 4, 5}));
  EXPECT_EQ(seen(rove::window(0, 0), 5, 9), Keys{5});
  EXPECT_EQ(seen(rove::window(0, 2), 5, 9), (Keys{5, 6, 7}));
  EXPECT_EQ(seen(rove::window(1, rove::unbounded), 5, 9), (Keys{4, 5, 6, 7, 8}));
  EXPECT_EQ(seen(rove::window(rove::unbounded, 1), 2, 9), (Keys{0, 1, 2, 3}));
}

TEST(Mask, B10_a_row_sees_the_same_window_alone_and_among_others) {
  // Row 5 of a prefill and row 0 of a decode at offset 5 are one query.
  for (Index key = 0; key < 9; ++key) {
    const Site prefill{.row = 5, .slot = key, .query = 5, .key = key};
    const Site decode{.row = 0, .slot = key, .query = 5, .key = key};
    EXPECT_EQ(rove::window(4).visible(prefill), rove::window(4).visible(decode)) << key;
  }
}

/// Keeps what it was asked for.
struct Noting {
  std::vector<Index>* asked;
  bool visible(const Site&) const { return true; }
  void prefetch(const Site& first, Index count) const { asked->push_back(1000 * first.slot + count); }
};

static_assert(rove::mask_prefetches<rove::BooleanMask<bool>>() && !rove::mask_prefetches<AnyMask>());
static_assert(rove::mask_prefetches<rove::And<rove::BooleanMask<bool>, AnyMask>>() &&
              rove::mask_prefetches<rove::Or<outside::EvenKeys, rove::BooleanMask<bool>>>() &&
              !rove::mask_prefetches<rove::Or<outside::EvenKeys, AnyMask>>());

TEST(Mask, joined_masks_pass_prefetches_on_to_both) {
  std::vector<Index> left, right;
  rove::And(Noting{&left}, Noting{&right}).prefetch(Site{.slot = 3}, 20);
  rove::Or(Noting{&left}, rove::Or(outside::EvenKeys{}, Noting{&right})).prefetch(Site{.slot = 5}, 1);
  EXPECT_EQ(left, (std::vector<Index>{3020, 5001}));
  EXPECT_EQ(right, left);
}

// ---- Errors -------------------------------------------------------------------------------------

TEST(Mask, mistakes_are_named_with_their_numbers) {
  EXPECT_EQ(error_of([] { rove::window(0); }), "window: size must be at least 1 (a query's own key), got 0");
  EXPECT_EQ(error_of([] { rove::window(-2, 0); }), "window: left must not be negative, got -2");
  EXPECT_EQ(error_of([] { rove::window(2, -1); }), "window: right must not be negative, got -1");
  EXPECT_EQ(error_of([] { rove::prefix(-4); }), "prefix: length must not be negative, got -4");
  const std::vector<std::int64_t> three{1, 2, 3}, negative{1, -2};
  EXPECT_EQ(error_of([&] { rove::mask_check(rove::prefix(three), shape); }),
            "prefix: there are 3 lengths for batch 2");
  EXPECT_EQ(error_of([] { rove::mask_check(rove::prefix(std::vector<std::int32_t>{}), shape); }),
            "prefix: there are 0 lengths for batch 2");
  EXPECT_EQ(error_of([&] { rove::mask_check(rove::prefix(negative), shape); }),
            "prefix: length -2 of batch row 1 is negative");
}

TEST(Mask, joins_and_any_mask_pass_checks_on) {
  const rove::TensorView<const bool> null = rove::bhtd<const bool>(nullptr, 1, 1, 1, 70);
  const auto bad = rove::boolean_mask(null);
  const auto error = [](const auto& mask) { return error_of([&] { rove::mask_check(mask, shape); }); };
  EXPECT_EQ(error(rove::causal() & bad), "boolean_mask: data is null");
  EXPECT_EQ(error(bad & rove::causal()), "boolean_mask: data is null");
  EXPECT_EQ(error(rove::causal() | bad), "boolean_mask: data is null");
  EXPECT_EQ(error(bad | rove::causal()), "boolean_mask: data is null");
  EXPECT_EQ(error(!bad), "boolean_mask: data is null");
  EXPECT_EQ(error(AnyMask(bad)), "boolean_mask: data is null");
  EXPECT_EQ(error(AnyMask()), "(no error)");
  EXPECT_EQ(error(outside::EvenKeys{}), "(no error)");
}

}  // namespace

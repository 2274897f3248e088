#include "rove/core/simd_bytes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace {

TEST(SimdBytes, eight_become_eight_bits) {
  unsigned char bytes[8];
  for (int at = 0; at < 8; ++at) {
    for (int value = 0; value < 256; ++value) {
      for (const int others : {0, 1, 0x7f, 0x80, 0xff}) {
        for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(others);
        bytes[at] = static_cast<unsigned char>(value);
        const unsigned all = others != 0 ? 0xffU : 0U, bit = 1U << at;
        ASSERT_EQ(rove::simd::bits_of_8_bytes(bytes), value != 0 ? all | bit : all & ~bit)
            << at << ' ' << value << ' ' << others;
      }
    }
  }
  std::mt19937_64 random(17);
  for (int trial = 0; trial < 100000; ++trial) {
    std::uint64_t expected = 0;
    const std::uint64_t word = random() & random() & (random() | random() | 0x8001018000800180U);
    for (int i = 0; i < 8; ++i) {
      bytes[i] = static_cast<unsigned char>(word >> (8 * i));
      if (bytes[i] != 0) expected |= std::uint64_t{1} << i;
    }
    ASSERT_EQ(rove::simd::bits_of_8_bytes(bytes), expected);
  }
}

TEST(SimdBytes, sixty_four_become_as_many) {
  std::mt19937_64 random(23);
  unsigned char bytes[65];
  for (int trial = 0; trial < 20000; ++trial) {
    unsigned char* const from = bytes + trial % 2;
    const std::uint64_t expected = trial < 64 ? std::uint64_t{1} << trial : random();
    for (int i = 0; i < 64; ++i) {
      from[i] = (expected >> i & 1U) == 0 ? 0 : static_cast<unsigned char>(random() % 255 + 1);
    }
    ASSERT_EQ(rove::simd::bits_of_64_bytes(from), expected);
  }
}

}  // namespace

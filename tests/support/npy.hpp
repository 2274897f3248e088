/// \file
/// The test data's .npy files: little-endian float32, C order, header version 1.0; anything else throws.
#pragma once

#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace rove_test {

struct NpyArray {
  std::vector<std::int64_t> shape{};
  std::vector<float> values{};  ///< C order
};

/// Reads one file. \throws std::runtime_error, naming the file, if it is absent or odd in any way
inline NpyArray load_npy(const std::string& path) {
  const auto require = [&](bool condition, const char* what) {
    if (!condition) throw std::runtime_error(path + ": " + what);
  };
  static_assert(std::endian::native == std::endian::little, "values are copied as they lie");
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), "cannot be opened");
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  require(bytes.size() >= 10 && bytes.compare(0, 8, std::string("\x93NUMPY\x01\x00", 8)) == 0,
          "is no .npy file of version 1.0");
  const std::size_t header_size =
      static_cast<unsigned char>(bytes[8]) + std::size_t{256} * static_cast<unsigned char>(bytes[9]);
  require(bytes.size() >= 10 + header_size, "ends within its header");
  // {'descr': '<f4', 'fortran_order': False, 'shape': (1, 9, 64, 64), } and blanks.
  std::string_view header(bytes.data() + 10, header_size);
  const auto take = [&](std::string_view text) {
    if (header.substr(0, text.size()) != text) return false;
    header.remove_prefix(text.size());
    return true;
  };
  const char* const odd = "is not float32 in C order";
  require(take("{'descr': '<f4', 'fortran_order': False, 'shape': ("), odd);
  NpyArray array;
  std::size_t count = 1;
  while (!take(")")) {
    std::int64_t extent = 0;
    const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), extent);
    require(error == std::errc{} && extent >= 0, odd);
    header.remove_prefix(static_cast<std::size_t>(end - header.data()));
    array.shape.push_back(extent);
    count *= static_cast<std::size_t>(extent);
    require(take(", ") || take(",") || header.substr(0, 1) == ")", odd);
  }
  take(",");
  take(" ");
  require(take("}") && header.find_first_not_of(" \n") == std::string_view::npos, odd);
  require(bytes.size() == 10 + header_size + count * sizeof(float), "has another size than its shape says");
  array.values.resize(count);
  if (count > 0) std::memcpy(array.values.data(), bytes.data() + 10 + header_size, count * sizeof(float));
  return array;
}

}  // namespace rove_test

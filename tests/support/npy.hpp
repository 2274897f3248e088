/// \file
/// The test data's .npy files: little-endian float32, C order, header version 1.0; anything else throws.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <stdexcept>
#include <string>
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
  const std::string header = bytes.substr(10, header_size);
  std::smatch match;
  require(
      std::regex_match(
          header, match,
          std::regex(R"(\{'descr': '<f4', 'fortran_order': False, 'shape': \(((?:\d+, ?)*\d*)\), ?\}\s*)")),
      "is not float32 in C order");

  NpyArray array;
  const std::string extents = match[1];
  const std::regex number(R"(\d+)");
  std::size_t count = 1;
  for (std::sregex_iterator it(extents.begin(), extents.end(), number), end; it != end; ++it) {
    array.shape.push_back(std::stoll(it->str()));
    count *= static_cast<std::size_t>(array.shape.back());
  }
  require(bytes.size() == 10 + header_size + count * sizeof(float), "has another size than its shape says");
  array.values.resize(count);
  if (count > 0) std::memcpy(array.values.data(), bytes.data() + 10 + header_size, count * sizeof(float));
  return array;
}

}  // namespace rove_test

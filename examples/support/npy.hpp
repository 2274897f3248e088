/// \file
/// NumPy's .npy files: arrays of floating-point numbers, in and out.
///
/// Format: numpy.lib.format, versions 1.0, 2.0 and 3.0: "\x93NUMPY", two version bytes, the length of the
/// header (2 bytes in version 1, else 4), the header, which is a Python dictionary of `descr`,
/// `fortran_order` and `shape`, and then the numbers, to the end of the file.
#pragma once

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "atomic_file.hpp"

namespace npy {

static_assert(std::endian::native == std::endian::little, "the numbers are read as they lie in the file");

using support::FileError;

/// An array in C order: the last index runs fastest.
template <std::floating_point T>
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<T> values;
  std::string descr = sizeof(T) == 4 ? "<f4" : "<f8";  ///< as the file has it
};

/// "(1, 9, 320, 64)", as Python writes it.
inline std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

namespace detail {

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// Reads the header's dictionary and nothing else of Python: no escapes, no expressions.
class HeaderParser {
 public:
  HeaderParser(const std::filesystem::path& file, std::string_view text) : file_(file), rest_(text) {}

  Header parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        skip_space();
        if (!rest_.empty() && rest_.front() == '[') {
          throw FileError(file_, "holds records; save one array of float32 ('<f4')");
        }
        header.descr = quoted();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        header.fortran_order = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        header.shape = shape();
        has_shape = true;
      } else {
        malformed("key '" + key + "' is unknown or repeated");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!rest_.empty()) malformed("text after the dictionary");
    if (!has_descr) malformed("no 'descr'");
    if (!has_order) malformed("no 'fortran_order'");
    if (!has_shape) malformed("no 'shape'");
    return header;
  }

 private:
  [[noreturn]] void malformed(const std::string& what) const {
    throw FileError(file_, "malformed .npy header: " + what);
  }

  void skip_space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n' || rest_.front() == '\t' ||
                              rest_.front() == '\r')) {
      rest_.remove_prefix(1);
    }
  }

  bool accept(char c) {
    skip_space();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c)) malformed(std::string("'") + c + "' expected");
  }

  bool accept_word(std::string_view word) {
    skip_space();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  std::string quoted() {
    skip_space();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) malformed("a string expected");
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) malformed("a string does not end");
    const std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    // A message stays one printable line, whatever the file holds.
    const auto plain = [](char c) { return c >= ' ' && c <= '~' && c != '\\'; };
    if (!std::all_of(text.begin(), text.end(), plain)) malformed("a string that is not plain text");
    return text;
  }

  bool boolean() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    malformed("'fortran_order' is neither True nor False");
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> extents;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t extent = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (error == std::errc::result_out_of_range) malformed("an extent of the shape does not fit 64 bits");
      if (error != std::errc()) malformed("a number expected in the shape");
      if (extent < 0) malformed("an extent of the shape is negative");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      extents.push_back(extent);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return extents;
  }

  const std::filesystem::path& file_;
  std::string_view rest_;
};

inline std::string quote(const std::string& text) {
  return "'" + text + "'";
}

/// Bytes of one number; anything but little-endian float32 and float64 is refused, with what it is.
inline std::int64_t item_size(const std::filesystem::path& file, const std::string& descr) {
  if (descr == "<f4") return 4;
  if (descr == "<f8") return 8;
  const char order = descr.empty() ? '?' : descr.front();
  if (order == '>') {
    throw FileError(file, "is big-endian (" + quote(descr) + "); save it as little-endian float32 ('<f4')");
  }
  throw FileError(file, "has dtype " + quote(descr) + "; float32 ('<f4') or float64 ('<f8') expected");
}

/// Product of the extents and the item's size, refused where it leaves 64 bits.
inline std::int64_t byte_count(const std::filesystem::path& file, const std::vector<std::int64_t>& shape,
                               std::int64_t item) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t bytes = item;
  for (const std::int64_t extent : shape) {
    if (bytes > (std::numeric_limits<std::int64_t>::max)() / extent) {
      throw FileError(file, "shape " + to_string(shape) + " has more numbers than 64 bits count");
    }
    bytes *= extent;
  }
  return bytes;
}

template <class To, class From>
std::vector<To> convert(const std::filesystem::path& file, std::vector<From> numbers) {
  if constexpr (std::same_as<To, From>) {
    return numbers;
  } else {
    std::vector<To> converted(numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      converted[i] = static_cast<To>(numbers[i]);
      if (std::isfinite(numbers[i]) && !std::isfinite(converted[i])) {
        throw FileError(file, "the number at flat index " + std::to_string(i) + " is too large for float32");
      }
    }
    return converted;
  }
}

}  // namespace detail

/// Reads a whole .npy file of float32 or float64, C order, little-endian, as T (float64 read as float is
/// rounded once; `descr` tells). Everything that does not fit is a `FileError`: nothing is guessed.
template <std::floating_point T>
Array<T> read(const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status)) {
    throw FileError(file, error ? error.message() : std::string("no such file"));
  }
  if (!fs::is_regular_file(status)) throw FileError(file, "not a regular file");
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw FileError(file, "cannot be opened: " + std::generic_category().message(errno));
  const std::uintmax_t measured = fs::file_size(file, error);
  if (error) throw FileError(file, error.message());
  const auto file_bytes = static_cast<std::int64_t>(measured);

  const auto get = [&](void* into, std::int64_t bytes) {
    stream.read(static_cast<char*>(into), static_cast<std::streamsize>(bytes));
    if (stream.gcount() != bytes) throw FileError(file, "is truncated, or changed while being read");
  };

  constexpr std::string_view magic = "\x93NUMPY";
  char start[8] = {};
  if (file_bytes == 0) throw FileError(file, "is empty");
  if (file_bytes < 8) throw FileError(file, "is not a .npy file");
  get(start, 8);
  if (std::string_view(start, magic.size()) != magic) throw FileError(file, "is not a .npy file");
  const int major = static_cast<unsigned char>(start[6]);
  const int minor = static_cast<unsigned char>(start[7]);
  if (major < 1 || major > 3 || minor != 0) {
    throw FileError(file, "is .npy version " + std::to_string(major) + "." + std::to_string(minor) +
                              "; 1.0, 2.0 and 3.0 are known");
  }
  const std::int64_t length_bytes = major == 1 ? 2 : 4;
  unsigned char length[4] = {};
  get(length, length_bytes);
  std::int64_t header_bytes = 0;
  for (std::int64_t i = length_bytes; i-- > 0;) header_bytes = 256 * header_bytes + length[i];
  const std::int64_t data_start = 8 + length_bytes + header_bytes;
  if (data_start > file_bytes) {
    throw FileError(file, "is truncated: a header of " + std::to_string(header_bytes) +
                              " bytes in a file of " + std::to_string(file_bytes));
  }
  std::string text(static_cast<std::size_t>(header_bytes), '\0');
  get(text.data(), header_bytes);
  detail::Header header = detail::HeaderParser(file, text).parse();

  const std::int64_t item = detail::item_size(file, header.descr);
  if (header.fortran_order) {
    throw FileError(file, "is in Fortran order; save it with numpy.ascontiguousarray");
  }
  const std::int64_t bytes = detail::byte_count(file, header.shape, item);
  const std::int64_t present = file_bytes - data_start;
  if (present < bytes) {
    throw FileError(file, "is truncated: shape " + to_string(header.shape) + " needs " +
                              std::to_string(bytes) + " bytes of numbers, " + std::to_string(present) +
                              " are there");
  }
  if (present > bytes) {
    throw FileError(file, "has " + std::to_string(present - bytes) + " bytes after the " +
                              std::to_string(bytes) + " that shape " + to_string(header.shape) + " needs");
  }

  const auto count = static_cast<std::size_t>(bytes / item);
  const auto numbers = [&]<class Stored>(Stored) {
    std::vector<Stored> stored(count);
    get(stored.data(), bytes);
    return detail::convert<T>(file, std::move(stored));
  };
  Array<T> array;
  array.values = item == 4 ? numbers(float()) : numbers(double());
  array.shape = std::move(header.shape);
  array.descr = std::move(header.descr);
  return array;
}

/// The bytes before the numbers: version 1.0, padded so that the numbers start at a multiple of 64.
template <std::floating_point T>
std::string header(const std::vector<std::int64_t>& shape) {
  std::string text = std::string("{'descr': '") + (sizeof(T) == 4 ? "<f4" : "<f8") +
                     "', 'fortran_order': False, 'shape': " + to_string(shape) + ", }";
  constexpr std::size_t preamble = 10, alignment = 64;
  text.append(alignment - 1 - (preamble + text.size()) % alignment, ' ');
  text += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(text.size() % 256);
  bytes += static_cast<char>(text.size() / 256);
  return bytes + text;
}

/// Writes C-order numbers into a file that the caller commits.
template <std::floating_point T>
void write(support::AtomicFile& file, const std::vector<std::int64_t>& shape, const std::vector<T>& values) {
  if (detail::byte_count(file.name(), shape, sizeof(T)) !=
      static_cast<std::int64_t>(values.size() * sizeof(T))) {
    throw FileError(file.name(),
                    std::to_string(values.size()) + " numbers do not fill shape " + to_string(shape));
  }
  file.write(header<T>(shape));
  file.write(values.data(), values.size() * sizeof(T));
}

/// Writes a whole file, or leaves what was there.
template <std::floating_point T>
void write(const std::filesystem::path& target, const std::vector<std::int64_t>& shape,
           const std::vector<T>& values) {
  support::AtomicFile file(target);
  write(file, shape, values);
  file.commit();
}

}  // namespace npy

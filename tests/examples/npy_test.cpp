// The .npy reader and writer of the examples: what NumPy writes is read, what does not fit is refused in one
// line, and a file appears whole or not at all.

#include "examples/support/npy.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

class Npy : public ::testing::Test {
 protected:
  Npy() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("rove_npy_" + std::string(info->name()) + "_" +
                                           std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
                                           "_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)));
    fs::create_directories(folder_);
  }
  ~Npy() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path path(const std::string& name = "a.npy") const { return folder_ / name; }

  fs::path put(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path();
  }

  std::string get(const fs::path& file) const {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  /// The one line that refuses these bytes, without the file's name.
  std::string refusal(const std::string& bytes) const {
    put(bytes);
    return refusal_of_file(path());
  }

  std::string refusal_of_file(const fs::path& file) const {
    try {
      npy::read<float>(file);
    } catch (const npy::FileError& error) {
      const std::string what = error.what();
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
      EXPECT_EQ(what.rfind(file.string() + ": ", 0), 0u) << what;
      return what.substr(file.string().size() + 2);
    }
    return "read without complaint";
  }

 private:
  fs::path folder_;
};

std::string preamble(int major, std::size_t header) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) bytes += static_cast<char>((header >> (8 * i)) & 255);
  return bytes;
}

std::string file(const std::string& dictionary, const std::string& numbers, int major = 1) {
  return preamble(major, dictionary.size()) + dictionary + numbers;
}

template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
  std::string bytes(numbers.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::string dictionary(const std::string& shape, const std::string& descr = "<f4",
                       const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

const std::string six = bytes_of<float>({1, 2, 3, 4, 5, 6});

TEST_F(Npy, reads_each_version_of_the_format) {
  for (const int major : {1, 2, 3}) {
    const auto array = npy::read<float>(put(file(dictionary("(2, 3)"), six, major)));
    EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(array.values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(array.descr, "<f4");
  }
}

TEST_F(Npy, takes_a_header_longer_than_two_bytes_count) {
  std::string text = dictionary("(6,)");
  text.insert(text.size() - 1, 70000, ' ');
  EXPECT_EQ(npy::read<float>(put(file(text, six, 2))).values.size(), 6u);
}

TEST_F(Npy, takes_keys_in_any_order_and_either_quote) {
  const std::string text = "{ \"shape\":(3,2) , \"descr\" : \"<f4\",\"fortran_order\":False}";
  EXPECT_EQ(npy::read<float>(put(file(text, six))).shape, (std::vector<std::int64_t>{3, 2}));
}

TEST_F(Npy, reads_shapes_of_nothing_and_of_one_number) {
  EXPECT_EQ(npy::read<float>(put(file(dictionary("(2, 0, 3)"), ""))).shape,
            (std::vector<std::int64_t>{2, 0, 3}));
  EXPECT_TRUE(npy::read<float>(put(file(dictionary("(0, 9223372036854775807, 9)"), ""))).values.empty());
  const auto scalar = npy::read<float>(put(file(dictionary("()"), bytes_of<float>({7}))));
  EXPECT_TRUE(scalar.shape.empty());
  EXPECT_EQ(scalar.values, std::vector<float>{7});
}

TEST_F(Npy, rounds_float64_once_and_widens_float32_exactly) {
  const std::vector<double> stored{0.1, -0.0, 1.0 + 0x1p-24 + 0x1p-50,
                                   std::numeric_limits<double>::infinity()};
  put(file(dictionary("(4,)", "<f8"), bytes_of(stored)));
  const auto narrow = npy::read<float>(path());
  EXPECT_EQ(narrow.descr, "<f8");
  EXPECT_EQ(narrow.values[0], 0.1F);
  EXPECT_TRUE(std::signbit(narrow.values[1]));
  EXPECT_EQ(narrow.values[2], 1.0F + 0x1p-23F);
  EXPECT_EQ(narrow.values[3], std::numeric_limits<float>::infinity());
  EXPECT_EQ(npy::read<double>(path()).values, stored);
  EXPECT_EQ(npy::read<double>(put(file(dictionary("(6,)"), six))).values,
            (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Npy, refuses_a_double_that_no_float_holds) {
  EXPECT_EQ(refusal(file(dictionary("(2,)", "<f8"), bytes_of<double>({1, -1e300}))),
            "the number at flat index 1 is too large for float32");
}

TEST_F(Npy, refuses_what_is_not_there) {
  EXPECT_EQ(refusal_of_file(path("absent.npy")), "No such file or directory");
  EXPECT_EQ(refusal_of_file(path(".")), "not a regular file");
  EXPECT_EQ(refusal(""), "is empty");
}

TEST_F(Npy, refuses_what_is_not_npy) {
  EXPECT_EQ(refusal("PK\x03\x04 an npz is a zip file"), "is not a .npy file");
  EXPECT_EQ(refusal("\x93NUM"), "is not a .npy file");
  EXPECT_EQ(refusal(file(dictionary("(6,)"), six, 4)), "is .npy version 4.0; 1.0, 2.0 and 3.0 are known");
}

TEST_F(Npy, refuses_truncated_files_wherever_they_end) {
  const std::string whole = file(dictionary("(2, 3)"), six);
  for (std::size_t length = 8; length < whole.size(); ++length) {
    EXPECT_EQ(refusal(whole.substr(0, length)).rfind("is truncated", 0), 0u) << length;
  }
  EXPECT_EQ(refusal(whole.substr(0, whole.size() - 1)),
            "is truncated: shape (2, 3) needs 24 bytes of numbers, 23 are there");
  EXPECT_EQ(refusal(preamble(1, 500)), "is truncated: a header of 500 bytes in a file of 10");
  EXPECT_EQ(refusal(preamble(2, 0xffffffff)), "is truncated: a header of 4294967295 bytes in a file of 12");
}

TEST_F(Npy, refuses_bytes_after_the_numbers) {
  EXPECT_EQ(refusal(file(dictionary("(2, 3)"), six + "x")),
            "has 1 bytes after the 24 that shape (2, 3) needs");
  EXPECT_EQ(refusal(file(dictionary("(0,)"), six)), "has 24 bytes after the 0 that shape (0,) needs");
}

TEST_F(Npy, refuses_other_number_types_by_name) {
  EXPECT_EQ(refusal(file(dictionary("(6,)", ">f4"), six)),
            "is big-endian ('>f4'); save it as little-endian float32 ('<f4')");
  EXPECT_EQ(refusal(file(dictionary("(6,)", "<i4"), six)),
            "has dtype '<i4'; float32 ('<f4') or float64 ('<f8') expected");
  EXPECT_EQ(refusal(file(dictionary("(12,)", "<f2"), six)),
            "has dtype '<f2'; float32 ('<f4') or float64 ('<f8') expected");
  EXPECT_EQ(refusal(file(dictionary("(24,)", "|u1"), six)),
            "has dtype '|u1'; float32 ('<f4') or float64 ('<f8') expected");
  EXPECT_EQ(refusal(file("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (6,), }", six)),
            "holds records; save one array of float32 ('<f4')");
}

TEST_F(Npy, refuses_fortran_order) {
  EXPECT_EQ(refusal(file(dictionary("(2, 3)", "<f4", "True"), six)),
            "is in Fortran order; save it with numpy.ascontiguousarray");
}

TEST_F(Npy, refuses_sizes_that_overflow) {
  const std::string too_many = "has more numbers than 64 bits count";
  EXPECT_EQ(refusal(file(dictionary("(4294967296, 4294967296)"), six)),
            "shape (4294967296, 4294967296) " + too_many);
  EXPECT_EQ(refusal(file(dictionary("(4611686018427387904,)"), six)),
            "shape (4611686018427387904,) " + too_many);
  EXPECT_EQ(refusal(file(dictionary("(99999999999999999999,)"), six)),
            "malformed .npy header: an extent of the shape does not fit 64 bits");
  // 2^60 bytes: counted, and not asked of the allocator.
  EXPECT_EQ(
      refusal(file(dictionary("(288230376151711744,)"), six)),
      "is truncated: shape (288230376151711744,) needs 1152921504606846976 bytes of numbers, 24 are there");
}

TEST_F(Npy, refuses_malformed_headers_by_name) {
  const auto complaint = [&](const std::string& text) {
    const std::string what = refusal(file(text, six));
    const std::string start = "malformed .npy header: ";
    return what.rfind(start, 0) == 0 ? what.substr(start.size()) : "not so: " + what;
  };
  EXPECT_EQ(complaint(""), "'{' expected");
  EXPECT_EQ(complaint("{}"), "no 'descr'");
  EXPECT_EQ(complaint("{'descr': '<f4'}"), "no 'fortran_order'");
  EXPECT_EQ(complaint("{'descr': '<f4', 'fortran_order': False}"), "no 'shape'");
  EXPECT_EQ(complaint("{'descr': '<f4', 'fortran_order': maybe}"),
            "'fortran_order' is neither True nor False");
  EXPECT_EQ(complaint("{'descr': '<f4', 'descr': '<f4'}"), "key 'descr' is unknown or repeated");
  EXPECT_EQ(complaint("{'strides': (4,)}"), "key 'strides' is unknown or repeated");
  EXPECT_EQ(complaint("{'descr': '<f4"), "a string does not end");
  EXPECT_EQ(complaint("{'descr': 4}"), "a string expected");
  EXPECT_EQ(complaint("{'descr': '<\x1b[31mf4'}"), "a string that is not plain text");
  EXPECT_EQ(complaint("{'descr' '<f4'}"), "':' expected");
  EXPECT_EQ(complaint("{'shape': (6,"), "a number expected in the shape");
  EXPECT_EQ(complaint("{'shape': (6.0,)}"), "')' expected");
  EXPECT_EQ(complaint("{'shape': (-6,)}"), "an extent of the shape is negative");
  EXPECT_EQ(complaint("{'shape': 6}"), "'(' expected");
  EXPECT_EQ(complaint("{'shape': (6,) 'descr': '<f4'}"), "'}' expected");
  EXPECT_EQ(complaint(dictionary("(6,)") + "import os"), "text after the dictionary");
}

TEST_F(Npy, writes_the_bytes_that_numpy_writes) {
  npy::write<float>(path(), {2, 3}, {1, 2, 3, 4, 5, 6});
  // numpy.save(f, numpy.arange(1, 7, dtype='<f4').reshape(2, 3)), as NumPy 1.24 writes it.
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  text += std::string(58, ' ') + "\n";
  EXPECT_EQ(get(path()), preamble(1, 118) + text + six);
  npy::write<double>(path(), {1}, {0.5});
  EXPECT_EQ(get(path()).size() % 64, 8u);
  EXPECT_EQ(npy::read<double>(path()).values, std::vector<double>{0.5});
}

TEST_F(Npy, starts_the_numbers_at_a_multiple_of_64_whatever_the_shape) {
  for (std::int64_t extent = 1; extent < 1'000'000'000'000'000'000; extent *= 10) {
    EXPECT_EQ(npy::header<float>({extent}).size() % 64, 0u) << extent;
    EXPECT_EQ(npy::header<float>({extent}).back(), '\n');
  }
}

TEST_F(Npy, leaves_the_old_file_until_the_new_one_is_whole) {
  npy::write<float>(path(), {1}, {1});
  const std::string old = get(path());
  {
    support::AtomicFile file(path());
    file.write("half of a new");
    file.close();
    EXPECT_EQ(get(path()), old);
    EXPECT_EQ(files(), 2u);
  }
  EXPECT_EQ(get(path()), old);
  EXPECT_EQ(files(), 1u);
  EXPECT_THROW(npy::write<float>(path(), {2}, {1}), npy::FileError);
  EXPECT_EQ(get(path()), old);
  EXPECT_EQ(files(), 1u);
}

TEST_F(Npy, moves_a_file_being_written) {
  std::vector<support::AtomicFile> open;
  open.emplace_back(path("x"));
  open.emplace_back(path("y"));
  for (support::AtomicFile& file : open) file.write("text");
  for (support::AtomicFile& file : open) file.commit();
  open.clear();
  EXPECT_EQ(get(path("x")), "text");
  EXPECT_EQ(files(), 2u);
}

TEST_F(Npy, writes_through_a_link) {
  fs::create_symlink(path("real.npy"), path("link.npy"));
  npy::write<float>(path("link.npy"), {1}, {1});
  EXPECT_TRUE(fs::is_symlink(path("link.npy")));
  EXPECT_EQ(npy::read<float>(path("real.npy")).values.size(), 1u);
  fs::create_symlink("real.npy", path("relative.npy"));
  npy::write<float>(path("relative.npy"), {2}, {1, 2});
  EXPECT_EQ(npy::read<float>(path("real.npy")).values.size(), 2u);
}

std::string write_refusal(const fs::path& target) {
  try {
    npy::write<float>(target, {1}, {1});
  } catch (const npy::FileError& error) {
    return std::string(error.what()).substr(target.string().size() + 2);
  }
  return "written";
}

TEST_F(Npy, refuses_places_that_cannot_be_written) {
  EXPECT_EQ(write_refusal(path("no/such/folder.npy")), "cannot write: No such file or directory");
  EXPECT_EQ(write_refusal(path(".")), "cannot write: not a regular file");
  EXPECT_EQ(write_refusal("/dev/null"), "cannot write: not a regular file");
  fs::create_symlink(path("b"), path("a"));
  fs::create_symlink(path("a"), path("b"));
  EXPECT_EQ(write_refusal(path("a")), "cannot write: too many levels of symbolic links");
  fs::remove(path("a"));
  fs::remove(path("b"));
  EXPECT_EQ(files(), 0u);
}

TEST_F(Npy, refuses_to_replace_a_read_only_file) {
  npy::write<float>(path(), {1}, {1});
  fs::permissions(path(), fs::perms::owner_read);
  EXPECT_EQ(write_refusal(path()), "cannot write: the file is read-only");
  EXPECT_EQ(files(), 1u);
}

TEST(NpyShape, prints_as_python_does) {
  EXPECT_EQ(npy::to_string({}), "()");
  EXPECT_EQ(npy::to_string({5}), "(5,)");
  EXPECT_EQ(npy::to_string({1, 9, 320, 64}), "(1, 9, 320, 64)");
}

}  // namespace

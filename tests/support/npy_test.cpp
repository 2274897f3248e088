#include "support/npy.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

namespace {

using rove_test::load_npy;

std::string header(const std::string& dictionary) {
  std::string text = dictionary + "\n";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(text.size());
  bytes += '\0';
  return bytes + text;
}

/// The bytes in a file of their own for as long as the object lives.
class File {
 public:
  explicit File(const std::string& bytes) {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "rove_" + test->name() + ".npy";
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~File() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string failure(const std::string& bytes) {
  const File file(bytes);
  try {
    load_npy(file.path());
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    return what.substr(what.rfind(": ") + 2);
  }
  return "none";
}

const std::string two_floats("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);  // 1, -2

TEST(Npy, reads_shape_and_values) {
  const File file(header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }    ") + two_floats);
  const auto array = load_npy(file.path());
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(array.values, (std::vector<float>{1, -2}));
}

TEST(Npy, reads_one_and_no_extent) {
  {
    const File file(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }") + two_floats);
    EXPECT_EQ(load_npy(file.path()).shape, (std::vector<std::int64_t>{2}));
  }
  const File file(header("{'descr': '<f4', 'fortran_order': False, 'shape': (), }") +
                  two_floats.substr(0, 4));
  EXPECT_EQ(load_npy(file.path()).values, (std::vector<float>{1}));
}

TEST(Npy, refuses_what_is_odd) {
  const std::string good = header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }");
  EXPECT_EQ(failure(good + two_floats), "none");
  EXPECT_EQ(failure(""), "is no .npy file of version 1.0");
  EXPECT_EQ(failure("PK" + good.substr(2) + two_floats), "is no .npy file of version 1.0");
  EXPECT_EQ(failure(good.substr(0, 6) + '\x02' + good.substr(7) + two_floats),
            "is no .npy file of version 1.0");
  EXPECT_EQ(failure(good.substr(0, 20)), "ends within its header");
  EXPECT_EQ(failure(header("{'descr': '>f4', 'fortran_order': False, 'shape': (1, 2), }") + two_floats),
            "is not float32 in C order");
  EXPECT_EQ(failure(header("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1), }") + two_floats),
            "is not float32 in C order");
  EXPECT_EQ(failure(header("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }") + two_floats),
            "is not float32 in C order");
  for (const char* shape : {"(1, -2)", "(1 2)", "(1, x)", "(1, 2", "(1, 2), 3", "(99999999999999999999,)"}) {
    EXPECT_EQ(
        failure(header(std::string("{'descr': '<f4', 'fortran_order': False, 'shape': ") + shape + ", }") +
                two_floats),
        "is not float32 in C order")
        << shape;
  }
  EXPECT_EQ(failure(good + two_floats.substr(0, 7)), "has another size than its shape says");
  EXPECT_EQ(failure(good + two_floats + "x"), "has another size than its shape says");
}

TEST(Npy, refuses_an_absent_file) {
  EXPECT_THROW(load_npy(testing::TempDir() + "rove_no_such_file.npy"), std::runtime_error);
}

}  // namespace

#!/usr/bin/env python3
"""Plants one fault at a time in a small tree and expects check_messages.py to name it."""

import pathlib
import tempfile
import unittest

import check_messages

HEADER = """#define ROVE_EXPECT(condition, ...) check(condition)
// ROVE_EXPECT(false, "in a comment");
void f(int n) {
  ROVE_EXPECT(n > 0 && g("a)"), "the size is ", n,
              "; it must "
              "be positive");
}
"""
TEST = 'EXPECT_EQ(error(0), "the size is 0; it must be positive");\n'
TREE = {"include/rove/a.hpp": HEADER, "tests/a_test.cpp": TEST}


class Messages(unittest.TestCase):
    def expect(self, problems, changed):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (TREE | changed).items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            self.assertEqual(check_messages.check(root), problems)

    def test_a_message_that_is_read(self):
        self.expect([], {})

    def test_one_that_is_not(self):
        self.expect(["include/rove/a.hpp:4: no test reads ['the size is', '; it must be positive']"],
                    {"tests/a_test.cpp": "EXPECT_ANY_THROW(f(0));\n"})

    def test_half_of_one(self):
        self.expect(["include/rove/a.hpp:4: no test reads ['the size is']"],
                    {"tests/a_test.cpp": TEST.replace("the size is", "length is")})

    def test_one_in_a_comment(self):
        self.expect(["include/rove/a.hpp:4: no test reads ['the size is', '; it must be positive']"],
                    {"tests/a_test.cpp": "// " + TEST})

    def test_no_messages(self):
        self.expect(["no ROVE_EXPECT below include/"], {"include/rove/a.hpp": "void f();\n"})


if __name__ == "__main__":
    unittest.main()

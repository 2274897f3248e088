#!/usr/bin/env python3
"""Plants one fault at a time in a small tree and expects check_faults.py to name it."""

import pathlib
import tempfile
import unittest

import check_faults

LIST = "| id | trap | right |\n|---|---|---|\n| B01 B02 | a | b |\n| N03 | c | d |\n"
TEST = "TEST(Mask, B01_B02_nothing) {}\n// N03\nTEST(Mask, tails) {}\n"
TREE = {"tests/FAULTS.md": LIST, "tests/a_test.cpp": TEST, "examples/b.cpp": "int B2, AB01x;\n"}


class Faults(unittest.TestCase):
    def expect(self, problems, changed):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (TREE | changed).items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            self.assertEqual(check_faults.check(root), problems)

    def test_a_list_that_is_tested(self):
        self.expect([], {})

    def test_a_row_without_a_test(self):
        self.expect(["tests/FAULTS.md: no test names B02"], {"tests/a_test.cpp": TEST.replace("_B02", "")})

    def test_a_test_without_a_row(self):
        self.expect(["tests/a_test.cpp: B04 has no row in tests/FAULTS.md"],
                    {"tests/a_test.cpp": TEST + "TEST(Mask, B04_more) {}\n"})

    def test_two_rows(self):
        self.expect(["tests/FAULTS.md: N03 has 2 rows"], {"tests/FAULTS.md": LIST + "| N03 | c | d |\n"})


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Plants one violation at a time in a small tree and expects check_floors.py to name it."""

import pathlib
import tempfile
import unittest

import check_floors

FLOORS = "core:\nposition: core\nattention: core  # knows no frames\ndense: core/config.hpp\neigen.hpp: core\nrove.hpp: core position attention\n"


def header(*lines):
    return "\n".join(["/// \\file", "/// Text.", "#pragma once", *lines, ""])


TREE = {
    "core/config.hpp": header("#include <cstdint>", "#include <Eigen/Core>"),
    "core/simd.hpp": header("#include <immintrin.h>", "using Eigen::internal::pload;"),
    "position/table.hpp": header('#include "rove/core/config.hpp"'),
    "attention/mask.hpp": header('#include "rove/core/config.hpp"', "// Eigen::internal stays out"),
    "dense/oracle.hpp": header("#include <vector>", '#include "rove/core/config.hpp"'),
    "eigen.hpp": header('#include "rove/core/config.hpp"'),
    "rove.hpp": header('#include "rove/attention/mask.hpp"', '#include "rove/core/config.hpp"',
                       '#include "rove/core/simd.hpp"', '#include "rove/position/table.hpp"'),
}


class Floors(unittest.TestCase):
    def problems(self, **changed):
        """What is found in TREE with the named files replaced; `core__config` stands for core/config.hpp."""
        tree = TREE | {name.replace("__", "/") + ".hpp": text for name, text in changed.items()}
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in tree.items():
                path = root / "include" / "rove" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            (root / "tools").mkdir()
            (root / "tools" / "floors.txt").write_text(FLOORS, encoding="utf-8")
            return check_floors.check(root)

    def expect(self, message, **changed):
        self.assertEqual(self.problems(**changed), [message])

    def test_a_clean_tree(self):
        self.assertEqual(self.problems(), [])

    def test_upward(self):
        self.assertIn("core/config.hpp:4: core must not include rove/position/table.hpp",
                      self.problems(core__config=header('#include "rove/position/table.hpp"')))

    def test_sideways(self):
        self.expect("attention/mask.hpp:4: attention must not include rove/position/table.hpp",
                    attention__mask=header('#include "rove/position/table.hpp"'))

    def test_off_the_island(self):
        self.expect("dense/oracle.hpp:4: dense must not include rove/core/simd.hpp",
                    dense__oracle=header('#include "rove/core/simd.hpp"'))

    def test_cycle(self):
        self.assertIn("a cycle: core/config.hpp -> core/simd.hpp -> core/config.hpp",
                      self.problems(core__config=header('#include "rove/core/simd.hpp"'),
                                    core__simd=header('#include "rove/core/config.hpp"')))

    def test_missing_in_the_umbrella(self):
        self.expect("rove.hpp: does not include rove/core/simd.hpp",
                    rove=TREE["rove.hpp"].replace('#include "rove/core/simd.hpp"\n', ""))

    def test_absent(self):
        self.expect("eigen.hpp:4: rove/core/views.hpp does not exist",
                    eigen=header('#include "rove/core/views.hpp"'))

    def test_unknown_floor(self):
        self.expect("attic/old.hpp: tools/floors.txt has no floor attic", attic__old=header())

    def test_relative(self):
        self.expect('core/config.hpp:4: write "rove/...", not "simd.hpp"',
                    core__config=header('#include "simd.hpp"'))

    def test_angle_brackets(self):
        self.expect('position/table.hpp:4: write "rove/core/config.hpp", not <rove/core/config.hpp>',
                    position__table=header("#include <rove/core/config.hpp>"))

    def test_third_party(self):
        self.expect("core/config.hpp:4: <fmt/core.h> is neither the standard library's nor Eigen's",
                    core__config=header("#include <fmt/core.h>"))

    def test_intrinsics(self):
        self.expect("core/config.hpp:4: <immintrin.h> is not for this header",
                    core__config=header("#include <immintrin.h>"))

    def test_eigen_internal(self):
        self.expect("core/config.hpp:4: Eigen::internal belongs in core/simd.hpp alone",
                    core__config=header("using Eigen::internal::pload;"))

    def test_no_pragma_once(self):
        self.expect("core/config.hpp: no #pragma once", core__config="/// \\file\n")

    def test_no_file_comment(self):
        self.expect("core/config.hpp: does not open with /// \\file", core__config="#pragma once\n")

    def test_too_long(self):
        self.expect("core/config.hpp: 503 lines, at most 500", core__config=header(*["// x"] * 500))

    def test_unbalanced_tag(self):
        self.expect("core/config.hpp: ROVE_BEGIN_TAGGED and ROVE_END_TAGGED do not match",
                    core__config=header("ROVE_BEGIN_TAGGED"))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Plants one fault at a time in a small tree and expects check_docs.py to name it."""

import pathlib
import tempfile
import unittest

import check_docs

CODE = "int a;\n// [readme:b]\nint b;\n// [/readme:b]\n"
PAGE = "Text, [a link](docs/page.md), `[no](link)`.\n\n<!-- examples/b.cpp [readme:b] -->\n```cpp\nint b;\n```\n"
TREE = {"README.md": PAGE, "docs/page.md": "# Page\n\n[back](../README.md#top)\n", "examples/b.cpp": CODE}


class Docs(unittest.TestCase):
    def tree(self, folder, changed):
        root = pathlib.Path(folder)
        for name, text in (TREE | changed).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return root

    def expect(self, messages, changed):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(check_docs.check(self.tree(folder, changed)), messages)

    def test_a_clean_tree(self):
        self.expect([], {})

    def test_a_block_that_differs(self):
        self.expect(["README.md:3: differs from [readme:b] of examples/b.cpp"],
                    {"README.md": PAGE.replace("int b;", "int  b;")})

    def test_code_that_moved_on(self):
        self.expect(["README.md:3: differs from [readme:b] of examples/b.cpp"],
                    {"examples/b.cpp": CODE.replace("int b;", "long b;")})

    def test_no_block(self):
        self.expect(["README.md:3: no block of code follows [readme:b]"],
                    {"README.md": PAGE.replace("```cpp\n", "").replace("```\n", "")})

    def test_no_region(self):
        self.expect(["README.md:3: examples/b.cpp has no region [readme:c]", "examples/b.cpp: no page shows [readme:b]"],
                    {"README.md": PAGE.replace("readme:b", "readme:c")})

    def test_no_file(self):
        self.expect(["README.md:3: examples/c.cpp has no region [readme:b]", "examples/b.cpp: no page shows [readme:b]"],
                    {"README.md": PAGE.replace("b.cpp", "c.cpp")})

    def test_a_region_that_no_page_shows(self):
        self.expect(["examples/c.cpp: no page shows [docs:c]"],
                    {"examples/c.cpp": "// [docs:c]\nint c;\n// [/docs:c]\n"})

    def test_a_dead_link(self):
        self.expect(["docs/page.md: links to ../READ.md, which does not exist"],
                    {"docs/page.md": "[back](../READ.md)\n"})

    def test_a_dead_image(self):
        self.expect(["docs/page.md: links to a.svg, which does not exist"], {"docs/page.md": "![text](a.svg)\n"})

    def test_update(self):
        with tempfile.TemporaryDirectory() as folder:
            root = self.tree(folder, {"README.md": PAGE.replace("int b;", "int old;\n\nint older;")})
            check_docs.update_snippets(root, root / "README.md")
            self.assertEqual((root / "README.md").read_text(encoding="utf-8"), PAGE)


if __name__ == "__main__":
    unittest.main()

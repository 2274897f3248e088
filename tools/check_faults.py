#!/usr/bin/env python3
"""Every fault of tests/FAULTS.md has a test that names it, and every id that a test names has its row.

usage: check_faults.py [ROOT]

A test names a fault by its id in its own name (`TEST(Masks, B09_window_counts_itself)`), or in a comment beside it where it
serves several ids or is a step of the build. Prints one line a problem and exits with 1 if there is any.
"""

import pathlib
import re
import sys

ROW = re.compile(r"^\| ((?:[BN]\d\d ?)+)\|", re.MULTILINE)
ID = re.compile(r"(?<![A-Za-z0-9])([BN]\d\d)(?![A-Za-z0-9])")
SUFFIXES = {".cpp", ".hpp", ".py", ".txt", ".cmake"}


def rows(text):
    return [match.group(1).split() for match in ROW.finditer(text)]


def mentioned(root):
    """id -> files below tests/ and examples/ that name it."""
    found = {}
    for folder in ("tests", "examples"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                # An id may stand at the head of a name: B09_window.
                text = path.read_text(encoding="utf-8").replace("_", " ")
                for fault in ID.findall(text):
                    found.setdefault(fault, path.relative_to(root))
    return found


def check(root):
    problems = []
    listed = rows((root / "tests" / "FAULTS.md").read_text(encoding="utf-8"))
    named = mentioned(root)
    ids = [fault for row in listed for fault in row]
    for fault in sorted(set(ids)):
        if ids.count(fault) > 1:
            problems.append(f"tests/FAULTS.md: {fault} has {ids.count(fault)} rows")
        if fault not in named:
            problems.append(f"tests/FAULTS.md: no test names {fault}")
    for fault, path in sorted(named.items()):
        if fault not in ids:
            problems.append(f"{path}: {fault} has no row in tests/FAULTS.md")
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

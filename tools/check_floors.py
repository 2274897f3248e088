#!/usr/bin/env python3
"""Keeps the floors of include/rove: which header may include which, and how a header is to look.

usage: check_floors.py [ROOT]

ROOT is the root of the tree. Prints one line a violation and exits with 1 if there is any.
"""

import pathlib
import re
import sys

MAX_LINES = 500
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# What headers may use beside the standard library and Eigen, and where.
SYSTEM_HEADERS = {
    "omp.h": re.compile(r"^core/"),
    "immintrin.h": re.compile(r"^core/simd.*\.hpp$"),
    "arm_neon.h": re.compile(r"^core/simd.*\.hpp$"),
    "sys/mman.h": re.compile(r"^core/huge_pages\.hpp$"),
}
EIGEN_INTERNAL_HOME = re.compile(r"^core/simd.*\.hpp$")


def read_floors(path):
    """floor -> the floors and single headers it may include, itself too."""
    floors = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        floor, _, below = line.partition(":")
        floors[floor] = set(below.split()) | {floor}
    return floors


def floor_of(header):
    """core/check.hpp -> core; eigen.hpp -> eigen.hpp"""
    return header.split("/")[0]


def without_comments(text):
    """The code with comments blanked and its lines kept."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)


def cycles(includes):
    """The first include cycle found, as a list of headers, or an empty list."""
    done, path = set(), []

    def visit(header):
        if header in path:
            return path[path.index(header):] + [header]
        if header in done:
            return []
        path.append(header)
        for below in includes.get(header, []):
            if cycle := visit(below):
                return cycle
        path.pop()
        done.add(header)
        return []

    for header in sorted(includes):
        if cycle := visit(header):
            return cycle
    return []


def check_header(header, text, floors, headers):
    """(problems, headers of ours that it includes)"""
    problems, included = [], []
    floor = floor_of(header)
    lines = text.splitlines()
    if floor not in floors:
        problems.append(f"{header}: tools/floors.txt has no floor {floor}")
    if len(lines) > MAX_LINES:
        problems.append(f"{header}: {len(lines)} lines, at most {MAX_LINES}")
    if "#pragma once" not in lines:
        problems.append(f"{header}: no #pragma once")
    if not text.startswith("/// \\file\n"):
        problems.append(f"{header}: does not open with /// \\file")
    code = without_comments(text)
    if code.count("ROVE_BEGIN_TAGGED") != code.count("ROVE_END_TAGGED"):
        problems.append(f"{header}: ROVE_BEGIN_TAGGED and ROVE_END_TAGGED do not match")
    for number, line in enumerate(code.splitlines(), 1):
        where = f"{header}:{number}"
        if re.search(r"\bEigen::internal\b", line) and not EIGEN_INTERNAL_HOME.match(header):
            problems.append(f"{where}: Eigen::internal belongs in core/simd.hpp alone")
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, name = match.groups()
        if bracket == '"':
            if not name.startswith("rove/"):
                problems.append(f'{where}: write "rove/...", not "{name}"')
                continue
            target = name[len("rove/"):]
            included.append(target)
            if target not in headers:
                problems.append(f"{where}: {name} does not exist")
            elif floor in floors and not {target, floor_of(target)} & floors[floor]:
                problems.append(f"{where}: {floor} must not include {name}")
        elif name.startswith("rove/"):
            problems.append(f'{where}: write "{name}", not <{name}>')
        elif name in SYSTEM_HEADERS:
            if not SYSTEM_HEADERS[name].match(header):
                problems.append(f"{where}: <{name}> is not for this header")
        elif not re.fullmatch(r"[a-z_]+|(unsupported/)?Eigen/[A-Za-z0-9/]+", name):
            problems.append(f"{where}: <{name}> is neither the standard library's nor Eigen's")
    return problems, included


def check(root):
    """All problems of the tree at root, as lines."""
    include = root / "include" / "rove"
    floors = read_floors(root / "tools" / "floors.txt")
    headers = sorted(str(path.relative_to(include)) for path in include.rglob("*.hpp"))
    problems, includes = [], {}
    if not headers:
        problems.append(f"no headers in {include}")
    for path in sorted(include.rglob("*")):
        if path.is_file() and path.suffix != ".hpp":
            problems.append(f"{path.relative_to(include)}: only .hpp files belong here")
    for header in headers:
        text = (include / header).read_text(encoding="utf-8")
        found, includes[header] = check_header(header, text, floors, set(headers))
        problems += found
    if cycle := cycles(includes):
        problems.append("a cycle: " + " -> ".join(cycle))
    if "rove.hpp" in includes:
        wanted = floors.get("rove.hpp", set()) - {"rove.hpp"}
        for header in headers:
            if floor_of(header) in wanted and header not in includes["rove.hpp"]:
                problems.append(f"rove.hpp: does not include rove/{header}")
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

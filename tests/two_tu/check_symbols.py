#!/usr/bin/env python3
"""Reads objects compiled with different flags and names each inline function of rove's that two of them share.

usage: check_symbols.py NM OBJECT...

The linker keeps one copy of a function that several objects define. If its code depends on the flags, that
copy may hold instructions which the caller's CPU lacks. Functions outside of the tagged namespace are listed
below: they hold no such code.
"""

import collections
import re
import subprocess
import sys

SHARED = re.compile(
    r"rove::(untagged::error_handler_slot|set_error_handler|Error::)"  # no arithmetic in them
    r"|rove::(\w+::)*(?P<type>\w+)::(~?(?P=type)\(|operator=\()"  # member by member, as the compiler writes them
)


def weak_functions(nm, path):
    """Demangled names of what the object defines and the linker may merge."""
    listing = subprocess.run([nm, "--demangle", "--defined-only", path], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    for line in listing.splitlines():
        kind, name = line.split(maxsplit=2)[1:]
        if kind in "WVu":
            yield name


def qualified_name(name):
    """`rove::f<int>(int)` of `void rove::f<int>(int)`: the return type is left out."""
    depth = 0
    begin = 0
    for at, character in enumerate(name):
        if character in "<(":
            if character == "(" and depth == 0 and not name.endswith("operator", 0, at):
                return name[begin:]
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == " " and depth == 0:
            begin = at + 1
    return name[begin:]


def is_ours(name):
    """Whether it is a function of rove's: not data, not the standard library's or Eigen's over one of its types."""
    return "(" in name and qualified_name(name).startswith("rove::")


def main():
    nm, objects = sys.argv[1], sys.argv[2:]
    homes = collections.defaultdict(set)
    for path in objects:
        for name in weak_functions(nm, path):
            homes[name].add(path)
    ours = [name for name in homes if is_ours(name)]
    shared = sorted(name for name in ours if len(homes[name]) > 1 and not SHARED.search(name))
    for name in shared:
        print(f"in {len(homes[name])} objects: {name}")
    if len(objects) < 2 or not ours:
        print("nothing to compare")
        return 1
    return 1 if shared else 0


if __name__ == "__main__":
    sys.exit(main())

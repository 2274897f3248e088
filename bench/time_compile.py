#!/usr/bin/env python3
"""Times compiling bench/compile_time.cpp at -O2: the price of including the library and calling it once.

usage: time_compile.py COMPILER [ARGUMENT...]

The arguments are the compiler's (include folders). Best and median of five; the bound is six seconds with g++.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time

RUNS = 5
BOUND = 6.0


def main():
    source = pathlib.Path(__file__).with_name("compile_time.cpp")
    command = [*sys.argv[1:], "-std=c++20", "-O2", "-c", str(source), "-o", os.devnull]
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        subprocess.run(command, check=True)
        seconds.append(time.perf_counter() - begin)
    best, median = min(seconds), statistics.median(seconds)
    print(f"compiling one file with one call, -O2: best {best:.2f} s, median {median:.2f} s "
          f"of {RUNS} (bound {BOUND:.0f} s)")
    return 0 if best < BOUND else 1


if __name__ == "__main__":
    sys.exit(main())

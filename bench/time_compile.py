#!/usr/bin/env python3
"""Times compiling bench/compile_time.cpp at -O2: the price of including the library and calling it once.

usage: time_compile.py COMPILER [ARGUMENT...]

The arguments are the compiler's (include folders). Best and median of five. The bound, eight seconds with g++, is on CPU time, which a busy machine does not stretch.
"""

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

RUNS = 5
BOUND = 8.0


def cpu_seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    source = pathlib.Path(__file__).with_name("compile_time.cpp")
    command = [*sys.argv[1:], "-std=c++20", "-O2", "-c", str(source), "-o", os.devnull]
    wall, cpu = [], []
    for _ in range(RUNS):
        begin, used = time.perf_counter(), cpu_seconds_of_children()
        subprocess.run(command, check=True)
        wall.append(time.perf_counter() - begin)
        cpu.append(cpu_seconds_of_children() - used)
    print(f"compiling one file with one call, -O2: best {min(wall):.2f} s, median {statistics.median(wall):.2f} s "
          f"of {RUNS}; of CPU time, best {min(cpu):.2f} s (bound {BOUND:.0f} s)")
    return 0 if min(cpu) < BOUND else 1


if __name__ == "__main__":
    sys.exit(main())

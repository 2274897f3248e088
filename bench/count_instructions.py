#!/usr/bin/env python3
"""Counts the instructions of RoVE, RoPE and plain attention by callgrind: what a busy machine cannot change.

usage: count_instructions.py [COMPILER] [--tokens N] [--heads N] [--march CPU] [-I FOLDER ...]

Builds count_instructions.cpp (for AVX2: valgrind 3.19 does not know AVX-512) and runs
one call of each under valgrind. Exit status 1 where RoVE takes more than 1.02 of RoPE's instructions. Without valgrind
a line says so, and that is all.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BOUND = 1.02
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


def build(compiler, march, folders, program):
    subprocess.run([compiler, "-std=c++20", "-O3", "-DNDEBUG", f"-march={march}", f"-I{ROOT}", f"-I{ROOT / 'include'}",
                    *(f"-isystem{folder}" for folder in folders), str(HERE / "count_instructions.cpp"), "-o", program],
                   check=True)


def collected(text):
    """The number of instructions in what callgrind prints at its end, or None."""
    found = re.search(r"Collected\s*:\s*(\d+)", text)
    return int(found.group(1)) if found else None


def count(program, what, tokens, head_dim, heads, causal):
    done = subprocess.run(["valgrind", "--tool=callgrind", "--toggle-collect=rove_counted",
                           "--callgrind-out-file=/dev/null", program, what, str(tokens), str(head_dim), str(heads),
                           "causal" if causal else "all"], capture_output=True, text=True, check=False)
    instructions = collected(done.stderr)
    if done.returncode != 0 or not instructions:
        sys.exit(f"count_instructions.py: valgrind counted nothing:\n{done.stderr}")
    return instructions


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("compiler", nargs="?", default="g++")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=2, help="a head more adds to all alike (default: 2)")
    parser.add_argument("--march", default="haswell")
    parser.add_argument("-I", dest="folders", action="append", help="where Eigen is (default: /usr/include/eigen3)")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("count_instructions.py: valgrind is not installed, nothing is counted")
        return 0

    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        program = str(pathlib.Path(folder) / "count_instructions")
        build(arguments.compiler, arguments.march, arguments.folders or ["/usr/include/eigen3"], program)
        print(f"instructions of one call, {arguments.march}, {arguments.tokens} tokens, {arguments.heads} heads")
        for head_dim in (64, 128):
            for causal in (False, True):
                plain, rope, rove = (count(program, what, arguments.tokens, head_dim, arguments.heads, causal)
                                     for what in ("plain", "rope", "rove"))
                worst = max(worst, rove / rope)
                print(f"d={head_dim:<3} {'causal' if causal else 'all   '}  plain {plain:>12,}  rope {rope:>12,}  "
                      f"rove {rove:>12,}  RoPE/plain {rope / plain:.4f}  RoVE/RoPE {rove / rope:.4f}", flush=True)
    print(f"RoVE/RoPE at most {worst:.4f}, bound {BOUND}: {'met' if worst <= BOUND else 'missed'}")
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())

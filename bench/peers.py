#!/usr/bin/env python3
"""Times attention of other libraries, on CPUs and in float, in turn with rove's own.

One process for each number of threads, held to as many CPUs, runs every rival of a shape A B C A B C ...: TiledKernel,
OpenBLAS's sgemm and the FMA peak from librove_bench, and whichever of PyTorch, ONNX Runtime, OpenVINO and JAX are
installed (requirements.txt has the versions that were tried). Each result is held against float64 first; one that is
wrong is not timed. bench/README.md says how to read what it prints. Exits with 1 if a rival was wrong or failed.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import pathlib
import platform
import re
import sys
import traceback

from rivals import race, record
from rivals.shape import SHAPES

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build/bench/bench/librove_bench.so"
# By the word that cases begin with: name, our module, theirs, and the package that has its version.
PEERS = {
    "pytorch": ("PyTorch", "rivals.pytorch", ("torch",), "torch"),
    "onnxruntime": ("ONNX Runtime", "rivals.onnx_runtime", ("onnxruntime", "onnx"), "onnxruntime"),
    "openvino": ("OpenVINO", "rivals.open_vino", ("openvino",), "openvino"),
    "jax": ("JAX", "rivals.jax_numpy", ("jax",), "jax"),
}
# Seconds between two rivals' turns: longer than idle threads of any of them spin.
REST = 0.02


def say(text):
    print(f"peers.py: {text}", file=sys.stderr, flush=True)


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# ---- In the process that times ------------------------------------------------------------------


class Timer:
    """What one number of threads finds, sent to `send` as it comes: ("header", ...), ("records", [...]) and
    ("failed", text)."""

    def __init__(self, options, threads, send):
        from rivals import library
        self.options, self.threads, self.send = options, threads, send
        self.library = library.Library(options.library)
        self.peak, self.sgemm = self.library.peak(threads), self.library.sgemm(threads)
        self.references = {record.PEAK: self.peak.runner("peak_run"), record.SGEMM: self.sgemm.runner("sgemm_run")}
        self.flops = {record.PEAK: self.peak.call("flops"), record.SGEMM: self.sgemm.call("flops")}
        self.reference_draws = {case: [] for case in self.references}
        self.references[record.SGEMM]()
        if not self.sgemm.call("is_right"):
            self.fail("OpenBLAS's product is wrong: it is left out")
            del self.references[record.SGEMM]

    def fail(self, text):
        self.send(("failed", text))

    def run(self):
        versions = {word: importlib.metadata.version(PEERS[word][3]) for word in self.options.peers}
        machine = self.library.machine()
        self.send(("header", machine | {"threads_pinned": True, "python": platform.python_version(),
                                        "peers": {PEERS[word][0]: version for word, version in versions.items()},
                                        "draws": self.options.draws}))
        sources = {("rove", machine["rove"]): self.library}
        for word in self.options.peers:
            try:
                sources[PEERS[word][0], versions[word]] = importlib.import_module(PEERS[word][1])
            except Exception as error:  # whatever a broken installation throws
                self.fail(f"{PEERS[word][0]} cannot be loaded: {first_line(error)}")
        for shape in self.options.shapes:
            self.time(shape, sources)
        self.send(("records", record.reference_records(self.threads, self.reference_draws, self.flops)))

    def time(self, shape, sources):
        from rivals import operands
        data = operands.make(shape)
        runs, entrants = dict(self.references), {}
        for (subject, version), source in sources.items():
            for case, build in source.rivals(shape, data, self.threads).items():
                if not re.search(self.options.filter, case):
                    continue
                try:
                    run, result = build()
                    run()
                    error, share = operands.judge(shape, data, case.rsplit("/", 1)[1], result())
                except Exception as problem:  # of a peer, for whatever reason: the others go on
                    self.fail(f"{case} {shape.name} failed: {first_line(problem)}")
                    if self.options.traceback:
                        traceback.print_exc()
                    continue
                if not share <= 1:
                    self.fail(f"{case} {shape.name} is wrong by {error:.3g}, {share:.3g} of the bound: it is left out")
                    continue
                runs[case] = run
                entrants[case] = {"subject": subject, "version": version, "error": error}
        rest = self.options.rest if self.threads > 1 else 0  # one thread is never idle in another's turn
        draws = dict(zip(runs, race.race(list(runs.values()), self.options.draws, rest)))
        for case, seconds in self.reference_draws.items():
            seconds += draws.get(case, [])
        self.send(("records", record.attention_records(shape, self.threads, entrants, draws, self.flops)))


def time_all(options, threads, cpus, pipe):
    if cpus:
        os.sched_setaffinity(0, cpus)  # before any library asks how many there are
    Timer(options, threads, pipe.send).run()
    pipe.close()


# ---- In the process that was called -------------------------------------------------------------


def environment(threads, core):
    """What has to be set before the libraries are loaded."""
    wanted = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads,
              "TORCHINDUCTOR_COMPILE_THREADS": 1,  # else workers that compile stay about
              "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": 3}
    # As rove_compare: threads that sleep after a product, kernels that this CPU deserves; what the user sets stays.
    if "OPENBLAS_THREAD_TIMEOUT" not in os.environ:
        wanted["OPENBLAS_THREAD_TIMEOUT"] = 4
    if core and "OPENBLAS_CORETYPE" not in os.environ:
        wanted["OPENBLAS_CORETYPE"] = core
    return {name: str(value) for name, value in wanted.items()}


def missing(word):
    """The module without which the peer cannot be timed, or None."""
    return next((module for module in PEERS[word][2] if importlib.util.find_spec(module) is None), None)


def write(path, header, records):
    """Whole or not at all: what was measured before an interruption is not lost."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps({"header": header, "records": records}, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def print_standings(records):
    rows = [row for row in record.standings(records) if any("/" in key for key in row)]
    if rows:
        print("\nOur speed over the fastest peer's:")
    for row in rows:
        shape = (f"{row['threads']} threads n={row['q_len']} d={row['head_dim']} h={row['heads']}:{row['kv_heads']} "
                 f"{'causal' if row['causal'] else 'full'}")
        contests = [f"{contest} {row[contest]['ratio']:.2f} ({row[contest]['peer'].split('/')[1]})"
                    for contest in ("plain/plain", "rope/rope", "rove/rove", "rove/rope") if contest in row]
        print(f"{shape:<40} {'  '.join(contests)}")


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", help="numbers of threads; 1 and 2 where there are two CPUs")
    parser.add_argument("--draws", type=int, default=31, help="timed runs of every rival (31)")
    parser.add_argument("--shapes", default="", metavar="REGEX", help="only shapes in whose name this is found")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only cases in whose name this is found")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="only these libraries")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("peers.json"), help="file for the results")
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY, help="librove_bench.so, as the preset bench builds it")
    parser.add_argument("--rest", type=float, default=REST, help="seconds of rest between two turns (%(default)s)")
    parser.add_argument("--traceback", action="store_true", help="show where a rival failed")
    parser.add_argument("--list", action="store_true", help="print shapes and peers, and time nothing")
    options = parser.parse_args(argv)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if options.threads is None:
        options.threads = [1, 2] if cpus > 1 else [1]
    if not all(1 <= threads <= cpus for threads in options.threads):
        parser.error(f"--threads must be between 1 and {cpus}, the CPUs there are")
    if options.draws < 1:
        parser.error("--draws must be positive")
    try:
        options.shapes = [shape for shape in SHAPES if re.search(options.shapes, shape.name)]
        re.compile(options.filter)
    except re.error as error:
        parser.error(f"not a regular expression: {error}")
    if not options.shapes:
        parser.error("no shape has such a name; --list shows them")
    return options


def main():
    options = arguments()
    if options.list:
        print(*(shape.name for shape in options.shapes), sep="\n")
    absent = {word: missing(word) for word in options.peers}
    for word, module in absent.items():
        if module:
            say(f"{PEERS[word][0]} is skipped: no module {module} here")
    options.peers = [word for word, module in absent.items() if not module]
    if options.list:
        for word in options.peers:
            print(PEERS[word][0], importlib.metadata.version(PEERS[word][3]))
        return 0
    if not options.library.is_file():
        say(f"no {options.library}: build it by cmake --preset bench && cmake --build build/bench --target rove_bench_library")
        return 2
    write(options.out, {}, [])  # before minutes are spent, not after

    from rivals import library
    core = library.Library(options.library).core_to_ask_for()
    # A fresh interpreter for each number of threads: nothing of ours is loaded there yet.
    context = multiprocessing.get_context("spawn")
    header, records, failed = {}, [], False
    for threads in options.threads:
        os.environ.update(environment(threads, core))
        cpus = sorted(os.sched_getaffinity(0))[-threads:] if hasattr(os, "sched_getaffinity") else None
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=time_all, args=(options, threads, cpus, send))
        child.start()
        send.close()
        while True:
            try:
                kind, content = receive.recv()
            except EOFError:
                break
            if kind == "header":
                if not header:
                    print(*(f"{key}: {value}" for key, value in content.items()), "", sep="\n", flush=True)
                header = content
            elif kind == "records":
                records += content
                print(*map(record.line, content), sep="\n", flush=True)
                write(options.out, header, records)
            else:
                failed = True
                say(content)
        child.join()
        if child.exitcode != 0:
            failed = True
            say(f"the process with {threads} threads ended with {child.exitcode}; what it had measured is kept")
    print_standings(records)
    print(f"\nwritten to {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

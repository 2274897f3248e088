"""librove_bench (bench/c_api/rove_bench.cpp): TiledKernel, the FMA peak and OpenBLAS's sgemm."""

import ctypes
import json

from rivals import operands as operand

Handle = ctypes.c_void_p
Floats = ctypes.POINTER(ctypes.c_float)
SIGNATURES = {
    "rove_bench_error": (ctypes.c_char_p, []),
    "rove_bench_machine": (ctypes.c_char_p, []),
    "rove_bench_core_to_ask_for": (ctypes.c_char_p, []),
    "rove_bench_attention": (Handle, [ctypes.c_int64] * 4 + [ctypes.c_int] * 2 + [Floats] * 4),
    "rove_bench_plain": (ctypes.c_int, [Handle]),
    "rove_bench_rope": (ctypes.c_int, [Handle]),
    "rove_bench_rove": (ctypes.c_int, [Handle]),
    "rove_bench_attention_free": (None, [Handle]),
    "rove_bench_peak": (Handle, [ctypes.c_int, ctypes.c_int64]),
    "rove_bench_peak_flops": (ctypes.c_double, [Handle]),
    "rove_bench_peak_run": (ctypes.c_int, [Handle]),
    "rove_bench_peak_free": (None, [Handle]),
    "rove_bench_sgemm": (Handle, [ctypes.c_int, ctypes.c_int]),
    "rove_bench_sgemm_flops": (ctypes.c_double, [Handle]),
    "rove_bench_sgemm_run": (ctypes.c_int, [Handle]),
    "rove_bench_sgemm_is_right": (ctypes.c_int, [Handle]),
    "rove_bench_sgemm_free": (None, [Handle]),
}


class Library:
    def __init__(self, path):
        self._c = ctypes.CDLL(str(path))
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(self._c, name)
            function.restype, function.argtypes = result, arguments

    def machine(self):
        return json.loads(self._checked(self._c.rove_bench_machine()))

    def core_to_ask_for(self):
        return self._checked(self._c.rove_bench_core_to_ask_for()).decode()

    def peak(self, threads, steps=1_000_000):
        return Owned(self, "peak", threads, steps)

    def sgemm(self, threads, n=2048):
        return Owned(self, "sgemm", n, threads)

    def rivals(self, shape, operands, threads):
        """Builders by case, as those of the peers."""
        out = operand.at_a_page(0 * operands.q)
        attention = Owned(self, "attention", shape.heads, shape.kv_heads, shape.tokens, shape.head_dim, shape.causal, threads,
                          *(x.ctypes.data_as(Floats) for x in (operands.q, operands.k, operands.v, out)))

        def builder(what):
            return lambda: (attention.runner(what), lambda: out)

        return {f"attention/tiled/{what}": builder(what) for what in ("plain", "rope", "rove")}

    def _checked(self, result):
        if result is None or result == 0:
            raise RuntimeError(self._c.rove_bench_error().decode())
        return result


class Owned:
    """An object of the library's, freed with this one."""

    def __init__(self, library, kind, *arguments):
        self._library, self._kind, self._arguments = library, kind, arguments  # pointers keep their arrays
        self._handle = library._checked(getattr(library._c, f"rove_bench_{kind}")(*arguments))

    def __del__(self):
        if hasattr(self, "_handle"):
            getattr(self._library._c, f"rove_bench_{self._kind}_free")(self._handle)

    def call(self, name):
        return getattr(self._library._c, f"rove_bench_{self._kind}_{name}")(self._handle)

    def runner(self, name):
        """A function that runs the C function `name` of this object."""
        function, handle, library = getattr(self._library._c, f"rove_bench_{name}"), self._handle, self._library

        def run(owner=self):  # keeps the object alive
            if not function(handle):
                library._checked(None)

        return run

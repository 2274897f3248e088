"""Drives the demo as a user would: real files, made-up files, broken files, options good and bad.

    attend_cli_test.py <program> <folder of its data>

Nothing but Python's standard library: files are written and read here by other code than the program's, and
the attention that small outputs are compared with is written out below in plain Python.
"""

import array
import cmath
import math
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM, DATA = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])


# ---- .npy files ---------------------------------------------------------------------------------


def npy(shape, values, descr="<f4", order="False", version=1, text=None):
    """The bytes of a .npy file."""
    code = {"f4": "f", "f8": "d", "i4": "i"}[descr[1:]]
    numbers = array.array(code, values)
    if descr[0] == ">":
        numbers.byteswap()
    shape_text = "(" + ", ".join(map(str, shape)) + (",)" if len(shape) == 1 else ")")
    if text is None:
        text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n" % (descr, order, shape_text)
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + numbers.tobytes()


def read_npy(path):
    """(shape, values) of a version 1.0 float32 file."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    end = 10 + int.from_bytes(data[8:10], "little")
    header = eval(data[10:end], {"__builtins__": {}})
    assert header["descr"] == "<f4" and header["fortran_order"] is False, header
    values = array.array("f")
    values.frombytes(data[end:])
    assert len(values) == math.prod(header["shape"]), header
    assert end % 64 == 0
    return header["shape"], values


# ---- Attention, one pair of complex numbers at a time --------------------------------------------


def turned(x, angle, dim, theta, interleaved):
    """x with its first `dim` channels turned: pair p by angle · theta^(−2p/dim)."""
    y = list(x)
    for p in range(dim // 2):
        a, b = (2 * p, 2 * p + 1) if interleaved else (p, p + dim // 2)
        z = complex(x[a], x[b]) * cmath.exp(1j * angle * theta ** (-2 * p / dim))
        y[a], y[b] = z.real, z.imag
    return y


class Problem:
    """Random q, k, v: lists [head][token][channel]."""

    def __init__(self, heads=4, kv_heads=2, q_len=5, kv_len=5, d=8, dv=8, seed=1):
        rng = random.Random(seed)

        def tensor(h, n, width):
            # As float32 holds them.
            return [[list(array.array("f", [rng.gauss(0, 1) for _ in range(width)])) for _ in range(n)] for _ in range(h)]

        self.q, self.k, self.v = tensor(heads, q_len, d), tensor(kv_heads, kv_len, d), tensor(kv_heads, kv_len, dv)

    def save(self, folder, descr="<f4"):
        arguments = []
        for name in "qkv":
            t = getattr(self, name)
            flat = [x for head in t for row in head for x in row]
            path = os.path.join(folder, name + ".npy")
            with open(path, "wb") as file:
                file.write(npy((1, len(t), len(t[0]), len(t[0][0])), flat, descr))
            arguments += ["--" + name, path]
        return arguments

    def attention(self, sees, theta=1e4, dim=None, interleaved=False, value_interleaved=None, rove=True):
        """Flat output and LSE, by the pairwise form: y_i = Σ_j A_ij R_{j−i} v_j, s_ij = ⟨q_i, R_{j−i} k_j⟩ / √d."""
        q, k, v = self.q, self.k, self.v
        d = len(q[0][0])
        dim = d if dim is None else dim
        value_interleaved = interleaved if value_interleaved is None else value_interleaved
        first = len(k[0]) - len(q[0])
        out, lses = [], []
        for h, rows in enumerate(q):
            g = h // (len(q) // len(k))
            for i, row in enumerate(rows):
                t = first + i
                keys = [j for j in range(len(k[g])) if sees(t, j)]
                logits = [
                    sum(a * b for a, b in zip(row, turned(k[g][j], j - t, dim, theta, interleaved))) / math.sqrt(d)
                    for j in keys
                ]
                top = max(logits)
                total = sum(math.exp(s - top) for s in logits)
                y = [0.0] * len(v[g][0])
                for s, j in zip(logits, keys):
                    value = turned(v[g][j], j - t, dim, theta, value_interleaved) if rove else v[g][j]
                    y = [a + math.exp(s - top) / total * b for a, b in zip(y, value)]
                out += y
                lses.append(top + math.log(total))
        return out, lses


def causal(i, j):
    return j <= i


def everything(i, j):
    return True


class Demo(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="rove_attend_")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def run_program(self, *arguments, **how):
        hurry = [] if "--seconds" in arguments else ["--seconds", "0"]
        return subprocess.run(
            [how.pop("program", PROGRAM), *hurry, *arguments],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600, check=False,
            encoding="utf-8", **how)

    def passes(self, *arguments):
        done = self.run_program(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertNotIn("TOO LARGE", done.stdout)
        return done.stdout

    def refuses(self, *arguments, saying=None, **how):
        """Exit code 2, one line that begins as a user expects, nothing on stdout, no new file."""
        before = sorted(os.listdir(self.folder))
        done = self.run_program(*arguments, **how)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("attend: ") and done.stderr.endswith("\n"), done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        if saying is not None:
            self.assertEqual(done.stderr[len("attend: "):-1], saying)
        return done.stderr

    def assert_close(self, computed, expected, tolerance=2e-6):
        self.assertEqual(len(computed), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(computed, expected)), tolerance)

    # ---- The run without arguments --------------------------------------------------------------

    def test_default_run(self):
        report = self.passes()
        for words in ("RoPE, against the model's own output", "RoPE, against double", "RoVE, against double",
                      "log-sum-exp, against double", "all 128 rows of each of 9 heads", "x RoPE", "tiled kernel",
                      "1 Kronecker product, RoVE's a sum of 8 (8 offsets)", "wrote mixers.svg"):
            self.assertIn(words, report)
        self.assertEqual(os.listdir(self.folder), ["mixers.svg"])
        # Errors are of the size that float32 has, and not 0: nothing is compared with itself.
        judged = [line for line in report.splitlines() if line.endswith(" ok")]
        self.assertEqual(len(judged), 4)
        for line in judged:
            error, bound, share = map(float, line.split()[-4:-1])
            self.assertTrue(3e-7 < error < 1e-5, line)
            self.assertTrue(error < bound < 1e-4, line)
            self.assertTrue(0.05 < share < 1, line)
        # What it costs to switch a RoPE model over.
        self.assertRegex(report, r"RoVE moves this output by 5\d %")

    def test_picture(self):
        self.passes("--picture", self.path("two.svg"))
        root = xml.etree.ElementTree.parse(self.path("two.svg")).getroot()
        words = " ".join("".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text"))
        for label in ("RoPE:  A ⊗ WO WV", "RoVE:  Σδ (A ∘ Sδ) ⊗ WO Rδ WV", "Kronecker", "block-Toeplitz", "key", "query",
                      "δ = 0", "−7", "attention weight", "positive", "negative", "not seen"):
            self.assertIn(label, words)
        # 36 seen blocks a side, RoPE's one kernel, RoVE's eight.
        blocks = list(root.iter("{http://www.w3.org/2000/svg}g"))
        self.assertEqual(len(blocks), 2 * 36 + 1 + 8)

        def look(block):
            return tuple((e.get("fill"), e.get("fill-opacity"), e.get("d")) for e in block)

        self.assertEqual(len({look(b) for b in blocks[:36]}), 1)
        self.assertEqual(len({look(b) for b in blocks[36:72]}), 8)
        self.assertEqual(len({block[0].get("fill") for block in blocks[:36]}), 1)
        self.assertEqual(len({block[0].get("fill") for block in blocks[36:72]}), 8)

    def test_rope_alone_agrees_with_the_model(self):
        report = self.passes("--rope", "--out", "y.npy")
        self.assertNotIn("RoVE,", report)
        shape, y = read_npy(self.path("y.npy"))
        self.assertEqual(shape, (1, 9, 128, 64))
        model_shape, model = read_npy(os.path.join(DATA, "layer14_attention.npy"))
        self.assertEqual(model_shape, shape)
        self.assert_close(y, model, 3e-5)

    def test_rove_alone(self):
        report = self.passes("--rove", "--lse", "lse.npy")
        self.assertNotIn("RoPE,", report)
        self.assertEqual(read_npy(self.path("lse.npy"))[0], (1, 9, 128))

    def test_threads_and_positions_leave_the_output(self):
        self.passes("--out", "one.npy")
        self.passes("--out", "three.npy", "--threads", "3")
        with open(self.path("one.npy"), "rb") as one, open(self.path("three.npy"), "rb") as three:
            self.assertEqual(one.read(), three.read())
        self.assertIn("positions 5000 .. 5127", self.passes("--out", "far.npy", "--position-offset", "5000"))
        self.assert_close(read_npy(self.path("far.npy"))[1], read_npy(self.path("one.npy"))[1], 2e-5)

    def test_other_settings_of_the_layer_have_no_reference(self):
        for arguments in (["--window", "16"], ["--rope-theta", "10000"], ["--rotary-dim", "32"],
                          ["--pairing", "interleaved"]):
            self.assertNotIn("the model's own output", self.passes(*arguments))
        self.assertIn("values interleaved", self.passes("--value-pairing", "interleaved"))

    def test_help(self):
        done = self.run_program("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for option in ("--q", "--k", "--v", "--out", "--lse", "--reference", "--rope-theta", "--rotary-dim", "--pairing",
                       "--value-pairing", "--position-offset", "--causal", "--window", "--rope", "--rove", "--threads",
                       "--help"):
            self.assertIn(option + " ", done.stdout.replace(",", " "))

    # ---- Files of one's own ----------------------------------------------------------------------

    def check(self, problem, sees, arguments, tolerance=2e-6, **formula):
        files = problem.save(self.folder)
        self.passes(*files, *arguments, "--out", "y.npy", "--lse", "lse.npy")
        out, lse = problem.attention(sees, **formula)
        self.assert_close(read_npy(self.path("y.npy"))[1], out, tolerance)
        self.assert_close(read_npy(self.path("lse.npy"))[1], lse, tolerance)
        self.passes(*files, *arguments, "--rope", "--out", "y.npy")
        self.assert_close(read_npy(self.path("y.npy"))[1], problem.attention(sees, rove=False, **formula)[0], tolerance)

    def test_against_plain_python(self):
        self.check(Problem(), everything, ["--pairing", "half-split"])
        self.check(Problem(seed=2), causal, ["--pairing", "interleaved", "--causal"], interleaved=True)
        self.check(Problem(seed=3), causal,
                   ["--pairing", "interleaved", "--value-pairing", "half_split", "--causal", "--rope-theta", "100"],
                   interleaved=True, value_interleaved=False, theta=100)
        self.check(Problem(seed=4, d=12, dv=10, kv_len=9, q_len=9), lambda i, j: i - 3 < j <= i,
                   ["--pairing", "half-split", "--window", "3", "--rotary-dim", "6"], dim=6)
        self.check(Problem(seed=5, heads=3, kv_heads=1, q_len=2, kv_len=7), causal,
                   ["--pairing", "half-split", "--causal", "--position-offset", "-3"])
        self.check(Problem(seed=6, q_len=1, kv_len=1), causal, ["--pairing", "half-split", "--causal"])

    def test_float64_files_are_rounded_and_said_to_be(self):
        problem = Problem(seed=7)
        report = self.passes(*problem.save(self.folder, "<f8"), "--pairing", "half-split", "--out", "y.npy")
        self.assertIn("q.npy is float64: rounded to float32", report)
        self.assert_close(read_npy(self.path("y.npy"))[1], problem.attention(everything)[0])

    def test_more_than_512_rows_are_judged_by_64(self):
        files = Problem(heads=2, kv_heads=1, q_len=600, kv_len=600, d=16, dv=16).save(self.folder)
        self.assertIn("64 fixed rows of 600 of each of 2 heads",
                      self.passes(*files, "--pairing", "half-split", "--causal"))
        files = Problem(heads=1, kv_heads=1, q_len=512, kv_len=512, d=4, dv=4).save(self.folder)
        self.assertIn("all 512 rows of each of 1 head,", self.passes(*files, "--pairing", "half-split", "--causal"))

    def test_picture_of_ones_own_files(self):
        for arguments, offsets in ((["--causal"], 5), ([], 9)):
            files = Problem().save(self.folder)
            report = self.passes(*files, *arguments, "--pairing", "half-split", "--picture", "own.svg")
            self.assertIn("a sum of ", report)
            self.assertIn("(%d offsets)" % offsets, report)
            xml.etree.ElementTree.parse(self.path("own.svg"))

    def test_nan_reaches_only_the_rows_that_see_it(self):
        problem = Problem(seed=8)
        problem.k[0][4][1] = problem.v[0][4][0] = math.nan
        self.passes(*problem.save(self.folder), "--pairing", "half-split", "--causal", "--out", "y.npy")
        _, y = read_npy(self.path("y.npy"))
        self.assertFalse(any(math.isnan(y[h * 40 + i]) for h in range(4) for i in range(32)))
        self.assertTrue(all(math.isnan(y[h * 40 + i]) for h in range(2) for i in range(32, 40)))

    def test_a_wrong_reference_is_found(self):
        _, values = read_npy(os.path.join(DATA, "layer14_attention.npy"))
        values[70000] += 1e-3
        done = self.run_program("--reference", self.put("off.npy", npy((1, 9, 128, 64), values)), "--out", "y.npy")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertEqual(sum("TOO LARGE" in line for line in done.stdout.splitlines()), 1)
        self.assertTrue(os.path.exists(self.path("y.npy")))
        values[70000] = math.nan
        done = self.run_program("--reference", self.put("off.npy", npy((1, 9, 128, 64), values)))
        self.assertEqual(done.returncode, 1)

    def test_a_reference_for_rove(self):
        files = Problem().save(self.folder)
        self.passes(*files, "--pairing", "half-split", "--out", "y.npy")
        arguments = [*files, "--pairing", "half-split", "--reference", "y.npy"]
        self.assertIn("RoVE, against the reference", self.passes(*arguments, "--rove"))
        self.assertEqual(self.run_program(*arguments).returncode, 1)

    # ---- Bad files -------------------------------------------------------------------------------

    def test_bad_files(self):
        problem = Problem()
        good = problem.save(self.folder)
        reference = self.put("reference.npy", npy((1, 4, 5, 8), problem.attention(everything, rove=False)[0]))
        good += ["--reference", reference, "--pairing", "half-split"]
        self.passes(*good)
        zeros = [0.0] * 160
        bad = {
            "": "is empty",
            "no npy at all": "is not a .npy file",
            npy((1, 4, 5, 8), zeros)[:-1]: "is truncated: shape (1, 4, 5, 8) needs 640 bytes of numbers, 639 are there",
            npy((1, 4, 5, 8), zeros)[:40]: None,
            npy((1, 4, 5, 8), zeros) + b"\0": "has 1 bytes after the 640 that shape (1, 4, 5, 8) needs",
            npy((1, 4, 5, 8), [0] * 160, "<i4"): "has dtype '<i4'; float32 ('<f4') or float64 ('<f8') expected",
            npy((1, 4, 5, 8), zeros, ">f4"): "is big-endian ('>f4'); save it as little-endian float32 ('<f4')",
            npy((1, 4, 5, 8), zeros, order="True"): "is in Fortran order; save it with numpy.ascontiguousarray",
            npy((20, 8), zeros): "has shape (20, 8); four dimensions expected: batch, heads, tokens, channels",
            npy((2**40, 2**40, 1, 1), []): "shape (1099511627776, 1099511627776, 1, 1) has more numbers than 64 bits count",
            npy((1, 4, 5, 8), zeros, text="{'shape': (1, 4, 5, 8)}"): "malformed .npy header: no 'descr'",
            npy((1, 4, 5, 8), [1e300] * 160, "<f8"): "the number at flat index 0 is too large for float32",
        }
        for option in ("--q", "--k", "--v", "--reference"):
            for data, complaint in bad.items():
                path = self.put("bad.npy", data if isinstance(data, bytes) else data.encode())
                arguments = list(good)
                arguments[arguments.index(option) + 1] = path
                line = self.refuses(*arguments, "--out", "never.npy", "--picture", "never.svg")
                self.assertTrue(line.startswith("attend: %s: " % path), line)
                if complaint:
                    self.assertEqual(line, "attend: %s: %s\n" % (path, complaint))
            os.remove(path)
            arguments = list(good)
            arguments[arguments.index(option) + 1] = path
            self.refuses(*arguments, "--out", "never.npy", saying=path + ": No such file or directory")
            arguments[arguments.index(option) + 1] = self.folder
            self.refuses(*arguments, "--out", "never.npy", saying=self.folder + ": not a regular file")

    def test_shapes_that_do_not_fit(self):
        good = Problem().save(self.folder) + ["--pairing", "half-split"]

        def with_file(option, shape, wanted):
            path = self.put("other.npy", npy(shape, [0.0] * math.prod(shape)))
            arguments = list(good)
            arguments[arguments.index(option) + 1] = path
            line = self.refuses(*arguments, "--out", "never.npy")
            self.assertIn(wanted, line)
            self.assertIn(str(shape), line)

        with_file("--k", (2, 2, 5, 8), "the batches differ")
        with_file("--k", (1, 3, 5, 8), "the query heads are no multiple of the key heads")
        with_file("--k", (1, 2, 5, 6), "the channels differ")
        with_file("--k", (1, 2, 4, 8), "there are more queries than keys")
        with_file("--v", (2, 2, 5, 8), "the batches differ")
        with_file("--v", (1, 4, 5, 8), "the heads differ")
        with_file("--v", (1, 2, 6, 8), "the tokens differ")
        with_file("--v", (1, 2, 5, 0), "it is empty")
        good += ["--reference", ""]
        with_file("--reference", (1, 4, 5, 7), "the output has (1, 4, 5, 8)")

    # ---- Places that cannot be written -------------------------------------------------------------

    def test_no_write_permission(self):
        good = Problem().save(self.folder) + ["--pairing", "half-split"]
        for option in ("--out", "--lse", "--picture"):
            self.refuses(*good, option, "no/such/folder/y", saying="no/such/folder/y: cannot write: No such file or directory")
            self.refuses(*good, option, self.folder, saying=self.folder + ": cannot write: not a regular file")
            self.refuses(*good, option, "/dev/null", saying="/dev/null: cannot write: not a regular file")
            old = self.put("old", b"precious")
            os.chmod(old, stat.S_IRUSR)
            self.refuses(*good, option, old, saying=old + ": cannot write: the file is read-only")
            with open(old, "rb") as file:
                self.assertEqual(file.read(), b"precious")
            os.remove(old)

    def test_a_folder_without_write_permission(self):
        # Root may write anywhere, so a root's test runs this as nobody, out of places that nobody can enter.
        program = self.path("attend")
        shutil.copy(PROGRAM, program)
        os.chmod(self.folder, 0o755)
        good = Problem().save(self.folder) + ["--pairing", "half-split"]
        closed = self.path("closed")
        os.mkdir(closed)
        os.chmod(closed, 0o555)
        how = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
        target = os.path.join(closed, "y.npy")
        self.refuses(*good, "--out", target, saying=target + ": cannot write: Permission denied", program=program, **how)
        self.assertEqual(os.listdir(closed), [])
        unreadable = self.path("k.npy")
        os.chmod(unreadable, 0)
        self.refuses(*good, saying=unreadable + ": cannot be opened: Permission denied", program=program, **how)

    def test_one_bad_place_spoils_no_other(self):
        good = Problem().save(self.folder) + ["--pairing", "half-split"]
        old = self.put("y.npy", b"as it was")
        self.refuses(*good, "--out", old, "--lse", "no/such/lse.npy")
        with open(old, "rb") as file:
            self.assertEqual(file.read(), b"as it was")

    # ---- Bad options -------------------------------------------------------------------------------

    def test_bad_options(self):
        files = Problem().save(self.folder)
        good = files + ["--pairing", "half-split"]
        self.refuses(*files, saying="say --pairing half-split (Llama, GPT-NeoX) or --pairing interleaved (GPT-J, GGUF)")
        self.refuses(*files[:2], "--pairing", "half-split",
                     saying="give all of --q, --k and --v, or none for the layer that comes along")
        self.refuses(*files, "--pairing", "halves",
                     saying="--pairing is half-split (Llama, GPT-NeoX) or interleaved (GPT-J, GGUF), not 'halves'")
        self.refuses(*good, "--value-pairing", "",
                     saying="--value-pairing is half-split (Llama, GPT-NeoX) or interleaved (GPT-J, GGUF), not ''")
        self.refuses(*good, "--rope", "--rove", saying="--rope and --rove exclude each other; without either both run")
        for option, value, words in (
                ("--rotary-dim", "7", "rotary_dim is 7"), ("--rotary-dim", "0", "rotary_dim is 0"),
                ("--rotary-dim", "10", "10 channels of rows that have 8"), ("--rotary-dim", "x", "--rotary-dim"),
                ("--rotary-dim", "-8", "rotary_dim is -8"),
                ("--window", "0", "window: size must be at least 1"), ("--window", "-4", "got -4"),
                ("--window", "1.5", "--window"), ("--rope-theta", "0", "rope_theta is 0"),
                ("--rope-theta", "-1", "rope_theta is -1"), ("--rope-theta", "nan", "rope_theta is nan"),
                ("--rope-theta", "inf", "rope_theta is inf"), ("--threads", "0", "--threads must be from 1 to 1024, got 0"),
                ("--threads", "99999", "--threads must be from 1 to 1024, got 99999"),
                ("--threads", "two", "--threads"), ("--seconds", "-1", "--seconds must not be negative"),
                ("--position-offset", "9223372036854775807", "2^53"), ("--position-offset", "1e99", "--position-offset"),
                ("--colour", "red", "--colour")):
            self.assertIn(words, self.refuses(*good, option, value, "--out", "never.npy"))
        self.assertIn("--window", self.refuses(*good, "--window"))

    def test_the_layer_that_comes_along_can_be_elsewhere(self):
        self.refuses("--data", "nowhere", saying="nowhere/layer14_q.npy: No such file or directory")
        elsewhere = shutil.copytree(DATA, self.path("elsewhere"))
        self.passes("--data", elsewhere)
        self.put("elsewhere/layer14_wo.npy", npy((1, 64, 8), [0.0] * 512))
        os.remove(self.path("mixers.svg"))
        self.refuses("--data", elsewhere,
                     saying=elsewhere + "/layer14_wo.npy: has shape (1, 64, 8); (1, 8, 64) expected")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])

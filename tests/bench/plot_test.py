#!/usr/bin/env python3
"""What plot.py makes of results before it draws."""

import json
import pathlib
import sys
import tempfile
import unittest
from xml.etree import ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import plot


def attention(case, gflops, subject=None, **changes):
    record = {"case": f"attention/{case}", "scalar": "float", "threads": 1, "q_len": 512, "head_dim": 64, "heads": 8,
              "kv_heads": 8, "causal": False, "gflops": gflops, "draws": 31}
    return record | ({"subject": subject} if subject else {}) | changes


RECORDS = [
    attention("tiled/rove", 110.0, "rove"),
    attention("tiled/rope", 112.0, "rove"),
    attention("tiled/rove", 120.0, "rove", q_len=1024),
    attention("onnxruntime-mha/plain", 90.0, "ONNX Runtime"),
    attention("onnxruntime-attention/plain", 95.0, "ONNX Runtime"),
    attention("pytorch/rove", 70.0, "PyTorch"),
    attention("pytorch/plain", 80.0, "PyTorch", threads=2),
    attention("tiled/rove", 100.0, "rove", heads=9, kv_heads=3, causal=True),
    {"case": plot.PEAK, "scalar": "float", "threads": 1, "gflops": 170.0, "draws": 31},
]
HEADER = {"cpu": "A CPU", "isa": "avx512 fma", "compiler": "GCC 12", "rove": "0.1.0", "openblas": "OpenBLAS 0.3.21",
          "openblas_core": "SkylakeX", "peers": {"PyTorch": "2.0"}}
FULL_512 = (1, 512, 64, 8, 8, False)


class Selection(unittest.TestCase):
    def test_of_each_library_the_fastest_way(self):
        self.assertEqual(plot.fastest(RECORDS)[FULL_512], {("rove", "rove"): 110.0, ("rove", "rope"): 112.0,
                                                           ("ONNX Runtime", "plain"): 95.0, ("PyTorch", "rove"): 70.0})

    def test_results_of_rove_compare_are_ours_by_the_name_of_the_kernel(self):
        records = [attention("tiled/rove", 110.0), attention("naive/rove", 9.0)]
        self.assertEqual(plot.fastest(records), {FULL_512: {("rove", "rove"): 110.0}})

    def test_a_panel_has_its_shape_and_threads_alone(self):
        drawn = plot.curves(plot.fastest(RECORDS), 1, 8, 64, False)
        self.assertEqual(drawn, {("ONNX Runtime", "plain"): ([512], [95.0]), ("rove", "rope"): ([512], [112.0]),
                                 ("rove", "rove"): ([512, 1024], [110.0, 120.0])})
        self.assertEqual(list(drawn)[-1], ("rove", "rove"))
        self.assertEqual(plot.curves(plot.fastest(RECORDS), 1, 8, 128, False), {})
        self.assertEqual(plot.curves(plot.fastest(RECORDS), 1, 8, 64, True), {})

    def test_references_go_by_threads(self):
        self.assertEqual(plot.references(RECORDS, 1), {plot.PEAK: 170.0})
        self.assertEqual(plot.references(RECORDS, 2), {})

    def test_ours_come_first_and_strangers_last(self):
        speeds = {FULL_512: {("Zeta", "plain"): 1.0, ("JAX", "plain"): 1.0, ("rove", "rove"): 1.0}}
        self.assertEqual(plot.libraries(speeds), ["rove", "JAX", "Zeta"])

    def test_of_the_same_case_in_two_files_the_last_one_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ("a.json", "b.json")]
            for path, gflops, peer in zip(paths, (1.0, 2.0), ("PyTorch", "JAX")):
                record = attention("tiled/rove", gflops, "rove")
                path.write_text(json.dumps({"header": {"peers": {peer: "3"}}, "records": [record]}), encoding="utf-8")
            header, records = plot.read(paths)
        self.assertEqual([record["gflops"] for record in records], [2.0])
        self.assertEqual(header["peers"], {"PyTorch": "3", "JAX": "3"})


class Table(unittest.TestCase):
    def test_rows_columns_and_what_was_measured(self):
        lines = plot.table(HEADER, RECORDS).splitlines()
        self.assertEqual(lines[0], "A CPU, avx512 fma; GCC 12; rove 0.1.0, PyTorch 2.0; OpenBLAS 0.3.21 (SkylakeX). "
                                   "Best of 31 draws, in turn.")
        self.assertEqual(lines[2], "| threads | n | d | heads | mask | rove, RoPE | rove, RoVE | PyTorch, no positions | "
                                   "PyTorch, RoVE | ONNX Runtime, no positions |")
        self.assertEqual(lines[3], "|" + "---|" * 10)
        self.assertEqual(lines[4:8], ["| 1 | 512 | 64 | 8 | full | **112** | 110 |  | 70 | 95 |",
                                      "| 1 | 512 | 64 | 9:3 | causal |  | **100** |  |  |  |",
                                      "| 1 | 1024 | 64 | 8 | full |  | **120** |  |  |  |",
                                      "| 2 | 512 | 64 | 8 | full |  |  | **80** |  |  |"])
        self.assertEqual(lines[9], "With 1 thread: FMA peak 170 GF/s.")

    def test_a_header_with_gaps_will_do(self):
        self.assertIn("unknown CPU", plot.table({}, RECORDS))


class Picture(unittest.TestCase):
    def test_a_dark_page_gets_light_ink(self):
        svg = f'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="9">\n<g style="fill: {plot.INK}"/></svg>'
        followed = plot.follow_the_page(svg)
        root = ElementTree.fromstring(followed)
        self.assertEqual(root[0].tag, "{http://www.w3.org/2000/svg}style")
        self.assertIn("prefers-color-scheme: dark", root[0].text)
        self.assertIn(f'[style*="fill: {plot.INK}"]{{fill:{plot.DARK[plot.INK]} !important}}', root[0].text)
        self.assertIn(f'style="fill: {plot.INK}"', followed)


if __name__ == "__main__":
    unittest.main()

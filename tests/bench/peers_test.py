#!/usr/bin/env python3
"""What peers.py works out by itself: shapes, turns, statistics, records. No peer is needed for it."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import peers
from rivals import race, record
from rivals.shape import SHAPES, Shape


class Shapes(unittest.TestCase):
    def test_flops_are_four_for_each_visible_pair_channel_and_query_head(self):
        self.assertEqual(Shape(4, 64, True, heads=6, kv_heads=2).flops, 4 * 64 * 10 * 6)
        self.assertEqual(Shape(4, 64, False, heads=6, kv_heads=2).flops, 4 * 64 * 16 * 6)

    def test_names_tell_them_apart(self):
        self.assertEqual(Shape(1024, 64, True, heads=9, kv_heads=3).name, "n1024-d64-h9:3-causal")
        self.assertEqual(len({shape.name for shape in SHAPES}), len(SHAPES))

    def test_heads_fit(self):
        for shape in SHAPES:
            self.assertEqual(shape.heads % shape.kv_heads, 0, shape.name)


class Machine:
    """A clock that moves when something runs or sleeps."""

    def __init__(self, costs):
        self.now, self.played, self.costs = 0.0, "", costs

    def runs(self):
        def run(name):
            self.now += self.costs[name]
            self.played += name

        return [lambda name=name: run(name) for name in self.costs]

    def sleep(self, seconds):
        self.now += seconds
        self.played += "."

    def race(self, draws, rest=0.0, shuffle=lambda order: None):
        return race.race(self.runs(), draws, rest, clock=lambda: self.now, sleep=self.sleep, shuffle=shuffle)


class Race(unittest.TestCase):
    def test_rivals_run_in_turn_after_a_round_that_is_not_timed(self):
        machine = Machine({"A": 1.0, "B": 2.0})
        self.assertEqual(machine.race(3), [[1.0] * 3, [2.0] * 3])
        self.assertEqual(machine.played, "AB" + "AB" * 3)

    def test_each_round_has_an_order_of_its_own_and_each_rival_once(self):
        machine = Machine({"A": 1.0, "B": 2.0, "C": 4.0})
        self.assertEqual(machine.race(20, shuffle=None), [[1.0] * 20, [2.0] * 20, [4.0] * 20])
        rounds = [machine.played[i:i + 3] for i in range(3, 63, 3)]
        self.assertEqual({"".join(sorted(order)) for order in rounds}, {"ABC"})
        self.assertGreater(len(set(rounds)), 3)
        self.assertEqual(len({order[0] for order in rounds}), 3)

    def test_short_ones_run_once_more_before_each_draw(self):
        machine = Machine({"A": race.SHORT / 2, "B": race.SHORT * 2})
        seconds = machine.race(2)
        self.assertEqual(machine.played, "AB" + "AAB" * 2)
        self.assertEqual([len(draws) for draws in seconds], [2, 2])

    def test_the_rest_comes_before_each_turn_and_is_not_timed(self):
        machine = Machine({"A": 1.0, "B": 2.0})
        self.assertEqual(machine.race(1, rest=8.0), [[1.0], [2.0]])
        self.assertEqual(machine.played, "AB" + ".A.B")

    def test_median_interval_holds_the_median_as_often_as_it_is_said_to(self):
        # Binomial(n, 1/2): 2 P(B < 1) = 1/16 for 5, so that 0.95 needs the whole range; 2 P(B < 2) = 7/64 for 7.
        self.assertEqual(race.median_interval([5, 1, 4, 2, 3]), (1, 5))
        self.assertEqual(race.median_interval(list(range(7)), 0.95), (0, 6))
        self.assertEqual(race.median_interval(list(range(7)), 0.85), (1, 5))
        # The tables of the sign test: the 41st and the 61st of 101.
        self.assertEqual(race.median_interval(list(range(1, 102))), (41, 61))

    def test_paired_ratio_cancels_what_slows_both(self):
        ratio, interval, of_bests = race.paired_ratio([1.1, 2.2, 3.3], [1.0, 2.0, 3.0])
        for value in (ratio, of_bests, *interval):
            self.assertAlmostEqual(value, 1.1)
        with self.assertRaises(ValueError):
            race.paired_ratio([1.0], [1.0, 2.0])


SHAPE = Shape(10, 25, False, heads=1, kv_heads=1)  # 10⁴ flops
ENTRANTS = {case: {"subject": subject, "version": "1", "error": 1e-7}
            for case, subject in (("attention/tiled/rope", "rove"), ("attention/tiled/rove", "rove"),
                                  ("attention/pytorch/rope", "PyTorch"))}
DRAWS = {record.PEAK: [1e-5], record.SGEMM: [2e-5], "attention/tiled/rope": [1e-5, 3e-5],
         "attention/tiled/rove": [2e-5, 2e-5], "attention/pytorch/rope": [4e-5, 5e-5]}
FLOPS = {record.PEAK: 4e4, record.SGEMM: 6e4}


class Records(unittest.TestCase):
    def records(self, draws=None, flops=None):
        return record.attention_records(SHAPE, 2, ENTRANTS, draws or DRAWS, flops or FLOPS)

    def test_fields_are_those_of_rove_compare_and_whose_it_is(self):
        rope, rove, _ = self.records()
        self.assertEqual({key: rope[key] for key in ("case", "subject", "version", "scalar", "threads", "draws", "error")},
                         {"case": "attention/tiled/rope", "subject": "rove", "version": "1", "scalar": "float",
                          "threads": 2, "draws": 2, "error": 1e-7})
        self.assertEqual(SHAPE.fields(), {key: rope[key] for key in SHAPE.fields()})
        self.assertEqual(set(rove) - set(rope),
                         {"rove_over_rope", "rove_over_rope_interval", "rove_over_rope_of_bests"})
        json.dumps(rove)

    def test_figures_are_of_the_best_draw(self):
        rope = self.records()[0]
        self.assertAlmostEqual(rope["gflops"], 1.0)
        self.assertAlmostEqual(rope["best_ms"], 0.01)
        self.assertAlmostEqual(rope["median_ms"], 0.02)
        self.assertAlmostEqual(rope["vs_peak"], 0.25)
        self.assertAlmostEqual(rope["vs_sgemm"], 1 / 3)

    def test_rove_is_compared_with_the_same_librarys_rope(self):
        rove = self.records()[1]
        self.assertAlmostEqual(rove["rove_over_rope"], (2 + 2 / 3) / 2)
        self.assertAlmostEqual(rove["rove_over_rope_of_bests"], 2.0)

    def test_nothing_is_compared_with_a_slow_sgemm(self):
        self.assertNotIn("vs_sgemm", self.records(flops={record.PEAK: 4e4, record.SGEMM: 4e4})[0])

    def test_references_are_left_out_where_they_did_not_run(self):
        without = {case: seconds for case, seconds in DRAWS.items() if case != record.SGEMM}
        self.assertNotIn("vs_sgemm", self.records(draws=without)[0])
        self.assertIn("vs_peak", self.records(draws=without)[0])

    def test_references_by_themselves(self):
        peak, sgemm = record.reference_records(2, {record.PEAK: [1e-5], record.SGEMM: [2e-5]}, FLOPS)
        self.assertAlmostEqual(peak["gflops"], 4.0)
        self.assertAlmostEqual(sgemm["vs_peak"], 0.75)
        self.assertEqual(record.reference_records(2, {record.PEAK: [], record.SGEMM: []}, FLOPS), [])

    def test_a_line_of_the_table(self):
        text = record.line(self.records()[1])
        for part in ("attention/tiled/rove", "n=10 d=25 h=1:1 full", "0.5 GF/s", "0.12 of peak", "RoVE/RoPE 1.333"):
            self.assertIn(part, text)
        self.assertIn("reference/peak", record.line(record.reference_records(1, {record.PEAK: [1.0]}, FLOPS)[0]))

    def test_standings_go_by_the_fastest_peer(self):
        slower = self.records()[2] | {"case": "attention/jax/rope", "gflops": 0.1}
        [row] = record.standings([*self.records(), slower])
        self.assertEqual(row["rope/rope"]["peer"], "attention/pytorch/rope")
        self.assertAlmostEqual(row["rope/rope"]["ratio"], 4.0)
        self.assertAlmostEqual(row["rove/rope"]["ratio"], 2.0)
        self.assertNotIn("rove/rove", row)
        self.assertEqual(row["threads"], 2)


class Program(unittest.TestCase):
    def test_arguments_are_checked(self):
        for wrong in (["--threads", "0"], ["--threads", "100000"], ["--draws", "0"], ["--shapes", "("],
                      ["--shapes", "no such shape"], ["--peers", "nobody"]):
            with self.subTest(wrong), contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                peers.arguments(wrong)

    def test_shapes_are_chosen_by_name(self):
        options = peers.arguments(["--shapes", "^n128-.*causal", "--threads", "1"])
        self.assertEqual(options.shapes, [Shape(128, 64, True, heads=32, kv_heads=32)])
        self.assertEqual(len(peers.arguments(["--threads", "1"]).shapes), len(SHAPES))

    def test_every_runtime_is_told_how_many_threads(self):
        with mock.patch.dict("os.environ", clear=True):
            told = peers.environment(2, "Zen")
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            self.assertEqual(told[name], "2")
        self.assertEqual(told["OPENBLAS_CORETYPE"], "Zen")

    def test_what_the_user_set_for_openblas_stays(self):
        with mock.patch.dict("os.environ", {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_THREAD_TIMEOUT": "9"}, clear=True):
            told = peers.environment(1, "Zen")
        self.assertNotIn("OPENBLAS_CORETYPE", told)
        self.assertNotIn("OPENBLAS_THREAD_TIMEOUT", told)

    def test_a_peer_that_is_not_there_is_named_by_its_module(self):
        with mock.patch.dict(peers.PEERS, {"gone": ("Gone", "rivals.gone", ("json", "no_such_module"), "gone")}):
            self.assertEqual(peers.missing("gone"), "no_such_module")
        with mock.patch.dict(peers.PEERS, {"here": ("Here", "rivals.here", ("json",), "here")}):
            self.assertIsNone(peers.missing("here"))

    def test_results_have_the_layout_of_rove_compare(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "peers.json"
            peers.write(path, {"cpu": "x"}, [{"case": "y"}])
            self.assertEqual(json.loads(path.read_text(encoding="utf-8")), {"header": {"cpu": "x"}, "records": [{"case": "y"}]})
            self.assertEqual([p.name for p in pathlib.Path(folder).iterdir()], ["peers.json"])


if __name__ == "__main__":
    unittest.main()

"""Records as rove_compare writes them, and what they say about who is ahead."""

import statistics

from rivals import race

PEAK, SGEMM = "reference/peak", "reference/sgemm-2048"
# Below this share of the peak OpenBLAS runs kernels that are not meant for this CPU: no rival to compare with.
FAIR_SHARE = 0.55


def times(seconds):
    return {"draws": len(seconds), "best_ms": min(seconds) * 1e3, "median_ms": statistics.median(seconds) * 1e3}


def reference_records(threads, draws, flops):
    """Of PEAK and SGEMM, from all their draws; `draws` and `flops` by case."""
    best = {case: flops[case] / min(seconds) * 1e-9 for case, seconds in draws.items() if seconds}
    records = []
    for case in (PEAK, SGEMM):
        if case not in best:
            continue
        record = {"case": case, "scalar": "float", "threads": threads, "gflops": best[case]}
        if case == SGEMM and PEAK in best:
            record["vs_peak"] = best[SGEMM] / best[PEAK]
        records.append(record | times(draws[case]))
    return records


def attention_records(shape, threads, entrants, draws, flops):
    """Of one race. `entrants`: a dict of subject, version, error for each case but the references; `draws`: the seconds
    of every case; `flops`: of one run of each reference that took part."""
    rate = {case: flops[case] / min(draws[case]) * 1e-9 for case in (PEAK, SGEMM) if case in draws}
    if SGEMM in rate and rate[SGEMM] < FAIR_SHARE * rate.get(PEAK, 0):
        del rate[SGEMM]
    records = []
    for case, facts in entrants.items():
        gflops = shape.flops / min(draws[case]) * 1e-9
        record = {"case": case, "subject": facts["subject"], "version": facts["version"], "scalar": "float",
                  **shape.fields(), "threads": threads, "gflops": gflops}
        if SGEMM in rate:
            record["vs_sgemm"] = gflops / rate[SGEMM]
        if PEAK in rate:
            record["vs_peak"] = gflops / rate[PEAK]
        rope = case.removesuffix("/rove") + "/rope"
        if case.endswith("/rove") and rope in draws:
            ratio, interval, of_bests = race.paired_ratio(draws[case], draws[rope])
            record |= {"rove_over_rope": ratio, "rove_over_rope_interval": list(interval),
                       "rove_over_rope_of_bests": of_bests}
        records.append(record | {"error": facts["error"]} | times(draws[case]))
    return records


def line(record):
    """One line of a table."""
    if "q_len" not in record:
        shape = ""
    else:
        heads = f"{record['heads']}:{record['kv_heads']}"
        shape = f"n={record['q_len']} d={record['head_dim']} h={heads} {'causal' if record['causal'] else 'full'}"
    text = (f"{record['case']:<36} {shape:<28} {record['threads']:>2}  {record['best_ms']:>9.3f} "
            f"{record['median_ms']:>9.3f} ms {record['gflops']:>7.1f} GF/s")
    for key, name in (("vs_sgemm", "of sgemm"), ("vs_peak", "of peak")):
        if key in record:
            text += f"  {record[key]:.2f} {name}"
    if "rove_over_rope" in record:
        text += f"  RoVE/RoPE {record['rove_over_rope']:.3f}"
    if "error" in record:
        text += f"  error {record['error']:.1e}"
    return text


def standings(records, own="attention/tiled"):
    """How `own` does beside the fastest peer: a dict for each race, with its shape and threads, and for each contest
    (plain, rope, rove against what a peer calls rope too) the case of the fastest peer and our speed over its."""
    races = {}
    for record in records:
        if "q_len" in record:
            key = tuple(record[k] for k in ("threads", "q_len", "head_dim", "heads", "kv_heads", "causal"))
            races.setdefault(key, []).append(record)
    found = []
    for group in races.values():
        speed = {record["case"]: record["gflops"] for record in group}
        row = {k: group[0][k] for k in ("threads", "q_len", "head_dim", "heads", "kv_heads", "causal")}
        for mine, theirs in (("plain", "plain"), ("rope", "rope"), ("rove", "rove"), ("rove", "rope")):
            peers = [case for case in speed if case.endswith("/" + theirs) and not case.startswith(own + "/")]
            if peers and f"{own}/{mine}" in speed:
                fastest = max(peers, key=speed.get)
                row[f"{mine}/{theirs}"] = {"peer": fastest, "ratio": speed[f"{own}/{mine}"] / speed[fastest]}
        found.append(row)
    return found

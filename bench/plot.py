#!/usr/bin/env python3
"""Draws speed against length from results of peers.py (or of rove_compare), and prints them as a table in Markdown.

usage: plot.py peers.json [more.json ...] --svg speed.svg

Four panels: 64 and 128 channels a head, causal and not. Of each library the fastest of its ways to do the same thing.
Needs Matplotlib for the drawing alone. The picture follows the reader's choice of a light or dark page.
"""

import argparse
import json
import pathlib
import sys

PEAK, SGEMM = "reference/peak", "reference/sgemm-2048"
OWN = "rove"
WHATS = {"plain": "no positions", "rope": "RoPE", "rove": "RoVE"}
# Seen on white and on black.
COLOURS = {OWN: "#e5484d", "PyTorch": "#e08a1e", "ONNX Runtime": "#3b82f6", "OpenVINO": "#9b6df0", "JAX": "#2da44e"}
OTHER_COLOUR = "#8c959f"
# Of a light page, and what becomes of it on a dark one.
INK, GRID = "#1f2328", "#d1d9e0"
DARK = {INK: "#e6edf3", GRID: "#3d444d"}
SHAPE = ("threads", "q_len", "head_dim", "heads", "kv_heads", "causal")


def read(paths):
    """(header, records) of several files; of the same case, shape and threads the last one counts."""
    header, records = {}, {}
    for path in paths:
        results = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        peers = header.get("peers", {}) | results["header"].get("peers", {})
        header = results["header"] | ({"peers": peers} if peers else {})
        for record in results["records"]:
            records[record["case"], *(record.get(key) for key in SHAPE)] = record
    return header, list(records.values())


def library(record):
    """Whose it is, or None: kernels of ours but the fast one are no rivals here."""
    return record.get("subject") or (OWN if record["case"].startswith("attention/tiled/") else None)


def fastest(records):
    """{shape: {(library, what): GF/s}}, the keys of a shape those of SHAPE in order."""
    found = {}
    for record in records:
        if not record["case"].startswith("attention/") or library(record) is None or record["scalar"] != "float":
            continue
        what = record["case"].rsplit("/", 1)[1]
        speeds = found.setdefault(tuple(record[key] for key in SHAPE), {})
        speeds[library(record), what] = max(record["gflops"], speeds.get((library(record), what), 0))
    return found


def libraries(speeds):
    """Ours, then those of COLOURS in order, then any others."""
    present = {name for row in speeds.values() for name, _ in row}
    return [name for name in COLOURS if name in present] + sorted(present - set(COLOURS))


def curves(speeds, threads, heads, head_dim, causal):
    """{(library, what): ([tokens], [GF/s])} of one panel, ours last, to lie on top."""
    found = {}
    for shape in sorted(speeds):
        if shape[0] != threads or shape[2:] != (head_dim, heads, heads, causal):
            continue
        for key, gflops in speeds[shape].items():
            tokens, values = found.setdefault(key, ([], []))
            tokens.append(shape[1])
            values.append(gflops)
    drawn = {}
    for name in reversed(libraries(speeds)):
        for what in ("rope", "rove") if name == OWN else ("plain", "rope"):
            if (name, what) in found:
                drawn[name, what] = found[name, what]
    return drawn


def references(records, threads):
    """{case: GF/s} of the peak and of sgemm, the best where there are several."""
    found = {}
    for record in records:
        if record["case"] in (PEAK, SGEMM) and record["threads"] == threads:
            found[record["case"]] = max(record["gflops"], found.get(record["case"], 0))
    return found


def machine(header, records):
    """One sentence: what was measured, and on what."""
    versions = [f"{OWN} {header.get('rove', '?')}"] + [f"{name} {v}" for name, v in header.get("peers", {}).items()]
    draws = sorted({record["draws"] for record in records if record["case"].startswith("attention/")})
    shown = "" if not draws else f" Best of {draws[0]}{f' to {draws[-1]}' if len(draws) > 1 else ''} draws, in turn."
    blas = f"{header.get('openblas', 'OpenBLAS')} ({header.get('openblas_core', '?')})"
    return (f"{header.get('cpu', 'unknown CPU')}, {header.get('isa', '?')}; {header.get('compiler', '?')}; "
            f"{', '.join(versions)}; {blas}.{shown}")


def table(header, records):
    """Markdown: a row for each shape and number of threads, GF/s; the highest of a row in bold."""
    speeds = fastest(records)
    columns = [(name, what) for name in libraries(speeds) for what in WHATS
               if any((name, what) in row for row in speeds.values())]
    titles = ["threads", "n", "d", "heads", "mask"] + [f"{name}, {WHATS[what]}" for name, what in columns]
    lines = [machine(header, records), "", "| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for shape in sorted(speeds):
        threads, tokens, head_dim, heads, kv_heads, causal = shape
        row = speeds[shape]
        cells = [str(threads), str(tokens), str(head_dim), str(heads) if heads == kv_heads else f"{heads}:{kv_heads}",
                 "causal" if causal else "full"]
        for column in columns:
            text = f"{row[column]:.0f}" if column in row else ""
            cells.append(f"**{text}**" if text and row[column] == max(row.values()) else text)
        lines.append("| " + " | ".join(cells) + " |")
    for threads in sorted({record["threads"] for record in records}):
        found = references(records, threads)
        named = [f"{name} {found[case]:.0f}" for case, name in ((PEAK, "FMA peak"), (SGEMM, "sgemm")) if case in found]
        if named:
            lines += ["", f"With {threads} thread{'s' if threads > 1 else ''}: {', '.join(named)} GF/s."]
    return "\n".join(lines) + "\n"


def follow_the_page(svg):
    """The picture with other ink where the reader prefers dark pages. Programs without style sheets show the light one."""
    rules = "".join(f'[style*="{way}: {light}"]{{{way}:{dark} !important}}'
                    for light, dark in DARK.items() for way in ("fill", "stroke"))
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    end = svg.index(">", svg.index("<svg")) + 1
    return svg[:end] + "\n " + style + svg[end:]


def draw(header, records, threads, heads):
    """The picture as text."""
    import io

    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot, ticker

    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "rove", "font.size": 9, "axes.edgecolor": GRID,
                            "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
                            "grid.color": GRID, "axes.spines.top": False, "axes.spines.right": False})
    speeds, lines = fastest(records), references(records, threads)
    figure, panels = pyplot.subplots(2, 2, figsize=(8.6, 6.6), sharex=True, sharey=True)
    entries = {}
    for row, head_dim in enumerate((64, 128)):
        for column, causal in enumerate((False, True)):
            axes = panels[row][column]
            for (name, what), (tokens, values) in curves(speeds, threads, heads, head_dim, causal).items():
                [line] = axes.plot(tokens, values, color=COLOURS.get(name, OTHER_COLOUR), marker="o",
                                   linewidth=1.9 if name == OWN else 1.2, markersize=4 if name == OWN else 3,
                                   linestyle="--" if what == "rope" else "-")
                entries[name, what] = line
            for case, name in ((PEAK, "FMA peak"), (SGEMM, "sgemm")):
                if case in lines:
                    axes.axhline(lines[case], color=INK, linewidth=0.8, linestyle=":")
                    axes.annotate(name, (1, lines[case]), xycoords=("axes fraction", "data"), ha="right", va="bottom",
                                  fontsize=8)
            axes.set_title(f"d = {head_dim}, {'causal' if causal else 'every key visible'}", fontsize=9)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(ticker.FixedLocator(sorted({shape[1] for shape in speeds if shape[3] == heads})))
            axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%d"))
            axes.xaxis.set_minor_locator(ticker.NullLocator())
            axes.set_ylim(bottom=0)
            axes.grid(linewidth=0.6)
            axes.set_axisbelow(True)
    for axes in panels[1]:
        axes.set_xlabel("tokens")
    for axes in panels[:, 0]:
        axes.set_ylabel("GF/s")
    order = sorted(entries, key=lambda key: (libraries(speeds).index(key[0]), key[1] != "rove", key[1]))
    labels = [f"{name}, {WHATS[what]}" for name, what in order]
    figure.suptitle(f"Attention, float, {heads} heads, {threads} thread{'s' if threads > 1 else ''}: "
                    f"{header.get('cpu', 'unknown CPU')}", fontsize=10)
    figure.legend([entries[key] for key in order], labels, loc="lower center", ncols=min(5, (len(labels) + 1) // 2 or 1),
                  frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    pyplot.close(figure)
    return follow_the_page(text.getvalue())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="files of peers.py or rove_compare")
    parser.add_argument("--svg", type=pathlib.Path, help="file for the picture; none is drawn if left out")
    parser.add_argument("--threads", type=int, default=1, help="of the picture; the table has all (%(default)s)")
    parser.add_argument("--heads", type=int, default=8, help="of the picture (%(default)s)")
    options = parser.parse_args()
    header, records = read(options.results)
    if not fastest(records):
        print("plot.py: no attention in these results", file=sys.stderr)
        return 1
    if options.svg:
        options.svg.write_text(draw(header, records, options.threads, options.heads), encoding="utf-8")
    print(table(header, records), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

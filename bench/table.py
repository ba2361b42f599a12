#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: table.py RESULTS.json [README.md]

Prints what gpu-check measured as the table that README shows. With README.md: puts it there, between its marks.
"""
import json
import pathlib
import sys

BEGIN, END = "<!-- table -->\n", "<!-- end -->"
COLUMNS = {"libhpe, one pointer": "one pointer, rolling", "managed memory": "managed", "managed, prefetched": "prefetched",
           "copies, pageable": "pageable", "copies, pinned by hand": "pinned"}


def table(results):
    figures = results["figures"]
    rows = [["work", *COLUMNS], ["---"] * (len(COLUMNS) + 1)]
    for title in ("vector add of 64 Mi floats, ms", "CPU touches one element a MiB after the kernel, ms"):
        rows.append([title, *(f"{figures[title][name]['median']:.1f}" for name in COLUMNS.values())])
    launch = next(f for title, f in figures.items() if title.startswith("launch"))
    start = next(f for title, f in figures.items() if title.startswith("start-up"))
    runs = sum(results["programs, runs equal to the twin"].values())

    return ("\n".join("| " + " | ".join(row) + " |" for row in rows).replace("| --- ", "|---").replace("--- |", "---|")
            + f"\n\nA launch that no object concerns costs {100 * (launch['libhpe']['ratio'] - 1):.1f} % more "
            f"({launch['libhpe']['given'] - launch['libhpe']['own']:.0f} ns). Start-up takes {start['libhpe']['more']:.1f} "
            f"ms more in the median of {start['libhpe']['samples']} pairs of runs (one without libhpe takes "
            f"{start['without libhpe']['median']:.0f} ms). {runs} runs of the test programs print what their "
            "explicit-copy twins print.\n")


def main():
    text = table(json.loads(pathlib.Path(sys.argv[1]).read_text()))
    if len(sys.argv) == 2:
        print(text, end="")
        return
    readme = pathlib.Path(sys.argv[2])
    before, rest = readme.read_text().split(BEGIN)
    readme.write_text(before + BEGIN + text + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: table.py RESULTS.json [DOCUMENT...]

Prints what gpu-check measured as the tables that README.md and docs/using.md show. With documents: puts each table into
the one that has its marks.
"""
import json
import pathlib
import sys

MARKS = {"figures": ("<!-- table -->\n", "<!-- end -->"), "copies, GB/s": ("<!-- copies -->\n", "<!-- end copies -->")}
COLUMNS = {"libhpe, one pointer": "one pointer, rolling", "managed memory": "managed", "managed, prefetched": "prefetched",
           "copies, pageable": "pageable", "the same under libhpe": "pageable, libhpe", "copies, pinned by hand": "pinned"}


def table(results):
    figures = results["figures"]
    rows = [["work", *COLUMNS], ["---"] * (len(COLUMNS) + 1)]
    for title in ("vector add of 64 Mi floats, ms", "vector add of 8 Mi floats, allocated and freed, ms",
                  "CPU touches one element a MiB after the kernel, ms"):
        rows.append([title, *(f"{figures[title][name]['median']:.1f}" for name in COLUMNS.values())])
    launch = next(f for title, f in figures.items() if title.startswith("launch"))
    # Results of before 2026-11-21 have no processor time.
    start, *processor = (f for title, f in figures.items() if title.startswith("start-up"))
    on_processor = f", {processor[0]['libhpe']['more'] + 0:+.1f} ms of processor time" if processor else ""
    # Results of before the first copies were measured have none.
    first = [f"{figures[title]['libhpe']['more'] + 0:+.1f}" for end in ("both copies, ms", "to the end, ms of processor time")
             for title in figures if title.endswith(end)]
    first_copies = (" In programs that copy 1, 8 and 64 MiB once each way the copies take {}, {} and {} ms more, and all from "
                    "the first copy to the end {}, {} and {} ms of processor time.").format(*first) if len(first) == 6 else ""
    runs = sum(results["programs, runs equal to the twin"].values())

    return ("\n".join("| " + " | ".join(row) + " |" for row in rows).replace("| --- ", "|---").replace("--- |", "---|")
            + f"\n\nA launch that no object concerns costs {100 * (launch['libhpe']['ratio'] - 1):.1f} % more "
            f"({launch['libhpe']['given'] - launch['libhpe']['own']:.0f} ns). Start-up of an empty "
            f"program: {start['libhpe']['more']:+.1f} ms in the median of {start['libhpe']['samples']} pairs of runs (without "
            f"libhpe it takes {start['without libhpe']['median']:.0f} ms){on_processor}.{first_copies} {runs} runs of the test programs print what their "
            "explicit-copy twins print.\n")


def copies(results):
    rates = results["copies, GB/s"]
    names = {"driver": "driver", "libhpe": "libhpe", "pinned": "pinned by hand", "driver, 2 processors": "driver, 2 processors",
             "libhpe, 2 processors": "libhpe, 2 processors"}
    rows = [["pageable copies, GB/s", *names.values()], ["---"] * (len(names) + 1)]
    rows += [[line, *(f"{rates[name][line]:.1f}" for name in names)] for line in rates["libhpe"]]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows).replace("| --- ", "|---").replace("--- |", "---|") + "\n"


def main():
    results = json.loads(pathlib.Path(sys.argv[1]).read_text())
    for key, make in (("figures", table), ("copies, GB/s", copies)):
        if key not in results:
            continue
        if len(sys.argv) == 2:
            print(make(results), end="")
            continue
        begin, end = MARKS[key]
        for document in map(pathlib.Path, sys.argv[2:]):
            before, mark, rest = document.read_text().partition(begin)
            if mark:
                document.write_text(before + begin + make(results) + end + rest.split(end, 1)[1])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""hpe report: what a report of HPE_REPORT=file.json says to change. Needs Python 3.8 and, for lines, addr2line,
eu-addr2line or llvm-symbolizer.
"""
import argparse
import os
import pathlib
import sys

import flame
import page
import text
from load import Problem, load
from symbols import Symbols


def arguments():
    parser = argparse.ArgumentParser(prog="hpe report", description="What to change, by call stack, from a report of "
                                     "HPE_REPORT=file.json; a folder of reports (the ranks of a job) is summed.")
    parser.add_argument("place", nargs="*", metavar="FILE|DIR")
    parser.add_argument("--diff", nargs=2, metavar=("BEFORE", "AFTER"), help="compare two runs")
    parser.add_argument("--flame", choices=sorted(flame.WEIGHTS), help="write collapsed stacks to stdout")
    parser.add_argument("--svg", metavar="FILE", help="draw a flame graph (of time, or what --flame names)")
    parser.add_argument("--html", metavar="FILE", help="write one page with everything")
    parser.add_argument("--trace", metavar="FILE", help="a timeline of HPE_TRACE of the same run, for --html")
    parser.add_argument("--symbols", metavar="DIR", action="append", default=[],
                        help="look here first for the program and its libraries")
    parser.add_argument("--most", type=int, default=10, metavar="N", help="show N call stacks (10)")
    given = parser.parse_args()
    if bool(given.diff) == bool(given.place) or len(given.place) > 1:
        parser.error("one FILE or DIR, or --diff with two")
    if given.diff and (given.flame or given.svg or given.html):
        parser.error("--flame, --svg and --html draw one run")
    if given.trace and not given.html:
        parser.error("--trace is for --html")
    return given


def write(path, content):
    try:
        pathlib.Path(path).write_text(content, encoding="utf-8")
    except OSError as wrong:
        raise Problem(f"cannot write {path}: {wrong.strerror}") from None


def run(given):
    symbols = Symbols(given.symbols)
    if given.diff:
        before, after = map(load, given.diff)
        return text.difference(before, after, symbols, given.most)
    reports = load(given.place[0])
    lines = []
    if given.flame or given.svg:
        weight = given.flame or "time"
        symbols.prepare((m, o) for s in reports.stacks for m, o in s.frames)
        folded = flame.collapsed(reports.stacks, symbols, weight)
        if given.svg:
            write(given.svg, flame.svg(folded, reports.title(), flame.UNITS[weight]))
        else:
            lines = [f"{name} {much}" for name, much in sorted(folded.items())]
    if given.html:
        write(given.html, page.page(reports, symbols, given.trace))
    if given.flame or given.svg or given.html:
        return lines
    return text.report(reports, symbols, given.most)


def main():
    try:
        for line in run(arguments()):
            print(line)
    except Problem as problem:
        print(f"hpe: {problem}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


main()

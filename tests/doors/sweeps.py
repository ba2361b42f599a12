#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: sweeps.py SWEEPS FLUSHES

CPU threads that sweep and stride through objects, and what they wrote being on its way: whatever comes in between, no
number is wrong, with blocks of their own size and of a given one, with reading ahead and without, in objects that the CPU
has used before and in others, and on a link so slow that what was sent for is still on its way. The report says that what
was to be fetched ahead was, and what it cost.
"""
import json
import pathlib
import sys
import tempfile

import soft

SLOW = {"HPE_SOFT_LINK": "400M", "HPE_SOFT_LATENCY": 300}
OPTIONS = [{"HPE_READ_AHEAD": "off"}, {"HPE_BLOCK_SIZE": "16K", "HPE_ROLLING_SIZE": 1}]
problems, runs = [], 0
sweeps, flushes = (soft.run([program], preload=False)[1].decode().split() for program in sys.argv[1:])
sweeps.remove("large")  # once is enough
cases = {**dict.fromkeys(sweeps, sys.argv[1]), **dict.fromkeys(flushes, sys.argv[2])}  # and whose they are


def run(case, *first, **options):
    """The report's totals."""
    global runs
    runs += 1
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        status, out, err = soft.run([cases[case], case, *first], HPE_REPORT=path, HPE_SOFT_DEVICES=2, **options)
        if status != 0 or not out.endswith(b"\n0 wrong\n") and out != b"0 wrong\n" or err:
            problems.append(f"{soft.shown([cases[case], case, *first], options)}: {status} {out} {err[-500:]}")
            return None
        return json.loads(path.read_text())["total"]


totals, firsts = {case: run(case) for case in cases}, {}
for number, case in enumerate(cases):
    tried = [([], OPTIONS[number % 2])]
    if cases[case] == sys.argv[1]:
        firsts[case] = run(case, "first")
        tried.append((["first"], {"HPE_PINNED_LIMIT": "4M", **(SLOW if case.endswith("_between") else {})}))
    if case.endswith("_between") or case in ("threads", "devices") or cases[case] == sys.argv[2]:
        tried += [([], SLOW), ([], {"HPE_BLOCK_SIZE": "1M", "HPE_PINNED_LIMIT": "4M"})]
    for first, options in soft.in_turn(number, tried):
        run(case, *first, **options)
run("captures_meanwhile", HPE_PROTOCOL="lazy", **SLOW)
run("callback_while_flushing", **SLOW)


def want(what, holds, *shown):
    if not holds:
        problems.append(f"{what}: {shown}")


if not problems:
    for case, total in totals.items():
        used, wasted = total["bytes_ahead_used"], total["bytes_ahead_wasted"]
        want(f"{case}: nothing was fetched ahead", used > 0, total)
        want(f"{case}: more fetched ahead than fetched", used + wasted <= total["bytes_to_host"], total)
    for case in ("forwards", "backwards", "strided", "strided_backwards", "updates"):
        want(f"{case}: a right guess wastes nothing", totals[case]["bytes_ahead_wasted"] == 0, totals[case])
    # Four sweeps of 6 MiB; all but the first blocks of each of the last three are there before they are asked for.
    for case in ("forwards", "backwards"):
        want(f"{case}: bytes", totals[case]["bytes_to_host"] == 4 * (6 << 20), totals[case])
        want(f"{case}: ahead", totals[case]["bytes_ahead_used"] >= 3 * (5 << 20), totals[case])
        want(f"{case}: faults", totals[case]["read_faults"] < 4 * 20, totals[case])
    want("fresh: only what a kernel wrote is fetched", totals["fresh"]["bytes_to_host"] == 4 * (6 << 20), totals["fresh"])
    # What the CPU has never used is fetched ahead as well: all but the first blocks.
    once = run("once", "first")
    want("once: ahead", once["bytes_ahead_used"] >= 5 << 20 and once["bytes_ahead_wasted"] == 0, once)
    want("once: bytes", once["bytes_to_host"] == 6 << 20, once)
    want("once: faults", once["read_faults"] < 20, once)
    for case in ("once", "forwards", "backwards", "strided", "strided_backwards", "updates"):
        want(f"{case}, first: waste", firsts[case]["bytes_ahead_wasted"] == 0, firsts[case])
    for case in ("strided", "strided_backwards"):
        want(f"{case}, first: several elements a fault", firsts[case]["read_faults"] < 3 * 24 / 3, firsts[case])
    backwards = run("backwards_once", "first")
    want("backwards: ahead", backwards["bytes_ahead_used"] >= 4 << 20, backwards)
    cases["large"] = sys.argv[1]
    large = run("large", "first")
    want("large: ahead", large["bytes_ahead_used"] > 2 * 190 << 20, large)
    again = run("resets", "first", HPE_PINNED_LIMIT="6M")
    want("resets: what was pinned is given back", again["bytes_ahead_used"] >= 20 << 20, again)
    nothing = run("once", "first", HPE_PINNED_LIMIT="1M")
    want("nothing may be pinned: nothing is fetched ahead", nothing["bytes_ahead_used"] == 0, nothing)
    # 256 blocks a round, but for the first third by more than one.
    dense = run("scattered_densely")
    want("what is touched all over is opened by more", dense["write_faults"] < 2 * 256, dense)
    fixed = run("forwards", HPE_BLOCK_SIZE="64K")
    want("blocks of a given size are opened one by one", fixed["read_faults"] == 4 * 96, fixed)
    want("and fetched one by one", fixed["transfers_to_host"] == 4 * 96 and fixed["bytes_ahead_used"] > 0, fixed)
    # Each of 12 launches, and each of 16 copies and memsets, finds a flush under way on such a link, and leaves it to its
    # stream to wait.
    for case, least in (("flushes_before_launches", 12), ("flushes_before_copies", 16)):
        with tempfile.NamedTemporaryFile("r") as counts:
            run(case, HPE_SOFT_COUNT=counts.name, **SLOW)
            waits = sum(int(line.split()[1]) for line in counts if line.startswith("cuStreamWaitEvent"))
        want(f"{case}: streams wait for flushes", waits >= least, waits)
    off = run("forwards", HPE_READ_AHEAD="off")
    want("off is off", off["bytes_ahead_used"] == off["bytes_ahead_wasted"] == 0, off)
    # One element a MiB of 24: blocks of 64 KiB, and no other's.
    without_strides = 24 << 20
    for case in ("strided", "strided_backwards"):
        moved = totals[case]["bytes_to_host"] - 2 * without_strides  # two sweeps first
        want(f"{case}: moves what is touched", moved <= 3 * (24 + 4) * 65536, totals[case])
    # All of the first window but the one block that was used; and not what another window has sent for again.
    for total in (totals["sent_for_twice"], firsts["sent_for_twice"]):
        want("sent_for_twice: waste", total["bytes_ahead_wasted"] == 19 * 65536, total)
    # What was on its way when something came in between is all that a wrong guess cost: one window of 2 MiB.
    for case in ("kernel_between", "memset_between", "copy_between", "graph_between"):
        for total in (totals[case], firsts[case]):
            want(f"{case}: waste", 0 < total["bytes_ahead_wasted"] <= 2 << 20, total)
if runs < 110:
    problems.append(f"only {runs} runs")
print("\n".join(problems[:20]) or f"{runs} runs")
sys.exit(1 if problems else 0)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: broken_reports.py FOLDER

A report or a timeline that was cut off or edited is told in one line, or read as far as it is whole; `hpe report` never
fails on it otherwise. FOLDER: scripts/report.
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, sys.argv[1])
import load  # noqa: E402
import page  # noqa: E402
import symbols  # noqa: E402
import text  # noqa: E402

COUNTS = {"bytes_to_host": 5, "bytes_to_device": 6, "read_faults": 1, "write_faults": 1}
REPORT = {
    "version": 1, "protocol": "rolling", "process": 7, "rank": None, "program": "/home/a/app", "objects": 1,
    "total": COUNTS,
    "call_stacks": {
        "seconds": 0.5,
        "modules": [{"path": "/nowhere/app", "build_id": "ab", "loaded_at": "0x0"}],
        "nodes": [[-1, 0, "0x10"], [0, 0, "0x20"], [1, -1, "0x30"]],
        "stacks": [{"node": -1, "what": "cuCtxSynchronize", "cut": True, "count": 1, "seconds": 0.1},
                   {"node": 1, "what": "read fault", "cut": False, "count": 20, "seconds": 0.1, "fetched_bytes": 100},
                   {"node": 2, "what": "cuMemcpyHtoD_v2", "cut": True, "count": 2, "seconds": 2e-3,
                    "to_device_bytes": 1 << 22, "sent_again_bytes": 1 << 21, "sent_again_seconds": 1e-3,
                    "pinned_sync_bytes": 1 << 22, "pinned_sync_seconds": 2e-3}],
        "without_stack": {"count": 1, "seconds": 0.1},
        "taken": {"known": 1, "unwound": 2, "not_taken": 1}},
    "per_object": [{"id": 1, "address": "0x1000", "bytes": 100, **COUNTS}], "objects_omitted": 0}
EVENT = {"ph": "X", "cat": "fetch", "name": "fetch", "ts": 1.5, "dur": 2.5, "args": {"object": 1, "bytes": 100}}
TIMELINE = {"traceEvents": [EVENT, {"ph": "M", "name": "thread_name", "args": {"name": "app"}}]}
VALUES = (None, True, -1, 0, 3, 1e300, float("nan"), "", "x", "0x", "\ud800", [], [1], {}, {"x": 1})
folder = pathlib.Path(tempfile.mkdtemp())
report, timeline = folder / "report.json", folder / "timeline.json"


def places(tree, at=()):
    """The keys that lead to each part of it."""
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        yield (*at, key)
        if isinstance(tree[key], (dict, list)):
            yield from places(tree[key], (*at, key))


def broken(tree):
    whole = json.dumps(tree)
    yield from (whole[:end] for end in range(0, len(whole), 7))
    yield "[" * 100_000
    for *above, last in places(tree):
        for value in (*VALUES, "left out"):
            other = part = copy.deepcopy(tree)
            for key in above:
                part = part[key]
            if value == "left out":
                del part[last]
            else:
                part[last] = value
            yield json.dumps(other)


def outputs():
    reports = load.load(report)
    return [*text.report(reports, symbols.Symbols([]), 10), page.page(reports, symbols.Symbols([]), timeline),
            *text.difference(reports, reports, symbols.Symbols([]), 10)]


wrong, told, read = [], 0, 0
timeline.write_text(json.dumps(TIMELINE))
report.write_text(json.dumps(REPORT))
if sum("sent again" in line for line in outputs()) < 2:
    wrong.append(f"the whole one: {outputs()}")
for path, whole in ((report, REPORT), (timeline, TIMELINE)):
    for content in broken(whole):
        path.write_text(content)
        try:
            outputs()
            read += 1
        except load.Problem:
            told += 1
        except Exception as problem:  # noqa: BLE001
            wrong.append(f"{type(problem).__name__} {problem}: {content[:2000]}")
    path.write_text(json.dumps(whole))
if read < 100 or told < 1000:
    wrong.append(f"{read} read, {told} told")
# What would be left undone is an error, and what is not known is not said.
for arguments in (["--diff", report, report, "--svg", folder / "x.svg"], ["--diff", report, report, "--flame", "time"],
                  [report, "--trace", timeline], [report, "--diff", report, report], []):
    done = subprocess.run([sys.executable, pathlib.Path(sys.argv[1]) / "main.py", *arguments], capture_output=True)
    if done.returncode != 2 or done.stdout or b"error: " not in done.stderr:
        wrong.append(f"{arguments}: {done}")
report.write_text(json.dumps(REPORT | {"call_stacks": None}))
if "since" in outputs()[0]:
    wrong.append(f"without call stacks: {outputs()[0]}")
print("\n".join(wrong[:5]) or f"{read + told} broken files")
sys.exit(1 if wrong else 0)

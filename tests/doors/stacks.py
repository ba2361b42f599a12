#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: stacks.py STACKS LIBRARY

Call stacks of the JSON report: of accesses and calls whose callers are known, from constructors of libraries that are
being opened, on other stacks, in code without tables, after stack overflows, with exceptions and threads. The program
does what it does without libhpe, and every access that trapped is in the report.
"""
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import compare
import soft

stacks, library = map(os.path.abspath, sys.argv[1:])
folder = pathlib.Path(tempfile.mkdtemp())
os.chdir(folder)
COSTS = {"count", "seconds", "wait_seconds", "fetched_bytes", "flushed_bytes", "to_device_bytes", "to_host_bytes",
         "pageable_bytes", "pageable_seconds", "pinned_sync_bytes", "pinned_sync_seconds", "sent_again_bytes",
         "sent_again_seconds", "back_unchanged_bytes", "back_unchanged_seconds", "unread_bytes", "unread_seconds", "renewed", "renewed_bytes",
         "renewed_seconds", "waits_not_needed", "waits_not_needed_seconds"}


def problem(what, text):
    compare.problem(f"{what}: {text}")


def functions_of(path):
    text = subprocess.run(["nm", "-C", "-S", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    return [(int(at, 16), int(size, 16), name.split("(")[0])
            for at, size, name in re.findall(r"^(\w+) (\w+) [tTwW] (.*)$", text, re.M)]


FUNCTIONS = {pathlib.Path(path).name: functions_of(path) for path in (stacks, library)}


def name_of(module, offset):
    """The function, or the module where it is not ours."""
    file = pathlib.Path(module["path"]).name if module else "none"
    for at, size, name in FUNCTIONS.get(file, ()):
        if at <= offset < at + size:
            return name
    return file


class Report:
    def __init__(self, what, whole):
        self.whole, self.stacks = whole, []
        section = whole["call_stacks"]
        if section is None:
            problem(what, "no call stacks")
            return
        if set(section) != {"seconds", "modules", "nodes", "stacks", "without_stack", "taken"}:
            problem(what, f"keys {sorted(section)}")
        for i, (parent, module, offset) in enumerate(section["nodes"]):
            if not -1 <= parent < i or not -1 <= module < len(section["modules"]):
                problem(what, f"node {i}: {parent} {module} {offset}")
        for s in section["stacks"]:
            if set(s) - COSTS - {"node", "what", "cut"} or s["count"] < 1 or s["node"] < 0 or not s["what"]:
                problem(what, f"stack {s}")
            at, names = s["node"], []
            while at >= 0:
                at, module, offset = section["nodes"][at]
                names.append(name_of(section["modules"][module] if module >= 0 else None, int(offset, 16)))
            self.stacks.append((s, names))
        total = whole["total"]
        self.lost = section["without_stack"].get("count", 0)
        faults = sum(s["count"] for s, _ in self.of("fault"))
        if not faults <= total["read_faults"] + total["write_faults"] <= faults + self.lost:
            problem(what, f"{faults} faults with stacks, {self.lost} without; {total}")
        if self.lost != section["taken"]["not_taken"]:
            problem(what, f"{section['without_stack']} {section['taken']}")
        fetched = sum(s.get("fetched_bytes", 0) for s, _ in self.stacks)
        flushed = sum(s.get("flushed_bytes", 0) for s, _ in self.stacks)
        if self.lost == 0 and (fetched, flushed) != (total["bytes_to_host"] - total["bytes_ahead_wasted"],
                                                     total["bytes_to_device"]):
            problem(what, f"fetched {fetched}, flushed {flushed}; {total}")

    def of(self, what):
        return [(s, names) for s, names in self.stacks if what in s["what"]]

    def callers(self, what):
        """How often by the program's functions, the innermost first."""
        found = collections.Counter()
        for s, names in self.of(what):
            found[tuple(n for n in names if not n.startswith(("lib", "_", "ld-")) and n != "main")] += s["count"]
        return found


def run(case, *arguments, wanted_err=b"", **variables):
    compare.runs += 1
    path = folder / f"{compare.runs}.json"
    what = f"{case} {variables}"
    wanted = soft.run([stacks, "copy", case, *arguments], preload=False)
    got = soft.run([stacks, "plain", case, *arguments], **{"HPE_REPORT": path, **variables})
    if got != (*wanted[:2], wanted_err):
        problem(what, f"{got}, without libhpe {wanted}")
    try:
        return Report(what, json.loads(path.read_text()))
    except (OSError, ValueError) as wrong:
        problem(what, f"no report: {wrong}")
        sys.exit(compare.finish(0))


def expect(what, found, wanted):
    if any(found[stack] != n for stack, n in wanted.items()):
        problem(what, f"{dict(found)}, expected {wanted}")


def reads(report):
    """By what called launch_and_read; whether the access itself was inlined is the compiler's choice."""
    found = collections.Counter()
    for stack, n in report.callers("read fault").items():
        if "launch_and_read" in stack:
            found[stack[stack.index("launch_and_read") + 1]] += n
    return found


for block in ("auto", "4K"):
    report = run("chain", HPE_BLOCK_SIZE=block)
    expect("chain", reads(report), {"first_caller": 50, "second_caller": 30})
    calls = collections.Counter()
    for stack, n in report.callers("cuLaunchKernel").items():
        calls[stack[stack.index("launch_and_read") + 1]] += n
    expect("chain, launches", calls, {"first_caller": 50, "second_caller": 30})
    for what in ("cuMemAlloc_v2", "cuMemsetD8_v2"):
        if sum(s["count"] for s, _ in report.of(what)) != 1:
            problem("chain", f"{what}: {report.of(what)}")
    if any(s["cut"] for s, _ in report.stacks) or any(names[-1:] != ["_start"] for _, names in report.stacks):
        problem("chain", f"does not reach the beginning: {report.stacks}")
    known = report.whole["call_stacks"]["taken"]
    # 80 launches, waits and accesses each, from two callers.
    if known["unwound"] > 20:
        problem("chain", f"each stack was unwound again: {known}")
    modules = report.whole["call_stacks"]["modules"]
    built = {m["path"]: m["build_id"] for m in modules}
    notes = subprocess.run(["readelf", "-n", soft.LIBRARY], capture_output=True, text=True).stdout
    wanted_id = re.search(r"Build ID: (\w+)", notes)
    if built.get(soft.LIBRARY) != (wanted_id[1] if wanted_id else None):
        problem("chain", f"build-ids {built}, {wanted_id}")

report = run("calls")
called = [(s["count"], names) for s, names in report.of("read fault, in a call")]
if sum(n for n, _ in called) != 10 or any(not names[0].startswith("libc.so") and names[0] != "write_out" or
                                          "write_out" not in names for _, names in called):
    problem("calls", f"{report.of('fault')}")

report = run("constructor", library)
expect("constructor", reads(report), {"second_caller": 100, "first_caller": 1})
if not any("constructor_of_library" in stack for stack in report.callers("read fault")):
    problem("constructor", f"{report.callers('read fault')}")

report = run("libraries", library)
# The other thread's launch may come between the access and its repetition.
if not 300 <= reads(report)["first_caller"] + report.lost <= 400:
    problem("libraries", f"{reads(report)}")
# A library that is gone before our thread looks has no name any more.
# The other thread's access may bring the block, too, since the arrays lie side by side.
if sum(n for stack, n in report.callers("read fault").items() if stack[0] in ("read_in_library", "none")) \
        + report.lost < 50:
    problem("libraries", f"{report.callers('read fault')}")

report = run("left_folder", library)
paths = [module["path"] for module in report.whole["call_stacks"]["modules"]]
whole = [stack for stack in report.callers("read fault") if stack[:2] == ("read_in_library", "left_folder")]
if str(pathlib.Path(library).resolve()) not in paths or sum(report.callers("read fault")[stack] for stack in whole) + report.lost < 20:
    problem("left_folder", f"{paths} {report.callers('read fault')}")

report = run("early")
if [(s["count"], names[:2]) for s, names in report.of("read fault")] != [(1, ["read_first", "early"])]:
    problem("early", f"{report.of('read fault')}")

report = run("alternate")
handled = [(s, names) for s, names in report.of("read fault") if "handle" in names]
if sum(s["count"] for s, _ in handled) != 20 or not all(s["cut"] for s, _ in handled):
    problem("alternate", f"{report.of('read fault')}")

expect("overflow", reads(run("overflow")), {"first_caller": 1, "second_caller": 3})

report = run("deep")
expect("deep", reads(report), {"deeper": 40})
depths = sorted((names.count("deeper"), s["cut"], s["count"]) for s, names in report.of("read fault") if "deeper" in names)
if len(depths) != 2 or depths[0] != (21, False, 20) or depths[1][1:] != (True, 20):
    problem("deep", f"depth, cut, count: {depths}")

report = run("generated")
generated = [(s, names) for s, names in report.of("read fault") if names[0] == "none"]
framed = [s["count"] for s, names in generated if "generated" in names and "main" in names]
if sum(s["count"] for s, _ in generated) != 20 or sum(framed) < 10:
    problem("generated", f"{report.of('read fault')}")

expect("exceptions", reads(run("exceptions")), {"first_caller": 50})

# Of 600 reads, but a fault beside one's object may open that, too: they are small. Report compares with all that trapped.
report = run("threads")
if set(reads(report)) != {"first_caller"} or sum(reads(report).values()) + report.lost < 300:
    problem("threads", f"{reads(report)}, {report.lost} without")

report = run("coroutines")
if sum(reads(report).values()) != 40:
    problem("coroutines", f"{reads(report)}, {report.lost} without")

# What was not unwound when the process ended is counted without a stack.
report = run("held_up")
if sum(reads(report).values()) + report.lost < 51:
    problem("held_up", f"{reads(report)}, {report.lost} without")

# The report belongs into the folder that the program was in when it began with CUDA.
run("forked", HPE_PROGRESS_SIGNAL="USR2", HPE_REPORT=f"{compare.runs + 1}.json")

# Off: the same report without them.
compare.runs += 1
soft.run([stacks, "plain", "chain"], HPE_REPORT=folder / "off.json", HPE_STACKS="off")
if json.loads((folder / "off.json").read_text())["call_stacks"] is not None:
    problem("HPE_STACKS=off", "there are stacks")
# A library of that name without its functions is as none: one line, and the rest of the report.
empty = folder / "empty"
empty.mkdir()
subprocess.run(["cc", "-shared", "-o", empty / "libunwind-x86_64.so.8", "-x", "c", "/dev/null"], check=True)
got = soft.run([stacks, "plain", "chain"], HPE_REPORT=folder / "none.json",
               LD_LIBRARY_PATH=f"{empty}:{soft.SEARCH}")
whole = json.loads((folder / "none.json").read_text())
if got[0] != 0 or got[2].count(b"\n") != 1 or b"libunwind" not in got[2] or whole["call_stacks"] is not None:
    problem("without libunwind", f"{got} {whole['call_stacks']}")
if not whole["call_sites"]:
    problem("without libunwind", "no call sites")

# A line at a signal, in the middle of a system call that goes on.
def progress(wanted, **variables):
    compare.runs += 1
    with subprocess.Popen([stacks, "plain", "halves"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=soft.environment(HPE_PROGRESS_SIGNAL="USR2", **variables)) as program:
        first = program.stdout.readline()
        lines = []
        for _ in range(2):
            program.send_signal(signal.SIGUSR2)
            lines.append(program.stderr.readline().decode())
        out, err = program.communicate(b"\n", timeout=60)
    if (program.returncode, first, out, err) != (0, b"half\n", b"0 wrong\nend of halves\n", b""):
        problem("HPE_PROGRESS_SIGNAL", f"{program.returncode} {first} {out} {err}")
    if any(not re.fullmatch(wanted, line) for line in lines):
        problem("HPE_PROGRESS_SIGNAL", f"{lines}")


STATE = r"hpe: after \d+\.\d s: 1 object, 0\.2 MiB to the host, 0\.0 MiB to the device, 50 faults"
progress(STATE + r"; most time: \d+\.\d{3} s in \d+ x \S+( fault)?: .*door_stacks.* < .*\n", HPE_BLOCK_SIZE="4K")
progress(STATE + r"\n", HPE_BLOCK_SIZE="4K", HPE_STACKS="off")
compare.finish(18)

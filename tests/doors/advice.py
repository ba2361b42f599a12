#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: advice.py WASTEFUL SOURCE HPE SMALL WAVES_SOURCE WAVES...

What a program wastes is in the report, in bytes and by function, and nothing of what it does well; `hpe report` names
the lines. Its other forms (flame graphs, page, comparison, folders of ranks) say the same.
"""
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import compare
import soft

wasteful, source, hpe, small, waves_source, *waves = sys.argv[1:]
folder = pathlib.Path(tempfile.mkdtemp())
BYTES = 1200000


def problem(text):
    compare.problem(text)


def tool(*arguments, status=0):
    compare.runs += 1
    done = subprocess.run([hpe, "report", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != status or (done.stderr != "") != (status != 0):
        problem(f"hpe report {arguments}: status {done.returncode}, {done.stderr}")
    return done.stderr if status else done.stdout


def run(path, **variables):
    compare.runs += 1
    got = soft.run([wasteful, "plain", "all"], HPE_REPORT=path, **variables)
    wanted = soft.run([wasteful, "plain", "all"], preload=False)
    if got[:2] != wanted[:2] or got[2] != b"":
        problem(f"{got}, without libhpe {wanted}")


def even(path, to=None):
    """Where the machine is busy a call may take a hundred times as long, and what could be saved is not worth a sentence:
    so each takes 0.1 ms, one half of it needlessly."""
    report = json.loads(path.read_text())
    for stack in report["call_stacks"]["stacks"]:
        stack.update({k: stack["count"] * (1e-4 if k == "seconds" else 5e-5)
                      for k, v in stack.items() if k.endswith("seconds") and v > 0})
    (to or path).write_text(json.dumps(report))


run(folder / "r.json")
whole = json.loads((folder / "r.json").read_text())
functions = [(int(at, 16), int(size, 16), name.split("(")[0]) for at, size, name in re.findall(
    r"^(\w+) (\w+) [tT] (.*)$", subprocess.run(["nm", "-C", "-S", wasteful], check=True, capture_output=True,
                                               text=True).stdout, re.M)]
costs = collections.defaultdict(collections.Counter)
section = whole["call_stacks"]
for stack in section["stacks"]:
    at, names = stack["node"], []
    while at >= 0:
        at, module, offset = section["nodes"][at]
        if section["modules"][module]["path"] == str(pathlib.Path(wasteful).resolve()):
            names += [name for begin, size, name in functions if begin <= int(offset, 16) < begin + size]
    names = [n for n in names if n not in ("all", "main", "_start", "compute") and "advance" not in n]
    costs[names[0] if names else "all", stack["what"]].update(
        {k: v for k, v in stack.items() if k not in ("node", "what", "cut")})

EXPECTED = {
    ("send_again", "cuMemcpyHtoD_v2"): {"count": 6, "to_device_bytes": 6 * BYTES, "pageable_bytes": 6 * BYTES,
                                        "sent_again_bytes": 4 * BYTES},
    ("bring_back", "cuMemcpyHtoD_v2"): {"count": 4, "to_device_bytes": 4 * BYTES, "pageable_bytes": 4 * BYTES},
    ("bring_back", "cuMemcpyDtoH_v2"): {"count": 4, "to_host_bytes": 4 * BYTES, "pageable_bytes": 4 * BYTES,
                                        "back_unchanged_bytes": 4 * BYTES},
    ("allocate_again", "cuMemAlloc_v2"): {"count": 5, "renewed": 4, "renewed_bytes": 4 * 77777},
    ("allocate_again", "cuMemFree_v2"): {"count": 5},
    ("copy_pinned", "cuMemcpyHtoD_v2"): {"count": 3, "to_device_bytes": 3 * BYTES, "pinned_sync_bytes": 3 * BYTES},
    ("well", "cuMemcpyHtoD_v2"): {"count": 3, "to_device_bytes": 3 * BYTES, "pageable_bytes": 3 * BYTES},
    ("well", "cuMemcpyDtoH_v2"): {"count": 3, "to_host_bytes": 3 * BYTES, "pageable_bytes": 3 * BYTES},
    ("send_rows_again", "cuMemcpy2DUnaligned_v2"): {"count": 3, "to_device_bytes": 3 * 600000,
                                                    "pageable_bytes": 3 * 600000, "sent_again_bytes": 2 * 600000},
}
EXPECTED["bring_back_async", "cuMemcpyDtoHAsync_v2"] = {"count": 3, "to_host_bytes": 3 * BYTES, "pageable_bytes": 3 * BYTES}
for key, wanted in EXPECTED.items():
    got = {k: v for k, v in costs[key].items() if not k.endswith("seconds")}
    if got != wanted:
        problem(f"{key}: {got}, expected {wanted}")
    parts = [v for k, v in costs[key].items() if k.endswith("_seconds") and k != "renewed_seconds"]
    if any(part > costs[key]["seconds"] for part in parts):
        problem(f"{key}: a part takes longer than the whole: {costs[key]}")
if costs["allocate_again", "cuMemFree_v2"]["renewed_seconds"] <= 0:
    problem(f"frees: {costs['allocate_again', 'cuMemFree_v2']}")
# A wait whose stack is not known yet cannot be named later.
waits = costs["wait_too_often", "cuCtxSynchronize"]
if waits["count"] != 8 or not 4 <= waits["waits_not_needed"] <= 8:
    problem(f"waits: {waits}")

lines = {text.split("// ")[1]: number for number, text in enumerate(pathlib.Path(source).read_text().splitlines(), 1)
         if "CHECK" in text and "// " in text}
even(folder / "r.json", folder / "even.json")
text = tool(folder / "even.json", "--most", 50)
blocks = {}
for block in text.split("\n\n"):
    found = re.match(r"\d+\. (\S+ \S+): (\w+)\S* .*?wasteful\.cu:(\d+)", block)
    if found:
        blocks[found[2], int(found[3])] = block
for function, line, kind in (("send_again", lines["the same again"], "sent again"),
                             ("bring_back", lines["nothing new"], "brought back unchanged"),
                             ("allocate_again", lines["four of five"], "allocated again and again")):
    if f"   {kind}, " not in blocks.get((function, line), ""):
        problem(f"{function}, line {line}: no advice '{kind}' in {text}")
for function, kind in (("well", "sent again"), ("well", "brought back"), ("copy_pinned", "not pinned")):
    if any(f == function and f"   {kind}" in block for (f, _), block in blocks.items()):
        problem(f"{function} is told '{kind}': {text}")
in_ms = {"s": 1e3, "ms": 1.0, "us": 1e-3}
saved = [float(a) * in_ms[b] for a, b in re.findall(r"^\d+\. (\S+) (s|ms|us): ", text, re.M)]
if len(saved) < 6 or saved != sorted(saved, reverse=True):
    problem(f"out of order: {saved}")

for weight, key in (("time", "seconds"), ("bytes", "to_device_bytes"), ("faults", None)):
    folded = tool(folder / "r.json", "--flame", weight).splitlines()
    sums = sum(int(line.rsplit(" ", 1)[1]) for line in folded)
    wanted = {"time": 1e6 * sum(c["seconds"] for c in costs.values()),
              "bytes": sum(c["to_device_bytes"] + c["to_host_bytes"] for c in costs.values()), "faults": 0}[weight]
    if abs(sums - wanted) > len(costs) + len(folded):
        problem(f"--flame {weight}: {sums}, the report has {wanted}")
    if weight == "time" and not any(re.search(r";main;.*all\(.*;send_again\(\);cudaMemcpy;.*cuMemcpyHtoD_v2 \d+$", line)
                                    for line in folded):
        problem(f"--flame time: {folded}")
tool(folder / "r.json", "--svg", folder / "r.svg")
drawn = xml.etree.ElementTree.parse(folder / "r.svg").getroot()
titles = [t.text for t in drawn.iter("{http://www.w3.org/2000/svg}title")]
if not any(t.startswith("send_again(): ") for t in titles) or not titles[0].startswith("all: "):
    problem(f"--svg: {titles}")
soft.run([small, "plain", "work"], HPE_TRACE=folder / "t.json")
tool(folder / "r.json", "--html", folder / "r.html", "--trace", folder / "t.json")
page = (folder / "r.html").read_text()
if any(word not in page for word in ("send_again()", "<svg", "object 1", "object 2", "sent again")) or "src=" in page or "href=" in page:
    problem("--html: something is missing, or not in the file itself")

# Each of the tools that may be there says the same.
answers = {}
for name in ("addr2line", "eu-addr2line", "llvm-symbolizer"):
    if shutil.which(name):
        tools = folder / ("with-" + name)
        tools.mkdir()
        for needed in (name, "python3", "bash", "env", "dirname", "readlink", "c++filt"):
            (tools / needed).symlink_to(sys.executable if needed == "python3" else shutil.which(needed))
        shown = subprocess.run([hpe, "report", folder / "even.json", "--most", "50"], capture_output=True, text=True,
                               env={"PATH": str(tools), "HOME": "/"}).stdout
        answers[name] = set(re.findall(r"wasteful\.cu:\d+", shown))
        compare.runs += 1
if len(answers) == 0 or any(answer != set(re.findall(r"wasteful\.cu:\d+", text)) for answer in answers.values()):
    problem(f"lines by tool: {answers}")

# The same program again: no function's counts change.
run(folder / "again.json")
compared = tool("--diff", folder / "r.json", folder / "again.json", "--most", 50)
counts = re.findall(r", (\d+) -> (\d+) times, (.*) -> (.*)$", compared, re.M)
if len(counts) < 8 or any(a != b or x != y for a, b, x, y in counts):
    problem(f"--diff of equal runs: {compared}")

# Ranks: files by %r, summed by folder; a file that is no report is left out.
ranks = folder / "ranks"
ranks.mkdir()
for variable, rank in (("OMPI_COMM_WORLD_RANK", 0), ("PMI_RANK", 1), ("SLURM_PROCID", 2)):
    run(ranks / "of-%r.json", **{variable: rank})
    even(ranks / f"of-{rank}.json")
(ranks / "other.json").write_text("[1, 2]")
if sorted(p.name for p in ranks.glob("of-*")) != [f"of-{i}.json" for i in range(3)]:
    problem(f"%r: {list(ranks.iterdir())}")
if [json.loads((ranks / f"of-{i}.json").read_text())["rank"] for i in range(3)] != [0, 1, 2] or whole["rank"] is not None:
    problem("ranks in the reports")
summed = tool(ranks, "--most", 50)
if "3 processes" not in summed or "18 x cuMemcpyHtoD_v2" not in summed:
    problem(f"a folder: {summed}")

# A program of another build is not asked for its lines.
moved = folder / "moved"
shutil.copy(wasteful, moved)
soft.run([moved, "plain", "all"], HPE_REPORT=folder / "moved.json")
even(folder / "moved.json")
image = bytearray(moved.read_bytes())
build_id = next((bytes.fromhex(m["build_id"]) for m in
                 json.loads((folder / "moved.json").read_text())["call_stacks"]["modules"]
                 if m["path"] == str(moved) and m["build_id"]), None)
if build_id is None or image.count(build_id) != 1:
    problem("the program has no build-id")
else:
    at = image.index(build_id)
    image[at] ^= 1
    moved.unlink()
    moved.write_bytes(image)
    other = tool(folder / "moved.json", "--most", 50)
    if "another build" not in other or "send_again" in other:
        problem(f"another build: {other}")
    named = tool(folder / "moved.json", "--most", 50, "--symbols", pathlib.Path(wasteful).parent)
    if "send_again" in named:
        problem("a file of another name was taken")
    (folder / "kept").mkdir()
    shutil.copy(wasteful, folder / "kept" / "moved")
    if "send_again" not in tool(folder / "moved.json", "--most", 50, "--symbols", folder / "kept"):
        problem("--symbols does not find the program")

# The example of docs/report.md: its advice is what its next version does, and the last one has none.
outputs, said = set(), []
for number, program in enumerate(waves):
    outputs.add(soft.run([program], HPE_REPORT=folder / f"waves_{number}.json")[:2])
    even(folder / f"waves_{number}.json")
    said.append(tool(folder / f"waves_{number}.json"))
line_of = {text.strip(): number for number, text in enumerate(pathlib.Path(waves_source).read_text().splitlines(), 1)}
send = "CHECK(cudaMemcpy(model_on_device, model.data(), kModelBytes, cudaMemcpyHostToDevice));"  # the last is in the loop
told = [(line, kind) for line, kind in ((send, "sent again"), ("CHECK(cudaFree(model_on_device));", "allocated again"))
        if not re.search(rf"^\d+\. .*waves\.cu:{line_of[line]}\n.*\n   {kind}", said[0], re.M)]
if len(outputs) != 1 or outputs.pop()[0] != 0 or told:
    problem(f"waves: {outputs} not told {told}: {said[0]}")
back = line_of["CHECK(cudaMemcpy(on_device[2], field.data(), kFieldBytes, cudaMemcpyHostToDevice));"]
if f"waves.cu:{back}\n" not in said[1] or "allocated again" in said[1] or re.search("sent again|allocated again", said[2]):
    problem(f"waves: {said[1:]}")

# Of a stripped program no function is named that only stands in front of the address.
stripped = folder / "stripped"
subprocess.run(["strip", "-o", stripped, wasteful], check=True)
soft.run([stripped, "plain", "all"], HPE_REPORT=folder / "stripped.json")
even(folder / "stripped.json")
bare = tool(folder / "stripped.json", "--most", 50)
if not re.search(r"^\d+\. \S+ \S+: stripped\+0x\w+  stripped$", bare, re.M) or "send_again" in bare:
    problem(f"stripped: {bare}")

if "is no report" not in tool(ranks / "other.json", status=2):
    problem("a file that is no report")
tool(folder / "none.json", status=2)
compare.finish(19)

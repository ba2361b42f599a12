#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures of README.md and docs/using.md are those that gpu-check measured, and it names every option there is. No
result names a place on the machine that it was measured on. What documents refer to in the repository is there."""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "bench"))
from table import MARKS, copies, table  # noqa: E402

readme = (ROOT / "README.md").read_text()
shown = {"figures": readme, "copies, GB/s": (ROOT / "docs/using.md").read_text()}
problems = []
results = json.loads((ROOT / "bench/results/nvidia-h200.json").read_text())
for key, make in (("figures", table), ("copies, GB/s", copies)):
    begin, end = MARKS[key]
    if shown[key].split(begin)[1].split(end)[0] != make(results):
        problems.append("a table is not what the results say: run bench/table.py bench/results/nvidia-h200.json README.md "
                        "docs/using.md")
words = sum(len(line.split()) for line in readme.splitlines() if not line.startswith("|"))
if words > 1000:
    problems.append(f"README has {words} words besides its tables; 1000 are enough")
for variable in re.findall(r'"(HPE_\w+)"', (ROOT / "shim/process/options.inc").read_text()):
    if f"| `{variable}` |" not in readme:
        problems.append(f"{variable} is not in the table of options")
for path in (ROOT / "bench/results").glob("*.json"):
    for place in re.findall(r'(?<=[\s"])/\w+/[\w./]+', path.read_text()):
        problems.append(f"{path.name}: {place}")


def anchors(document):
    headings = re.findall(r"^#+ +(.*)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


documents = [path for path in ROOT.rglob("*.md") if not path.relative_to(ROOT).parts[0].startswith(("build", "."))]
for document in documents:
    for link in re.findall(r"\]\(([^)\s:]+)\)", document.read_text()):
        place, _, anchor = link.partition("#")
        target = document.parent / place if place else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            problems.append(f"{document.relative_to(ROOT)}: nothing is at {link}")
if len(documents) < 10:
    problems.append("documents are missing")
print("\n".join(problems) or f"README agrees, {len(documents)} documents")
sys.exit(1 if problems else 0)

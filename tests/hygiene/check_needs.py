#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: check_needs.py BUILD

Every test depends on the targets whose outputs its command line or its environment names: scripts/test builds no others.
A folder is named for what is built in it.
"""
import json
import pathlib
import sys

build = pathlib.Path(sys.argv[1]).resolve()
tests, targets = (json.loads((build / f"meson-info/intro-{what}.json").read_text()) for what in ("tests", "targets"))
outputs = {target["id"]: {pathlib.Path(name) for name in target["filename"]} for target in targets}
built = set().union(*outputs.values())
problems, named = [], 0
for test in tests:
    needed = set().union(*(outputs[target] for target in test["depends"]))
    # Meson adds LD_LIBRARY_PATH itself, from what the test depends on.
    words = test["cmd"] + [value for name, value in test["env"].items() if name != "LD_LIBRARY_PATH"]
    for path in {build / part for word in words for part in word.split(":") if part}:
        there = {output for output in built if output == path or output.parent == path}
        named += bool(there)
        if there and not there & needed:
            problems.append(f"{test['name']} names {path.relative_to(build)} and does not depend on it")
print("\n".join(problems) or f"{len(tests)} tests name {named} outputs and folders")
sys.exit(1 if problems or named < len(tests) else 0)

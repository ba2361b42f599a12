#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who may include whom (layers.py) in the whole tree. Also: files of one subject stay short, and nothing carries the
path of a machine.
"""
import pathlib
import re
import sys

import layers

ROOT = pathlib.Path(sys.argv[1])
LONGEST = 530
MACHINE_PATH = re.compile(r"/(?:work|root|home|tmp)/[\w.]")

files = {}
for top in ("protocols", "shim", "toolchain"):
    for file in sorted((ROOT / top).rglob("*")):
        if file.suffix in layers.SOURCES:
            files[file.relative_to(ROOT).as_posix()] = file.read_text()
problems = layers.problems_of(files)
for name, text in files.items():
    lines = text.count("\n")
    if lines > LONGEST:
        problems.append(f"{name}: {lines} lines; split it by subject")
    if MACHINE_PATH.search(text):
        problems.append(f"{name}: carries a path of some machine")
print("\n".join(problems) or f"{len(files)} files, all as they should be")
sys.exit(1 if problems or len(files) < 50 else 0)

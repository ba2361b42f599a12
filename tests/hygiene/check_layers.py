#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who may include whom (DESIGN.md section 3). Every #include "..." in the tree is looked at.

Also: files of one subject stay short, and nothing carries the path of a machine.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])

# A folder may include itself, what is listed, and nothing else of the project.
MAY_INCLUDE = {
    "protocols": set(),
    "shim/base": set(),
    "shim/runtime": {"shim/base", "protocols"},
    "shim/doors": {"shim/runtime", "shim/base", "protocols"},
    "shim": {"shim/runtime", "shim/base"},
    "toolchain/fatbin": set(),
    "toolchain/ptx": set(),
    "toolchain/softgpu/exec": {"toolchain/ptx", "toolchain/fatbin"},
    "toolchain/softgpu/driver": {"toolchain/softgpu/exec", "toolchain/ptx", "toolchain/fatbin"},
    "toolchain/softgpu/runtime": set(),
}
LONGEST = 530
MACHINE_PATH = re.compile(r"/(?:work|root|home|tmp)/[\w.]")


def folder_of(path):
    """The longest name in MAY_INCLUDE that the path lies in, or None."""
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        name = "/".join(parts[:length])
        if name in MAY_INCLUDE:
            return name
    return None


problems = []
checked = 0
for top in ("protocols", "shim", "toolchain"):
    for file in sorted((ROOT / top).rglob("*")):
        if file.suffix not in (".h", ".cpp", ".c", ".S", ".inc"):
            continue
        checked += 1
        name = file.relative_to(ROOT).as_posix()
        folder = folder_of(name)
        text = file.read_text()
        if folder is None:
            problems.append(f"{name}: in no known folder")
            continue
        for included in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M):
            if not (ROOT / included).exists():
                continue  # generated, or beside the file
            target = folder_of(included)
            if target != folder and target not in MAY_INCLUDE[folder]:
                problems.append(f"{name}: must not include {included}")
        lines = text.count("\n")
        if lines > LONGEST:
            problems.append(f"{name}: {lines} lines; split it by subject")
        if MACHINE_PATH.search(text):
            problems.append(f"{name}: carries a path of some machine")
print("\n".join(problems) or f"{checked} files, all as they should be")
sys.exit(1 if problems or checked < 50 else 0)

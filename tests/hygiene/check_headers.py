#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every header of the shim and the protocols compiles alone, with the compiler of the build and with the other one."""
import pathlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

root, cuda, scratch, *compiler = sys.argv[1:]
root = pathlib.Path(root)
compilers = [compiler]
if "clang" not in compiler[-1] and shutil.which("clang++"):
    compilers.append(["clang++"])
flags = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", f"-I{root}",
         "-isystem", cuda, "-D__CUDA_API_VERSION_INTERNAL", "-x", "c++", "-"]


def check(job):
    tool, header = job
    source = f'#include "{header.relative_to(root)}"\n'
    result = subprocess.run([*tool, *flags], input=source, capture_output=True, text=True)
    return "" if result.returncode == 0 else f"{tool[-1]}: {header}: {result.stderr[:1500]}"


headers = [h for top in ("protocols", "shim") for h in sorted((root / top).rglob("*.h"))]
with ThreadPoolExecutor(2) as pool:
    problems = [p for p in pool.map(check, [(c, h) for c in compilers for h in headers]) if p]
print("\n".join(problems) or f"{len(headers)} headers compile alone with {' and '.join(c[-1] for c in compilers)}")
sys.exit(1 if problems or not headers else 0)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: check_headers.py REPOSITORY CUDA_INCLUDE BUILD COMPILER...

Every header compiles alone with the compiler of the build, and all of them with clang, warnings being errors.

The build itself has shown it of a header that stands first in the source of its name. The others are compiled here, one
by one. Whether a header has all its includes does not depend on the compiler, warnings do: clang gets them together.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

root, cuda, build, *compiler = sys.argv[1:]
root, build = pathlib.Path(root), pathlib.Path(build)
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wold-style-cast", "-Werror",
         # Functions without external linkage in a header: nobody here calls them.
         "-Wno-unused-function", f"-I{root}", f"-I{build}/toolchain/softgpu/driver", "-isystem", cuda,
         "-x", "c++", "-"]

commands = json.loads((build / "compile_commands.json").read_text())
built = {pathlib.Path(entry["directory"], entry["file"]).resolve() for entry in commands}
# The folder of each mpi.h that libhpe is built with, and what it is to mean.
mpis = [["-isystem", re.findall(r"-isystem (\S+)", entry["command"])[-1], *re.findall("-DMPI_ABI", entry["command"])]
        for entry in commands if entry["file"].endswith("shim/mpi/abi.cpp")]


def shown_by_build(header):
    source = header.with_suffix(".cpp").resolve()
    if source not in built:
        return False
    first = re.search(r'^\s*#\s*include\s+(\S+)', source.read_text(), re.M)
    return first is not None and first[1] == f'"{header.relative_to(root)}"'


def needs_mpi(header):
    text = header.read_text()
    return "<mpi.h>" in text or any(needs_mpi(root / name) for name in re.findall(r'"(shim/(?:mpi|doors/mpi)\S+)"', text)
                                    if name.endswith(".h"))


def check(job):
    tool, headers = job
    source = "".join(f'#include "{header.relative_to(root)}"\n' for header in headers)
    internal = ["-D__CUDA_API_VERSION_INTERNAL"] if headers[0] in groups["shim"] + of_mpi else []  # as the shim is built
    result = subprocess.run([*tool, *internal, *FLAGS], input=source, capture_output=True, text=True)
    what = headers[0].relative_to(root) if len(headers) == 1 else "all headers"
    return "" if result.returncode == 0 else f"{tool[-1]}: {what}: {result.stderr[:1500]}"


# The soft device's runtime and driver are separate programs.
groups = {name: sorted(h for top in tops for h in (root / top).rglob("*.h")) for name, tops in {
    "shim": ("protocols", "shim"),
    "driver": ("toolchain/fatbin", "toolchain/ptx", "toolchain/softgpu/exec", "toolchain/softgpu/driver"),
    "runtime": ("toolchain/softgpu/runtime",)}.items()}
headers = [h for group in groups.values() for h in group]
# Those of MPI compile with each mpi.h, and with none other.
of_mpi = [h for h in groups["shim"] if needs_mpi(h)]
groups["shim"] = [h for h in groups["shim"] if h not in of_mpi]
# What one forbids, those after it in a group may use.
poisoning = [h for h in groups["shim"] if "#pragma GCC poison" in h.read_text()]
groups["shim"] = [h for h in groups["shim"] if h not in poisoning]
alone = [h for h in headers if not shown_by_build(h) and (mpis or h not in of_mpi)]
variants = {h: mpis for h in of_mpi}
jobs = [(compiler + flags, [h]) for h in alone for flags in variants.get(h, [[]])]
if "clang" not in compiler[-1] and shutil.which("clang++"):
    jobs += [(["clang++"], group) for group in [*groups.values(), *([h] for h in poisoning)]]
    jobs += [(["clang++", *flags], of_mpi) for flags in mpis]
with ThreadPoolExecutor(2) as pool:
    problems = [p for p in pool.map(check, jobs) if p]
print("\n".join(problems) or f"{len(headers)} headers, {len(alone)} compiled alone here, {len(jobs) - len(alone)} groups "
      "with clang")
sys.exit(1 if problems or len(headers) < 80 or not alone else 0)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: check_headers.py REPOSITORY CUDA_INCLUDE BUILD COMPILER...

All headers compile with clang, warnings being errors; and where the tests are to be thorough, each alone with the
compiler of the build.

The build itself has shown that of a header that stands first in the source of its name. The others are compiled here. One
that includes others itself may come behind them in one compilation, which so shows several. Whether a header has all its
includes does not depend on the compiler, warnings do: clang gets them together.
"""
import functools
import json
import os
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
mpis = list({folder: ["-isystem", folder, *re.findall("-DMPI_ABI", entry["command"])]
             for entry in commands if entry["output"].startswith("shim/libhpe_mpi_")
             for folder in re.findall(r"-isystem (\S+)", entry["command"])[-1:]}.values())


def shown_by_build(header):
    source = header.with_suffix(".cpp").resolve()
    if source not in built:
        return False
    first = re.search(r'^\s*#\s*include\s+(\S+)', source.read_text(), re.M)
    return first is not None and first[1] == f'"{header.relative_to(root)}"'


@functools.cache
def included(header):
    """Which headers of the repository it includes, itself or by others."""
    names = [root / name for name in re.findall(r'^\s*#\s*include\s+"([^"]+\.h)"', header.read_text(), re.M)]
    direct = {name for name in names if name.exists()}
    return direct.union(*map(included, direct))


def chains(headers):
    """Lists of headers, each of which includes all those before it."""
    left = sorted(headers, key=lambda header: len(included(header)))
    while left:
        chain = [left.pop()]
        while below := [header for header in left if header in included(chain[0])]:
            chain.insert(0, below[-1])
            left.remove(below[-1])
        yield chain


def needs_mpi(header):
    text = header.read_text()
    return "<mpi.h>" in text or any(needs_mpi(root / name) for name in re.findall(r'"(shim/(?:mpi|doors/mpi)\S+)"', text)
                                    if name.endswith(".h"))


def check(job):
    tool, headers = job
    source = "".join(f'#include "{header.relative_to(root)}"\n' for header in headers)
    internal = ["-D__CUDA_API_VERSION_INTERNAL"] if headers[-1] in groups["shim"] + of_mpi else []  # as the shim is built
    result = subprocess.run([*tool, *internal, *FLAGS], input=source, capture_output=True, text=True)
    return "" if result.returncode == 0 else f"{tool[-1]}: {' '.join(source.split()[1::2])[-300:]}: {result.stderr[:1500]}"


# The soft device's runtime and driver are separate programs.
groups = {name: sorted(h for top in tops for h in (root / top).rglob("*.h")) for name, tops in {
    "shim": ("protocols", "shim"),
    "driver": ("toolchain/fatbin", "toolchain/ptx", "toolchain/softgpu/exec", "toolchain/softgpu/driver"),
    "runtime": ("toolchain/softgpu/runtime",)}.items()}
headers = [h for group in groups.values() for h in group]
# Those of MPI compile with each mpi.h, and with none other; alone with one of them.
of_mpi = [h for h in groups["shim"] if needs_mpi(h)]
groups["shim"] = [h for h in groups["shim"] if h not in of_mpi]
# What one forbids, those after it in a group may use.
poisoning = [h for h in groups["shim"] if "#pragma GCC poison" in h.read_text()]
groups["shim"] = [h for h in groups["shim"] if h not in poisoning]
thorough = os.environ.get("HPE_TEST_THOROUGH") == "1"
alone = [h for h in headers if thorough and not shown_by_build(h) and (mpis or h not in of_mpi)]
jobs = [(compiler + (mpis[0] if chain[-1] in of_mpi else []), chain) for chain in chains(alone)]
compiled = len(jobs)
if "clang" not in compiler[-1] and shutil.which("clang++"):
    jobs += [(["clang++"], group) for group in [*groups.values(), *([h] for h in poisoning)]]
    jobs += [(["clang++", *flags], of_mpi) for flags in mpis]
with ThreadPoolExecutor(2) as pool:
    problems = [p for p in pool.map(check, jobs) if p]
print("\n".join(problems) or f"{len(headers)} headers, {len(alone)} compiled here in {compiled} pieces, "
      f"{len(jobs) - compiled} groups with clang")
sys.exit(1 if problems or len(headers) < 80 or (thorough and not alone) else 0)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads the CUDA driver's ABI from the toolkit's own headers.

cudaTypedefs.h holds one function-pointer type per driver function and ABI
version (PFN_cuMemAlloc_v3020); cuda.h holds the name each is exported under
(cuMemAlloc_v2). This module pairs the two, so that no list of driver functions
is ever typed by hand. Used by the generators of the driver doors and of the
soft device.
"""
import pathlib
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One exported driver symbol."""
    base: str       # what cuGetProcAddress is asked for: cuMemAlloc
    version: int    # cudaVersion of this ABI: 3020
    flavour: str    # '' (legacy default stream), 'ptds' or 'ptsz' (per thread)
    export: str     # symbol in libcuda.so.1: cuMemAlloc_v2
    pfn: str        # type in cudaTypedefs.h: PFN_cuMemAlloc_v3020
    returns: str
    params: tuple   # ((declaration, name), ...)

    @property
    def declaration(self) -> str:
        return ", ".join(d for d, _ in self.params) or "void"

    @property
    def arguments(self) -> str:
        return ", ".join(n for _, n in self.params)


_TYPEDEF = re.compile(
    r"typedef\s+(\w+)\s*\(\s*CUDAAPI\s*\*\s*(PFN_(\w+?)_v(\d+)(?:_(ptds|ptsz))?)\)\s*\((.*?)\)\s*;", re.S)


def _split(params: str):
    """Splits a parameter list at its top-level commas."""
    out, depth, start = [], 0, 0
    for i, c in enumerate(params):
        if c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            out.append(params[start:i])
            start = i + 1
    out.append(params[start:])
    result = []
    for number, p in enumerate(out):
        p = " ".join(p.split())
        if p in ("", "void"):
            continue
        array = re.search(r"(\w+)\s*\[\s*\]$", p)
        if array:
            p = p[:array.start()] + "*" + array.group(1)
        name = re.search(r"(\w+)$", p)
        if name is None or p == name.group(1):
            p, name_text = f"{p} a{number}", f"a{number}"
        else:
            name_text = name.group(1)
        result.append((p, name_text))
    return tuple(result)


def exported_symbols(include: pathlib.Path) -> set:
    """Every driver function that cuda.h declares, under its exported name."""
    text = (include / "cuda.h").read_text(errors="replace")
    profiler = include / "cudaProfiler.h"
    if profiler.exists():
        text += profiler.read_text(errors="replace")
    names = set(re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", text))
    # The default-stream variants exist as macros applied to a plain name.
    for macro, inner in re.findall(r"__CUDA_API_(PTDS|PTSZ)\((\w+)\)", text):
        names.add(inner)
        names.add(f"{inner}_{macro.lower()}")
    names.update(m for _, m in re.findall(r"#define\s+(cu\w+)\s+(cu\w+)\s*$", text, re.M))
    return names


def entries(include) -> list:
    """All (function, ABI version, flavour) triples of the headers in `include`."""
    include = pathlib.Path(include)
    exports = exported_symbols(include)
    found = {}
    for header in ("cudaTypedefs.h", "cudaProfilerTypedefs.h"):
        path = include / header
        if not path.exists():
            continue
        for ret, pfn, base, version, flavour, params in _TYPEDEF.findall(path.read_text(errors="replace")):
            found.setdefault(pfn, (base, int(version), flavour or "", ret, params))
    versions = {}
    for base, version, flavour, _, _ in found.values():
        if not flavour:
            versions.setdefault(base, set()).add(version)
    result = []
    for pfn, (base, version, flavour, ret, params) in found.items():
        plain = sorted(versions.get(base, {version}))
        rank = len([v for v in plain if v <= version]) or 1
        candidates = [base if rank == 1 else f"{base}_v{rank}"]
        # Some functions were born as _v2 or skipped a number.
        candidates += [f"{base}_v{n}" for n in range(rank + 1, rank + 3)]
        suffix = f"_{flavour}" if flavour else ""
        export = next((c + suffix for c in candidates if c + suffix in exports or c in exports), None)
        if export is None:
            raise SystemExit(f"cuda_abi: no exported name for {pfn}")
        result.append(Entry(base, version, flavour, export, pfn, ret, _split(params)))
    return sorted(result, key=lambda e: (e.base, e.version, e.flavour))


if __name__ == "__main__":
    import sys
    for e in entries(sys.argv[1] if len(sys.argv) > 1 else "/usr/local/cuda/include"):
        print(f"{e.base} {e.version} {e.flavour or '-'} {e.export} {e.declaration}")

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares this runtime with NVIDIA's of the same toolkit: exported symbols with their versions, the names and texts
of errors, and what the calls answer that need no driver.

usage: check_exports.py OUR_LIBRARY NVIDIA_LIBRARY
"""
import ctypes
import json
import re
import subprocess
import sys


def exports(library):
    out = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True, capture_output=True, text=True).stdout
    found = set()
    for line in out.splitlines():
        fields = line.split()
        # Num Value Size Type Bind Vis Ndx Name
        if len(fields) == 8 and fields[3] == "FUNC" and fields[6] != "UND":
            found.add(fields[7])
    return found


def soname(library):
    out = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return re.search(r"SONAME.*\[(.*)\]", out).group(1)


def answers(library):
    """Runs in a process of its own: two runtimes in one would share the driver."""
    runtime = ctypes.CDLL(library)
    for name in ("cudaGetErrorName", "cudaGetErrorString"):
        getattr(runtime, name).restype = ctypes.c_char_p
    result = {}
    for code in [*range(-2, 1100), 9999, 10000]:
        result[f"error {code}"] = [getattr(runtime, f)(ctypes.c_int(code)).decode()
                                   for f in ("cudaGetErrorName", "cudaGetErrorString")]
    value = ctypes.c_int(-7)
    for name in ("cudaRuntimeGetVersion", "cudaPeekAtLastError", "cudaGetLastError"):
        arguments = [ctypes.byref(value)] if "Version" in name else []
        result[name] = [getattr(runtime, name)(*arguments), value.value]
    return result


def answers_in_child(library):
    out = subprocess.run([sys.executable, __file__, "--answers", library], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def main():
    if sys.argv[1] == "--answers":
        print(json.dumps(answers(sys.argv[2])))
        return 0
    ours, theirs = sys.argv[1:3]
    problems = []
    our_exports, their_exports = exports(ours), exports(theirs)
    if len(their_exports) < 400:
        problems.append(f"only {len(their_exports)} symbols found in {theirs}")
    problems += [f"missing: {s}" for s in sorted(their_exports - our_exports)]
    problems += [f"exported but not NVIDIA's: {s}" for s in sorted(our_exports - their_exports)]
    if soname(ours) != soname(theirs):
        problems.append(f"SONAME {soname(ours)} instead of {soname(theirs)}")
    our_answers, their_answers = answers_in_child(ours), answers_in_child(theirs)
    problems += [f"{k}: {our_answers[k]} instead of {v}" for k, v in their_answers.items() if our_answers[k] != v]
    print("\n".join(problems) or f"{len(our_exports)} exports and {len(our_answers)} answers as NVIDIA's")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

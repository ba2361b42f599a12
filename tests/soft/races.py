#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""HPE_SOFT_CHECK=race on kernels that race and kernels that do not. A report names the lines marked in races.cu; a
right kernel gives none; without the option nobody says anything.

usage: races.py SOURCE LIBRARY_OF_PROGRAMS...    programs: races.cu, compiled with -lineinfo; then right programs
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

failed = 0


def wrong(text):
    global failed
    failed = 1
    print(text)


def check(program, source):
    text = pathlib.Path(source).read_text().split("\n")
    kernels = re.findall(r"^__global__ void (\w+)", "\n".join(text), re.M)
    marks = {}
    for number, line in enumerate(text, 1):
        if at := re.search(r"// (\w+) ([ab])$", line):
            marks.setdefault(at[1], {})[at[2]] = f"races.cu:{number})"
    bad = [k for k in kernels if not k.startswith("right_")]
    assert set(bad) == set(marks) and len(kernels) - len(bad) > 10
    for kernel in kernels:
        status, out, errors = soft.run([program, kernel], preload=False, HPE_SOFT_CHECK="race")
        said = errors.decode()
        if status != 0 or out != b"races: ok\n":
            wrong(f"{kernel}: status {status}, {out!r}, {said}")
        if kernel not in bad:
            if said:
                wrong(f"{kernel} is right, but: {said}")
            continue
        what = "barrier divergence" if kernel in ("two_barriers", "half_a_warp") else "race"
        lines = [l for l in said.splitlines() if f": {what}: kernel " in l and kernel in l]
        found = [l for l in lines if all(mark in l for mark in marks[kernel].values())]
        if not found or len(found) != len(set(found)) or len(lines) != len(said.splitlines()):
            wrong(f"{kernel} should be reported with {marks[kernel]}, but: {said!r}")
        elif not re.search(r"block \(\d+,0,0\).*thread \(\d+,0,0\).*PTX line \d+ \(.*PTX line \d+ \(", found[0]):
            wrong(f"{kernel}: the report names too little: {found[0]}")
        if soft.run([program, kernel], preload=False)[2]:
            wrong(f"{kernel}: a report without the option")
    for value in ("races", "1", "race,race"):
        status, out, errors = soft.run([program, "right_tiles"], preload=False, HPE_SOFT_CHECK=value)
        if status == 0 or f"HPE_SOFT_CHECK: '{value}' is not accepted; accepted is race" not in errors.decode():
            wrong(f"HPE_SOFT_CHECK={value}: status {status}, {errors!r}")


def main():
    source, program, *right = sys.argv[1:]
    check(program, source)
    for other in right:
        status, out, errors = soft.run([other], preload=False, HPE_SOFT_CHECK="race")
        if status != 0 or re.search(rb"race: |barrier divergence: ", errors):
            wrong(f"{other}: status {status}, {errors.decode()}")
    return failed


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bad accesses of kernels are found in every space, and the message says where.

usage: faults.py SOURCE PROGRAM...    PROGRAM: faults.cu, with -lineinfo
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402


def main():
    source, *programs = sys.argv[1:]
    text = pathlib.Path(source).read_text().split("\n")
    lines = {}
    for number, line in enumerate(text, 1):
        if at := re.match(r"__global__ void ((?:illegal|misaligned)_\w+)\(", line):
            lines[at[1]] = number  # unless a mark says otherwise
        if at := re.search(r"// ((?:illegal|misaligned)_\w+)$", line):
            lines[at[1]] = number
    assert len(lines) > 24
    failed = 0
    for program in programs:
        for kernel, number in lines.items():
            status, out, errors = soft.run([program, kernel], preload=False)
            kind = kernel.split("_")[0]
            name = "cudaErrorIllegalAddress" if kind == "illegal" else "cudaErrorMisalignedAddress"
            wanted = rf"{kind} (read|write) of \d+ bytes at 0x.*kernel \w*{kernel}\w*, block \(0,0,0\), thread \(\d+,0,0\)," \
                     rf" PTX line \d+ \([^)]*faults.cu:{number}\): \S"
            if status != 0 or out.decode() != name + "\n" or not re.search(wanted, errors.decode()):
                failed = 1
                print(f"{program} {kernel}, line {number}: status {status}, {out!r}, {errors.decode()!r}")
    return failed


if __name__ == "__main__":
    sys.exit(main())

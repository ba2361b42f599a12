#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: lost.py PROGRAM

A lost context under libhpe with every protocol: the program sees the errors that it sees without libhpe, after its
reset too; a CPU access to what was lost ends the program after a line that names the array.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

program = sys.argv[1]


def errors(out):
    return [line for line in out.decode().splitlines() if "cudaError" in line]


status, out, err = soft.run([program, "untouched"], preload=False)
wanted = errors(out)
assert status == 3 and len(wanted) > 5, (status, out, err)
problems = []
for protocol in ("batch", "lazy", "rolling"):
    for block, trace in (("4K", ""), ("256K", ""), ("4K", "/dev/null")):
        variables = {"HPE_PROTOCOL": protocol, "HPE_BLOCK_SIZE": block, "HPE_TRACE": trace}
        status, out, err = soft.run([program], **variables)
        lines = err.count(b"hpe: ")
        if status != 3 or errors(out) != wanted or b"WRONG" in out or lines > 3:
            problems.append(f"{variables}: status {status}\n{out.decode()}\nwanted {wanted}\n{err.decode()}")
        status, out, err = soft.run([program, "touch"], **variables)
        if status != -11 or b"cannot fetch" not in err or b"read " in out:
            problems.append(f"{variables}, touched: status {status}\n{out.decode()}\n{err.decode()}")
print("\n".join(problems) or "9 configurations")
sys.exit(1 if problems else 0)

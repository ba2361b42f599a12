#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: refused.py PROGRAM

A copy or memset over what the CPU wrote, refused by the driver: the program sees the error and its data are all there.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

program = sys.argv[1]
REFUSED = {"cuMemcpyHtoD": "copy:", "cuMemcpyDtoD": "copy on the device:", "cuMemsetD8": "memset:",
           "cuMemcpy2DUnaligned": "2D copy:", "cuMemcpy2D": "2D copy:"}
problems, refused = [], set()
for protocol in ("batch", "lazy", "rolling"):
    for block in ("4K", "64K", "256K"):
        for function in (None, *REFUSED):
            variables = {"HPE_PROTOCOL": protocol, "HPE_BLOCK_SIZE": block}
            if function:
                variables["HPE_SOFT_FAIL"] = f"{function}:{2 if function == 'cuMemsetD8' else 1}:1"
            status, out, err = soft.run([program], **variables)
            if status != 0:
                problems.append(f"{variables}: status {status}\n{out.decode()}\n{err.decode()}")
            for line in out.decode().splitlines():
                if "cudaErrorInvalidValue" in line:
                    refused.add(line.split(":")[0] + ":")
if len(refused) < 4:
    problems.append(f"only {refused} were refused: the injected faults do not reach the calls")
print("\n".join(problems[:5]) or f"refused and nothing lost: {sorted(refused)}")
sys.exit(1 if problems else 0)

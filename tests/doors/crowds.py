#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: crowds.py CROWDS

Small objects that lie side by side, which share pages (cudaMalloc) or have pages of their own (pools): the same numbers
as with copies, with every protocol and with sizes that open one block at a time; and where they are used one after the
other most are opened with another one's fault.
"""
import json
import pathlib
import re
import sys
import tempfile

import compare
import soft

crowds = sys.argv[1]


def faults_of(case, memory):
    """Read and write faults, for each object."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.json"
        soft.run([crowds, "plain", case, memory], HPE_REPORT=str(path))
        report = json.loads(path.read_text())
    return (report["total"]["read_faults"] + report["total"]["write_faults"]) / report["objects"]


for memory in ("malloc", "pool"):
    for number, case in enumerate(soft.run([crowds], preload=False)[1].decode().split()):
        for protocol in ("rolling", *soft.in_turn(number + (memory == "pool"), ("lazy", "batch"))):
            status, out, err = compare.check([crowds, case, memory], HPE_PROTOCOL=protocol)
            if status != 0 or re.search(rb"[1-9]\d* wrong", out):
                compare.problem(f"{case} without libhpe: {status} {out} {err}")
        for setting in soft.in_turn(number, ({"HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": "1"}, {"HPE_ROLLING_SIZE": "2"},
                                             {"HPE_STAGING_THREADS": "0"})):
            compare.check([crowds, case, memory], **setting)
    # Each object is used eleven times, by a read or a write fault of its own if nothing is opened with another one.
    for case, wanted in (("ascending", 2), ("descending", 2), ("in_turn", 2)):
        if (faults := faults_of(case, memory)) > wanted:
            compare.problem(f"{case}, {memory}: {faults} faults for each object")
# In pages of their own. Those of cudaMalloc share blocks, whatever their order.
if (faults := faults_of("shuffled", "pool")) < 4:
    compare.problem(f"shuffled: only {faults} faults for each object: the case does not show anything")
# A driver that refuses libhpe's own kernel: the same numbers by copies one by one, and one line says so.
for case in ("ascending", "shuffled"):
    refused = {"HPE_SOFT_FAIL": "cuModuleLoadData:*:2", "HPE_BLOCK_SIZE": "64K"}
    compare.check([crowds, case, "malloc"], said_ok=True, **refused)
    said = soft.run([crowds, "plain", case, "malloc"], **refused)[2].decode().splitlines()
    if len(said) != 1 or "hpe_copy" not in said[0] or "CUDA_ERROR_OUT_OF_MEMORY" not in said[0]:
        compare.problem(f"{case}, without the kernel: {said}")
compare.finish(110)

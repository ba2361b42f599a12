#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: peer_staging.py PROGRAM

Copies between devices that cannot reach each other's memory go through bounce buffers, where that is faster, and the
program cannot tell: the data, the order of things and what its own calls return are as without libhpe, also where
libhpe's own calls fail. The soft device counts what its driver took through the host, libhpe's report what it staged.
"""
import json
import re
import sys
import tempfile

import compare
import soft

program = sys.argv[1]
# With a link of its own speed two directions at once are faster than one after the other.
APART = {"HPE_SOFT_DEVICES": 2, "HPE_SOFT_PEER": 0, "HPE_SOFT_LINK": "4G"}
WAYS = ("peer", "peer_async", "default", "on_device", "on_device_async", "unified", "unified_async", "linear")
STREAMLESS = ("peer", "default", "on_device", "unified", "linear")
CASES = [case for case in soft.run([program], preload=False)[1].decode().split() if case not in ("blocks", "twice")]
COPIES = 2 * 3 * 2  # of the other cases
ALWAYS = {"HPE_SOFT_FAIL": "cuEventElapsedTime:*:1"}  # how long copies take cannot be told, so all are staged
EDGES = 2 * 4096  # what the driver copies of each staged copy that no stream orders


def counted(*case, **variables):
    """(result of the plain form, copies staged, bytes staged, bytes that the driver took through the host)"""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        result, _, directly, host = soft.counted([program, "plain", *case], timeout=60,
                                                **{**APART, **variables}, HPE_REPORT=report.name)
        said = json.load(report)
    compare.runs += 1
    expect(f"{case} {variables}: bytes directly", directly, 0)
    return result, said["staged_copies"], said["staged_bytes"], host


def expect(what, got, wanted):
    if got != wanted:
        compare.problem(f"{what}: {got} instead of {wanted}")


def check(*case, **variables):
    status = compare.check([program, *case], **{**APART, **variables})[0]
    if status != 0:
        compare.problem(f"{case} does not work without libhpe: {status}")


# As without libhpe.
for case in CASES:
    check(case)
check("crossing", **ALWAYS, HPE_SOFT_DEVICES=3)
check("shared", **ALWAYS, HPE_SOFT_LINK="2G")
# So slow that what is looked at too early is not there.
for way in ("peer", "peer_async"):
    check("blocks", way, **ALWAYS, HPE_SOFT_LINK="500M")
for apart in (0, 1):
    check("among", **ALWAYS, HPE_SOFT_LINK="500M", HPE_SOFT_PEER=apart)
for way in WAYS:
    check("blocks", way)
for protocol in ("rolling", "batch"):
    for way in ("peer", "peer_async"):
        check("twice", way, HPE_PROTOCOL=protocol)

# Which way: one after the other while it is not known which is faster, and a part of each one that no stream orders
# stays the driver's.
SMALL, LARGE = 4 * ((1 << 20) + 12345), 4 * (3 << 20)
for case, size, ways in (("blocks", SMALL, WAYS), ("twice", LARGE, WAYS[:2])):
    for way in ways:
        _, copies, staged, host = counted(case, way)
        edges = EDGES * copies if way in STREAMLESS else 0
        expect(f"{case} {way}: bytes", (staged, host), (copies * size - edges, (COPIES - copies) * size + edges))
        if not 3 <= copies <= COPIES - 3:
            compare.problem(f"{case} {way}: {copies} of {COPIES} copies staged")

# The same for devices that could, had the program not disabled it.
_, copies, staged, host = counted("twice", "peer_async", HPE_SOFT_PEER=1)
expect("disabled by the program: bytes", staged + host, COPIES * LARGE)
if copies < 3:
    compare.problem(f"disabled by the program: {copies} of {COPIES} copies staged")

# What ended with a context is made anew in the next.
_, copies, _, host = counted("ends", **ALWAYS)
expect("contexts that end", (copies, host), (8, 0))

# What is asked for while the device is at work is there after the next wait. The driver had the first of six copies,
# then blocks have four, and then it is the driver's turn, unless nothing was learned.
_, copies, staged, host = counted("busy")
expect("a busy device", (copies, staged, host), (4, 4 * LARGE, 2 * LARGE))
_, copies, staged, host = counted("busy", **ALWAYS)
expect("a busy device, nothing learned", (copies, staged, host), (5, 5 * LARGE, LARGE))

# Where nothing is to be done, nothing is.
for case, variables in ((("one_device",), {}), (("blocks", "peer"), {"HPE_PINNED_LIMIT": "1M"})):
    _, copies, _, _ = counted(*case, **variables)
    expect(f"{case} {variables}", copies, 0)

# What fails of libhpe's own calls fails silently, and the driver takes over where it broke off.
good = soft.run([program, "plain", "among"], **APART)
expect("a copy without a stream", good[0], 0)
for rule in ("cuStreamGetId:*:1", "cuMemHostAlloc:*:2", "cuStreamCreateWithPriority:*:2", "cuEventCreate:*:2",
             "cuMemcpyDtoHAsync:1:1,cuMemcpyDtoHAsync:2:1", "cuStreamWaitEvent:*:1", "cuEventElapsedTime:*:1"):
    result, _, _, _ = counted("among", HPE_SOFT_FAIL=rule)
    expect(rule, result, good)
compare.finish(68)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: peers.py PEERS

Copies between devices go directly although the program never enabled peer access, and the program cannot tell: the data,
what its own calls return and what it is told of pointers are as without libhpe, also where libhpe's own calls fail. The
soft device counts which way the bytes went and how often access was enabled.
"""
import sys

import compare
import soft

peers = sys.argv[1]
TWO = {"HPE_SOFT_DEVICES": 2}
ENABLE, DISABLE = "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"
WAYS = ("peer", "peer_async", "default", "on_device", "on_device_async", "unified", "unified_async", "linear", "rows", "box",
        "box_peer", "batch")
CASES = soft.run([peers], preload=False)[1].decode().split()


def counted(form, *case, preload=True, **variables):
    """What soft.counted() does."""
    compare.runs += 1
    return soft.counted([peers, form, *case], preload, **{**TWO, **variables})


def expect(what, got, wanted):
    if got != wanted:
        compare.problem(f"{what}: {got} instead of {wanted}")


# As without libhpe.
for protocol in ("rolling", "lazy", "batch"):
    for case in CASES:
        for ways in ([way] for way in WAYS) if case == "copies" else ([],):
            if ways and protocol != "rolling" and ways[0] not in ("peer", "default", "box_peer"):
                continue
            status = compare.check([peers, case, *ways], HPE_PROTOCOL=protocol, **TWO)[0]
            if status != 0:
                compare.problem(f"{case} {ways} does not work without libhpe: {status}")
for case in ("all_pairs", "threads"):
    compare.check([peers, case], HPE_SOFT_DEVICES=4)
for access in (0, 2):
    for case in CASES:
        compare.check([peers, case] + (["peer"] if case == "copies" else []), HPE_SOFT_PEER=access, **TWO)

# Which way they go: all of them directly, but for a program that never asks for it the driver does not.
for way in WAYS:
    for form in ("copy", "plain"):
        _, calls, directly, through_host = counted(form, "copies", way)
        expect(f"{way} {form}: bytes through the host", through_host, 0)
        expect(f"{way} {form}: bytes directly", directly, 6 * 700 * 512 * 4)
        expect(f"{way} {form}: calls", (calls.get(ENABLE), calls.get(DISABLE, 0)), (2, 0))
_, calls, directly, through_host = counted("copy", "copies", "peer", preload=False)
expect("without libhpe", (directly, through_host, ENABLE in calls), (0, 6 * 700 * 512 * 4, False))
_, calls, directly, through_host = counted("copy", "all_pairs", HPE_SOFT_DEVICES=4)
expect("four devices", (directly, through_host, calls.get(ENABLE)), (12 * 700 * 512 * 4, 0, 12))
_, _, directly, through_host = counted("copy", "contexts")
expect("contexts that come and go", (directly, through_host), (6 * 700 * 512 * 4, 0))
_, calls, directly, through_host = counted("copy", "busy")
expect("a busy device", (directly, through_host, calls.get(ENABLE)), (2 * 700 * 512 * 4, 700 * 512 * 4, 2))

# Where nothing is to be done, nothing is.
for case, variables in ((("small",), {}), (("pool",), {}), (("capture",), {"HPE_PROTOCOL": "off"}),
                        (("copies", "peer"), {"HPE_PROTOCOL": "off"}), (("copies", "peer"), {"HPE_SOFT_PEER": 0}),
                        (("copies", "peer"), {"HPE_SOFT_PEER": 2})):
    _, calls, directly, _ = counted("copy", *case, **variables)
    expect(f"{case} {variables}", (calls.get(ENABLE, 0), directly), (0, 0))

# No capture may contain a call of libhpe's: the first copy of that program is captured, and the second runs beside it.
for form in ("copy", "plain"):
    (status, out, _), calls, _, _ = counted(form, "capture")
    expect(f"capture {form}", (status, calls.get(ENABLE, 0)), (0, 0))

# After it disabled access the program has none, and copies take the driver's way; to disable what it never enabled has no
# effect.
for case, number in (("own", 4), ("disable", 0)):
    _, _, directly, through_host = counted("copy", case)
    expect(f"{case}: some directly, some not", (directly > 0, through_host), (True, number * 700 * 512 * 4))

# What fails of libhpe's own calls fails silently: the program's copies go the driver's way, and it is not tried again.
good = soft.run([peers, "copy", "copies", "peer"], preload=False, **TWO)
for rule, enables, disables, any_directly in (
        (f"{ENABLE}:1:2", 1, 0, False),
        (f"{ENABLE}:*:217", 1, 0, False),
        (f"{ENABLE}:2:2", 2, 0, False),                         # one direction only
        ("cuDeviceCanAccessPeer:*:101", 0, 0, False),
        ("cuDeviceGetP2PAttribute:*:1", 0, 0, False),
        ("cuThreadExchangeStreamCaptureMode:*:1", 0, 0, False)):
    result, calls, directly, _ = counted("copy", "copies", "peer", HPE_SOFT_FAIL=rule)
    expect(rule, result, good)
    expect(f"{rule}: calls", (calls.get(ENABLE, 0), calls.get(DISABLE, 0), directly > 0), (enables, disables, any_directly))

# What libhpe has taken, the program may need: its own call is answered as if there were nothing.
for rule in (f"{ENABLE}:3:711", f"{ENABLE}:3:711,{DISABLE}:1:2"):
    result, calls, _, _ = counted("copy", "own", HPE_SOFT_FAIL=rule)
    expect(f"{rule}", result[:2], soft.run([peers, "copy", "own"], preload=False, **TWO)[:2])
compare.finish(150)

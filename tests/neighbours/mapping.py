#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: mapping.py REGISTERED WRAPPING PATCHING UCM

Libraries that stand in front of libc's mapping functions, by preload or by jumps written over libc's code, before and
after libhpe: objects work, and the caches of registered memory that such libraries keep see the end of each.
"""
import sys

import neighbours
import soft

registered, wrapping, patching, ucm = sys.argv[1:]
wanted = (*soft.run([registered, "copy"], preload=False)[:2], b"")
for name, hooks in (("a library that wraps", wrapping), ("a library that patches", patching), ("libucm of UCX", ucm)):
    if hooks == ucm and neighbours.shared_library("libucm.so.0") is None:
        neighbours.lacks(name)
        continue
    for order, load in neighbours.both_orders(hooks):
        for protocol in ("rolling", "lazy", "batch"):
            got = soft.run([registered, "plain"], LD_PRELOAD=load, HPE_PROTOCOL=protocol)
            neighbours.expect(f"{name} {order}, {protocol}", got, wanted)
neighbours.finish()

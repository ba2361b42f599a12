#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: contexts.py CONTEXTS

Contexts, devices, sizes, queries and errors: as without libhpe.
"""
import sys

import compare
import soft

contexts = sys.argv[1]

for case in soft.run([contexts], preload=False)[1].decode().split():
    for protocol in ("rolling", "lazy", "batch"):
        if case == "huge_size":
            if protocol == "rolling":  # the others would move the whole of it
                compare.check([contexts, case], HPE_PROTOCOL=protocol, HPE_SOFT_MEMORY="8G")
        elif case == "several_devices":
            for devices in (2, 4):
                compare.check([contexts, case], HPE_PROTOCOL=protocol, HPE_SOFT_DEVICES=devices)
        else:
            compare.check([contexts, case], HPE_PROTOCOL=protocol)
compare.finish(94)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: loans.py LOANS

While a host function uses memory, who wants what a kernel writes beside it waits for that kernel, with each protocol and
block size.
"""
import sys

import compare
import soft

loans = sys.argv[1]
for case in soft.run([loans], preload=False)[1].decode().split():
    for options in ({}, {"HPE_PROTOCOL": "lazy"}, {"HPE_PROTOCOL": "batch"}, {"HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": "1"}):
        compare.check([loans, case], **options)
compare.finish(40)

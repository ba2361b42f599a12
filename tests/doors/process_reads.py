#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: process_reads.py PROGRAM

process_vm_readv of ordinary memory: what the kernel itself would say, with helper threads that read parts of it and
without them.
"""
import json
import os
import sys
import tempfile

import compare
import soft

program = os.path.abspath(sys.argv[1])
NAME = "read of a process by several threads"
OPTIONS = [{"HPE_STAGING_THREADS": 3}, {"HPE_STAGING_THREADS": 0}, {}]


def split(case, **variables):
    """How many reads several threads made, of a whole and of what broke off."""
    with tempfile.NamedTemporaryFile("r") as file:
        soft.run([program, "plain", case], HPE_TRACE=file.name, **variables)
        events = [e for e in json.load(file)["traceEvents"] if e["name"].startswith(NAME)]
    return len(events), sum("failed" in json.dumps(e) for e in events)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for case in soft.run([program], preload=False)[1].decode().split():
        wanted = None
        for options in OPTIONS:
            wanted = compare.check([program, case], wanted=wanted, **options)
    for case, threads, least, failed in (("sizes", 3, 15, False), ("sizes", 0, 0, False), ("holes", 3, 10, True)):
        reads, broken = split(case, HPE_STAGING_THREADS=threads)
        if (reads < least) or (threads == 0 and reads != 0) or ((broken != 0) != failed):
            compare.problem(f"{case} with {threads} helpers: {reads} reads by several threads, {broken} broke off")
compare.finish(least=30)

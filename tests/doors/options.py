#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: options.py SMALL OPTIONS_INC

A bad value of any option ends the program at its first use of CUDA with status 2 and one line; a program that never uses
CUDA does not notice. Good values work.
"""
import pathlib
import re
import sys

import compare
import soft

small, table = sys.argv[1:]

BAD = {
    "HPE_PROTOCOL": ["Rolling", "none", "rolling ", "batch,lazy", "0"],
    "HPE_BLOCK_SIZE": ["0", "1", "4095", "4097", "-4K", "4 K", "4KB", "64k ", "2G", "1.5M", "K", "0x1000", "1T", "+4096",
                       "99999999999999999999", "18446744073709551615G"],
    "HPE_READ_AHEAD": ["0", "1", "On", "yes", "off "],
    "HPE_MPI": ["0", "On"],
    "HPE_MPI_IPC": ["1", "Off", "host"],
    "HPE_ROLLING_SIZE": ["0", "-1", "65536", "Auto", "1.5", "two", "1 "],
    "HPE_LOG": ["Debug", "2", "verbose", "warn,debug"],
    "HPE_STACKS": ["1", "ON"],
    "HPE_UNREAD": ["1", "On", "auto"],
    "HPE_PROGRESS_SIGNAL": ["SEGV", "usr2", "9", "33", "65", "0", "on"],
    "HPE_TRACE": ["-"],
    "HPE_PINNED_LIMIT": ["0", "1023K", "-1", "all", "1M ", "1.5G"],
    "HPE_STAGING_THREADS": ["-1", "65", "Auto", "two", "1.5", "all"],
    "HPE_STAGING_BLOCK": ["0", "1", "4095", "4097", "65M", "1G", "auto", "4 K"],
}
GOOD = {
    "HPE_PROTOCOL": ["batch", "lazy", "rolling", ""],
    "HPE_BLOCK_SIZE": ["4096", "4K", "4k", "12K", "1M", "1m", "1G", "1g", "1048576", "auto", ""],
    "HPE_READ_AHEAD": ["on", "off", ""],
    "HPE_MPI": ["on", "off", ""],
    "HPE_MPI_IPC": ["on", "off", "none", ""],
    "HPE_ROLLING_SIZE": ["1", "2", "auto", "65535", "1K", ""],
    "HPE_LOG": ["error", "warn", "info", ""],
    "HPE_STACKS": ["on", "off", ""],
    "HPE_UNREAD": ["on", "off", ""],
    "HPE_PROGRESS_SIGNAL": ["USR1", "USR2", "34", "64", ""],
    "HPE_TRACE": ["/dev/null", ""],
    "HPE_PINNED_LIMIT": ["1M", "1048576", "16G", "auto", ""],
    "HPE_STAGING_THREADS": ["0", "1", "64", "auto", ""],
    "HPE_STAGING_BLOCK": ["4K", "4096", "12K", "64M", ""],
}
ANY_TEXT = {"HPE_REPORT"}  # tried in report.py

names = re.findall(r'^OPTION\(\w+, \w+, "(\w+)"', pathlib.Path(table).read_text(), re.M)
if set(names) != set(BAD) | ANY_TEXT:
    compare.problem(f"options.inc has {names}, this test knows {sorted(set(BAD) | ANY_TEXT)}")

for name, values in BAD.items():
    for value in values:
        compare.runs += 1
        status, out, err = soft.run([small, "copy", "before_cuda"], **{name: value})
        lines = err.decode().splitlines()
        if status != 2 or out != b"not lost\nmalloc follows\nnot lost either\n":
            compare.problem(f"{name}={value!r}: status {status}, stdout {out}")
        if len(lines) != 1 or not lines[0].startswith(f"hpe: {name}={value} ") or "accepted: " not in lines[0]:
            compare.problem(f"{name}={value!r}: stderr {lines}")
        compare.check([small, "idle"], stderr=True, **{name: value})
wanted = None
for name, values in GOOD.items():
    for value in values:
        wanted = compare.check([small, "work"], wanted=wanted, **{name: value})
# Off: the CPU cannot touch device memory, and nothing is said.
for command in (["work"], ["device_only"]):
    compare.check([small, *command], forms=("copy",), stderr=True, HPE_PROTOCOL="off", HPE_REPORT="-")
for form, preload in (("plain", False), ("plain", True)):
    compare.runs += 1
    status, _, err = soft.run([small, form, "work"], preload=preload, HPE_PROTOCOL="off")
    if status != -11 or b"hpe" in err:
        compare.problem(f"HPE_PROTOCOL=off: status {status}, stderr {err}")
# Of two bad values one is named; a bad one counts with HPE_PROTOCOL=off, too.
compare.runs += 1
status, _, err = soft.run([small, "copy", "work"], HPE_PROTOCOL="off", HPE_BLOCK_SIZE="5")
if status != 2 or err.count(b"\n") != 1:
    compare.problem(f"two options: status {status}, {err}")
compare.finish(90)

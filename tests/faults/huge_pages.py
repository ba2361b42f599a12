#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: huge_pages.py PROGRAM

What the CPU sweeps through it has in huge pages, where the kernel gives them; not what it touches here and there, nor what
is cut into small blocks. Where the kernel refuses them, to the process or at some moment, nothing is wrong.
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

FAILING = {"LD_PRELOAD": f"{soft.LIBRARY}:{os.environ['HPE_TEST_FAILING_CALLS']}"}
LEAST = 16 - 4  # a sweep begins with less than a huge page, and may end so
problems, given = [], None


def run(*arguments, **variables):
    """MiB in huge pages."""
    global given
    status, out, err = soft.run([sys.argv[1], *arguments], timeout=60, **variables)
    said = re.fullmatch(rb"0 wrong, (\d+) MiB, ([01])\n", out)
    if status != 0 or err or not said:
        problems.append(f"{arguments} {variables}: {status} {out} {err[-500:]}")
        return 0
    if not arguments[1:]:
        given = said[2] == b"1"
    return int(said[1])


def want(what, holds, mib):
    if not holds:
        problems.append(f"{what}: {mib} MiB, huge pages are {'' if given else 'not '}given")


for case in ("read", "write", "backwards"):
    for options in ({}, {"HPE_READ_AHEAD": "off"}, {"HPE_PROTOCOL": "lazy"}, {"HPE_PINNED_LIMIT": "1M"}):
        mib = run(case, **options)
        want(f"{case} {options}", mib >= LEAST if given else mib == 0, mib)
    for options in ({"HPE_BLOCK_SIZE": "64K"}, FAILING | {"HPE_TEST_FAIL": "madvise:2+"}):
        mib = run(case, **options)
        want(f"{case} {options}", mib == 0, mib)
    mib = run(case, **FAILING, HPE_TEST_FAIL="madvise:6+")
    want(f"{case}, refused from the sixth on", mib < LEAST, mib)
    mib = run(case, "without")
    want(f"{case}, the process shall have none", mib == 0, mib)
mib = run("sparse")
want("sparse", mib == 0, mib)
print("\n".join(problems) or f"huge pages are {'' if given else 'not '}given here")
sys.exit(1 if problems else 0)

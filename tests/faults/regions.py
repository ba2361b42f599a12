#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: regions.py REGIONS UNCACHED_ORDER

Small allocations that share pages, where no mapping can be split, as at the kernel's limit, or for a moment: a region is
one block then. Where others may write a part of it, it cannot be, and the program ends rather than lose a store.
"""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

bad = []
ALWAYS = ("one_page", "freed_pages", "whole_chunks", "filled_gap", "threads")
for case, rule in [(case, "split") for case in ALWAYS] + [("filled_gap", f"{n}-{n + 1}") for n in range(1, 31)]:
    wanted = soft.run([sys.argv[1], "copy", case], preload=False)
    got = soft.run([sys.argv[1], "plain", case], timeout=60, HPE_TEST_FAIL=f"mprotect:{rule}",
                   LD_PRELOAD=f"{soft.LIBRARY}:{os.environ['HPE_TEST_FAILING_CALLS']}")
    if got[:2] != wanted[:2] or b" 0 wrong" not in b" " + got[1]:
        bad.append(f"{case}, mprotect:{rule}: {got}, without libhpe {wanted}")
status, out, err = soft.run([sys.argv[2], "plain", "one_block"], HPE_TEST_FAIL="mprotect:split",
                            LD_PRELOAD=f"{soft.LIBRARY}:{os.environ['HPE_TEST_FAILING_CALLS']}")
if status != -11 or b"others may write a part of it" not in err or b"wrong" in out:
    bad.append(f"one_block: {status} {out} {err}")
print("\n".join(bad) or "right")
sys.exit(1 if bad else 0)

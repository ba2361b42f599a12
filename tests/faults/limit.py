#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: limit.py PROGRAM

Reaches the kernel's limit on mappings for real (blocks of 4K): first with one array, then with many small ones. Wanted:
right numbers, and one line that says what became coarser. Skipped where the limit is too high to be reached soon.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

program = sys.argv[1]
limit = int(open("/proc/sys/vm/max_map_count").read())
if limit > 100000:
    print(f"vm.max_map_count is {limit}")
    sys.exit(77)
enough = str(limit + 3000)
for arguments, said in (([enough, "1000"], b"it is one block"), (["1000", enough], b"mapped anew")):
    status, out, err = soft.run([program, *arguments], timeout=120, HPE_BLOCK_SIZE="4K", HPE_SOFT_MEMORY="4G")
    if status != 0 or out.count(b" 0 words wrong\n") != 2 or err.count(b"hpe: ") != 1 or said not in err:
        print(arguments, status, out.decode(), err.decode()[-2000:], sep="\n")
        sys.exit(1)

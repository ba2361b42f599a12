#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: many_objects.py PROGRAM PROTOCOL OBJECTS

Small objects in a process that has a third of its mappings (vm.max_map_count) left. Wanted: right numbers, no
call that fails, and where objects have pages of their own, one line. Skipped where the limit is too high to be reached
soon.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

program, protocol, objects = sys.argv[1:]
limit = int(open("/proc/sys/vm/max_map_count").read())
if limit > 100000:
    print(f"vm.max_map_count is {limit}")
    sys.exit(77)
for memory in "pool", "malloc":
    status, out, err = soft.run([program, objects, str(limit * 2 // 3), memory], timeout=280, HPE_PROTOCOL=protocol,
                                HPE_SOFT_MEMORY="4G")
    lines = [b"mapped anew"] if memory == "pool" else []
    if status != 0 or out.count(b" 0 words wrong\n") != 2 or [line in err for line in lines] != [True] * err.count(b"hpe: "):
        print(memory, status, out.decode(), err.decode()[-2000:], sep="\n")
        sys.exit(1)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: demo.py VECTOR_ADD README

The program of scripts/demo prints what README says, but for the process id and the addresses of instructions.
"""
import pathlib
import re
import sys

import soft

program, readme = sys.argv[1], pathlib.Path(sys.argv[2]).read_text()


def plain(text):
    text = re.sub(r"process \d+", "process N", text)
    return re.sub(r"[\w/.-]*vector_add\+0x[0-9a-f]+", "vector_add+0x0", text).splitlines()


said = readme.split("HPE_REPORT=- ./vector_add\n")[1].split("\n\n")[0]
status, out, err = soft.run([program], HPE_REPORT="-")
# The report is written at the end, and the program's own line flushed after it.
printed = (err + out).decode()
if status != 0 or plain(printed) != plain(said):
    sys.exit(f"status {status}; README says\n{said}\nprinted was\n{printed}")
print("as README says")

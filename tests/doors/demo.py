#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: demo.py VECTOR_ADD README

The program of scripts/demo prints what README says: the same result, and a report of that form. The report's counters
belong to one tuning, and are not compared.
"""
import pathlib
import re
import sys

import soft

program, readme = sys.argv[1], pathlib.Path(sys.argv[2]).read_text()


def plain(text):
    """The result as it is; of the report every form of line once, without numbers."""
    report = re.sub(r"\S*vector_add\+0x[0-9a-f]+", "SITE", text)
    report = re.sub(r"\d[\d.]*( (B|KiB|MiB|GiB))?", "N", re.sub(r"(?m)^sum .*$", "", report))
    forms = sorted({" ".join(line.split()) for line in report.splitlines() if line})
    return re.findall(r"(?m)^sum .*$", text) + forms


said = readme.split("HPE_REPORT=- ./vector_add\n")[1].split("\n\n")[0]
status, out, err = soft.run([program], HPE_REPORT="-")
# The report is written at the end, and the program's own line flushed after it.
printed = (err + out).decode()
if status != 0 or plain(printed) != plain(said):
    sys.exit(f"status {status}; README says\n{said}\nprinted was\n{printed}")
print("as README says")

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: split.py MODULE.ptx FOLDER

Writes a small module for each function of a PTX module: its head, and that function alone. Seeds for fuzzing.
"""
import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text()
folder = pathlib.Path(sys.argv[2])
pieces = re.split(r"(?m)^(?=(?:\.visible |\.weak |\.extern )?\.(?:entry|func)\b)", text)
for number, piece in enumerate(pieces[1:]):
    (folder / f"{pathlib.Path(sys.argv[1]).stem}_{number}.ptx").write_text(pieces[0] + piece)

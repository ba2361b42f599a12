#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: examples.py FILE_IO_PY FILE_IO_CU [FILE_IO_F90]

The examples that read and write files with device pointers: the right files with every protocol.
"""
import array
import pathlib
import random
import sys
import tempfile

import soft

script, program, *fortran = sys.argv[1:]
problems, runs = [], 0
random.seed(1)
size = 4000000
text = random.randbytes(size)
halves = {
    (program,): text.upper(),
    (sys.executable, script): b"-" * (size // 2) + text[size // 2:],
    **{(path,): bytes(size // 2) + text[size // 2:] for path in fortran},
}
total = sum(array.array("i", text[size // 2:]))
with tempfile.TemporaryDirectory() as folder:
    before, after = pathlib.Path(folder) / "in", pathlib.Path(folder) / "out"
    before.write_bytes(text)
    for command, wanted in halves.items():
        for protocol in ("rolling", "lazy", "batch"):
            runs += 1
            after.unlink(missing_ok=True)
            status, out, err = soft.run([*command, before, after], HPE_PROTOCOL=protocol)
            got = after.read_bytes() if after.exists() else b""
            if status != 0 or got != wanted or err:
                problems.append(f"{command} {protocol}: {status} {out[-300:]} {err[-300:]} {got == wanted}")
            if command[0] in fortran and out != f"sum {total}\n".encode():
                problems.append(f"{command} {protocol}: {out}")
if runs < 6:
    problems.append(f"only {runs} runs")
print("\n".join(problems) or f"{runs} runs" + ("" if fortran else ", no Fortran compiler"))
sys.exit(1 if problems else 0)

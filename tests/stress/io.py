#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: io.py PROGRAM FAULTS OPERATIONS [VARIABLE=VALUE...]

Random calls that read or write memory, with several seeds; with FAULTS, a library, preloaded behind libhpe, too.
"""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

program, faults, operations, *given = sys.argv[1:]
program, faults = os.path.abspath(program), os.path.abspath(faults)
variables = dict(v.split("=") for v in given)
wanted = f"{operations} operations, some of which were made to fail\n".encode()
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for seed in range(1, 6 if soft.THOROUGH else 2):
        status, out, err = soft.run([program, str(seed), operations], timeout=280,
                                    LD_PRELOAD=f"{soft.LIBRARY}:{faults}", **variables)
        if status != 0 or out != wanted or b"hpe:" in err:
            print(f"seed {seed}", variables, status, out.decode(), err.decode()[-1000:], sep="\n")
            sys.exit(1)

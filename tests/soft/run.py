#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program of this folder on the soft device, without libhpe and with it: it checks its values itself and must end
well, and its output must be what the test expects.

usage: run.py PROGRAM EXPECTED [VARIABLE=VALUE...]    EXPECTED: a line, or a file; the variables are the soft device's
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402


def main():
    program, expected, *settings = sys.argv[1:]
    variables = dict(setting.split("=", 1) for setting in settings)
    wanted = pathlib.Path(expected).read_bytes() if pathlib.Path(expected).is_file() else (expected + "\n").encode()
    failed = 0
    for preload in (False, True):
        status, out, errors = soft.run([program], preload=preload, timeout=60, **variables)
        if status == 0 and out == wanted:
            continue
        failed = 1
        print(f"{'with' if preload else 'without'} libhpe: status {status}, printed {out!r} instead of {wanted!r}")
        print(errors.decode(errors="replace"))
    return failed


if __name__ == "__main__":
    sys.exit(main())

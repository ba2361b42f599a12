#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Libraries and tools that share a process with libhpe. Shared by the tests of this folder."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "doors"))
import soft  # noqa: E402

SKIPPED = 77  # as Meson takes it
problems = []
passed = []
missing = []


def shared_library(name):
    """The file of a shared library of the system, or None."""
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    found = re.search(rf"^\s*{re.escape(name)} .*x86-64.*=> (\S+)$", listing, re.M)
    return found.group(1) if found else None


def preloads(*libraries):
    return ":".join(libraries)


def both_orders(neighbour):
    """libhpe behind and in front of another preload, each with a name."""
    return [("before libhpe", preloads(neighbour, soft.LIBRARY)), ("after libhpe", preloads(soft.LIBRARY, neighbour))]


def expect(name, got, wanted, normal=lambda text: text):
    """Both are what soft.run() gives; stderr is compared where the wanted one has some."""
    same = got[0] == wanted[0] and normal(got[1]) == normal(wanted[1])
    if len(wanted) > 2:
        same = same and normal(got[2]) == normal(wanted[2])
    if same:
        passed.append(name)
    else:
        shown = [f"  {what}: status {r[0]}, stdout {r[1][-400:]!r}, stderr {r[2][-400:] if len(r) > 2 else b''!r}"
                 for what, r in (("wanted", wanted), ("got", got))]
        problems.append(name + "\n" + "\n".join(shown))


def build(source, output, *command):
    """Compiles a file into a folder of this run's; None where the compiler cannot."""
    if shutil.which(command[0]) is None:
        return None
    path = os.path.join(folder.name, output)
    done = subprocess.run([*command, "-o", path, source], capture_output=True)
    return path if done.returncode == 0 else None


def lacks(name):
    missing.append(name)


def finish():
    print("\n".join(problems) or f"{len(passed)} passed" + (f"; not here: {', '.join(missing)}" if missing else ""))
    sys.exit(1 if problems else 0 if passed else SKIPPED)


folder = tempfile.TemporaryDirectory()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: check_locks.py BUILD

Clang's thread-safety analysis of libhpe, but for its doors: whoever touches what a lock guards holds the lock, and gives
it back (shim/base/mutex.h). Then once more with a lock left out, which it has to find. Skipped where there is no clang.
"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

build = pathlib.Path(sys.argv[1])
clang = shutil.which("clang++")
if clang is None:
    print("no clang++")
    sys.exit(77)
PLANTED = """#include "shim/base/mutex.h"
hpe::Mutex mutex;
int guarded HPE_GUARDED_BY(mutex) = 0;
int look() { return guarded; }
"""


def analyse(arguments, text=None):
    command = [clang, *arguments, "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety", "-ferror-limit=0", "-fno-color-diagnostics", "-Wno-unknown-warning-option"]
    return subprocess.run(command, cwd=build, input=text, capture_output=True, text=True)


def arguments_of(entry):
    """Of one compilation, without what only GCC knows and what it writes."""
    words = shlex.split(entry["command"])
    words = words[next(i for i, word in enumerate(words) if word.startswith("-")):]
    kept, skip = [], False
    for word in words:
        if skip or word in ("-MD", "-c", "-Werror"):
            skip = False
        elif word in ("-MQ", "-MF", "-o"):
            skip = True
        else:
            kept.append(word)
    return kept


entries = [e for e in json.loads((build / "compile_commands.json").read_text())
           if e["output"].startswith(("shim/libhpe_core", "shim/libhpe_fault_path", "shim/libhpe_mpi"))]
# Each source once, with whatever MPI comes first.
entries = list({re.sub("hpe_mpi_[a-z]+", "mpi", e["file"]): e for e in reversed(entries)}.values())
with ThreadPoolExecutor(2) as pool:
    problems = [done.stderr for done in pool.map(lambda e: analyse(arguments_of(e)), entries) if done.returncode != 0]
planted = analyse(["-std=c++20", "-I" + str(pathlib.Path(__file__).resolve().parents[2]), "-x", "c++", "-"], PLANTED)
if "requires holding mutex 'mutex'" not in planted.stderr:
    problems.append(f"a lock that is left out is not found: {planted.stderr}")
print("\n".join(problems)[:20000] or f"{len(entries)} sources")
sys.exit(1 if problems or len(entries) < 10 else 0)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: untouched.py NO_CUDA EXPECTED

Programs that have nothing to do with CUDA, and shell pipelines of them, under the preload: what they print, how they
end, which files they hold open and how many threads they have is as without.
"""
import sys

import soft

no_cuda, expected = sys.argv[1], open(sys.argv[2], "rb").read()

COMMANDS = [
    [no_cuda],
    ["sh", "-c", "seq 1 2000 | sort -rn | head -3 | tr 0-9 a-j; exit 7"],
    ["bash", "-c", "set -o pipefail; (echo a; echo b >&2; false) | cat | wc -c; echo $?; trap 'echo out' EXIT; exit 3"],
    ["bash", "-c", "for i in 1 2 3; do (sleep 0; exit $i) & done; wait; echo done; kill -SEGV $$"],
    ["sh", "-c", "ls -1 /proc/self/fd | wc -l; grep -E '^(Threads|SigCgt|SigBlk|SigIgn)' /proc/self/status"],
    ["sh", "-c", "printenv LD_PRELOAD | wc -l >&2; env -i /bin/echo alone; dd if=/dev/zero bs=1k count=3 2>/dev/null | cksum"],
    [sys.executable, "-c", "import threading, subprocess, signal, mmap\n"
     "signal.signal(signal.SIGSEGV, lambda *a: print('caught'))\n"
     "t = [threading.Thread(target=print, args=('thread',)) for _ in range(3)]\n"
     "[x.start() or x.join() for x in t]\n"
     "signal.raise_signal(signal.SIGSEGV)\n"
     "print(subprocess.run(['sh', '-c', 'echo child; exit 5'], capture_output=True))\n"
     "import os; pid = os.fork()\n"
     "os._exit(9) if pid == 0 else print(os.waitpid(pid, 0)[1])"],
    [sys.executable, "-c", "import ctypes; ctypes.string_at(0)"],
]

problems = []
for command in COMMANDS:
    plain, preloaded = soft.run(command, preload=False), soft.run(command)
    if command[-1].startswith("printenv"):
        plain, preloaded = plain[:2], preloaded[:2]  # its stderr tells whether something is preloaded
    if plain != preloaded:
        problems.append(f"{command}\n  without {plain}\n  with    {preloaded}")
if soft.run([no_cuda])[1] != expected:
    problems.append("no_cuda does not print what it should")
# Nor does it load what it does not need: no driver, no runtime.
_, maps, _ = soft.run(["cat", "/proc/self/maps"])
for library in ("libcuda", "libcudart", "libstdc++"):
    if library.encode() in maps:
        problems.append(f"{library} is loaded into cat")
if b"libhpe" not in maps:
    problems.append("libhpe was not preloaded at all")
print("\n".join(problems) or f"{len(COMMANDS)} commands notice nothing")
sys.exit(1 if problems else 0)

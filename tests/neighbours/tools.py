#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: tools.py HELLO.C SMALL DISPOSITIONS

Allocators, profilers, debuggers and language runtimes in one process with libhpe: a one-pointer program is right beside
each, and a program without CUDA ends and crashes as without libhpe, and takes as many instructions.
"""
import os
import re
import shutil
import sys

import neighbours
import soft

source, small, dispositions = sys.argv[1:]
wanted = (*soft.run([small, "copy", "work"], preload=False)[:2], b"")
hello = neighbours.build(source, "hello", "gcc", "-pthread")


def normal(text):
    """Without process and thread numbers, addresses and times."""
    return re.sub(rb"==\d+==|0x[0-9a-f]+|pid[=:]? ?\d+|\[\d+\]|[0-9.]+ ?s(ecs)?\b", b"", text)


for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2", "libeatmydata.so"):
    path = neighbours.shared_library(name)
    if path is None:
        neighbours.lacks(name)
        continue
    for order, load in neighbours.both_orders(path):
        neighbours.expect(f"{name} {order}", soft.run([small, "plain", "work"], LD_PRELOAD=load), wanted)
        for case in ("siginfo,touches,leaves", "default"):
            crash = [dispositions, "plain", case, "null", "late"]
            reference = soft.run([dispositions, "copy", *crash[2:]], preload=False, LD_PRELOAD=path)[:2]
            neighbours.expect(f"{name} {order}, {case}", soft.run(crash, LD_PRELOAD=load)[:2], reference)

# The tool starts the program; what it prints itself goes elsewhere.
for name, command in (
        ("strace", ["strace", "-f", "-o", "/dev/null"]),
        ("fakeroot", ["fakeroot"]),
        ("heaptrack", ["heaptrack", "-o", os.path.join(neighbours.folder.name, "heap")]),
        ("gdb", ["gdb", "-q", "-batch", "-nx", "-ex", "handle SIGSEGV nostop noprint pass", "-ex", "run", "--args"])):
    if shutil.which(name) is None:
        neighbours.lacks(name)
        continue
    status, printed, _ = soft.run([*command, small, "plain", "work"])
    neighbours.expect(f"{name}, objects", (status, wanted[1] if wanted[1] in printed else printed), (0, wanted[1]))
    neighbours.expect(f"{name}, no CUDA", soft.run([*command, hello])[:2], soft.run([*command, hello], preload=False)[:2],
                      normal)

JAVA = """class Crash { int x; public static void main(String[] a) { int caught = 0;
  for (int i = 0; i < 200000; ++i) { Crash c = i % 3 == 0 ? null : new Crash();
    try { c.x = i; } catch (NullPointerException e) { ++caught; } }
  System.out.println(caught + " caught"); } }"""
java_file = os.path.join(neighbours.folder.name, "Crash.java")
with open(java_file, "w") as file:
    file.write(JAVA)
PYTHON = "import faulthandler, ctypes; faulthandler.enable(); ctypes.string_at(0)"
for name, command in (
        # Quiet: libhpe's C++ runtime keeps 72 KiB that valgrind's summary counts.
        ("valgrind", ["valgrind", "-q", "--error-exitcode=9", hello]),
        ("python3", [sys.executable, "-c", PYTHON]),
        ("java", ["java", java_file]),
        ("node", ["node", "-e", "let s = 0; for (let i = 0; i < 1e6; ++i) s += i; console.log(s); process.abort()"]),
        ("perl", ["perl", "-e", "$SIG{SEGV} = sub { print qq(caught\\n); exit 3 }; kill SEGV => $$"]),
        ("Rscript", ["Rscript", "-e", "cat(sum(1:100)); tools::pskill(Sys.getpid(), 11)"]),
        ("stress-ng", ["stress-ng", "--quiet", "--sigsegv", "1", "--sigsegv-ops", "2000", "--fault", "1", "--fault-ops",
                       "2000", "--sigfpe", "1", "--sigfpe-ops", "500", "--sigsuspend", "1", "--sigsuspend-ops", "500"])):
    if shutil.which(command[0]) is None:
        neighbours.lacks(name)
        continue
    neighbours.expect(name, soft.run(command), soft.run(command, preload=False), normal)

# A program of files and small objects, and no CUDA: a hundredth more instructions at most, start-up included. Its time on
# processors cannot tell so little (scripts/gpu_check/clients.py).
RECORDS = """
import hashlib
total = hashlib.md5()
with open({file!r}, "wb") as file:
    for i in range(2000): file.write(b"x" * (4000 + i % 7))
with open({file!r}, "rb") as file:
    while piece := file.read(3000): total.update(piece)
print(total.hexdigest(), sum(len(str(i)) for i in range(50000)))
"""
if shutil.which("valgrind") is not None:
    records = [sys.executable, "-c", RECORDS.format(file=os.path.join(neighbours.folder.name, "records"))]
    counting = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *records]

    def instructions(preload):
        printed = soft.run(counting, preload=preload, PYTHONHASHSEED="0")[2]
        return int(re.search(rb"Collected *: (\d+)", printed)[1])

    more = instructions(True) / instructions(False)
    if more <= 1.01:
        neighbours.passed.append("instructions of a program without CUDA")
    else:
        neighbours.problems.append(f"a program without CUDA: {more} times the instructions")

# Python serves as the client whose handler is there before the first object, and after: its crash looks the same.
CLIENT = """
import ctypes, faulthandler, sys
if {before}: faulthandler.enable()
cuda = ctypes.CDLL("libcudart.so.13")
p = ctypes.c_void_p()
assert cuda.cudaMalloc(ctypes.byref(p), 1 << 20) == 0
if {touch}: ctypes.memset(p.value, 7, 1 << 20)
if not {before}: faulthandler.enable()
for i in range({again}):
    faulthandler.disable(); faulthandler.enable()
    if {touch}: assert ctypes.string_at(p.value + i, 1) == b"\\x07"
print("crashes"); sys.stdout.flush()
ctypes.string_at(16)
"""
for before in (True, False):
    for again in (0, 50):
        script = [CLIENT.format(before=before, again=again, touch=touch) for touch in (False, True)]
        neighbours.expect(f"python3, handler {'before' if before else 'after'} the first object, replaced {again} times",
                          soft.run([sys.executable, "-c", script[1]]),
                          soft.run([sys.executable, "-c", script[0]], preload=False),
                          lambda text: re.sub(rb", line \d+", b"", normal(text)))
neighbours.finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: sanitizers.py HELLO.C ADDRESS UNDEFINED

Programs without CUDA, built with each sanitizer of each compiler that is there, end under libhpe as without, and their
faults are found as without. The last two are a one-pointer program built with those sanitizers: right numbers.
"""
import re
import subprocess
import sys

import neighbours
import soft

source, with_address, with_undefined = sys.argv[1:]


def normal(text):
    """Without process numbers and addresses."""
    return re.sub(rb"==\d+==|0x[0-9a-f]+|[(]BuildId: \w+[)]", b"", text)


def runtime(compiler, name):
    path = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
    return path if path.startswith("/") else None


for compiler, sanitizers in (("gcc", ("address", "thread", "undefined", "leak")),
                             ("clang", ("address", "thread", "undefined", "memory", "leak"))):
    for sanitizer in sanitizers:
        name = f"{compiler} -fsanitize={sanitizer}"
        program = neighbours.build(source, f"{compiler}_{sanitizer}", compiler, "-g", "-pthread",
                                   f"-fsanitize={sanitizer}")
        if program is None or soft.run([program], preload=False)[0] != 0:
            neighbours.lacks(name)
            continue
        # GCC's address sanitizer wants to be the first library of the process.
        first = compiler == "gcc" and sanitizer == "address"
        load = neighbours.preloads(*([runtime("gcc", "libasan.so")] if first else []), soft.LIBRARY)
        for case in ([], ["overflow", "by", "a", "few"]):
            alone = soft.run([program, *case], preload=False)
            neighbours.expect(f"{name} {' '.join(case[:1])}", soft.run([program, *case], LD_PRELOAD=load),
                              alone if sanitizer != "address" or not case else
                              (alone[0], alone[1]), normal)

# CUDA needs the first (its addresses lie in the gap). The program leaks its model arrays on purpose.
OPTIONS = "protect_shadow_gap=0:detect_leaks=0"
asan = runtime("gcc", "libasan.so")
for name, program, variables in (
        ("CUDA, -fsanitize=undefined", with_undefined, {}),
        ("CUDA, -fsanitize=address", with_address,
         {"LD_PRELOAD": neighbours.preloads(asan, soft.LIBRARY), "ASAN_OPTIONS": OPTIONS})):
    wanted = (0, soft.run([program, "copy", "work"], preload=False, ASAN_OPTIONS=OPTIONS)[1], b"")
    for protocol in ("rolling", "lazy", "batch"):
        got = soft.run([program, "plain", "work"], HPE_PROTOCOL=protocol, **variables)
        neighbours.expect(f"{name} {protocol}", got, wanted)
neighbours.finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""libhpe.so exports its doors and nothing else, needs nothing but libc, and loads on glibc 2.34."""
import re
import subprocess
import sys

library, version_script = sys.argv[1:3]
allowed = set(re.findall(r"^    (\w+);$", open(version_script).read(), re.M))
symbols = subprocess.run(["nm", "-D", library], check=True, capture_output=True, text=True).stdout
exported = {line.split()[-1].split("@")[0] for line in symbols.splitlines() if re.search(r" [TBDVWR] ", line)}
problems = []
if exported != allowed:
    problems.append(f"exported but no door: {sorted(exported - allowed)}; door but not exported: {sorted(allowed - exported)}")
if len(allowed) < 100:
    problems.append(f"only {len(allowed)} doors: the version script is not what it should be")
newest = (2, 34)
for symbol, major, minor in re.findall(r"(\S+)@GLIBC_(\d+)\.(\d+)", symbols):
    if (int(major), int(minor)) > newest:
        problems.append(f"{symbol} needs glibc {major}.{minor}")
dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
for needed in re.findall(r"NEEDED.*\[(.+?)\]", dynamic):
    if not re.match(r"(libc|libdl|libpthread|ld-linux-x86-64)\.so", needed):
        problems.append(f"needs {needed}")
# Binding late would run the loader inside the fault path.
if "BIND_NOW" not in dynamic and "NOW" not in dynamic:
    problems.append("not linked with -z now")
print("\n".join(problems) or f"{len(exported)} doors and nothing else")
sys.exit(1 if problems else 0)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""clang-format 14 (Debian 12's) has nothing to change. Skipped where another version or none is installed."""
import pathlib
import re
import shutil
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
tool = shutil.which("clang-format-14") or shutil.which("clang-format")
if tool is None:
    print("no clang-format")
    sys.exit(77)
version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
if not re.search(r"version 14\.", version):
    print(f"not version 14: {version.strip()}")
    sys.exit(77)
files = [str(f) for top in ("protocols", "shim", "toolchain", "tests/unit")
         for f in sorted((root / top).rglob("*")) if f.suffix in (".h", ".cpp")]
result = subprocess.run([tool, "--dry-run", "--Werror", *files], capture_output=True, text=True)
print(result.stderr[:4000] or f"{len(files)} files")
sys.exit(1 if result.returncode else 0)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The catalogue of driver functions against the headers: every row is a real (function, version), and no version of a
catalogued function is forgotten, so that a new toolkit's new ABI shows here and not as a wrong number."""
import pathlib
import sys

root, include = sys.argv[1:3]
sys.path.insert(0, str(pathlib.Path(root) / "scripts"))
import cuda_abi  # noqa: E402
import gen_cuda_doors  # noqa: E402

rows = gen_cuda_doors.catalogue(pathlib.Path(root) / "shim/doors/cuda_catalog.inc")
real = {(e.base, e.version) for e in cuda_abi.entries(include)}
functions = {name for name, _ in rows}
problems = [f"no such function: {row}" for row in sorted(set(rows) - real)]
problems += [f"no row for {name} {version}" for name, version in sorted(real)
             if name in functions and (name, version) not in rows]
# Whatever takes a stream or writes device memory belongs into the catalogue, whether or not anything is done about it.
for e in cuda_abi.entries(include):
    takes_stream = any(d.startswith("CUstream ") for d, _ in e.params)
    harmless = e.base.startswith(("cuStreamGet", "cuStreamIs", "cuMulticast", "cuGraphics", "cuGL", "cuEGL", "cuVDPAU"))
    if takes_stream and e.base not in functions and not harmless:
        problems.append(f"{e.base} takes a stream and has no row")
treated = sum(1 for treatment, _ in rows.values() if treatment != "pass")
print("\n".join(problems) or f"{len(functions)} functions, {len(rows)} ABI versions, {treated} wrapped")
sys.exit(1 if problems or len(functions) < 273 else 0)

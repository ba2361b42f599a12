#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: mpi.py REPOSITORY CUDA_INCLUDE CUDA_LIBRARIES SOURCE

Device pointers in MPI calls between ranks of one host, by `hpe run`: Open MPI and MPICH, whichever is there.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

root, include, libraries, source = sys.argv[1:]
hpe = pathlib.Path(root) / "scripts/hpe"
environment = {k: v for k, v in os.environ.items() if not k.startswith(("HPE_", "OMPI_", "UCX_"))}
environment["HPE_BUILD"] = str(pathlib.Path(os.environ["HPE_TEST_LIBRARY"]).parent.parent)
problems, ran = [], []
with tempfile.TemporaryDirectory() as folder:
    for name, options in (("openmpi", ["--allow-run-as-root", "--oversubscribe"]), ("mpich", [])):
        compiler, start = shutil.which(f"mpicc.{name}"), shutil.which(f"mpirun.{name}")
        if compiler is None or start is None:
            continue
        ran.append(name)
        program = f"{folder}/{name}"
        subprocess.run([compiler, "-w", "-O1", "-I", include, source, "-o", program, "-L", libraries, "-lcudart"], check=True)
        for protocol in ("rolling", "lazy", "batch"):
            command = [start, *options, "-np", "2", hpe, "run", "--device", "soft", "--protocol", protocol, "--", program]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
            lines = sorted(line for line in done.stdout.splitlines() if line.startswith("rank"))
            if done.returncode != 0 or lines != [f"rank {r}: 0 wrong" for r in range(2)]:
                problems.append(f"{name} {protocol}: {done.returncode} {done.stdout[-500:]} {done.stderr[-500:]}")
print("\n".join(problems) or f"right: {', '.join(ran) or 'no MPI is installed'}")
sys.exit(1 if problems else 0 if ran else 77)

# SPDX-License-Identifier: MIT
"""The machine with a GPU: what is there, what is built there, and how programs are started there."""
import ctypes
import datetime
import os
import pathlib
import shutil
import subprocess
import sys

from compare import environment

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"
LIBRARY = BUILD / "shim/libhpe.so"
APPS = BUILD / "tests/apps"
CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
SHARED_RUNTIME = {"LD_LIBRARY_PATH": str(CUDA / "lib64")}

# Messages within a host are MPI's to move as it can: where a process may read another's memory, by that. By default two
# ranks would be bound to one processor each, which no rank that works with a device wants.
MPIRUN = shutil.which("mpirun.openmpi")
MPI_SETTINGS = {"OMPI_MCA_btl_vader_single_copy_mechanism": "cma", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_hwloc_base_binding_policy": "none",
                "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPI_PROGRAMS = {name: f"tests/doors/openmpi_{name}"
                for name in ("direct", "direct_forms", "under_way", "types", "reductions", "fdtd")}
MPI_PROGRAMS |= {name: f"bench/{name}_openmpi" for name in ("messages", "pack")}


def _loads(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


HAS_CALL_STACKS = _loads("libunwind-x86_64.so.8")

PROTOCOLS = [{"HPE_PROTOCOL": p} for p in ("rolling", "lazy", "batch")]
SIZES = [{"HPE_PROTOCOL": "rolling", "HPE_BLOCK_SIZE": b, "HPE_ROLLING_SIZE": r}
         for b in ("4K", "64K", "1M", "32M") for r in ("1", "2", "auto")]
SIZES += [{"HPE_PROTOCOL": "lazy", "HPE_BLOCK_SIZE": b} for b in ("4K", "32M")]


def build():
    if not (BUILD / "build.ninja").exists():
        subprocess.run([ROOT / "scripts/setup"], check=True)
        subprocess.run(["meson", "setup", str(BUILD), str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    names = sorted(p.stem for p in (ROOT / "tests/apps/expected").glob("*.txt") if p.stem != "no_cuda")
    targets = ["shim/libhpe.so", "apps-static", "benches", "tests/stress/model", "tests/doors/door_sweeps",
               "tests/doors/door_callbacks", "tests/doors/door_flushes", "tests/doors/door_pageable",
               "tests/doors/door_pageable_rows", "tests/doors/door_pageable_shared",
               "tests/doors/door_files", "tests/doors/door_memory", "tests/doors/door_sockets", "tests/doors/door_streams",
               "tests/stress/stress_io", "tests/stress/libio_faults.so", "tests/doors/door_waits", "tests/doors/door_kinds",
               "tests/doors/door_variables", "tests/doors/door_crowds", "tests/doors/door_regions", "tests/doors/door_unread",
               "tests/doors/door_uncached", "tests/doors/door_uncached_calls", "tests/doors/door_uncached_kinds",
               "tests/doors/door_uncached_order", "tests/doors/door_uncached_signals", "tests/doors/door_stream_contexts",
               "tests/doors/door_other_copies", "soft-programs"]
    targets += MPI_PROGRAMS.values() if MPIRUN is not None else []
    targets += [f"tests/apps/{name}{form}" for name in names for form in ("", "_copy")]
    done = subprocess.run(["ninja", "-C", str(BUILD), *targets], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout[-3000:])
    return names


def gpu():
    if shutil.which("nvidia-smi") is None:
        sys.exit("gpu-check: no GPU here; scripts/test runs on the soft device")
    fields = "name,driver_version,memory.total"
    out = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True)
    lines = out.stdout.strip().splitlines()
    if out.returncode != 0 or not lines:
        sys.exit(f"gpu-check: nvidia-smi: {out.stdout.strip()}")
    name, driver, memory = (field.strip() for field in lines[0].split(","))
    return {"gpu": name, "gpus": len(lines), "driver": driver, "memory": memory, "cores": os.cpu_count(),
            "nvcc": subprocess.run([CUDA / "bin/nvcc", "--version"], capture_output=True, text=True).stdout.split()[-1],
            "date": datetime.date.today().isoformat()}


def shown(variables, program):
    return " ".join([*(f"{k}={v}" for k, v in variables.items() if k.startswith("HPE_")), program.name])


# UCX with CUDA, which scripts/setup --mpi puts there.
UCX = ROOT / ".mpi/ucx"
UCX_SETTINGS = {"OMPI_MCA_pml": "ucx", "UCX_MODULE_DIR": str(UCX / "ucx"),
                "LD_LIBRARY_PATH": f"{UCX}:{SHARED_RUNTIME['LD_LIBRARY_PATH']}"}


def ranks(count, program, library=None, **variables):
    """A command and its environment: so many ranks of an MPI program."""
    preload = [f"LD_PRELOAD={library}"] if library else []
    return [MPIRUN, "-np", str(count), "env", *preload, *program], environment(**(SHARED_RUNTIME | MPI_SETTINGS | variables))

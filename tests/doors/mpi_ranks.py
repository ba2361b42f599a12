# SPDX-License-Identifier: MIT
"""Running the ranks of an MPI program on the soft device. Shared by the tests of MPI, to which the build tells each
MPI's mpirun: HPE_TEST_MPIRUN_name."""
import os

import soft

MPIS = ("openmpi", "mpich", "standard")
for setting in [k for k in os.environ if k.startswith(("OMPI_", "UCX_", "MPICH_", "MPIR_"))]:
    del os.environ[setting]


def cases_of(*programs):
    """(case, program) of all that these programs list, in the order of the cases' names: a test may take every nth."""
    return sorted((case, program) for program in programs for case in soft.run([program], preload=False)[1].decode().split())


def commands(cases):
    """A command for each program among (case, program)."""
    return [[program, *(case for case, of in cases if of == program)] for program in sorted({of for _, of in cases})]


# Open MPI alone takes a quarter of a second to load its components for networks.
ONE_HOST = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "^openib,ofi,uct,usnic", "OMPI_MCA_osc": "^ucx", "OMPI_MCA_mtl": "^ofi,psm,psm2"}


def ranks(mpi, parts, timeout=120, search=soft.SEARCH, every_component=False, **variables):
    """Runs (how many, preloaded, command) beside each other, with libraries from `search`. Returns (status, lines of the ranks,
    what else was said)."""
    command = [os.environ[f"HPE_TEST_MPIRUN_{mpi.upper()}"]]
    if mpi == "openmpi":
        variables = ({} if every_component else ONE_HOST) | variables
        command += ["--oversubscribe", "--allow-run-as-root", "--mca", "rmaps_base_oversubscribe", "1"]
    for n, (count, preload, program) in enumerate(parts):
        command += [":"] * (n != 0) + ["-np", str(count), "env", *(f"{k}={v}" for k, v in variables.items())]
        command += [f"LD_PRELOAD={preload}", f"LD_LIBRARY_PATH={search}", *program]
    status, out, said = soft.run(command, preload=False, timeout=timeout)
    lines = out.decode(errors="replace").splitlines()
    return status, sorted(line for line in lines if line.startswith("rank")), out + said

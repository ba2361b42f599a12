#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: mpi.py PROGRAM...

Device memory in MPI calls, by LD_PRELOAD=libhpe.so alone. The programs built for an MPI carry its name in front:
openmpi_, mpich_ or standard_ (the binary interface of MPI 5). What does not depend on the MPI, such as calls of the
driver that fail, is tried with the first of them.
"""
import ctypes
import glob
import json
import os
import sys
import tempfile
from collections import Counter

import soft
from mpi_ranks import MPIS, cases_of, commands, ranks

problems, runs = [], 0
programs = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[1:]}


def check(mpi, parts, what, unsaid=None, every_component=False, **variables):
    global runs
    runs += 1
    status, lines, said = ranks(mpi, parts, every_component=every_component, **variables)
    if status != 0 or len(lines) != sum(part[0] for part in parts) or not all(line.endswith(" 0 wrong") for line in lines) or \
            (unsaid is not None and unsaid in said):
        settings = " ".join(f"{k}={v}" for k, v in variables.items())
        problems.append(f"{mpi} {what} {settings}: {status}\n{said[-1500:].decode(errors='replace')}")


def one_mpi(mpi, scratch, first):
    hpe = soft.LIBRARY
    random, calls, exchange, library, tool, tool_next = (
        programs[f"{mpi}_{name}"] for name in ("random", "calls", "exchange", "libexchange.so", "tool.so", "tool_next.so"))
    opens = programs["mpi_opens"]
    cases = soft.run([calls], preload=False)[1].decode().split()
    # Ranks of MPICH wait without a rest. What does not depend on the MPI, and takes long there, is tried with the first.
    few = [case for case in cases if soft.THOROUGH or case not in ("freed_among_threads", "between_work", "threads")]
    check(mpi, [(2, hpe, [calls, *(cases if first else [case for case in cases if case in few or case == "threads"])])], "calls",
          every_component=True)
    check(mpi, [(2, hpe, [calls, "gaps_of_exported"])], "exported", unsaid=b"one instruction at a time")
    of_files = [programs[f"{mpi}_files"]]
    of_files += [scratch, *soft.run(of_files, preload=False)[1].decode().split()]
    check(mpi, [(2, hpe, of_files)], "files", every_component=True)
    if mpi == "standard":
        return brief(mpi)
    check(mpi, [(3, hpe, [calls, *few])], "calls", HPE_PROTOCOL="lazy")
    check(mpi, [(3, hpe, of_files)], "files", HPE_PROTOCOL="lazy")
    cases = [programs[f"{mpi}_requests"]]
    cases += soft.run(cases, preload=False)[1].decode().split()
    check(mpi, [(2, hpe, cases)], "requests")
    check(mpi, [(3, hpe, cases)], "requests", HPE_PROTOCOL="lazy")
    cases = [programs[f"{mpi}_windows"]]
    cases += soft.run(cases, preload=False)[1].decode().split()
    check(mpi, [(2, hpe, cases)], "windows", every_component=True)
    for parts, variables in soft.in_turn(not first, (
            ([(3, hpe, cases)], {"HPE_PROTOCOL": "lazy", "HPE_BLOCK_SIZE": "4K"}),
            ([(1, hpe, cases), (1, "", ["env", "WITHOUT_DEVICE=1", *cases])], {"HPE_PROTOCOL": "batch"}))):
        check(mpi, parts, "windows", **variables)
    cases = [programs[f"{mpi}_partitions"]]
    cases += soft.run(cases, preload=False)[1].decode().split()
    if len(cases) > 1:
        check(mpi, [(2, hpe, cases)], "partitions")
        for parts, variables in soft.in_turn(not first, (
                ([(3, hpe, cases)], {"HPE_PROTOCOL": "lazy", "HPE_BLOCK_SIZE": "4K"}),
                ([(1, hpe, cases), (1, "", ["env", "WITHOUT_DEVICE=1", *cases])], {"HPE_PROTOCOL": "batch"}))):
            check(mpi, parts, "partitions", **variables)
    # Programs and libraries find MPI in many ways, and tools stand before or behind libhpe.
    for way in ("linked", "table", "searched", "next", "asked"):
        check(mpi, [(2, hpe, [exchange, way])], way, every_component=True)
    for way in (["linked"], ["now", "linked"], ["table"], ["searched"])[:4 if first else 2]:
        check(mpi, [(2, hpe, [opens, library, *way])], f"opened {way}")
    for preload in (f"{hpe}:{tool}", f"{tool}:{hpe}", f"{hpe}:{tool_next}", f"{tool_next}:{hpe}"):
        check(mpi, [(2, preload, [exchange, "linked"])], f"with a tool, {preload.replace(hpe, 'libhpe.so')}")
    for form in ("fortran", "fortran_08"):
        if f"{mpi}_{form}" in programs:
            check(mpi, [(2, hpe, [programs[f"{mpi}_{form}"]])], form)
    # Every datatype and call, on ranks with libhpe and without.
    for seed, (parts, rounds, variables) in enumerate((
            ([2, -1], 40, {"HPE_PROTOCOL": "lazy"}), ([2], 40, {}), ([3], 40, {"HPE_PROTOCOL": "batch"}), ([1, -1], 40, {}),
            ([4], 40, {"HPE_BLOCK_SIZE": "4K", "HPE_ROLLING_SIZE": 1}))[:5 if first or soft.THOROUGH else 2]):
        program = [random, str(seed), str(rounds)]
        check(mpi, [(n, hpe, program) if n > 0 else (-n, "", ["env", "WITHOUT_DEVICE=1", *program]) for n in parts],
              f"random {seed}", **variables)
    # Datatypes with gaps, packed on the device.
    for seed, (parts, rounds, variables) in enumerate((
            ([2], 30, {}), ([3], 20, {"HPE_BLOCK_SIZE": "16K"}), ([1, -1], 30, {"HPE_PROTOCOL": "batch"}),
            ([1, -1], 30, {}), ([2], 30, {"HPE_PROTOCOL": "lazy"}))[:5 if soft.THOROUGH else 4 if first else 1]):
        program = [programs[f"{mpi}_types"], str(seed), str(rounds)]
        check(mpi, [(n, hpe, program) if n > 0 else (-n, "", ["env", "WITHOUT_DEVICE=1", *program]) for n in parts],
              f"types {seed}", **variables)
    for case, size in (("first", "auto"), ("first", "1M"), ("ahead", "64K")):
        check(mpi, [(2, hpe, [programs[f"{mpi}_types"], case, "8000000"])], case, HPE_BLOCK_SIZE=size)
    # Without a kernel, a launch or memory the CPU packs.
    for call in ("cuModuleLoadData:*:2", "cuLaunchKernel:*:2", "cuLaunchKernel:5:719", "cuStreamCreateWithPriority:*:2")[:4 * first]:
        check(mpi, [(2, hpe, [programs[f"{mpi}_types"], "5", "20"])], "types", HPE_SOFT_FAIL=call)
    what_moves(mpi, scratch)
    from_device_to_device(mpi, scratch, first)
    # Memory of large messages is used again, and pinned then: once for the send and once for the receive, on each device's
    # context, of which the second comes after a reset.
    with tempfile.NamedTemporaryFile("r") as file:
        check(mpi, [(1, hpe, [programs[f"{mpi}_types"], "again", "2000000"])], "again", HPE_SOFT_DEVICES=2,
              HPE_SOFT_COUNT=file.name)
        calls = dict(line.split() for line in file if line[0] != "#")
        if calls.get("cuMemHostRegister") != "4":
            problems.append(f"{mpi}: memory of messages was pinned {calls.get('cuMemHostRegister')} times")


def brief(mpi):
    """The binary interface of MPI 5 is MPICH here, whose ways of moving messages are tried in its own."""
    hpe = soft.LIBRARY
    for name in ("requests", "windows", "partitions"):
        for command in commands(cases_of(programs[f"{mpi}_{name}"])):
            check(mpi, [(2, hpe, command)], name)
    cases = cases_of(programs[f"{mpi}_direct"], programs[f"{mpi}_direct_forms"])
    for command in commands(cases if soft.THOROUGH else cases[::8]):
        check(mpi, [(2, hpe, command)], "from device to device")
    exchange, opens, library = (programs[name] for name in (f"{mpi}_exchange", "mpi_opens", f"{mpi}_libexchange.so"))
    for way in ("linked", "table", "searched", "next"):  # the standard has no question whether CUDA is known
        check(mpi, [(2, hpe, [exchange, way])], way)
    check(mpi, [(2, hpe, [opens, library, "searched"])], "opened")
    for name in ("random", "types"):
        program = [programs[f"{mpi}_{name}"], "1", "20"]
        check(mpi, [(2, hpe, program), (1, "", ["env", "WITHOUT_DEVICE=1", *program])], name)


def what_moves(mpi, scratch):
    """Of what lies on the device, only the bytes of a message cross over."""
    crossed = [(0, 2000000), (2000000, 0)]
    for case, expected in (("column", crossed), ("row", crossed), ("packed", [(0, 0)] * 2)):
        check(mpi, [(2, soft.LIBRARY, [programs[f"{mpi}_types"], case, "2000000"])], case, HPE_MPI_IPC="off",
              HPE_REPORT=f"{scratch}/{mpi}-{case}-%p.json")
        moved = [json.load(open(path))["total"] for path in glob.glob(f"{scratch}/{mpi}-{case}-*.json")]
        moved = sorted((total["bytes_to_host"], total["bytes_to_device"]) for total in moved)
        if moved != expected:
            problems.append(f"{mpi}, {case}: to the host and to the device went {moved}")


def reads_processes():
    """Whether a process may read another's memory here, as MPIs do for messages of one host."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read_end, 1)
        os._exit(0)
    libc, buffer = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(8)
    part = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    got = libc.process_vm_readv(child, part, 1, part, 1, 0)
    os.write(write_end, b"x")
    os.waitpid(child, 0)
    return got == 8


def when_it_fails(mpi, program):
    under_way = [programs[f"{mpi}_under_way"], "window", "ring", "posted_late"]
    some, few = ["exchanged", "large", "to_all", "gone", "reset"], ["exchanged", "to_all", "gone"]
    check(mpi, [(3, soft.LIBRARY, program + few)], "from device to device", HPE_PROTOCOL="lazy")
    check(mpi, [(2, soft.LIBRARY, program + some)], "from device to device", HPE_PROTOCOL="batch")
    for call in ("cuIpcOpenMemHandle:*:2", "cuIpcGetMemHandle:*:2", "cuMemcpyDtoDAsync:*:2", "cuMemcpyDtoDAsync:2:2"):
        check(mpi, [(2, soft.LIBRARY, program + few)], "from device to device", HPE_SOFT_FAIL=call)
    for call in ("cuStreamWriteValue32:*:801", "cuStreamWriteValue32:3:2", "cuMemHostRegister:*:2", "cuMemHostRegister:3:2"):
        check(mpi, [(2, soft.LIBRARY, program + few)], "through shared memory", HPE_MPI_IPC="off", HPE_SOFT_FAIL=call)
    for call in ("cuStreamWriteValue32:*:801", "cuStreamWriteValue32:3:2", "cuMemHostRegister:*:2"):
        check(mpi, [(2, soft.LIBRARY, under_way)], "copies that are waited for", HPE_SOFT_DEVICE_LATENCY=2000, HPE_SOFT_FAIL=call)
    # A device that fails when the message has been received already.
    received = under_way[:2]
    status, _, said = ranks(mpi, [(1, soft.LIBRARY, received),
                                  (1, soft.LIBRARY, ["env", "HPE_SOFT_FAIL=cuStreamSynchronize:*:719", *received])],
                            HPE_SOFT_DEVICE_LATENCY=20000)
    if status in (0, "timeout") or b"cannot be stored" not in said or b"the device has failed" not in said:
        problems.append(f"{mpi}, a device fails: {status} {said[-1500:].decode(errors='replace')}")
    check(mpi, [(4, soft.LIBRARY, program + few)], "through shared memory", HPE_MPI_IPC="off", HPE_PROTOCOL="lazy",
          HPE_SOFT_LINK=1 << 30)


def many_under_way(mpi, scratch):
    """Copies that MPI takes for done: no byte comes too early or goes by way of the receiver's host memory."""
    program = programs[f"{mpi}_under_way"]
    check(mpi, [(4, soft.LIBRARY, [program, "window", "ring", "posted_late", "broadcast", "used_meanwhile"])], "under way", HPE_SOFT_DEVICE_LATENCY=2000)
    if not reads_processes():
        return
    check(mpi, [(2, soft.LIBRARY, [program, "ring"])], "ring", HPE_SOFT_DEVICE_LATENCY=2000,
          HPE_REPORT=f"{scratch}/{mpi}-ring-%p.json")
    totals = [json.load(open(path))["total"] for path in glob.glob(f"{scratch}/{mpi}-ring-*.json")]
    if len(totals) != 2 or any(total["bytes_to_device"] for total in totals):
        problems.append(f"{mpi}, ring: {totals}")

    def calls_of_ranks(case, *command, **variables):
        """How often each of two ranks called which function of the driver."""
        counts = [f"{scratch}/{mpi}-{case}-{rank}" for rank in range(2)]
        check(mpi, [(1, soft.LIBRARY, ["env", f"HPE_SOFT_COUNT={path}", *command, case]) for path in counts], case, **variables)
        return [Counter({name: int(count) for name, count, *_ in map(str.split, open(path)) if name[0] != "#"}) for path in counts]

    if mpi != "openmpi":
        return  # the others move messages in pieces
    # What has gaps is packed by one kernel, and unpacked by one in the other process, without a copy.
    for calls in calls_of_ranks("vectors", programs["openmpi_direct"]):
        if calls["cuMemcpyDtoDAsync"] != 0 or calls["cuLaunchKernel"] != 12:
            problems.append(f"vectors: {calls}")
    # A receive that finds its message there waits for no copy.
    calls = calls_of_ranks("posted_late", program, HPE_SOFT_DEVICE_LATENCY=2000)[1]
    if calls["cuMemcpyDtoDAsync"] != 8 or calls["cuStreamSynchronize"] > 1:
        problems.append(f"posted late: {calls}")


def from_device_to_device(mpi, scratch, first):
    """Large messages between processes of one host."""
    program, forms = [programs[f"{mpi}_direct"]], [programs[f"{mpi}_direct_forms"]]
    cases = cases_of(*program, *forms)
    # Copies that begin late are under way when MPI says that a message has been received.
    for n, variables in enumerate(({"HPE_SOFT_DEVICE_LATENCY": 2000}, {"HPE_MPI_IPC": "off"},
                                   {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "UCX_TLS": "posix,self"})):
        part = cases if first and n == 0 or soft.THOROUGH else cases[n::4]
        for command in commands(part):
            check(mpi, [(2, soft.LIBRARY, command)], "from device to device", **variables)
    many_under_way(mpi, scratch)
    for command in commands(cases_of(programs[f"{mpi}_meanwhile"])):
        check(mpi, [(2, soft.LIBRARY, command)], "meanwhile")
    for command in commands(cases_of(programs[f"{mpi}_collectives"])):
        check(mpi, [(3, soft.LIBRARY, command)], "parts of collectives")
    if first:
        when_it_fails(mpi, program)
    for parts in ([1, -1], [2, -1])[:2 if first else 1]:
        program_of_all = [programs[f"{mpi}_random"], "11", "30"]
        check(mpi, [(n, soft.LIBRARY, program_of_all) if n > 0 else (-n, "", ["env", "WITHOUT_DEVICE=1", *program_of_all])
                    for n in parts], "random, through shared memory", HPE_MPI_IPC="off")
    check(mpi, [(2, soft.LIBRARY, [*program, "devices"])], "on two devices", HPE_SOFT_DEVICES=2,
          HPE_SOFT_FAIL="cuIpcOpenMemHandle:2:217")
    # Nothing is brought for nobody.
    check(mpi, [(2, soft.LIBRARY, [*forms, "nobody"])], "nobody", HPE_REPORT=f"{scratch}/{mpi}-nobody-%p.json")
    moved = [json.load(open(path))["total"] for path in glob.glob(f"{scratch}/{mpi}-nobody-*.json")]
    if [(total["bytes_to_host"], total["bytes_to_device"]) for total in moved] != [(0, 0)] * 2:
        problems.append(f"{mpi}, to nobody and from nobody: {moved}")
    if reads_processes():
        check(mpi, [(2, soft.LIBRARY, [*forms, "short_alike"])], "short ones", HPE_REPORT=f"{scratch}/{mpi}-short-%p.json")
        moved = [json.load(open(path))["total"] for path in glob.glob(f"{scratch}/{mpi}-short-*.json")]
        if [(total["bytes_to_host"], total["bytes_to_device"]) for total in moved] != [(16384, 0)] * 2:
            problems.append(f"{mpi}, short ones: {moved}")
    # The host sees only the first message, by which the sender gets to know the receiver. Without CUDA IPC each crosses
    # over, by both devices at once; MPIs may read a message in several parts.
    reads = reads_processes()
    for case, message, rounds in (("exchanged", 3 << 20, 4), ("vectors", (3 << 20) // 48 * 24, 6)):
        once, always = [(message, 0)] * 2, [(rounds * message,) * 2] * 2
        for number, (variables, expected, through) in enumerate((
                ({"HPE_MPI_IPC": "on"}, once if reads else always, False), ({"HPE_MPI_IPC": "off"}, always, reads),
                ({"HPE_SOFT_FAIL": "cuIpcOpenMemHandle:*:201"}, always, reads),
                ({"HPE_SOFT_FAIL": "cuIpcGetMemHandle:*:801"}, always, reads),
                ({"HPE_MPI_IPC": "none"}, always, False))[:5 if first else 2]):
            files = f"{scratch}/{mpi}-{case}-{number}"
            check(mpi, [(2, soft.LIBRARY, [*program, case])], case, HPE_REPORT=f"{files}-%p.json",
                  HPE_TRACE=f"{files}-%p.trace", **variables)
            moved = [json.load(open(path))["total"] for path in glob.glob(f"{files}-*.json")]
            moved = [(total["bytes_to_host"], total["bytes_to_device"]) for total in moved]
            if moved != expected:
                problems.append(f"{mpi}, {case}, {variables}: to the host and to the device went {moved}")
            for path in glob.glob(f"{files}-*.trace"):
                names = [event["name"] for event in json.load(open(path))["traceEvents"]]
                sent, came = (names.count(f"message {way} shared memory") for way in ("to", "from"))
                # The receiver pins what it sees for the second time.
                if sent != (rounds - 1) * through or (came >= rounds - 2) < through or (came != 0) > through:
                    problems.append(f"{mpi}, {case}, {variables}: {sent} messages to shared memory, {came} from there")


if not programs:
    print("no MPI is installed")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    built = [mpi for mpi in MPIS if f"{mpi}_calls" in programs]
    for mpi in built:
        one_mpi(mpi, scratch, mpi == built[0])
        # Without doors the MPI has the device pointers: its CPU can use them, another process cannot read them.
        alone = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "UCX_TLS": "posix,sysv,self", "MPIR_CVAR_CH4_CMA_ENABLE": 0}
        check(mpi, [(2, soft.LIBRARY, [programs[f"{mpi}_random"], "7", "60"])], "random", HPE_MPI="off", **alone)
        asked = ranks(mpi, [(2, soft.LIBRARY, [programs[f"{mpi}_exchange"], "asked"])], HPE_MPI="off", **alone)
        if asked[1] != [f"rank {rank}: 2 wrong" for rank in range(2)]:
            problems.append(f"{mpi}, asked with HPE_MPI=off: {asked}")
        window = [(2, soft.LIBRARY, [programs[f"{mpi}_windows"], "attached_object"])]
        for switch, lines in (("on", 2), ("off", 0)):
            said = ranks(mpi, window, HPE_MPI=switch)[2]
            if said.count(b"hpe: device memory cannot be attached to an MPI window") != lines:
                problems.append(f"{mpi}, object attached, HPE_MPI={switch}: {said[-500:]}")
# A process without MPI finds none.
status, out, said = soft.run([programs["mpi_opens"]])
if (status, out, said) != (0, b"no MPI\n", b""):
    problems.append(f"without MPI: {status} {out} {said}")
print("\n".join(problems) or f"{runs} runs")
sys.exit(1 if problems else 0)

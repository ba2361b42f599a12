# SPDX-License-Identifier: MIT
"""Runs bench/stacks.cu with a report in JSON, with and without call stacks, and without a report. For scripts/gpu-check:
what a stack adds to an access that traps, to a launch and to a copy. By itself:

    python3 bench/stacks.py PROGRAM LIBRARY
"""
import pathlib
import statistics
import sys
import tempfile

from compare import environment, printed_numbers

WORKS = {"faults": ["access of 64 KiB that traps"], "launches": ["launch"],
         "copies": ["pageable copy of 4 KiB", "pageable copy of 16 MiB"]}
REPORTS = {"no report": {}, "report": {"HPE_REPORT": "r.json", "HPE_STACKS": "off"}, "with stacks": {"HPE_REPORT": "r.json"}}


def costs(program, library, rounds=5, **variables):
    """what -> report -> nanoseconds, the median over rounds that take turns."""
    result = {}
    for work, names in WORKS.items():
        samples = {name: [[] for _ in names] for name in REPORTS}
        for number in range(rounds):
            for report in list(REPORTS) if number % 2 == 0 else reversed(list(REPORTS)):
                settings = {"HPE_BLOCK_SIZE": "64K", "HPE_READ_AHEAD": "off", **REPORTS[report], **variables}
                with tempfile.TemporaryDirectory() as folder:
                    if "HPE_REPORT" in settings:
                        settings["HPE_REPORT"] = pathlib.Path(folder) / settings["HPE_REPORT"]
                    numbers = printed_numbers([program, work], environment(library, **settings))
                for i, values in enumerate(samples[report]):
                    values.append(statistics.median(numbers[i::len(names)]))
        for i, name in enumerate(names):
            result[name] = {report: round(statistics.median(values[i]), 1) for report, values in samples.items()}
    return result


def judge(figures, target):
    """Calls target(what, measured, limit) with what costs() gave."""
    faults, launch = figures["access of 64 KiB that traps"], figures["launch"]
    target("stack of a fault, ns", faults["with stacks"] - faults["no report"], 1000)
    target("faults with stacks / without a report", faults["with stacks"] / faults["no report"], 1.05)
    target("stack of a launch, ns", launch["with stacks"] - launch["no report"], 1000)


if __name__ == "__main__":
    for what, by_report in costs(*sys.argv[1:3]).items():
        print(what, *(f"{report}: {ns} ns" for report, ns in by_report.items()), sep="; ")

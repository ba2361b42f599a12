# SPDX-License-Identifier: MIT
"""Reports as one: a file, or all files of a folder summed (the ranks of a job). docs/report.md describes the files."""
import collections
import json
import math
import pathlib

VERSION = 1

# A frame of the report: the module's record (or None), and the offset in it.
Stack = collections.namedtuple("Stack", "what frames cut costs")


class Problem(Exception):
    """Something to be told in one line."""


def read(path):
    try:
        report = json.loads(pathlib.Path(path).read_text(errors="replace"))
    except OSError as wrong:
        raise Problem(f"{path}: {wrong.strerror}") from None
    except (ValueError, RecursionError) as wrong:
        raise Problem(f"{path} is no report: {wrong}") from None
    if not isinstance(report, dict) or "version" not in report or "protocol" not in report:
        raise Problem(f"{path} is no report of HPE_REPORT=file.json")
    if not isinstance(report["version"], int) or report["version"] > VERSION:
        raise Problem(f"{path} has version {report['version']}; this tool knows {VERSION}")
    try:
        check(report)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as wrong:
        raise Problem(f"{path} is a broken report: {type(wrong).__name__} {wrong}") from None
    return report


OBJECT = {"id", "bytes", "bytes_to_host", "bytes_to_device", "read_faults", "write_faults"}
TOTAL = OBJECT - {"id", "bytes"}


def check(report):
    """Raises what reading a file that was cut or edited raises, so that nothing else here needs to be careful."""

    def numbers(these):
        for key, value in these.items():
            if isinstance(value, bool) or not math.isfinite(value) or value < 0:
                raise ValueError(f"{key}: {value}")

    def texts(*these):
        for text in these:
            if text is not None:
                text.encode()

    texts(report["protocol"], report["program"])
    numbers({"process": report["process"], **{key: report["total"][key] for key in TOTAL}, **report["total"]})
    for one in report["per_object"]:
        numbers({key: one[key] for key in OBJECT})
    if report["call_stacks"] is None:
        return
    numbers({"seconds": report["call_stacks"]["seconds"]})
    numbers(report["call_stacks"]["without_stack"])
    for module in report["call_stacks"]["modules"]:
        texts(module["path"], module["build_id"])
    for number, (parent, module, _) in enumerate(report["call_stacks"]["nodes"]):
        if not (-1 <= parent < number and -1 <= module < len(report["call_stacks"]["modules"])):
            raise ValueError(f"node {number}: {parent} {module}")
    for stack in stacks_of(report):
        texts(stack.what)
        numbers(stack.costs)
        if not stack.what or stack.costs["count"] < 1:
            raise ValueError(f"stack of {stack.what}")


def stacks_of(report):
    """Innermost frame first."""
    section = report["call_stacks"]
    if section is None:
        return []
    modules, nodes, found = section["modules"], section["nodes"], []
    for stack in section["stacks"]:
        at, frames = stack["node"], []
        while at >= 0:
            at, module, offset = nodes[at]
            frames.append((modules[module] if module >= 0 else None, int(offset, 16)))
        costs = {k: v for k, v in stack.items() if k not in ("node", "what", "cut")}
        found.append(Stack(stack["what"], frames, bool(stack["cut"]), costs))
    return found


class Reports:
    def __init__(self, paths):
        self.each = [read(path) for path in paths]
        sums = {}
        for report in self.each:
            for stack in stacks_of(report):
                key = (stack.what, stack.cut,
                       tuple((m["path"], m["build_id"], o) if m else (None, None, o) for m, o in stack.frames))
                if key not in sums:
                    sums[key] = Stack(stack.what, stack.frames, stack.cut, collections.Counter())
                sums[key].costs.update(stack.costs)
        self.stacks = list(sums.values())
        self.total = collections.Counter()
        for report in self.each:
            self.total.update(report["total"])
        self.without = collections.Counter()
        for report in self.each:
            if report["call_stacks"]:
                self.without.update(report["call_stacks"]["without_stack"])

    @property
    def seconds(self):
        """From the first use of CUDA to the end; of the longest."""
        return max((r["call_stacks"]["seconds"] for r in self.each if r["call_stacks"]), default=0.0)

    def title(self):
        first = self.each[0]
        name = (first["program"] or "a program").rsplit("/", 1)[-1]
        who = f"process {first['process']}" if len(self.each) == 1 else f"{len(self.each)} processes"
        title = f"{name}, {who}, protocol {first['protocol']}"
        return f"{title}, {self.seconds:.3f} s since the first use of CUDA" if self.seconds else title


def load(place):
    path = pathlib.Path(place)
    if not path.is_dir():
        return Reports([path])
    paths = []
    for candidate in sorted(path.glob("*.json")):
        try:
            read(candidate)
            paths.append(candidate)
        except Problem:
            continue
    if not paths:
        raise Problem(f"{place} holds no reports")
    return Reports(paths)

# SPDX-License-Identifier: MIT
"""The report and the comparison of two as text."""
import collections
import re

from advice import advise, pinned_rate, size

# Whose functions are inlined into the program's: what nvcc makes, the headers of CUDA and of the system, and those of a
# compiler, wherever it is installed.
MADE = re.compile(r"cudafe1\.stub\.c$")
HEADERS = re.compile(r"/targets/[^/]+/include/|^/usr/(local/cuda[^/]*/)?include/|/lib/gcc/[^/]+/[^/]+/include/|"
                     r"/include/c\+\+/|/lib/clang/[^/]+/include/|" + MADE.pattern)
STUB = "__device_stub_"  # and the kernel's name as linkers see it


def lines_of(stack, symbols):
    """All frames, innermost first."""
    return [frame for module, offset in stack.frames for frame in symbols.frames(module, offset)]


def is_programs(frame):
    return not frame.system and not HEADERS.search(frame.file)


def first_of_program(frames):
    """Where the program's own code begins. nvcc makes a function of a kernel's name, and one or two in front of it, that
    launch it: none is a place to change. Any but the innermost may be missing, since they end with a call."""
    stubs = [i for i, f in enumerate(frames) if STUB in name_of(f) or MADE.search(f.file)]
    first = stubs[-1] + 1 if stubs else 0
    if stubs and first < len(frames):
        frame, caller = frames[first], frames[min(first + 1, len(frames) - 1)]
        # A static one that was inlined has its caller's name.
        if is_kernel(frame, name_of(frames[stubs[0]])) or (frame.inlined and name_of(frame) == name_of(caller)):
            first += 1
    return next((i for i in range(first, len(frames)) if is_programs(frames[i])), 0)


def name_of(frame):
    return frame.function or ""


def is_kernel(frame, stub):
    """Whether the function is the kernel whose stub that is, by the last part of its name."""
    name = name_of(frame).replace("(anonymous namespace)", "")
    # Before what is in brackets: a lambda's template argument has some of its own.
    while name != (name := re.sub(r"<[^<>]*>", "", name)):
        pass
    name = name.split("(")[0]
    name = re.split(r"::|[ *&]", name)[-1]
    symbol = stub.split("(")[0].partition(STUB)[2]
    return name != "" and (symbol in (name, "_" + name) or f"{len(name)}{name}" in symbol)


def place_of(stack, symbols):
    """The frame to change: the innermost of the program's, one with a line if there is any."""
    frames = lines_of(stack, symbols)
    frames = [f for f in frames[first_of_program(frames):] if is_programs(f)]
    return next((f for f in frames if f.line), frames[0] if frames else None)


LONGEST = 70  # characters of a function's name


def calls_of(stack, symbols):
    """The frames that say something to the program's author: from what it called, to main."""
    frames = lines_of(stack, symbols)
    own = first_of_program(frames)
    # The last one: a static function that was inlined has its caller's name.
    last = max((i for i, f in enumerate(frames) if f.function == "main"), default=len(frames) - 1)
    return frames[max(own - 1, 0):last + 1]


def shown(frame):
    where = f"{frame.file}:{frame.line}" if frame.line else frame.module
    name = frame.function or "?"
    if len(name) > LONGEST:  # without its arguments
        name = re.sub(r"(?<=\w)\((?!anonymous namespace).*", "(..)", name)
    name = name if len(name) <= LONGEST else name[:LONGEST - 2] + ".."
    return f"{name}  {where}{'  (inlined)' if frame.inlined else ''}"


def counted(n, what):
    return f"{n} {what}{'' if n == 1 else 's'}"


def seconds(s):
    return f"{s:.3f} s" if s >= 0.1 else f"{s * 1e3:.3f} ms" if s >= 1e-4 else f"{s * 1e6:.1f} us"


def what_happened(stack):
    c = collections.Counter(stack.costs)
    parts = [f"{c['count']} x {stack.what}", seconds(c["seconds"])]
    if c["wait_seconds"] >= 0.05 * c["seconds"]:
        parts.append(f"{seconds(c['wait_seconds'])} of it for device work")
    for key, text in (("to_device_bytes", "to the device"), ("to_host_bytes", "to the host"),
                      ("fetched_bytes", "fetched"), ("flushed_bytes", "flushed")):
        if c[key]:
            parts.append(f"{size(c[key])} {text}")
    return ", ".join(parts)


# What happened at one line of the program, however it came there: the costs of all its stacks, the one that took most,
# and how many there are.
Line = collections.namedtuple("Line", "advice stack number")


def ranked(reports, symbols):
    """Lines in order of what could be saved, then of what they took."""
    rate = pinned_rate(reports.stacks)
    lines = collections.defaultdict(list)
    for i, stack in enumerate(reports.stacks):
        place = place_of(stack, symbols)
        lines[stack.what, place._replace(inlined=False) if place and place.line else i].append(stack)
    found = []
    for stacks in lines.values():
        sums = collections.Counter()
        for stack in stacks:
            sums.update(stack.costs)
        most = max(stacks, key=lambda s: s.costs.get("seconds", 0))._replace(costs=sums)
        found.append(Line(advise(most, rate), most, len(stacks)))
    found.sort(key=lambda line: (-sum(a.seconds for a in line.advice), -line.stack.costs["seconds"]))
    return found


def callers_not_shown(line):
    if line.number > 1:
        yield f"({line.number - 1} other call stack{'s' if line.number > 2 else ''} led here; this one took most)"
    if line.stack.cut:
        yield "(its callers are not known)"


def head(reports):
    t = reports.total
    yield reports.title()
    yield (f"  to the host {size(t['bytes_to_host'])} by libhpe, to the device {size(t['bytes_to_device'])}; "
           f"{counted(t['read_faults'], 'read fault')}, {counted(t['write_faults'], 'write fault')}")
    if not reports.stacks:
        yield "  no call stacks: HPE_STACKS=off, or libunwind8 was missing"
    if reports.without.get("count"):
        yield (f"  {reports.without['count']} events came too fast for their stacks to be taken: "
               f"{seconds(reports.without['seconds'])}")


def report(reports, symbols, most):
    symbols.prepare((m, o) for s in reports.stacks for m, o in s.frames)
    yield from head(reports)
    every = ranked(reports, symbols)
    lines = [line for line in every if line.advice]
    rest = sum(line.stack.costs["seconds"] for line in every if not line.advice)
    whole = sum(a.seconds for line in lines for a in line.advice)
    if lines:
        yield f"  {seconds(whole)} could be saved, by these call stacks:"
    for number, line in enumerate(lines[:most], 1):
        advice, stack = line.advice, line.stack
        frames = calls_of(stack, symbols)
        saved = sum(a.seconds for a in advice)
        yield ""
        place = place_of(stack, symbols)
        yield f"{number}. {seconds(saved)}: {shown(place) if place else '?'}"
        yield f"   {what_happened(stack)}"
        for a in advice:
            yield f"   {a.kind}, {seconds(a.seconds)}: {a.text}"
        for frame in frames:
            yield f"     {shown(frame)}"
        yield from (f"     {text}" for text in callers_not_shown(line))
    if len(lines) > most:
        yield ""
        yield f"{len(lines) - most} more; --most N shows more of them"
    if rest:
        yield ""
        yield f"{seconds(rest)} were spent in other faults and calls, of which nothing is known to be wasted"
    if len(reports.each) > 1:
        yield ""
        yield "rank  process  events s  to host  to device"
        for r in sorted(reports.each, key=lambda r: (r["rank"] is None, r["rank"], r["process"])):
            took = sum(s["seconds"] for s in r["call_stacks"]["stacks"]) if r["call_stacks"] else 0.0
            yield (f"{'-' if r['rank'] is None else r['rank']:>4}  {r['process']:>7}  {took:8.3f}  "
                   f"{size(r['total']['bytes_to_host']):>7}  {size(r['total']['bytes_to_device']):>9}")
    for line in symbols.said:
        yield line


def by_functions(reports, symbols):
    """Costs by what happened and the functions above it: lines move from one version to the next, functions seldom."""
    symbols.prepare((m, o) for s in reports.stacks for m, o in s.frames)
    found = collections.defaultdict(collections.Counter)
    for stack in reports.stacks:
        names = tuple(f.function or f.module for f in lines_of(stack, symbols) if not f.system)
        found[stack.what, names].update(stack.costs)
    return found


def moved(costs):
    return sum(costs[k] for k in ("to_device_bytes", "to_host_bytes", "fetched_bytes", "flushed_bytes"))


def difference(before, after, symbols, most):
    a, b = by_functions(before, symbols), by_functions(after, symbols)
    yield f"before: {before.title()}"
    yield f"after:  {after.title()}"
    sums = [collections.Counter(), collections.Counter()]
    for side, stacks in zip(sums, (before.stacks, after.stacks)):
        for stack in stacks:
            side.update(stack.costs)
    yield (f"in faults and calls {seconds(sums[0]['seconds'])} -> {seconds(sums[1]['seconds'])}, moved "
           f"{size(moved(sums[0]))} -> {size(moved(sums[1]))}, events {sums[0]['count']} -> {sums[1]['count']}")
    nothing = collections.Counter()
    changes = sorted(set(a) | set(b), key=lambda k: -abs(b.get(k, nothing)["seconds"] - a.get(k, nothing)["seconds"]))
    for key in changes[:most]:
        what, names = key
        x, y = a.get(key, nothing), b.get(key, nothing)
        yield ""
        yield (f"{y['seconds'] - x['seconds']:+.6f} s  {what}: {seconds(x['seconds'])} -> {seconds(y['seconds'])}, "
               f"{x['count']} -> {y['count']} times, {size(moved(x))} -> {size(moved(y))}")
        yield "     " + " < ".join(names[:6]) + (" < .." if len(names) > 6 else "")
    for line in symbols.said:
        yield line

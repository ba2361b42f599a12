#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: driver_calls.py PROGRAM [SHARE/SHARES [error=NAME] [VARIABLE=VALUE...]]

Lets each driver call of a program of this folder fail once, at every place it can, under libhpe: the program's own calls
and libhpe's; then several calls in a row, and libhpe's own calls for ever. Wanted: no wrong number, no crash, no hang. A
call of libhpe's own is not made again: the program may see its error, or die of an access that cannot be served, after
a line that says so; it sees nothing of those that libhpe can do without. Says how many it saw nothing of. With an
error's name the calls fail with that one alone.
"""
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

program = sys.argv[1]
share, shares = map(int, (sys.argv[2] if len(sys.argv) > 2 else "0/1").split("/"))
OUT_OF_MEMORY = 2
ERRORS = {"OUT_OF_MEMORY": OUT_OF_MEMORY, "INVALID_VALUE": 1, "LAUNCH_FAILED": 719}
PLACES = 12 if soft.THOROUGH else 8  # of one function, at most
BURST = 4    # calls in a row
settings = dict(setting.split("=", 1) for setting in sys.argv[3:])
if "error" in settings:
    name = settings.pop("error")
    ERRORS = {name: ERRORS[name]}
COMMON = {"HPE_SOFT_DEVICES": 2, "HPE_BLOCK_SIZE": "8K", "HPE_STAGING_THREADS": 2, **settings}
MAX_LINES = 4
DIED = -11


def run(arguments=(), preload=True, **variables):
    return soft.run([program, *arguments], preload=preload, timeout=90, **COMMON, **variables)


def counts(arguments=(), preload=True):
    with tempfile.NamedTemporaryFile("r") as file:
        status, out, err = run(arguments, preload, HPE_SOFT_COUNT=file.name)
        assert status == 0 and b"WRONG" not in out, (status, out, err)
        return {name: int(n) for name, n in map(str.split, (line for line in file if line[0] != "#"))}, out


def places(n):
    return sorted({1 + i * (n - 1) // (min(n, PLACES) - 1) for i in range(min(n, PLACES))}) if n > 1 else [1]


def problem(status, out, err):
    """What is wrong with a run, or None."""
    lines = [line for line in err.split(b"\n") if line.startswith(b"hpe:")]
    if status == "timeout":
        return "hangs"
    if b"WRONG" in out or status == 1:
        return "wrong number"
    if status not in (0, 3, DIED):
        return f"status {status}"
    if status == DIED and not lines:
        return "died without a word"
    if b"\n0 calls failed" in out and out != good:
        return "another output, though no call failed"
    return f"{len(lines)} lines" if len(lines) > MAX_LINES else None


theirs, _ = counts(["untouched"], preload=False)
both, good = counts()
cases = []
for function in sorted(both):
    own = function not in theirs
    for number, place in enumerate(places(both[function])):
        names = sorted(ERRORS) if place == 1 else [sorted(ERRORS)[place % len(ERRORS)]]
        once = [f"{function}:{place}:{ERRORS[name]}" for name in names]
        burst = [",".join(f"{function}:{place + i}:{ERRORS[names[0]]}" for i in range(BURST))]
        cases += [(rule, own) for rules in soft.in_turn(number, (once, burst)) for rule in rules]
    if own:
        cases.append((f"{function}:*:{OUT_OF_MEMORY}", own))
problems, unseen = [], 0
tried = cases[share::shares]
for rule, own in tried:
    status, out, err = run(HPE_SOFT_FAIL=rule)
    wrong = problem(status, out, err)
    unseen += own and (status, out) == (0, good)
    if wrong:
        variables = {**COMMON, "HPE_SOFT_FAIL": rule}
        problems.append(f"{wrong}: {soft.shown([program], variables)}\n  status {status}\n"
                        f"  {out[-700:].decode(errors='replace')}\n  {err[-700:].decode(errors='replace')}")
if unseen == len(tried):
    problems.append("no call failed")
print("\n".join(problems) or f"{len(tried)} of {len(cases)} failures, {sum(own for _, own in tried)} of calls of libhpe's own, "
      f"of which the program saw nothing of {unseen}")
print(f"{len(problems)} problems", file=sys.stderr)
sys.exit(1 if problems else 0)

# SPDX-License-Identifier: MIT
"""Times programs against each other in one run: every contender runs in every round, in turn, so that whatever drifts on
the machine falls on all of them alike. Shared by the benches that scripts/gpu-check runs.
"""
import os
import resource
import select
import statistics
import subprocess
import tempfile
import threading
import time


class Failed(Exception):
    pass


def environment(library=None, **variables):
    """The caller's environment without any HPE_ variable; with `library` preloaded if given."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("HPE_") and k != "LD_PRELOAD"}
    if library:
        env["LD_PRELOAD"] = str(library)
    env.update({k: str(v) for k, v in variables.items()})
    return env


def called(command):
    """Results are kept: they name programs, not where these are on this machine."""
    return " ".join(os.path.basename(part) for part in command)


def run(command, env, timeout=300, ends=0):
    try:
        done = subprocess.run(command, env=env, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"{called(command)}: no end after {timeout} s") from None
    if done.returncode != ends:
        raise Failed(f"{called(command)}: status {done.returncode}: {done.stderr[-400:].decode(errors='replace')}")
    return done.stdout.decode(errors="surrogateescape")  # a program may print any bytes


def printed_numbers(command, env):
    """The figures that a bench prints, one a line."""
    return [float(line) for line in run(command, env).split()]


def wall_and_processor_ms(command, env):
    """How long the whole command takes, and how much of that it spends on processors, in milliseconds."""
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command, env)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return [(wall * 1e3, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)]


def from_first_copy(command, env, timeout=300):
    """Of a program that says when its first copy begins and its last one ends (first_copy.cu), in milliseconds: how long
    the copies take, how long it takes from the first to its end, how much of that it spends on processors, and how much
    of its whole life."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=errors)
        late = threading.Timer(timeout, process.kill)
        late.start()
        _, status, usage = os.wait4(process.pid, 0)
        end = time.clock_gettime(time.CLOCK_MONOTONIC)
        late.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0), errors.seek(0)
        if process.returncode != 0:
            raise Failed(f"{called(command)}: status {process.returncode}: {errors.read()[-400:].decode(errors='replace')}")
        begin, spent, copied = (int(number) for number in said.read().split())
    processor = usage.ru_utime + usage.ru_stime
    return [((copied - begin) / 1e6, end * 1e3 - begin / 1e6, processor * 1e3 - spent / 1e6, processor * 1e3)]


def in_turn(contenders, rounds, measure):
    """contenders: name -> (command, environment). Returns name -> samples, those of one round in the same places."""
    samples = {name: [] for name in contenders}
    for number in range(rounds):
        order = list(contenders) if number % 2 == 0 else list(reversed(contenders))
        for name in order:
            samples[name] += measure(*contenders[name])
    return samples


def in_step(contenders, rounds, timeout=300):
    """As in_turn, with one process a contender that lives through all rounds and does one whenever it is asked
    (memory.cu): what a process keeps for as long as it lives then weighs no more than what each round does."""
    running = {}

    def asked(name):
        process = running[name]
        try:
            process.stdin.write(b"\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], timeout)[0]:
                raise TimeoutError(f"no answer for {timeout} s")
            return float(process.stdout.readline())
        except (OSError, ValueError) as problem:
            process.kill()
            raise Failed(f"{called(contenders[name][0])}: {problem}: "
                         f"{process.communicate()[1][-400:].decode(errors='replace')}") from None

    def measure(name):
        return [asked(name)]

    try:
        for name, (command, env) in contenders.items():
            running[name] = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                             stderr=subprocess.PIPE)
            asked(name)  # not while another warms up
        samples = in_turn({name: [name] for name in contenders}, rounds, measure)
    finally:
        for process in running.values():
            if process.poll() is None:
                process.communicate()
    for name, process in running.items():
        if process.returncode != 0:
            raise Failed(f"{called(contenders[name][0])}: status {process.returncode}")
    return samples


def is_undecided(differences, limit):
    """Whether their median lies so near to the limit that more samples may move it to the other side (twice the median's
    standard error, by the quartiles)."""
    low, median, high = statistics.quantiles(differences, n=4)
    return abs(median - limit) < 2 * 1.25 * (high - low) / 1.35 / len(differences) ** 0.5


def surely_above(pairs):
    """What the median of what these pairs are taken from lies above with a certainty of 97 %: one of the smaller pairs, by
    rank. A target that the samples cannot tell from chance is not missed."""
    spread = 1.96 * len(pairs) ** 0.5 / 2
    return sorted(pairs)[max(0, int(len(pairs) / 2 - spread))]


def times(samples, name, other):
    """How many times as much `name` takes as `other` beside it: the median of the pairs."""
    return statistics.median(a / b for a, b in zip(samples[name], samples[other], strict=True))


def summary(samples):
    """Of name -> samples: name -> {"median", "low", "high", "samples", "more"}; low and high are quartiles, more is the
    median of what each sample took more than the first contender's beside it: a machine that drifts by more than the
    difference moves the medians, but not the pairs."""
    summaries, first = {}, samples[next(iter(samples))]
    for name, values in samples.items():
        low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        more = statistics.median(value - beside for value, beside in zip(values, first, strict=True))
        summaries[name] = {"median": round(median, 3), "low": round(low, 3), "high": round(high, 3), "samples": len(values),
                           "more": round(more, 3)}
    return summaries


def compare(contenders, rounds, measure=printed_numbers):
    return summary(in_turn(contenders, rounds, measure))

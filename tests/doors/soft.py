# SPDX-License-Identifier: MIT
"""Running programs on the soft device, with and without libhpe. Shared by the tests of this folder.

The build tells where things are: HPE_TEST_LIBRARY, HPE_TEST_DRIVER and HPE_TEST_RUNTIME (folders of libcuda.so.1 and
libcudart.so.13).
"""
import os
import re
import subprocess
import tempfile

LIBRARY = os.environ["HPE_TEST_LIBRARY"]
SEARCH = os.environ["HPE_TEST_DRIVER"] + ":" + os.environ["HPE_TEST_RUNTIME"]
THOROUGH = os.environ.get("HPE_TEST_THOROUGH") == "1"  # scripts/test --thorough


def in_turn(number, settings):
    """Of settings that most cases do not tell apart, those that a test's case of this number is tried with: one after the
    other, so that each has its cases, and all of them where the tests are to be thorough."""
    return settings if THOROUGH else settings[number % len(settings):][:1]


def environment(preload=True, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith("HPE_") and k != "LD_PRELOAD"}
    env["LD_LIBRARY_PATH"] = SEARCH
    if preload:
        env["LD_PRELOAD"] = LIBRARY
    env.update({k: str(v) for k, v in variables.items()})
    return env


def run(command, preload=True, timeout=60, **variables):
    """Returns (exit status, stdout, stderr); status 'timeout' if it did not end."""
    try:
        done = subprocess.run(command, env=environment(preload, **variables), capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired as late:
        return "timeout", late.stdout or b"", late.stderr or b""
    return done.returncode, done.stdout, done.stderr


def counted(command, preload=True, timeout=60, **variables):
    """Returns (what run() does, calls of driver functions by name, bytes that went from device to device directly, those
    that the driver took through the host)."""
    with tempfile.NamedTemporaryFile("r") as file:
        result = run(command, preload, timeout, **variables, HPE_SOFT_COUNT=file.name)
        text = file.read()
    calls = {name: int(n) for name, n in (line.split() for line in text.splitlines() if line[0] != "#")}
    directly, through_host = map(int, re.search(r"between devices (\d+) directly (\d+) through", text).groups())
    return result, calls, directly, through_host


def shown(command, variables):
    """The command line that repeats a run by hand."""
    settings = " ".join(f"{k}={v}" for k, v in variables.items())
    return f"{settings} scripts/hpe run --device soft -- {' '.join(command)}"

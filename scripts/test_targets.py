#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: test_targets.py BUILD ARGUMENT...

Prints the ninja targets that the tests need which `meson test ARGUMENT...` selects, one a line; Meson before 1.7 would
build everything for any test. Exit 1, and Meson's words on stderr, where no test is selected.
"""
import json
import pathlib
import subprocess
import sys

build, *arguments = sys.argv[1:]
build = pathlib.Path(build).resolve()


def introspected(what):
    return json.loads((build / f"meson-info/intro-{what}.json").read_text())


def listed_as(test):
    """What `meson test --list` calls a test."""
    suites = [suite.split(":", 1) for suite in test["suite"]]
    return f"{suites[0][0]}:{'+'.join(suite for _, suite in suites)} / {test['name']}"


tests = {listed_as(test): test for test in introspected("tests")}
outputs = {target["id"]: target["filename"] for target in introspected("targets")}
shown = subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--list", *arguments],
                       capture_output=True, text=True)
selected = [tests[line] for line in shown.stdout.splitlines() if line in tests]
if not selected:
    sys.exit((shown.stdout + shown.stderr).strip())
needed = {output for test in selected for target in test["depends"] for output in outputs[target]}
print("\n".join(sorted(str(pathlib.Path(output).relative_to(build)) for output in needed)))

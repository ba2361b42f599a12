#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: check_sources.py BUILD

Every source compiles by itself, though the build puts several into one compilation: it includes what it needs. Others
rely on that: the sanitizers' builds, and whoever adds a source between two.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

build = pathlib.Path(sys.argv[1])


def alone(entry, source):
    """The command of a compilation, for one of its sources."""
    words = iter(shlex.split(entry["command"]))
    command = []
    for word in words:
        if word in ("-o", "-MF", "-MQ", "-c"):
            next(words)
        elif word != "-MD" and not word.endswith("ccache"):
            command.append(word)
    return command + ["-fsyntax-only", str(source)]


# The same source for another mpi.h includes the same.
commands = {}
for entry in json.loads((build / "compile_commands.json").read_text()):
    together = pathlib.Path(entry["directory"], entry["file"])
    if "-unity" in together.name:
        sources = [pathlib.Path(name).resolve() for name in re.findall(r"#\s*include\s*[<\"](.+)[>\"]", together.read_text())]
        # The build has shown it of the first one.
        commands.update({source: alone(entry, source) for source in sources[1:] if source not in commands})


def check(command):
    done = subprocess.run(command, cwd=build, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{command[-1]}:\n{done.stderr[:1500]}"


with ThreadPoolExecutor(2) as pool:
    problems = [problem for problem in pool.map(check, commands.values()) if problem]
print("\n".join(problems) or f"{len(commands)} sources")
sys.exit(1 if problems or len(commands) < 100 else 0)

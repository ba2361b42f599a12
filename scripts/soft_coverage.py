#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lists every entry of the soft device's driver and runtime, and whether it is supported.

Nothing is listed by hand: the driver's entries are those of the CUDA headers, supported when a source defines them,
as in gen_soft_driver.py; the runtime's are what the library exports, not supported when unsupported.cpp says so or
when all that the function asks of the driver is itself not supported.

usage: soft_coverage.py INCLUDE RUNTIME_LIBRARY OUT SOURCE...
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cuda_abi  # noqa: E402
import gen_soft_driver  # noqa: E402


def driver(include, texts):
    defined = gen_soft_driver.defined_functions(texts)
    answers = {}
    for e in cuda_abi.entries(include):
        answers[e.export] = gen_soft_driver.body_name(e) in defined
    return answers


def runtime(library, texts, driver_answers):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    symbols = [line.split() for line in out.splitlines()]
    exports = {s[2].split("@")[0] for s in symbols if len(s) == 3 and s[1] in "TW"}
    refused = {name for text in texts for name in re.findall(r"^UNSUPPORTED\((\w+)\)", text, re.M)}
    bases = {}
    for export, supported in driver_answers.items():
        base = re.sub(r"(_v\d+)?(_pt[ds]s?z?)?$", "", export)
        bases[base] = bases.get(base, False) or supported
    # What a function asks of the driver, itself or through functions of the same file.
    for text in texts:
        bodies = dict(re.findall(r"^\w[\w:<> ]*[ *&](\w+)\([^;{}]*\)\s*\{(.*?)^\}", text, re.M | re.S))

        def asked_by(name, seen):
            body = bodies[name]
            asked = {re.sub(r"_v\d+$", "", f) for f in re.findall(r"\bd\.(cu[A-Z]\w+)\b", body)}
            for other in set(re.findall(r"\b(\w+)\(", body)) & bodies.keys() - seen:
                asked |= asked_by(other, seen | {other})
            return asked

        for name in bodies:
            asked = asked_by(name, {name})
            if asked and not any(bases.get(f, True) for f in asked):
                refused |= {name, f"{name}_ptsz", f"{name}_ptds"}
    return {name: name not in refused for name in exports}


def main(include, library, out, *sources):
    texts = [pathlib.Path(s).read_text() for s in sources]
    driver_answers = driver(include, texts)
    lines = []
    for title, answers in (("driver", driver_answers), ("runtime", runtime(library, texts, driver_answers))):
        yes = sum(answers.values())
        lines.append(f"{title}: {len(answers)} entries, {yes} supported, {len(answers) - yes} answer NOT_SUPPORTED")
        lines += [f"  {name:<60} {'supported' if answers[name] else 'NOT_SUPPORTED'}" for name in sorted(answers)]
    pathlib.Path(out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

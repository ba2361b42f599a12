#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the driver doors from shim/doors/cuda_catalog.inc and the toolkit's headers.

usage: gen_cuda_doors.py INCLUDE_DIR CATALOG OUT_CPP OUT_VERSION_SCRIPT

For every exported driver function: a typed wrapper that calls its treatment, or, if the catalogue has none for it, one
that counts and passes through (used only under HPE_LOG=debug). The signature is repeated from cudaTypedefs.h; that it is
cuda.h's own is checked twice by the compiler: the definition must agree with cuda.h's declaration, and a static_assert
compares it with the PFN_ type.
"""
import pathlib
import re
import sys

import cuda_abi

# Treatments of launches that have one stream, and of calls that wait for the device.
LAUNCHES = {"launch_kernel", "launch_kernel_ex", "launch_graph"}
WAITS = {"synchronize_context", "synchronize_stream", "synchronize_event", "copy_to_host"}

_ROW = re.compile(r'^DOOR\((\w+), ([\d ]+), (\w+), "([^"]*)"\)$')


def catalogue(path):
    rows = {}
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if not line or line.startswith("//"):
            continue
        row = _ROW.match(line)
        if row is None:
            raise SystemExit(f"{path}:{number}: not a DOOR row: {line}")
        name, versions, treatment, note = row.groups()
        for version in map(int, versions.split()):
            if (name, version) in rows:
                raise SystemExit(f"{path}:{number}: {name} {version} stands twice")
            rows[name, version] = (treatment, note)
    return rows


def main(include, catalog, out_cpp, out_map):
    rows = catalogue(catalog)
    # The profiler's entry points are declared elsewhere and have no part in coherence.
    entries = [e for e in cuda_abi.entries(include) if not e.base.startswith("cuProfiler")]
    unknown = set(rows) - {(e.base, e.version) for e in entries}
    if unknown:
        raise SystemExit(f"{catalog}: not in the headers: {sorted(unknown)}")
    entries.sort(key=lambda e: e.export)
    treated = []
    body, table = [], []
    for index, e in enumerate(entries):
        treatment, _ = rows.get((e.base, e.version), ("", ""))
        wrapped = treatment not in ("", "pass")
        flavour = "PerThread" if e.flavour else "Legacy"
        if wrapped:
            treated.append(e.export)
            comma = ", " if e.params else ""
            # A call whose end says that device work has ended, and how many bytes the call names.
            waits = "true" if treatment in WAITS and not e.base.endswith("Async") else "false"
            size = next((n for _, n in e.params if n in ("ByteCount", "bytesize")), "0")
            again = (f"launched(call, {size}, [=](const auto& timed) {{ return {treatment}(timed{comma}{e.arguments}); }})"
                     if treatment in LAUNCHES else
                     f"traced<{waits}>(call, {size}, [=] {{ return {e.export}({e.arguments}); }})")
            hot = "[[gnu::hot]] " if treatment in LAUNCHES else ""
            body.append(
                f'extern "C" {hot}HPE_DOOR {e.returns} CUDAAPI {e.export}({e.declaration}) try {{\n'
                f'    const Call<decltype(&::{e.export})> call({index}, Flavour::{flavour});\n'
                f'    if (passes_through()) [[unlikely]] {{\n'
                f'        if (!is_traced()) return call.straight({e.arguments});\n'
                f'        return {again};\n'
                f'    }}\n'
                f'    return {treatment}(call{comma}{e.arguments});\n'
                f'}} catch (const std::bad_alloc&) {{\n'
                f'    return CUDA_ERROR_OUT_OF_MEMORY;\n'
                f'}}\n'
                f'static_assert(std::is_same_v<decltype(&::{e.export}), {e.pfn}>);\n')
            wrapper = f"reinterpret_cast<void*>(&::{e.export})"
        else:
            body.append(
                f'static {e.returns} CUDAAPI counted_{e.export}({e.declaration}) {{\n'
                f'    const Call<decltype(&::{e.export})> call({index}, Flavour::{flavour});\n'
                f'    return call.counted({e.arguments});\n'
                f'}}\n'
                f'static_assert(std::is_same_v<decltype(&counted_{e.export}), {e.pfn}>);\n')
            wrapper = f"reinterpret_cast<void*>(&counted_{e.export})"
        known = "true" if (e.base, e.version) in rows else "false"
        table.append(f'    {{"{e.export}", {wrapper}, {"true" if wrapped else "false"}, {known}}},\n')
    pathlib.Path(out_cpp).write_text(
        "// Made by scripts/gen_cuda_doors.py; edit shim/doors/cuda_catalog.inc instead.\n"
        '#include "shim/doors/cuda_doors.h"\n\n'
        "using namespace hpe;\nusing namespace hpe::doors;\n\n" + "\n".join(body) +
        "\nnamespace hpe::doors {\nconst DoorEntry door_table[] = {\n" + "".join(table) +
        f"}};\nconst std::size_t door_count = {len(entries)};\n"
        f"constinit std::atomic<void*> door_real[{len(entries)}];\n"
        f"constinit std::atomic<std::uint64_t> door_calls[{len(entries)}];\n"
        "}  // namespace hpe::doors\n")
    libc = re.findall(r"^EXPORT\((\w+)\)", (pathlib.Path(catalog).parent / "libc_exports.inc").read_text(), re.M)
    # An anonymous version: a named one silently stops interposition of versioned symbols.
    pathlib.Path(out_map).write_text("{\n  global:\n" + "".join(f"    {n};\n" for n in libc + treated) + "  local: *;\n};\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

# SPDX-License-Identifier: MIT
"""Functions, files and lines of code, by module and offset: by addr2line, eu-addr2line or llvm-symbolizer, whichever
there is, and by the symbol tables where there are no lines. A file that is another build than the one that ran is not
asked: it would answer something else.
"""
import collections
import http.client
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.request

from elf import Elf, Functions

# line: 0 where it is not known; inlined: into the frame after it; system: no part of the program.
Frame = collections.namedtuple("Frame", "function file line inlined module system")

# What a program stands on, wherever it lies, and where systems keep such libraries.
SYSTEM = re.compile(r"(^|/)(lib(cuda|cudart|hpe)\.so[^/]*|linux-vdso[^/]*)$|^(/usr)?/lib(32|64)?/|^/usr/local/cuda[^/]*/")


def base_name(path):
    return path.rsplit("/", 1)[-1] if path else "?"


class Symbols:
    """folders: where to look for modules, by name, before the places where they were."""

    def __init__(self, folders=()):
        self.folders = [pathlib.Path(folder) for folder in folders]
        self.said = []  # about modules, for people
        self._known = {}
        self._files = {}
        self._folder = None

    def prepare(self, wanted):
        """wanted: (module, offset) pairs; a module is the report's record of it. One run of a tool a module."""
        by_module = collections.defaultdict(set)
        modules = {}
        for module, offset in wanted:
            key = self._key(module)
            if (key, offset) not in self._known:
                by_module[key].add(offset)
                modules[key] = module
        for key, offsets in by_module.items():
            self._ask(key, modules[key], sorted(offsets))

    def frames(self, module, offset):
        """Innermost first; more than one where functions were inlined."""
        key = self._key(module)
        if (key, offset) not in self._known:
            self._ask(key, module, [offset])
        return self._known[key, offset]

    @staticmethod
    def _key(module):
        return (module["path"], module["build_id"]) if module else None

    def _file(self, module):
        """The file of a module, or None with a line in said."""
        path, wanted = module["path"], module["build_id"]
        candidates = [folder / base_name(path) for folder in self.folders] + [pathlib.Path(path or "/nowhere")]
        if wanted:
            candidates.append(pathlib.Path(f"/usr/lib/debug/.build-id/{wanted[:2]}/{wanted[2:]}.debug"))
        others, without_lines = 0, None
        for candidate in candidates:
            try:
                elf = Elf(candidate)
            except (OSError, ValueError):
                continue
            if wanted and elf.build_id() not in (None, wanted):
                others += 1
                continue
            if elf.has_lines():
                return candidate, elf
            without_lines = without_lines or (candidate, elf)
        # Of what a program stands on its exported functions say enough, and its debug information is large.
        found = without_lines if without_lines and SYSTEM.search(path or "") else self._by_debuginfod(wanted)
        if found or without_lines:
            return found or without_lines
        if path and not path.startswith("linux-vdso"):
            self.said.append(f"{path} is another build than the one that ran (build-id {wanted}): its functions are "
                             "not named" if others else f"{path} is not here: its functions are not named")
        return None

    def _by_debuginfod(self, build_id):
        if not build_id or not os.environ.get("DEBUGINFOD_URLS"):
            return None
        for path in found_by_tool(build_id) if shutil.which("debuginfod-find") else self._fetched(build_id):
            try:
                elf = Elf(path)
            except (OSError, ValueError):
                continue
            if elf.build_id() == build_id:
                return path, elf
        return None

    def _fetched(self, build_id):
        """From each server in turn, into a folder that goes with this process."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="hpe-report-")
        path = pathlib.Path(self._folder.name) / build_id
        for url in os.environ["DEBUGINFOD_URLS"].split():
            try:
                with urllib.request.urlopen(f"{url.rstrip('/')}/buildid/{build_id}/debuginfo", timeout=90) as answer:
                    with path.open("wb") as file:
                        shutil.copyfileobj(answer, file)
            except (OSError, ValueError, http.client.HTTPException):  # no such server, or it has no such file
                continue
            yield path

    def _ask(self, key, module, offsets):
        if module is None:
            for offset in offsets:
                self._known[key, offset] = [Frame(f"{offset:#x}", "", 0, False, "?", False)]
            return
        if key not in self._files:
            self._files[key] = self._file(module)
        name = base_name(module["path"])
        system = SYSTEM.search(module["path"] or "") is not None
        answers = {}
        if self._files[key] is not None:
            path, elf = self._files[key]
            answers = lines_of(path, offsets)
            functions = Functions(elf.functions())
        for offset in offsets:
            frames = []
            for i, (function, file, line) in enumerate(answers.get(offset, [])):
                frames.append(Frame(function, file, line, i + 1 < len(answers[offset]), name, system))
            # Without lines a tool names the last symbol in front of the address, which may be another function's.
            if not frames or frames[-1].function is None or not frames[-1].file:
                found = functions.find(offset) if self._files[key] is not None else None
                frames = [Frame(demangled(found) if found else f"{name}+{offset:#x}", "", 0, False, name, system)]
            self._known[key, offset] = frames


def found_by_tool(build_id):
    done = subprocess.run(["debuginfod-find", "debuginfo", build_id], capture_output=True, text=True)
    return [pathlib.Path(done.stdout.strip())] if done.returncode == 0 else []


def demangled(symbol):
    tool = shutil.which("c++filt") or shutil.which("llvm-cxxfilt")
    if not symbol.startswith("_Z") or tool is None:
        return symbol
    return subprocess.run([tool], input=symbol, capture_output=True, text=True).stdout.strip() or symbol


def tidy(file):
    """As people know it: nvcc's intermediate file has the lines of the source, and a path relative to here is shorter."""
    file = os.path.normpath(re.sub(r"^.*/tmpxft_[^/]*?-\d+_([^/]+)\.cudafe1\.cpp$", r"\1.cu", file))
    here = os.getcwd() + os.sep
    return file[len(here):] if file.startswith(here) else file


def with_paths(found):
    """The same places, each file by one name: what came out of nvcc's intermediate file is known by its name alone, and
    gets the path that other places of the same source have."""
    paths = collections.defaultdict(set)
    for _, file, _ in (place for places in found.values() for place in places):
        paths[base_name(file)].add(file)
    whole = {name: (known - {name}).pop() for name, known in paths.items() if len(known) == 2 and name in known}
    return {offset: [(function, whole.get(file, file), line) for function, file, line in places]
            for offset, places in found.items()}


def lines_of(path, offsets):
    """offset -> [(function or None, file, line)], innermost first."""
    for tool, arguments in (("addr2line", ["-a", "-f", "-i", "-C", "-e"]),
                            ("eu-addr2line", ["-a", "-f", "-i", "-C", "-e"]),
                            ("llvm-symbolizer", ["--output-style=GNU", "-a", "-f", "-i", "-C", "-e"])):
        if shutil.which(tool):
            break
    else:
        return {}
    done = subprocess.run([tool, *arguments, str(path)], input="".join(f"{o:#x}\n" for o in offsets), text=True,
                          errors="replace", capture_output=True)
    found, current, function = {}, None, None
    for line in done.stdout.splitlines():
        if line.startswith("0x"):
            current, function = found.setdefault(int(line, 16), []), None
        elif current is None:
            continue
        elif function is None:
            function = line
        else:
            # eu-addr2line adds the column, and to the function where it was inlined.
            place = re.match(r"(.*?):(\d+)(:\d+)?( \(.*\))?$", line)
            known = re.sub(r" inlined at .*", "", function)
            current.append((None if known in ("??", "") else known,
                            tidy(place[1]) if place and not place[1].startswith("??") else "",
                            int(place[2]) if place else 0))
            function = None
    return with_paths(found)

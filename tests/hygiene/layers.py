# SPDX-License-Identifier: MIT
"""The includes of a source tree: which file includes which, and what of it breaks the order of the folders.

An include is looked up as the compiler does: beside the file, then from the root. The order is the one list below.
"""
import re

# Every folder with what it may include of the project besides itself, from below.
BELOW_SHIM = ["protocols", "shim/base"]
SHIM_FOLDERS = ["shim/driver", "shim/memory", "shim/observe", "shim/transfer", "shim/coherence", "shim/copies",
                "shim/ipc", "shim/mpi", "shim/process", "shim/doors"]
BELOW_DRIVER = ["toolchain/softgpu/exec", "toolchain/ptx", "toolchain/fatbin"]
DRIVER_FOLDERS = ["toolchain/softgpu/driver/" + folder for folder in
                  ("base", "device", "context", "stream", "memory", "copy", "module", "launch", "graph")]
MAY_INCLUDE = {
    "protocols": [],
    "shim/base": [],
    **{folder: BELOW_SHIM + SHIM_FOLDERS[:i] for i, folder in enumerate(SHIM_FOLDERS)},
    "shim": BELOW_SHIM + SHIM_FOLDERS,
    "toolchain/fatbin": [],
    "toolchain/ptx": [],
    "toolchain/softgpu/exec": ["toolchain/ptx", "toolchain/fatbin"],
    **{folder: BELOW_DRIVER + DRIVER_FOLDERS[:i] for i, folder in enumerate(DRIVER_FOLDERS)},
    "toolchain/softgpu/driver": BELOW_DRIVER + DRIVER_FOLDERS,
    "toolchain/softgpu/runtime": [],
}
# Where a subject, which is a header with the source of its name, and its users stand in no circle either.
ONE_WAY = ["toolchain"]
SOURCES = (".h", ".cpp", ".c", ".S", ".inc")


def folder_of(path, may_include):
    """The longest name in may_include that the path lies in, or None."""
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        name = "/".join(parts[:length])
        if name in may_include:
            return name
    return None


def includes_of(files):
    """files: path -> text. Returns path -> the project's files that it includes."""
    found = {}
    for path, text in files.items():
        beside = path.rpartition("/")[0]
        found[path] = []
        for name in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', text, re.M):
            for candidate in (beside + "/" + name, name):
                parts = []
                for part in candidate.split("/"):
                    if part == ".." and parts:
                        parts.pop()
                    elif part not in (".", ""):
                        parts.append(part)
                if "/".join(parts) in files:
                    found[path].append("/".join(parts))
                    break
    return found


def circle(edges):
    """One circle of a graph (node -> nodes), as a list of nodes, or None."""
    state = {}
    path = []

    def visit(node):
        state[node] = "open"
        path.append(node)
        for target in edges.get(node, ()):
            if state.get(target) == "open":
                return path[path.index(target):] + [target]
            if target not in state:
                round_trip = visit(target)
                if round_trip:
                    return round_trip
        state[node] = "done"
        path.pop()
        return None

    for node in sorted(edges):
        if node not in state:
            round_trip = visit(node)
            if round_trip:
                return round_trip
    return None


def subjects_of(includes, folders):
    """The includes of the files in those folders, by subject."""
    subjects = {}
    for path, targets in includes.items():
        if any(path.startswith(folder + "/") for folder in folders):
            subject = path.rsplit(".", 1)[0]
            subjects.setdefault(subject, set()).update(target.rsplit(".", 1)[0] for target in targets)
            subjects[subject].discard(subject)
    return subjects


def problems_of(files, may_include=None, one_way=None):
    """What breaks the order in a tree given as path -> text."""
    may_include = MAY_INCLUDE if may_include is None else may_include
    one_way = ONE_WAY if one_way is None else one_way
    problems = []
    includes = includes_of(files)
    between = {}
    for path, targets in includes.items():
        folder = folder_of(path, may_include)
        if folder is None:
            problems.append(f"{path}: in no known folder")
            continue
        for target in targets:
            to = folder_of(target, may_include)
            if to != folder:
                between.setdefault(folder, set()).add(to)
                if to not in may_include[folder]:
                    problems.append(f"{path}: must not include {target}")
        # A header is implemented in its own folder: else its users depend on what lies above them.
        stem = path.rsplit(".", 1)[0].rpartition("/")[2]
        for target in targets:
            own = target.endswith(".h") and target.rsplit(".", 1)[0].rpartition("/")[2] == stem
            if own and path.endswith(".cpp") and target[:-2] + ".cpp" not in files and \
                    target.rpartition("/")[0] != path.rpartition("/")[0]:
                problems.append(f"{path}: implements {target}, a header of another folder")
    for what, edges in (("files", includes), ("subjects", subjects_of(includes, one_way)), ("folders", between)):
        found = circle(edges)
        if found:
            problems.append(f"a circle of {what}: {' -> '.join(found)}")
    return problems

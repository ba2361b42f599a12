#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: files.py OBJECTS PLAIN_IO.PY ARRAY_IO.PY RECORDS.F90

Programs that read and write files, pipes, sockets and data bases: the same bytes under libhpe as without, where they use
no CUDA; and the same as with explicit copies, where libraries read and write objects.
"""
import functools
import http.server
import os
import random
import shutil
import sys
import tempfile
import threading

import neighbours
import soft

library, plain_io, array_io, records = (os.path.abspath(path) for path in sys.argv[1:])
folder = neighbours.folder.name
text = os.path.join(folder, "text")
tree = os.path.join(folder, "tree")
dice = random.Random(3)
os.mkdir(tree)
with open(text, "w") as file:
    file.writelines(f"{dice.getrandbits(40)} {i}\n" for i in range(100000))
for i in range(60):
    with open(os.path.join(tree, f"{i}"), "wb") as file:
        file.write(dice.randbytes(dice.randrange(200000)))
    os.utime(os.path.join(tree, f"{i}"), (1, 1))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/text"
GIT = """cp -rL tree work && cd work && git init -q && git add . && git commit -qm first && rm 1* && git commit -qam second &&
git gc -q && git rev-parse HEAD && git log --stat && git clone -q . ../copy && git -C ../copy fsck --strict"""


def same(name, command, needs, **variables):
    """In a fresh folder each time; `command` is a shell's."""
    if shutil.which(needs) is None:
        return neighbours.lacks(name)
    results = []
    for preload in (True, False):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            os.symlink(tree, os.path.join(own, "tree"))
            results.append(soft.run(["sh", "-c", f"cd {own} && {command}"], preload, **variables))
    if results[1][0] != 0:
        neighbours.problems.append(f"{name} does not work without libhpe: {results[1][2]}")
    neighbours.expect(name, *results)


same("python3", f"{sys.executable} {plain_io} .", sys.executable)
same("tar", "tar --sort=name -chf a.tar tree && cat a.tar && tar -xOf a.tar tree/7 | cksum", "tar")
same("sort", f"sort -S 2M --parallel=4 -T . {text} | cksum && sort -n -k2 -u {text} | tail -3", "sort")
same("gzip", f"gzip -nc {text} > a.gz && cksum < a.gz && gzip -dc a.gz | cksum", "gzip")
same("zstd", f"zstd -q -T3 -c {text} > a.zst && cksum < a.zst && zstd -q -dc a.zst | cksum", "zstd")
same("curl", f"curl -sS -o a {url} && cmp a {text} && curl -sS -T a file://$PWD/b && cksum b", "curl")
same("git", GIT, "git", GIT_AUTHOR_DATE="2020-01-01T00:00:00Z", GIT_COMMITTER_DATE="2020-01-01T00:00:00Z",
     GIT_AUTHOR_NAME="n", GIT_AUTHOR_EMAIL="e", GIT_COMMITTER_NAME="n", GIT_COMMITTER_EMAIL="e",
     GIT_CONFIG_NOSYSTEM=1, HOME=folder)


def objects(name, command):
    """A program of objects: copied explicitly without libhpe, or not at all with it."""
    wanted = soft.run(command, preload=False, OBJECTS="copy")
    if wanted[0] != 0:
        neighbours.problems.append(f"{name} does not work without libhpe: {wanted}")
    for protocol in ("rolling", "lazy", "batch"):
        neighbours.expect(f"{name}, {protocol}", soft.run(command, HPE_PROTOCOL=protocol), wanted)


if soft.run([sys.executable, "-c", "import numpy"], preload=False)[0] == 0:
    if soft.run([sys.executable, "-c", "import h5py"], preload=False)[0] != 0:
        neighbours.lacks("h5py")
    objects("NumPy and HDF5", [sys.executable, array_io, library, folder])
else:
    neighbours.lacks("NumPy")
fortran = neighbours.build(records, "records", "gfortran", "-O1", "-Wl,--no-as-needed", library)
if fortran is not None:
    objects("Fortran", [fortran, os.path.join(folder, "records.bin")])
else:
    neighbours.lacks("Fortran")
server.shutdown()
neighbours.finish()

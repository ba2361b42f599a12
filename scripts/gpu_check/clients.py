# SPDX-License-Identifier: MIT
"""Figures of programs that use no CUDA: what libhpe adds to the time that they spend on processors. From one run to the
next the time that passes differs by more. Processes of a second of files and memory: to start one takes a millisecond
more."""
import pathlib
import random
import shutil
import sys
import tempfile

from compare import environment, in_turn, summary, surely_above, wall_and_processor_ms
from gpu_check.machine import LIBRARY

ROUNDS = 30
# One pair of runs differs from the next by a tenth, so that 30 tell their median to 3 %: surely_above says what is more
# than chance. tests/neighbours/tools.py counts instructions.
RECORDS = """
import hashlib, os, sqlite3
data = os.urandom(1 << 20)
with open("big", "wb") as file:
    for i in range(30000):
        file.write(data[i:i + 4000 + i % 7])
total = hashlib.md5()
with open("big", "rb") as file:
    while piece := file.read(3000):
        total.update(piece)
base = sqlite3.connect("base")
base.execute("create table t(a, b)")
for i in range(20):
    base.executemany("insert into t values(?, ?)", ((i, str(j)) for j in range(10000)))
    base.commit()
assert base.execute("select count(*) from t").fetchone() == (200000,)
base.close()
os.unlink("base")
"""
CLIENTS = {
    "tar": "tar -cf all.tar tree tree tree; tar -xf all.tar -C copy",
    "sort": "sort text >sorted",
    "python3, files and SQLite": f"{sys.executable} records.py",
    "cat and grep through pipes": f"cat {'text ' * 20}| grep -c 77",
}


def processor_ms(command, env):
    return [wall_and_processor_ms(command, env)[0][1]]


def bench_clients(target):
    figures, dice = {}, random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        (at / "tree").mkdir(), (at / "copy").mkdir()
        for i in range(3000):
            (at / "tree" / f"{i}").write_bytes(dice.randbytes(dice.randrange(60000)))
        with open(at / "text", "w") as text:
            text.writelines(f"{dice.getrandbits(60)} {i}\n" for i in range(400000))
        (at / "records.py").write_text(RECORDS)
        for name, command in CLIENTS.items():
            command = ["sh", "-c", f"cd {at} && {command}"]
            if shutil.which(name.split()[0].rstrip(",")) is None:
                continue
            samples = in_turn({"without": (command, environment()), "libhpe": (command, environment(LIBRARY))}, ROUNDS,
                              processor_ms)
            figures[f"{name}, ms of processors"] = summary(samples)
            pairs = [a / b for a, b in zip(samples["libhpe"], samples["without"], strict=True)]
            target(f"{name}: processors' time under libhpe / without", surely_above(pairs), 1.01)
    return figures

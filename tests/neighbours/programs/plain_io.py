# SPDX-License-Identifier: MIT
"""plain_io.py FOLDER: files, pipes, sockets, SQLite and NumPy without CUDA. Prints sums of what came back."""
import hashlib
import mmap
import os
import random
import socket
import sqlite3
import subprocess
import sys
import threading

folder = sys.argv[1]
data = random.Random(5).randbytes(3 << 20)
path = os.path.join(folder, "data")


def told(name, *parts):
    print(name, *(hashlib.sha256(p).hexdigest()[:16] if isinstance(p, (bytes, bytearray)) else p for p in parts))


with open(path, "wb") as file:
    for at in range(0, len(data), 70001):
        file.write(data[at:at + 70001])
with open(path, "r+b", buffering=0) as file:
    parts = [bytearray(100), bytearray(200000), bytearray(1)]
    told("readv", os.readv(file.fileno(), parts), *parts)
    told("preadv", os.preadv(file.fileno(), parts, 12345), *parts)
    told("writev", os.writev(file.fileno(), parts), file.tell())
    told("pwrite", os.pwrite(file.fileno(), data[:1000], 500), os.pread(file.fileno(), 3000, 0))
    told("mmap", bytes(mmap.mmap(file.fileno(), 0)))
with open(path, encoding="latin-1", newline="") as file:
    told("lines", sum(1 for _ in file))
with open(path, "rb") as source, open(path + "2", "wb") as target:
    told("sendfile", os.sendfile(target.fileno(), source.fileno(), 0, len(data)))

listener = socket.create_server(("127.0.0.1", 0))


def serve():
    connection, _ = listener.accept()
    with connection:
        while piece := connection.recv(65536):
            connection.sendall(piece)


thread = threading.Thread(target=serve)
thread.start()
client = socket.create_connection(listener.getsockname())
sender = threading.Thread(target=lambda: (client.sendall(data), client.shutdown(socket.SHUT_WR)))
sender.start()
echo = bytearray()
while piece := client.recv(100000):
    echo += piece
sender.join()
thread.join()
told("echo", echo)
ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
ends[0].sendmsg([b"one", data[:5000]])
room = bytearray(6000)
told("recvmsg", ends[1].recvmsg_into([room])[0], room)
told("child", subprocess.run(["cat"], input=data, capture_output=True).stdout)

base = sqlite3.connect(os.path.join(folder, "base"))
base.execute("pragma journal_mode=wal")
base.execute("drop table if exists words")
base.execute("create table words (number integer, text text, bytes blob)")
base.executemany("insert into words values (?, ?, ?)", ((i, str(i) * 20, data[i:i + i % 900]) for i in range(5000)))
base.commit()
told("rows", *base.execute("select sum(number), count(*), sum(length(bytes)), max(text) from words").fetchone())
base.close()

try:
    import numpy
except ImportError:
    sys.exit()
array = numpy.frombuffer(data, dtype=numpy.uint32).reshape(512, -1)
array[:, ::2].tofile(path + "3")
numpy.save(path + "4.npy", array)
numpy.savez_compressed(path + "5.npz", array=array[:50])
told("numpy", numpy.fromfile(path + "3", dtype=numpy.uint32).tobytes(), numpy.load(path + "4.npy").tobytes(),
     numpy.load(path + "5.npz")["array"].tobytes(), numpy.memmap(path + "3", dtype=numpy.uint32)[::7].tobytes())

# SPDX-License-Identifier: MIT
"""array_io.py LIBRARY FOLDER: objects (objects.cu) as NumPy arrays that libraries read and write. Prints sums of what
came back. Needs NumPy; h5py where it is there."""
import ctypes
import gzip
import hashlib
import os
import pickle
import socket
import sys
import threading

import numpy

library = ctypes.CDLL(sys.argv[1])
library.objects_new.restype = ctypes.c_void_p
library.objects_new.argtypes = [ctypes.c_uint]
library.objects_add.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
COUNT = 1 << 19
path = os.path.join(sys.argv[2], "array")


class Array:
    def __init__(self):
        self.address = library.objects_new(COUNT)
        self.words = numpy.ctypeslib.as_array((ctypes.c_uint32 * COUNT).from_address(self.address))

    def change(self, value):
        library.objects_add(self.address, COUNT, value)
        return self.words


def told(name, *parts):
    print(name, *(hashlib.sha256(p).hexdigest()[:16] if not isinstance(p, int) else p for p in parts))


array, other = Array(), Array()
array.words[:] = numpy.arange(COUNT, dtype=numpy.uint32)
other.words[:] = 7
array.change(3).tofile(path)
told("tofile", open(path, "rb").read())
with open(path, "rb") as file:
    told("readinto", file.readinto(other.change(1)[100:]), other.words)
    other.change(4)[:] = numpy.fromfile(path, dtype=numpy.uint32)
    told("fromfile", other.change(5))
with open(path, "r+b", buffering=0) as file:
    told("preadv", os.preadv(file.fileno(), [array.change(6)[5:100000], other.words[7:70000]], 1000), array.words, other.words)
    told("pwritev", os.pwritev(file.fileno(), [array.change(7)[5:100000], b"text", other.change(1)[7:70000]], 99))
told("file", open(path, "rb").read())
numpy.save(path + ".npy", array.change(8))
other.words[:] = numpy.load(path + ".npy")
told("save and load", other.change(9))
with gzip.open(path + ".gz", "wb", compresslevel=1) as file:
    file.write(array.change(10)[:100000])
with gzip.open(path + ".gz", "rb") as file:
    told("gzip", file.readinto(other.change(1)), other.words)
told("pickle", pickle.loads(pickle.dumps(array.change(11), protocol=5)))
ends = socket.socketpair()
sender = threading.Thread(target=ends[0].sendall, args=(array.change(12),))
sender.start()
view, at = memoryview(other.words).cast("B"), 0
while at < other.words.nbytes:
    at += ends[1].recv_into(view[at:])
sender.join()
told("socket", other.change(13))

try:
    import h5py
except ImportError:
    sys.exit()
with h5py.File(path + ".h5", "w") as file:
    file["plain"] = array.change(14)
    file.create_dataset("packed", data=array.change(15).reshape(512, -1), chunks=(64, 64), compression="gzip")
    file.create_dataset("doubles", data=array.words, dtype="f8")
with h5py.File(path + ".h5", "r") as file:
    file["plain"].read_direct(other.change(16))
    told("plain", other.words)
    file["packed"].read_direct(other.change(17).reshape(512, -1), numpy.s_[10:400], numpy.s_[10:400])
    told("packed", other.change(18))
    file["doubles"].read_direct(other.change(19), numpy.s_[5:5000], numpy.s_[100:5095])
    told("doubles", other.change(20))

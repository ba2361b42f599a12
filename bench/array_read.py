# SPDX-License-Identifier: MIT
"""array_read.py WAY FILE ROUNDS: a file of the page cache into a CuPy array, GB/s, a figure a line after one to warm up.

WAY  usual   numpy.fromfile, then cupy.asarray
     direct  readinto a view of the array, under libhpe
Exits with 1 if the array is not what the file holds.
"""
import ctypes
import sys
import time

import cupy
import numpy

way, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
wanted = numpy.fromfile(path, numpy.uint32)
cupy.cuda.set_allocator(None)  # cudaMalloc
array = cupy.zeros(len(wanted), numpy.uint32)
for i in range(rounds + 1):
    array.fill(i)
    cupy.cuda.runtime.deviceSynchronize()
    begin = time.perf_counter()
    if way == "usual":
        array = cupy.asarray(numpy.fromfile(path, numpy.uint32))
    else:
        view = memoryview((ctypes.c_ubyte * array.nbytes).from_address(array.data.ptr)).cast("B")
        with open(path, "rb", buffering=0) as file:
            if file.readinto(view) != array.nbytes:
                sys.exit("short")
    cupy.cuda.runtime.deviceSynchronize()
    if i > 0:
        print(wanted.nbytes / (time.perf_counter() - begin) / 1e9)
if not bool((array == cupy.asarray(wanted)).all()):
    sys.exit("wrong bytes")

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads a file straight into device memory and writes it straight from there. Under LD_PRELOAD=libhpe.so.

Usage: file_io.py INPUT OUTPUT. What CuPy, Numba or PyTorch allocate by cudaMalloc works alike; ctypes needs none of them.
"""
import ctypes
import os
import sys

cuda = ctypes.CDLL("libcudart.so.13")
size = os.path.getsize(sys.argv[1])
pointer = ctypes.c_void_p()
if cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) != 0:
    sys.exit("cudaMalloc failed")
array = memoryview((ctypes.c_ubyte * size).from_address(pointer.value)).cast("B")

with open(sys.argv[1], "rb", buffering=0) as file:
    if file.readinto(array) != size:
        sys.exit("short")
if cuda.cudaMemset(pointer, ord("-"), ctypes.c_size_t(size // 2)) != 0:  # the device's part of the work
    sys.exit("cudaMemset failed")
with open(sys.argv[2], "wb") as file:
    file.write(array)
print(size, "bytes, the last:", bytes(array[-10:]))

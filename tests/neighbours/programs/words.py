# SPDX-License-Identifier: MIT
"""words.py LIBRARY FILE [crash|handler]: objects (objects.cu) touched by Python threads, by C without the interpreter's
lock and by file reads, while another thread replaces the handler of SIGSEGV and faulthandler's."""
import ctypes
import faulthandler
import gc
import signal
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
library.objects_new.restype = ctypes.c_void_p
for name in ("free", "add", "fill", "round"):
    getattr(library, "objects_" + name).argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 3
library.objects_free.argtypes = [ctypes.c_void_p]
library.objects_add.argtypes = library.objects_round.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
COUNT = 1 << 17


def make():
    address = library.objects_new(COUNT)
    return address, (ctypes.c_uint * COUNT).from_address(address)


def use(seed, wrong):
    words, view = make()
    for turn in range(4):
        for i in range(0, COUNT, 37):
            view[i] = i * seed
        library.objects_add(words, COUNT, turn)
        wrong.append(sum(view[i] != i * seed + turn for i in range(0, COUNT, 37)))
        with open(sys.argv[2], "rb", buffering=0) as file:
            bytes_of = memoryview(view).cast("B")
            wrong.append(file.readinto(bytes_of[4096:4096 + 200000]) != 200000)
            library.objects_add(words, COUNT, 1)
        with open(sys.argv[2], "rb") as file:
            wrong.append(sum(view[1024 + i] != i + 1 for i in range(0, 50000, 11)))
            wrong.append(file.readinto(bytes_of[8192:8192 + 100000]) != 100000 or view[2048 + 9] != 9)
        wrong.append(library.objects_round(words, COUNT, seed))
    library.objects_free(words)


def in_threads():
    wrong = []
    threads = [threading.Thread(target=use, args=(5 + 2 * i, wrong)) for i in range(4)]
    for thread in threads:
        thread.start()
    turns = 0
    while any(thread.is_alive() for thread in threads):
        faulthandler.enable()
        signal.signal(signal.SIGSEGV, lambda number, frame: None)
        faulthandler.disable()
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        faulthandler.enable()
        faulthandler.disable()
        turns += 1
        gc.collect()
    return sum(wrong)


if len(sys.argv) > 3:
    if "before" in sys.argv[3]:
        faulthandler.enable()
    words, _ = make()
    print(library.objects_round(words, COUNT, 3), "wrong, crashes", flush=True)
    if "replaced" in sys.argv[3]:
        print(in_threads(), "wrong in threads", flush=True)
    if "after" in sys.argv[3]:
        faulthandler.enable()
    library.objects_crash()
total = []
use(3, total)
print(sum(total), "wrong")
print(in_threads(), "wrong in threads")

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: report_places.py FOLDER

The line that a report names for a stack, whatever the compiler made of a launch, and of what lies in whose files.
FOLDER: scripts/report.
"""
import sys

sys.path.insert(0, sys.argv[1])
import symbols  # noqa: E402
import text  # noqa: E402

MADE = "/tmp/tmpxft_1-6_a.cudafe1.stub.c"


class Known:
    """Frames as they were written down."""

    def __init__(self, frames):
        self.all = frames

    def frames(self, _module, offset):
        return [self.all[offset]]


class Stack:
    def __init__(self, frames):
        self.frames = [(0, i) for i in range(len(frames))]


def frame(function, file="", line=0, inlined=False, path="/home/a/app"):
    return symbols.Frame(function, file, line, inlined, path.rsplit("/", 1)[-1], symbols.SYSTEM.search(path) is not None)


DRIVER = [frame("cudaLaunchKernel", path="/opt/x/lib/libcudart.so.13")]
MAIN = frame("main", "a.cu", 90)
CASES = {
    "kernel and stub": (
        [frame("__device_stub__Z4stepPf(float*)", MADE, 1), frame("step(float*)", "a.cu", 3), frame("run", "a.cu", 9)],
        "a.cu:9"),
    "the kernel's function is missing": (
        [frame("__device_stub__Z4stepPf(float*)"), frame("run(float*)"), frame("main")], "run(float*)"),
    "it and its caller are missing": (
        [frame("__device_stub__Z4stepPf", MADE, 1)], "a.cu:90"),
    "a template has one more": (
        [frame("__device_stub__Z4stepIfEvPT_(float*)", MADE, 1), frame("__wrapper__device_stub_step<float>", MADE, 2),
         frame("void step<float>(float*)", "a.cu", 3), frame("run", "a.cu", 9)], "a.cu:9"),
    "all inlined": (
        [frame("__device_stub__Z4stepIfEvPT_", MADE, 1), frame("run", MADE, 2, True), frame("step<float>", "a.cu", 3, True),
         frame("run", "a.cu", 9)], "a.cu:9"),
    "a static one inlined": (
        [frame("__device_stub__Z4stepPf", MADE, 1), frame("run", "a.cu", 3, True), frame("run", "a.cu", 9)], "a.cu:9"),
    "the caller inlined": (
        [frame("__device_stub__Z4stepPf", MADE, 1), frame("run", "a.cu", 9, True)], "a.cu:9"),
    "in no namespace": (
        [frame("__device_stub__ZN12_GLOBAL__N_14stepEPf", MADE, 1), frame("(anonymous namespace)::step(float*)", "a.cu", 3),
         frame("run", "a.cu", 9)], "a.cu:9"),
    "a template of a lambda": (
        [frame("__device_stub__Z3runI16__nv_dl_wrapper_tI11__nv_dl_tagIPFvPfiEXadL_Z4workS2_iEELj1EEJEEEvT_i", MADE, 1),
         frame("void run<__nv_dl_wrapper_t<__nv_dl_tag<void (*)(float*, int), &work, 1u>> >(__nv_dl_wrapper_t<__nv_dl_tag"
               "<void (*)(float*, int), &work, 1u>>, int)", "a.cu", 3), frame("work", "a.cu", 9)], "a.cu:9"),
    "with a C name": (
        [frame("__device_stub__step", MADE, 1), frame("step", "a.cu", 3), frame("run", "a.cu", 9)], "a.cu:9"),
    "a compiler's header": (
        [frame("_mm_add_ps", "/opt/gcc/12/lib/gcc/x86_64-linux-gnu/12/include/xmmintrin.h", 186, True),
         frame("less", "/opt/gcc/12/include/c++/12/bits/predefined_ops.h", 45, True), frame("run", "a.cu", 9)], "a.cu:9"),
    "a library with a name like a driver's": (
        [frame("user", "user.cu", 7, path="/home/a/lib/libcuda-kernels.so")], "user.cu:7"),
    "a driver": ([frame("cuMemcpy", path="/home/a/lib/libcuda.so.1")], "a.cu:90"),
}

wrong = []
for name, (frames, wanted) in CASES.items():
    frames = DRIVER + frames + ([MAIN] if frames[-1].function != "main" else [])
    place = text.place_of(Stack(frames), Known(frames))
    got = f"{place.file}:{place.line}" if place.line else place.function
    if got != wanted:
        wrong.append(f"{name}: {got}, not {wanted}")
got = symbols.with_paths({1: [("run", "a.cu", 9), ("main", "/home/a/a.cu", 90)], 2: [("put", "b.cu", 5)],
                          3: [("get", "c.cu", 1)], 4: [("x", "/one/c.cu", 2)], 5: [("y", "/two/c.cu", 3)]})
if [place[1] for places in got.values() for place in places] != ["/home/a/a.cu", "/home/a/a.cu", "b.cu", "c.cu", "/one/c.cu",
                                                                 "/two/c.cu"]:
    wrong.append(f"paths: {got}")
inlined = DRIVER + [frame("main", "/usr/local/cuda/include/cuda_runtime.h", 879, True), MAIN]
calls = [f.line for f in text.calls_of(Stack(inlined), Known(inlined))]
if calls != [879, 90]:
    wrong.append(f"calls up to main: {calls}")
print("\n".join(wrong) or f"{len(CASES)} places")
sys.exit(1 if wrong else 0)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The device's compute capability decides which PTX of a program runs; what it can be is HPE_SOFT_COMPUTE's to say.

usage: compute.py ALL NEW SPECIFIC    programs compiled for 75, 80, 90 and 100; for 100; for 90a
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "doors"))
import soft  # noqa: E402

DEVICES = {
    "7.5": "1024 threads, 16 blocks, 64 KiB of 64 KiB",
    "8.0": "2048 threads, 32 blocks, 163 KiB of 164 KiB",
    "8.6": "1536 threads, 16 blocks, 99 KiB of 100 KiB",
    "8.7": "1536 threads, 16 blocks, 163 KiB of 164 KiB",
    "8.9": "1536 threads, 24 blocks, 99 KiB of 100 KiB",
    "9.0": "2048 threads, 32 blocks, 227 KiB of 228 KiB",
    "10.0": "2048 threads, 32 blocks, 227 KiB of 228 KiB",
}
failed = 0


def expect(program, wanted, message="", status=0, **variables):
    global failed
    got, out, errors = soft.run([program], preload=False, **variables)
    text, said = out.decode(), errors.decode()
    if got == status and text == wanted and (message in said if message else not said):
        return
    failed = 1
    print(f"{soft.shown([program], variables)}: status {got}, printed {text!r} and {said!r}")
    print(f"    instead of status {status}, {wanted!r} and {message!r}")


def main():
    every, new, specific = sys.argv[1:4]
    device = lambda name: f"device {name}: {DEVICES[name]}\n"
    runs = {"7.5": 75, "8.0": 80, "8.6": 80, "8.7": 80, "8.9": 80, "9.0": 90, "10.0": 100}
    expect(every, device("10.0") + "runs 100\n")
    for name, version in runs.items():
        expect(every, device(name) + f"runs {version}\n", HPE_SOFT_COMPUTE=name)
    expect(new, device("10.0") + "runs 100\n")
    expect(new, device("9.0") + "cudaErrorNoKernelImageForDevice\n", "PTX is for compute capability 10.0",
           HPE_SOFT_COMPUTE="9.0")
    expect(specific, device("9.0") + "runs 90 specific\n", HPE_SOFT_COMPUTE="9.0")
    expect(specific, device("10.0") + "runs 90 specific\n")
    for bad in ("9", "9.1", "12.0", "90", "nonsense", "9.0 "):
        got, out, errors = soft.run([new], preload=False, HPE_SOFT_COMPUTE=bad)
        line = f"HPE_SOFT_COMPUTE: '{bad}' is not accepted; accepted is one of 7.5, 8.0, 8.6, 8.7, 8.9, 9.0, 10.0"
        if got == 0 or line not in errors.decode():
            global failed
            failed = 1
            print(f"HPE_SOFT_COMPUTE='{bad}': status {got}, {errors.decode()!r}")
    return failed


if __name__ == "__main__":
    sys.exit(main())

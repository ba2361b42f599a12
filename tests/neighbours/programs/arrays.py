#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: arrays.py [CASE]

NumPy reads and writes the memory of a Python library's arrays through their bare pointers, in between of what the
library does with them on the GPU, and both see what the other wrote. Prints "CASE: right". Exits 1 where a number is
wrong, 77 where the library is not there. Without CASE: prints all cases, each with a library and one of its allocators.
"""
import ctypes
import os
import sys

CASES = {}  # the function, and variables of the environment that choose its allocator


def case(function):
    """Of a function that returns make(values), twice(array), pointer(array), copied(array), and chooses the allocator."""
    CASES[function.__name__] = (function, {})


def cupy_arrays(cupy):
    return (cupy.array, lambda array: array * 2, lambda array: array.data.ptr, cupy.asnumpy)


@case
def cupy_pool():
    import cupy
    return cupy_arrays(cupy)


@case
def cupy_async_pool():
    import cupy
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    return cupy_arrays(cupy)


@case
def cupy_without_pool():
    import cupy
    cupy.cuda.set_allocator(None)
    return cupy_arrays(cupy)


@case
def pieces_of_one_allocation():
    """As RAPIDS' pool (RMM) does it."""
    import cupy
    whole = cupy.cuda.Memory(1 << 30)
    end = 0

    def allocate(size):
        nonlocal end
        at, end = end, (end + size + 255) // 256 * 256
        if end > whole.size:
            at, end = 0, (size + 255) // 256 * 256
        return cupy.cuda.MemoryPointer(whole, at)
    cupy.cuda.set_allocator(allocate)
    return cupy_arrays(cupy)


@case
def rmm_pool():
    import cupy
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator
    rmm.reinitialize(pool_allocator=True, initial_pool_size=1 << 30)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    return cupy_arrays(cupy)


def torch_tensors():
    import torch
    torch.zeros(1).cuda()
    return (lambda values: torch.from_numpy(values).cuda(), lambda tensor: tensor * 2, lambda tensor: tensor.data_ptr(),
            lambda tensor: tensor.cpu().numpy())


CASES |= {
    "torch_default": (torch_tensors, {}),
    "torch_expandable_segments": (torch_tensors, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "torch_async": (torch_tensors, {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})}


def jax_arrays():
    import jax
    import jax.numpy as jnp
    device = jax.devices("gpu")[0]
    double = jax.jit(lambda array: array * 2)
    # jnp.copy: what is brought to the host once is not brought again.
    return (lambda values: jax.device_put(values, device).block_until_ready(),
            lambda array: double(array).block_until_ready(),
            lambda array: array.unsafe_buffer_pointer(), lambda array: numpy.asarray(jnp.copy(array)))


CASES |= {
    "jax_reserved": (jax_arrays, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2"}),
    "jax_growing": (jax_arrays, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    "jax_platform": (jax_arrays, {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}),
    "jax_async": (jax_arrays, {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2"}),
    "jax_vmm": (jax_arrays, {"XLA_PYTHON_CLIENT_ALLOCATOR": "vmm", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2"})}


@case
def numba_arrays():
    from numba import cuda

    @cuda.jit
    def double(to, values):
        i = cuda.grid(1)
        if i < values.size:
            to[i] = values[i] * 2

    def twice(array):
        to = cuda.device_array_like(array)
        double[(array.size + 127) // 128, 128](to, array)
        return to
    twice(cuda.to_device(numpy.zeros(1, dtype=numpy.float32)))  # where Numba and NumPy do not fit, this says so
    return (cuda.to_device, twice, lambda array: array.__cuda_array_interface__["data"][0],
            lambda array: array.copy_to_host())


def view(pointer, count):
    return numpy.ctypeslib.as_array((ctypes.c_float * count).from_address(pointer))


def wrong(make, twice, pointer, copied):
    """How many numbers were wrong, and looked at."""
    bad, seen = 0, 0

    def compare(found, wanted):
        nonlocal bad, seen
        bad += int((found != wanted).sum())
        seen += wanted.size
    for turn in range(3):
        arrays = []
        for count in (1, 100, 1000, 100_003, 3_000_001) * 2:
            values = numpy.arange(count, dtype=numpy.float32) % 1001 + turn
            arrays.append([make(values), values])
        for turn_of_all in range(4):
            for one in arrays:
                array, values = one
                host = view(pointer(array), values.size)
                compare(host, values)
                host[turn_of_all::7] += 3
                values[turn_of_all::7] += 3
            for one in arrays:
                one[0], one[1] = twice(one[0]), one[1] * 2
            for array, values in arrays[::3]:
                compare(copied(array), values)
    return bad, seen


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(*CASES, sep="\n")
        sys.exit()
    name = sys.argv[1]
    function, variables = CASES[name]
    os.environ.update(variables)
    try:
        import numpy
        library = function()
    except Exception as missing:  # whoever runs this looks whether it is so without libhpe, too
        print(f"{name}: {missing}")
        sys.exit(77)
    bad, seen = wrong(*library)
    print(f"{name}: {'right' if bad == 0 else f'{bad} of {seen} numbers WRONG'}")
    sys.exit(bad != 0)

# SPDX-License-Identifier: MIT
"""Figures of one pointer against other kinds of memory, of allocations, launches, start-up and copies between GPUs."""
import statistics

from compare import (compare, environment, from_first_copy, in_step, in_turn, is_undecided, printed_numbers, summary,
                     surely_above, times, wall_and_processor_ms)
from gpu_check.machine import BUILD, LIBRARY, SHARED_RUNTIME

START_UP = ("start-up of an empty CUDA program, ms", "start-up of an empty CUDA program, ms of processor time")
FIRST_COPIES = ("both copies, ms", "from the first copy to the end, ms",
                "from the first copy to the end, ms of processor time", "whole life, ms of processor time")


def bench(target):
    """Figures."""
    launch, memory = (str(BUILD / "bench" / name) for name in ("launch", "memory"))
    plain, with_hpe = environment(), environment(LIBRARY)
    figures = {}

    def launches(command, env):
        """Of one process: nanoseconds a launch through the function given, and through the driver's own, in turn."""
        numbers = printed_numbers(command, env)
        return statistics.median(numbers[0::2]), statistics.median(numbers[1::2])

    title = "launch, enqueue, ns (the function given to the program against the driver's own, in one process)"
    figures[title] = {}
    for name, env in (("control, without libhpe", plain), ("libhpe", with_hpe),
                      ("libhpe, HPE_TRACE", {**with_hpe, "HPE_TRACE": "/dev/null"})):
        pairs = [launches([launch, "100000"], env) for _ in range(7)]
        figures[title][name] = {"given": statistics.median(p[0] for p in pairs),
                                "own": statistics.median(p[1] for p in pairs),
                                "ratio": round(statistics.median(p[0] / p[1] for p in pairs), 4), "processes": len(pairs)}
    target("launch enqueue, given / own", figures[title]["libhpe"]["ratio"], 1.02)
    target("launch enqueue, with HPE_TRACE / without",
           figures[title]["libhpe, HPE_TRACE"]["ratio"] / figures[title]["libhpe"]["ratio"], 1.05)
    # A third of a second each, and from one to the next tens of milliseconds apart, in processor time as well: hence pairs.
    starts = in_turn({"without libhpe": ([launch, "startup"], plain), "libhpe": ([launch, "startup"], with_hpe)}, rounds=40,
                     measure=wall_and_processor_ms)
    for column, title in enumerate(START_UP):
        figures[title] = summary({name: [sample[column] for sample in samples] for name, samples in starts.items()})
    one_pointer = {f"one pointer, {p}": environment(LIBRARY, HPE_PROTOCOL=p) for p in ("rolling", "lazy", "batch")}

    def every_memory(work, *more):
        contenders = {m: ([memory, work, m, *more], plain) for m in ("pageable", "pinned", "managed", "prefetched")}
        contenders |= {name: ([memory, work, "one_pointer", *more], env) for name, env in one_pointer.items()}
        # A program that copies explicitly, from memory it did not pin, and does not know of libhpe.
        contenders["pageable, libhpe"] = ([memory, work, "pageable", *more], with_hpe)
        return contenders

    # Most of it is what the CPU takes for its part, which drifts by a tenth from one second to the next.
    vector_add = in_step(every_memory("vector_add", str(64 << 20), "asked"), rounds=12)
    figures["vector add of 64 Mi floats, ms"] = summary(vector_add)
    figures["CPU touches one element a MiB after the kernel, ms"] = compare(every_memory("sparse"), rounds=2)

    contenders = {m: ([memory, "short_lived", m], plain) for m in ("pageable", "pinned", "managed", "prefetched")}
    contenders["one pointer, rolling"] = ([memory, "short_lived", "one_pointer"], with_hpe)
    contenders["pageable, libhpe"] = ([memory, "short_lived", "pageable"], with_hpe)
    figures["vector add of 8 Mi floats, allocated and freed, ms"] = compare(contenders, rounds=2)
    contenders = {"managed": ([memory, "scattered", "managed"], plain), "blocks as accesses go":
                  ([memory, "scattered", "one_pointer"], with_hpe)}
    contenders |= {f"blocks of {size}": ([memory, "scattered", "one_pointer"], {**with_hpe, "HPE_BLOCK_SIZE": size})
                   for size in ("4K", "16K", "64K", "256K", "1M")}
    figures["10,000 elements of 1 GiB written anywhere, ms"] = compare(contenders, rounds=1)

    def median(title, name):
        return figures[title][name]["median"]

    target(f"more than without: {START_UP[0]}", figures[START_UP[0]]["libhpe"]["more"], 5)
    target("vector add, one pointer / managed", times(vector_add, "one pointer, rolling", "managed"), 1.0)
    target("vector add, one pointer / pinned by hand", times(vector_add, "one pointer, rolling", "pinned"), 1.0)
    target("vector add, unmodified, libhpe / pinned by hand", times(vector_add, "pageable, libhpe", "pinned"), 1.1)
    title = "CPU touches one element a MiB after the kernel, ms"
    target("sparse, one pointer / managed", median(title, "one pointer, rolling") / median(title, "managed"), 0.5)
    target("sparse, one pointer, ms", median(title, "one pointer, rolling"), 5)
    title = "vector add of 8 Mi floats, allocated and freed, ms"
    target("short-lived arrays, one pointer / managed, prefetched",
           median(title, "one pointer, rolling") / median(title, "prefetched"), 1.0)
    title = "10,000 elements of 1 GiB written anywhere, ms"
    best = min(f["median"] for name, f in figures[title].items() if name.startswith("blocks of"))
    target("scattered writes, blocks as accesses go / the best fixed size",
           median(title, "blocks as accesses go") / best, 2.0)
    return figures


def bench_first_copies(target):
    """Figures: what programs that copy so much once each way take with libhpe and without it, in turn."""
    figures = {}
    # No target for the time to the end: how long a process takes to end varies by some 10 ms from one to the next and from
    # machine to machine, which is the driver's doing (docs/hardware.md). What libhpe does meanwhile is processor time.
    limits = (1, None, 2, None)
    for size in (1, 8, 64):
        command = [str(BUILD / "bench/first_copy"), str(size)]
        contenders = {"without libhpe": (command, environment(**SHARED_RUNTIME)),
                      "libhpe": (command, environment(LIBRARY, **SHARED_RUNTIME))}
        samples = {name: [] for name in contenders}

        def undecided():
            pairs = list(zip(samples["libhpe"], samples["without libhpe"]))
            return any(is_undecided([mine[column] - own[column] for mine, own in pairs], most)
                       for column, most in enumerate(limits) if most is not None)

        # A pair takes a second or two.
        while not samples["libhpe"] or (undecided() and len(samples["libhpe"]) < 80):
            for name, more in in_turn(contenders, rounds=20, measure=from_first_copy).items():
                samples[name] += more
        for column, (what, most) in enumerate(zip(FIRST_COPIES, limits)):
            title = f"{size} MiB copied once each way, {what}"
            figures[title] = summary({name: [sample[column] for sample in runs] for name, runs in samples.items()})
            if most is not None:
                target(f"more than without: {title}", figures[title]["libhpe"]["more"], most)
    return figures


def bench_peers(target):
    """Figures."""
    peer = str(BUILD / "bench/peer")
    plain, with_hpe = environment(), environment(LIBRARY)
    figures = {"peer copy of 256 MiB, GB/s": compare(
        {"peer access never enabled": ([peer, "never"], plain), "enabled by hand": ([peer, "enabled"], plain),
         "libhpe, never enabled": ([peer, "never"], with_hpe)}, rounds=3)}
    direct = figures["peer copy of 256 MiB, GB/s"]
    if direct["enabled by hand"]["median"] >= 300:  # NVLink
        target("peer copy, peer access never enabled by the program, GB/s", direct["libhpe, never enabled"]["median"], 300,
               "at least")
    return figures


def bench_objects(target):
    """Figures: allocations by number and size."""
    program = str(BUILD / "bench/objects")
    plain, with_hpe = environment(**SHARED_RUNTIME), environment(LIBRARY, **SHARED_RUNTIME)
    figures = {}
    for kind, called in (("device", "cudaMalloc and cudaFree"), ("stream", "cudaMallocAsync and cudaFreeAsync")):
        for size, shown in ((4 << 10, "4 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")):
            title = f"{called} of {shown} that the CPU never touches, us"
            numbers = [n for _ in range(3) for n in printed_numbers([program, "pairs", kind, str(size)], with_hpe)]
            figures[title] = summary({"without libhpe": numbers[1::2], "libhpe": numbers[0::2]})
            # The driver takes 3 to 150 us for a pair, and one pair of 64 MiB differs from the next by tens.
            more = [ours - drivers for ours, drivers in zip(numbers[0::2], numbers[1::2], strict=True)]
            target(f"more than without: {title}", surely_above(more), 0.3)
            if (kind, shown) == ("device", "64 MiB"):
                # What no comparison within one process shows: whether the driver's own calls take longer in it.
                alone = [n for _ in range(3) for n in printed_numbers([program, "pairs", kind, str(size)], plain)]
                target(f"{called} of {shown}, the driver's own, best, beside libhpe / without",
                       min(numbers[1::2]) / min(alone), 1.1)
    parts = ("first write to all of each, us each", "launch that uses all, ms", "first read of each, us each",
             "a launch after that, ms")
    for count, size, shown in ((60_000, 16 << 10, "16 KiB"), (1_000_000, 256, "256 bytes")):
        samples = {}
        for name, kind, env in (("managed", "managed", plain), ("libhpe", "device", with_hpe)):
            samples[name] = [printed_numbers([program, "many", kind, str(size), str(count)], env) for _ in range(3)]
        for row, part in enumerate(parts):
            title = f"{count} objects of {shown}: {part}"
            figures[title] = summary({name: [numbers[row] for numbers in runs] for name, runs in samples.items()})
            target(f"{title}, libhpe / managed",
                   figures[title]["libhpe"]["median"] / figures[title]["managed"]["median"], 1.0)
    for count in (10_000, 1_000_000):
        card, drivers = printed_numbers([program, "taken", "device", "256", str(count)], plain)
        with_it, own = printed_numbers([program, "taken", "device", "256", str(count), "touched"], with_hpe)
        target(f"{count} objects of 256 bytes, memory of the card, libhpe / without", with_it / card, 1.0)
        target(f"{count} objects of 256 bytes, all touched, libhpe's own memory each, bytes", own - drivers, 200)
    title = "first write to 16 GiB by one thread, s"
    figures[title] = compare({"managed": ([program, "touch", "managed", "16"], plain),
                              "libhpe": ([program, "touch", "device", "16"], with_hpe)}, rounds=1)
    target(f"{title}, libhpe / managed", figures[title]["libhpe"]["median"] / figures[title]["managed"]["median"], 1.0)
    return figures

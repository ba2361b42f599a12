# SPDX-License-Identifier: MIT
"""What could be saved at a call stack, and how: classes of waste in order, each of which takes its share of the time
that the stack took, so that no second is promised twice.

The sentences keep to the words of NVIDIA's CUDA C++ Programming Guide and Best Practices Guide.
"""
import collections

# Bytes a second of pinned memory, where the report has no such copies of its own to tell: PCIe 4.0 x16.
PINNED_RATE = 25e9
# A copy below this says more of the call than of the way.
LARGE = 1 << 20
# What a slow copy takes: the rest of a call that waits is taken for waiting for earlier work of the device, which no
# change of the copy saves.
SLOW_RATE, SLOW_CALL = 4e9, 20e-6
# Of a stack's time: less is not worth a sentence.
LEAST = 0.01

Advice = collections.namedtuple("Advice", "kind seconds text")


def size(n):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 10000 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024


def times(n):
    return "once" if n == 1 else f"{n} times"


def pinned_rate(stacks):
    best = max((s.costs.get("pinned_sync_bytes", 0) / s.costs["pinned_sync_seconds"] for s in stacks
                if s.costs.get("pinned_sync_seconds", 0) > 0 and s.costs["pinned_sync_bytes"] >= LARGE * s.costs["count"]),
               default=0)
    return best or PINNED_RATE


def copied_bytes(c):
    return c["to_device_bytes"] + c["to_host_bytes"]


def own_seconds(c):
    """Of a call: what its copies may have taken, or all of it."""
    if not copied_bytes(c):
        return c["seconds"]
    return min(c["seconds"], copied_bytes(c) / SLOW_RATE + c["count"] * SLOW_CALL)


def classes(stack, rate):
    """(kind, seconds, sentence), the surest first."""
    c = collections.Counter(stack.costs)
    n = c["count"]
    if copied_bytes(c) and c["seconds"] > 0:
        own = own_seconds(c) / c["seconds"]
        for key in ("sent_again_seconds", "back_unchanged_seconds", "unread_seconds", "pageable_seconds",
                    "pinned_sync_seconds"):
            c[key] *= own
    if c["sent_again_bytes"]:
        yield ("sent again", c["sent_again_seconds"],
               f"{size(c['sent_again_bytes'])} of {size(c['to_device_bytes'])} were the same bytes that this device "
               "memory had been sent before. Minimize data transfer between host and device: send what no kernel "
               "changes once, and let it stay on the device.")
    if c["back_unchanged_bytes"]:
        yield ("brought back unchanged", c["back_unchanged_seconds"],
               f"{size(c['back_unchanged_bytes'])} of {size(c['to_host_bytes'])} came back as they were sent, or as "
               "they had come before. Minimize data transfer between host and device: leave out the copy, or copy only "
               "what a kernel has changed.")
    if c["unread_bytes"]:
        yield ("brought and never looked at", c["unread_seconds"],
               f"{size(c['unread_bytes'])} of {size(c['to_host_bytes'])} were not looked at before they were overwritten "
               "or freed, or the process ended. Intermediate data structures may be created in device memory, operated "
               "on by the device, and destroyed without ever being copied to host memory: leave out the copy, or copy "
               "only what the CPU reads.")
    if c["renewed"] or c["renewed_seconds"]:
        yield ("allocated again and again", c["renewed_seconds"],
               ("Memory of a size that had been freed was allocated " + times(c["renewed"]) + ". " if c["renewed"] else
                "What is freed here was allocated again and again. ") +
               "cudaMalloc and cudaFree are expensive, and cudaFree may synchronize: allocate once and reuse the "
               "memory, or use the stream-ordered allocator (cudaMallocAsync).")
    if c["waits_not_needed"]:
        yield ("wait not needed", c["waits_not_needed_seconds"],
               f"{c['waits_not_needed']} of {n} waits were followed by new work for the device before the CPU looked at "
               "any result. Work of one stream is executed in order without it: synchronize only where the host needs "
               "a result.")
    # Pinning takes as long as a copy or longer; of a small copy the call is what takes time.
    if c["pageable_bytes"] >= n * LARGE / 16 and n > 1:
        gain = max(0.0, min(c["pageable_seconds"], c["pageable_bytes"] / SLOW_RATE) - c["pageable_bytes"] / rate)
        yield ("not pinned", gain,
               f"{size(c['pageable_bytes'])} were copied from or to pageable memory. Page-locked (pinned) memory "
               "attains the highest bandwidth between host and device: cudaMallocHost, or cudaHostRegister for memory "
               "that is there.")
    # A small one is waited for because the CPU looks at it.
    if c["pinned_sync_bytes"] >= n * LARGE / 16 > 0:
        yield ("synchronous", c["pinned_sync_seconds"],
               f"The memory is pinned, yet the call waits for {size(c['pinned_sync_bytes'])} to arrive. "
               "cudaMemcpyAsync in a stream overlaps the copy with other work.")
    if "fault" in stack.what:
        took = c["seconds"] - c["wait_seconds"]
        each = c["fetched_bytes"] / n
        text = (f"{size(c['fetched_bytes'])} came to the host by {n} access{'' if n == 1 else 'es'} that trapped ({size(each)} each). "
                if c["fetched_bytes"] else f"The CPU took up writing {times(n)}. ")
        if each < 65536 and n >= 16:
            text += ("Many small transfers cost more than a large one: batch them, by reading or writing what lies "
                     "together at once, or let a kernel do this step.")
        else:
            text += "Let a kernel do this step, so that the data stay on the device, or do it less often."
        yield ("access of the CPU", took, text)
    elif c["flushed_bytes"]:
        yield ("written by the CPU", c["seconds"] - c["wait_seconds"],
               f"Before it {size(c['flushed_bytes'])} that the CPU had written were sent. Let a kernel write them, so "
               "that the data stay on the device, or write fewer of them.")


def advise(stack, rate):
    """The advice for a stack, the most seconds first."""
    left, found = own_seconds(collections.Counter(stack.costs)), []
    for kind, seconds, text in classes(stack, rate):
        share = max(0.0, min(seconds, left))
        left -= share
        if share > LEAST * stack.costs["seconds"]:
            found.append(Advice(kind, share, text))
    return sorted(found, key=lambda a: -a.seconds)

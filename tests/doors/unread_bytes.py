# SPDX-License-Identifier: MIT
"""What nobody looked at, of the copies of each case of programs/unread.cu, and what a report says of it."""
import json

PAGE = 4096


def pages(size, offset=16):
    """Of a copy to so many bytes behind the beginning of a page: malloc's header is there."""
    return (offset + size) // PAGE * PAGE - -(-offset // PAGE) * PAGE


WHOLE = pages(1200000)
EXPECTED = {
    "never": WHOLE,
    "overwritten": 3 * WHOLE,
    "freed": 4 * WHOLE,
    "partly": WHOLE,
    "first_only": WHOLE,
    "pieces": pages(400000) + pages(400000, 800016),
    "part_again": pages(400000),
    # As aligned_alloc places it; of each the second copy.
    "aligned": pages(1200000, 64) + 2 * pages(1200000, 0),
    "asynchronous_large": 2 * pages(2 * 1200000),
    "protect": WHOLE,  # the second copy's
    "nothing": WHOLE,
    "reused": WHOLE,
    "threads_copy": 4 * 10 * 2 * WHOLE,
    "forked": WHOLE,
    "at_exit": WHOLE,  # looked at when the report was written
}


def unread(path):
    """Bytes of all call stacks; and sentences about stacks whose figures cannot be, or about a lack of stacks."""
    section = json.loads(path.read_text())["call_stacks"]
    if section is None:
        return 0, ["the report has no call stacks"]
    stacks = [s for s in section["stacks"] if "unread_bytes" in s]
    wrong = [f"a part that is more than the whole: {s}" for s in stacks
             if not 0 < s["unread_seconds"] <= s["seconds"] or s["unread_bytes"] > s["to_host_bytes"]]
    return sum(s["unread_bytes"] for s in stacks), wrong

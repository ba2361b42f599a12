# SPDX-License-Identifier: MIT
"""Flame graphs: collapsed stacks ("a;b;c N", which flamegraph.pl and speedscope open), and an SVG drawn here."""
import collections
import html
import zlib

WEIGHTS = {
    "time": lambda c: round(c.get("seconds", 0) * 1e6),  # microseconds
    "bytes": lambda c: sum(c.get(k, 0) for k in ("fetched_bytes", "flushed_bytes", "to_device_bytes", "to_host_bytes")),
    "faults": lambda c: c.get("count", 0),
}
UNITS = {"time": "us", "bytes": "B", "faults": "faults"}


def names_of(stack, symbols):
    """The outermost first, with what happened last."""
    names = []
    for module, offset in reversed(stack.frames):
        names += [f.function or f.module for f in reversed(symbols.frames(module, offset))]
    return (["[callers not known]"] if stack.cut else []) + names + [stack.what]


def collapsed(stacks, symbols, weight):
    """name;name;name -> weight"""
    found = collections.Counter()
    for stack in stacks:
        if weight == "faults" and "fault" not in stack.what:
            continue
        much = WEIGHTS[weight](stack.costs)
        if much:
            found[";".join(name.replace(";", ":") for name in names_of(stack, symbols))] += much
    return found


class Node:
    def __init__(self, name):
        self.name, self.weight, self.children = name, 0, {}


def tree(lines):
    root = Node("all")
    for line, weight in lines.items():
        root.weight += weight
        node = root
        for name in line.split(";"):
            node = node.children.setdefault(name, Node(name))
            node.weight += weight
    return root


WIDTH, ROW, CHARACTER = 1200, 18, 6.6


def colour(name):
    """The same for a name in every picture: calls of CUDA and accesses green and blue, others warm."""
    spread = zlib.crc32(name.encode()) % 60
    if name.endswith("fault"):
        return f"hsl(210,65%,{58 + spread // 4}%)"
    if name.startswith("cu"):
        return f"hsl(140,45%,{52 + spread // 4}%)"
    return f"hsl({10 + spread * 0.6:.0f},80%,{60 + spread // 6}%)"


def svg(lines, title, unit):
    """Callers below, what they called above; the width is the weight. Each box says its numbers under the pointer."""
    root, boxes, deepest = tree(lines), [], 0

    def place(node, left, depth):
        nonlocal deepest
        wide = WIDTH * node.weight / root.weight if root.weight else 0
        if wide < 0.3:
            return
        deepest = max(deepest, depth)
        boxes.append((node, left, depth, wide))
        for child in sorted(node.children.values(), key=lambda n: n.name):
            place(child, left, depth + 1)
            left += WIDTH * child.weight / root.weight

    place(root, 0, 0)
    height = (deepest + 1) * ROW + 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
           f'font-size="11"><rect width="{WIDTH}" height="{height}" fill="#fffdf8"/>'
           f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="15">{html.escape(title)}</text>']
    for node, left, depth, wide in boxes:
        top = height - (depth + 1) * ROW - 4
        share = 100 * node.weight / root.weight
        room = int((wide - 4) / CHARACTER)
        shown = node.name if len(node.name) <= room else node.name[:room - 2] + ".." if room > 4 else ""
        out.append(f'<g><title>{html.escape(node.name)}: {node.weight} {unit}, {share:.1f} %</title>'
                   f'<rect x="{left:.1f}" y="{top}" width="{max(wide - 0.5, 0.3):.1f}" height="{ROW - 1}" rx="1" '
                   f'fill="{colour(node.name)}"/>'
                   f'<text x="{left + 3:.1f}" y="{top + 13}">{html.escape(shown)}</text></g>')
    return "\n".join(out) + "\n</svg>\n"

# SPDX-License-Identifier: MIT
"""One page of HTML that needs no other file: advice, flame graphs, the objects over time (from a timeline of HPE_TRACE)
or in sum.
"""
import collections
import html
import json
import math
import pathlib

import flame
from advice import size
from load import Problem
from text import callers_not_shown, calls_of, head, place_of, ranked, seconds, shown, what_happened

STYLE = """body{font:14px/1.45 sans-serif;max-width:1240px;margin:24px auto;padding:0 16px;color:#222}
pre,code,td{font-family:monospace;font-size:12px}h2{margin-top:32px}table{border-collapse:collapse}
td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}svg{width:100%;height:auto;border:1px solid #ddd}
details{margin:10px 0}summary{cursor:pointer}.saved{font-weight:bold;color:#a33}.kind{color:#666}"""
COLOURS = {"fetch": "#3b7dd8", "flush": "#3fa35f", "fault": "#d8703b"}
LANE = 16


def timeline(path):
    """A lane for each object, from a file of HPE_TRACE; at most 40 of them, those with most events."""
    lanes = collections.defaultdict(list)
    try:
        for e in json.loads(pathlib.Path(path).read_text(errors="replace"))["traceEvents"]:
            if e["ph"] != "X" or e["cat"] not in COLOURS or "object" not in e["args"]:
                continue
            if not all(math.isfinite(n) for n in (e["ts"], e["dur"], e["args"]["object"], e["args"].get("bytes", 0))):
                raise ValueError(e)
            lanes[e["args"]["object"]].append({**e, "name": str(e["name"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise Problem(f"{path} is no timeline of HPE_TRACE: {wrong}") from None
    if not lanes:
        return "<p>No object moved.</p>"
    every = [e for events in lanes.values() for e in events]
    begin, end = min(e["ts"] for e in every), max(e["ts"] + e["dur"] for e in every)
    scale = 1100 / max(end - begin, 1e-3)
    chosen = sorted(sorted(lanes, key=lambda o: -len(lanes[o]))[:40])
    height = len(chosen) * LANE + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1200 {height}" font-family="monospace" '
           f'font-size="11">']
    for row, number in enumerate(chosen):
        top = row * LANE
        out.append(f'<text x="4" y="{top + 12}">object {number}</text>'
                   f'<line x1="90" x2="1190" y1="{top + 15}" y2="{top + 15}" stroke="#eee"/>')
        last = {}
        for e in sorted(lanes[number], key=lambda e: e["ts"]):
            left, wide = 90 + (e["ts"] - begin) * scale, max(e["dur"] * scale, 0.5)
            # Events closer than half a point look like one.
            if left + wide < last.get(e["cat"], -1) + 0.5:
                continue
            last[e["cat"]] = left + wide
            high = {"fault": 4, "fetch": 9, "flush": 9}[e["cat"]]
            out.append(f'<rect x="{left:.1f}" y="{top + 13 - high}" width="{wide:.1f}" height="{high}" '
                       f'fill="{COLOURS[e["cat"]]}"><title>{html.escape(e["name"])}, {size(e["args"].get("bytes", 0))}, '
                       f'{e["dur"]:.1f} us</title></rect>')
    out.append(f'<text x="90" y="{height - 8}">0</text><text x="1190" y="{height - 8}" text-anchor="end">'
               f'{(end - begin) / 1e3:.3f} ms</text></svg>')
    legend = " ".join(f'<span style="color:{c}">&#9632;</span> {k}' for k, c in COLOURS.items())
    return "".join(out) + f"<p>{legend}</p>"


def objects(reports):
    rows = ["<table><tr><th>object</th><th>size</th><th>to host</th><th>to device</th><th>read faults</th>"
            "<th>write faults</th></tr>"]
    several = len(reports.each) > 1
    listed = [(r, o) for r in reports.each for o in r["per_object"]]
    for r, o in sorted(listed, key=lambda x: -(x[1]["bytes_to_host"] + x[1]["bytes_to_device"]))[:40]:
        name = f"{r['process']}: {o['id']}" if several else o["id"]
        rows.append(f"<tr><td>{name}</td><td>{size(o['bytes'])}</td><td>{size(o['bytes_to_host'])}</td>"
                    f"<td>{size(o['bytes_to_device'])}</td><td>{o['read_faults']}</td><td>{o['write_faults']}</td></tr>")
    return "".join(rows) + "</table>"


def page(reports, symbols, trace):
    symbols.prepare((m, o) for s in reports.stacks for m, o in s.frames)
    title = html.escape(reports.title())
    out = [f"<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
           f"<h1>{title}</h1><p>" + "<br>".join(html.escape(line.strip()) for line in list(head(reports))[1:]) + "</p>",
           "<h2>What to change</h2>"]
    for number, line in enumerate([line for line in ranked(reports, symbols) if line.advice][:25], 1):
        advice, stack = line.advice, line.stack
        place = place_of(stack, symbols)
        saved = sum(a.seconds for a in advice)
        out.append(f"<details{' open' if number <= 3 else ''}><summary><span class=saved>{seconds(saved)}</span> "
                   f"<code>{html.escape(shown(place) if place else '?')}</code></summary>"
                   f"<p>{html.escape(what_happened(stack))}</p>")
        out += [f"<p><span class=kind>{html.escape(a.kind)}, {seconds(a.seconds)}:</span> {html.escape(a.text)}</p>"
                for a in advice]
        frames = [shown(f) for f in calls_of(stack, symbols)] + list(callers_not_shown(line))
        out.append("<pre>" + html.escape("\n".join(frames)) + "</pre></details>")
    for weight, text in (("time", "Time in faults and calls"), ("bytes", "Bytes moved")):
        lines = flame.collapsed(reports.stacks, symbols, weight)
        if lines:
            out.append(f"<h2>{text}</h2>" + flame.svg(lines, text, flame.UNITS[weight]))
    out.append("<h2>Objects</h2>" + (timeline(trace) if trace else "") + objects(reports))
    out += [f"<p>{html.escape(line)}</p>" for line in symbols.said]
    return "\n".join(out) + "\n</html>\n"

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: debuginfod.py WASTEFUL HPE

Functions and lines of a stripped program come from a debuginfod server, one of this test's own, and from nowhere else:
not if the server has nothing, or another program's file, nor if there is no server. With debuginfod-find, if that is
installed, and without.
"""
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

import compare
import soft

wasteful, hpe = sys.argv[1:]
folder = pathlib.Path(tempfile.mkdtemp())
program, report = folder / "program", folder / "r.json"
subprocess.run(["objcopy", "--only-keep-debug", wasteful, folder / "kept"], check=True)
subprocess.run(["strip", "-o", program, wasteful], check=True)
notes = subprocess.run(["readelf", "-n", wasteful], check=True, capture_output=True, text=True).stdout
build_id = re.search(r"Build ID: (\w+)", notes)[1]
served, asked = {}, []


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        answer = served.get(self.path)
        self.send_response(200 if answer else 404)
        self.send_header("Content-Length", str(len(answer or b"")))
        self.end_headers()
        self.wfile.write(answer or b"")

    def log_message(self, *_):
        pass


def said(url, path):
    """What `hpe report` says, and what it asked the server for."""
    compare.runs += 1
    asked.clear()
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("DEBUGINFOD")}
    env |= {"PATH": path, "no_proxy": "127.0.0.1", "DEBUGINFOD_CACHE_PATH": tempfile.mkdtemp(dir=folder)}
    if url:
        env["DEBUGINFOD_URLS"] = url
    done = subprocess.run([hpe, "report", report, "--most", "50"], capture_output=True, text=True, env=env)
    if done.returncode != 0 or done.stderr:
        compare.problem(f"{url}: status {done.returncode}, {done.stderr}")
    return done.stdout, list(asked)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
place = f"/buildid/{build_id}/debuginfo"
got = soft.run([program, "plain", "all"], HPE_REPORT=report)
if got[0] != 0:
    compare.problem(f"the program: {got}")

# A path without debuginfod-find, and with it.
tools = folder / "tools"
tools.mkdir()
for name in ("addr2line", "eu-addr2line", "llvm-symbolizer", "c++filt", "python3", "bash", "env", "dirname", "readlink"):
    found = sys.executable if name == "python3" else shutil.which(name)
    if found:
        (tools / name).symlink_to(found)
paths = [str(tools)] + ([os.environ["PATH"]] if shutil.which("debuginfod-find") else [])
for path in paths:
    for urls, answer, named in ((None, None, False), (url, None, False), (url, "kept", True),
                                (f"nonsense {url}/none {url}", "kept", True), (url, "other", False)):
        served.clear()
        if answer == "kept":
            served[place] = (folder / "kept").read_bytes()
        elif answer == "other":
            served[place] = pathlib.Path(sys.executable).resolve().read_bytes()
        text, requests = said(urls, path)
        if named != (re.search(r"^\d+\. .*: send_again\(\)  \S*wasteful\.cu:\d+$", text, re.M) is not None):
            compare.problem(f"{urls}, {answer} served: {text}")
        if (place in requests) != (urls is not None) or any(r not in (place, "/none" + place) for r in requests):
            compare.problem(f"{urls}: asked for {requests}")
server.shutdown()
server.server_close()
# The server is gone.
if "send_again" in said(url, paths[0])[0]:
    compare.problem("named without a server")
compare.finish(6)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: languages.py LIBRARY WORDS...

Language runtimes that use SIGSEGV themselves, in processes whose objects their own compiled code, C and file reads touch.
LIBRARY is objects.cu, WORDS are the programs words.* beside it and what they need. Each prints the same under libhpe
as with explicit copies and without libhpe, and dies the same of a null pointer in C.
"""
import os
import re
import resource
import shutil
import struct
import sys

import neighbours
import soft

library, *sources = (os.path.abspath(path) for path in sys.argv[1:])
source = {os.path.basename(path): path for path in sources}
folder = neighbours.folder.name
data = os.path.join(folder, "data")
with open(data, "wb") as file:
    file.write(struct.pack("<50000I", *range(50000)))
LINK = ["-O1", "-Wl,--no-as-needed", "-L" + os.path.dirname(library), "-l:" + os.path.basename(library),
        "-Wl,-rpath," + os.path.dirname(library)]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def normal(text):
    """Without addresses, process and thread numbers, and what Go's goroutines beside the failing one do."""
    text = re.sub(rb"\b(0x)?[0-9a-fA-F]{6,}\b|\b0x[0-9a-f]+|\b([pt]id[ =]?|goroutine )\d+", b"", text)
    return re.sub(rb"\ngoroutine  \[(?!running).*", b"", text, flags=re.S)


def works(name, command, protocols=("rolling", "lazy", "batch"), **variables):
    """Its output; what it says of its own faults on stderr comes in any order."""
    wanted = soft.run(command, preload=False, OBJECTS="copy", **variables)
    if wanted[0] != 0 or re.search(rb"\b[1-9]\d* wrong", wanted[1]):
        neighbours.problems.append(f"{name}: without libhpe: {wanted}")
    for protocol in protocols if soft.THOROUGH else protocols[:1]:
        got = soft.run(command, HPE_PROTOCOL=protocol, **variables)
        neighbours.expect(f"{name}, {protocol}", (*got[:2], got[2] if got[0] != 0 else b""), (*wanted[:2], b""))


def crashes(name, command, **variables):
    neighbours.expect(f"{name}, a crash of its own", soft.run(command, **variables),
                      soft.run(command, preload=False, OBJECTS="copy", **variables), normal)


def compiled(output, *command):
    """As neighbours.build, for a file of ours."""
    return neighbours.build(source[command[-1]], output, *command[:-1])


def python():
    program = [sys.executable, source["words.py"], library, data]
    works("Python", program)
    for handler in ("none", "before", "after", "replaced,after", "before,replaced"):
        crashes(f"Python, faulthandler {handler}", [*program, handler])


def java():
    java_home = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("java") or "")))
    include = os.path.join(java_home, "include")
    javac, stub = os.path.join(java_home, "bin", "javac"), None
    flags = ["-I" + include, "-I" + os.path.join(include, "linux"), *LINK]
    if os.path.exists(javac):
        stub = compiled("libwords.so", "gcc", "-shared", "-fPIC", *flags, "words_jni.c")
    if stub is None or soft.run([javac, "-d", folder, source["Words.java"]], preload=False)[0] != 0:
        return neighbours.lacks("Java's compiler or its headers")
    report = os.path.join(folder, "report")
    program = ["java", "-Xmx64m", "-XX:-CreateCoredumpOnCrash", f"-XX:ErrorFile={report}", "-cp", folder, "Words", stub,
               data]
    works("Java", program)
    crashes("Java", [*program, "crash"])
    shown = []
    for preload in (False, True):
        if os.path.exists(report):
            os.remove(report)
        soft.run([*program, "crash"], preload=preload, OBJECTS="plain" if preload else "copy")
        with open(report, "rb") as file:
            text = file.read()
        shown.append((0, b"".join(re.findall(rb"^siginfo:.*|^ +SIG[A-Z0-9]+: .*\n", text, re.M))))
    neighbours.expect("Java, signals in its report", shown[1], shown[0], lambda text: re.sub(rb"0x[0-9a-f]{9,}", b"", text))
    jsig = os.path.join(java_home, "lib", "libjsig.so")
    if os.path.exists(jsig):
        wanted = soft.run(program, preload=False, OBJECTS="copy")
        for order, load in neighbours.both_orders(jsig):
            neighbours.expect(f"Java, libjsig {order}", soft.run(program, LD_PRELOAD=load), wanted)
            crashes(f"Java, libjsig {order}", [*program, "crash"], LD_PRELOAD=load)
    host = compiled("words_jvm", "gcc", *flags, "words_jvm.c")
    embedded = [host, os.path.join(java_home, "lib", "server", "libjvm.so"), folder, stub, data]
    works("Java made after the first object", embedded, protocols=["rolling"])
    crashes("Java made after the first object", [*embedded, "crash"])


def go():
    program = os.path.join(folder, "words_go")
    os.environ.update(GOCACHE=os.path.join(folder, "go"), GO111MODULE="off", CGO_LDFLAGS=" ".join(LINK[2:]),
                      CGO_LDFLAGS_ALLOW=".*")
    if shutil.which("go") is None or soft.run(["go", "build", "-o", program, source["words.go"]], preload=False)[0] != 0:
        return neighbours.lacks("Go")
    works("Go", [program, data])
    for case in ("crash", "nil"):
        crashes(f"Go, {case}", [program, data, case])


def r():
    stub = compiled("libwords_r.so", "gcc", "-shared", "-fPIC", "-fno-optimize-sibling-calls", *LINK, "words_r.c")
    if shutil.which("Rscript") is None or stub is None:
        return neighbours.lacks("R")
    script = source["words.R"]
    works("R", ["sh", "-c", f"R --interactive --no-readline --vanilla --no-echo <{script} 2>&1"], LIBRARY=stub)
    crashes("R", ["Rscript", script], LIBRARY=stub, CRASH=1)


def ocaml():
    program = os.path.join(folder, "words_ml")
    if shutil.which("ocamlopt") is None:
        return neighbours.lacks("OCaml")
    for name in ("words.ml", "words_ocaml.c"):
        shutil.copy(source[name], folder)
    options = [word for option in LINK[1:] for word in ("-cclib", option)]
    built = soft.run(["sh", "-c", f"cd {folder} && exec ocamlopt -I +threads unix.cmxa threads.cmxa words.ml words_ocaml.c "
                      f"{' '.join(options)} -o {program}"], preload=False)
    if built[0] != 0:
        return neighbours.lacks("OCaml's compiler with threads")
    works("OCaml", [program, data])
    crashes("OCaml", [program, data, "crash"])


def sbcl():
    if shutil.which("sbcl") is None:
        return neighbours.lacks("SBCL")
    program = ["sbcl", "--noinform", "--no-sysinit", "--no-userinit", "--disable-debugger", "--load", source["words.lisp"],
               "--eval", "(exit)"]
    works("SBCL", program, LIBRARY=library)
    crashes("SBCL", program, LIBRARY=library, CRASH=1)


def node():
    include = "/usr/include/node"
    if shutil.which("node") is not None:
        include = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("node")))), "include", "node")
    addon = compiled("words.node", "gcc", "-shared", "-fPIC", "-I" + include, *LINK, "words_node.c")
    if shutil.which("node") is None or addon is None:
        return neighbours.lacks("node or its headers")
    works("node", ["node", source["words.js"], addon, data])
    crashes("node", ["node", source["words.js"], addon, data, "crash"])


def ruby():
    program = ["ruby", source["words.rb"], library, data]
    if shutil.which("ruby") is None or soft.run(["ruby", "-e", "require 'fiddle'"], preload=False)[0] != 0:
        return neighbours.lacks("Ruby with Fiddle")
    works("Ruby", program)
    # Its report lists the frames of the handler and every mapping of the process: the first lines say what happened.
    got, wanted = soft.run([*program, "crash"]), soft.run([*program, "crash"], preload=False, OBJECTS="copy")
    neighbours.expect("Ruby, a crash of its own", (got[0], got[1], b"\n".join(got[2].split(b"\n")[:4])),
                      (wanted[0], wanted[1], b"\n".join(wanted[2].split(b"\n")[:4])), normal)


for language in (python, java, go, r, ocaml, sbcl, node, ruby):
    language()
neighbours.finish()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: signals.py DISPOSITIONS MASKS

Foreign signals end as they end without libhpe: every disposition and every way to raise one, with the handler installed
before the first use of CUDA and after. Objects may be touched wherever SIGSEGV is blocked or being handled.
"""
import signal
import sys

import compare
import soft

dispositions, masks = sys.argv[1:]

HANDLED = ["handler,leaves", "siginfo,leaves", "siginfo,onstack,leaves", "siginfo,nodefer,leaves", "siginfo,touches,leaves",
           "siginfo,onstack,touches,leaves", "siginfo,smallstack,touches,leaves", "siginfo,maskall,touches,leaves",
           "siginfo,resethand,leaves", "siginfo,resethand,nodefer,leaves", "handler,nested,leaves",
           "siginfo,nodefer,nested,leaves", "signal(),touches,leaves", "sysv,leaves", "siginfo,restart,leaves"]
ENDS = ["default", "ignore", "handler,block", "siginfo,blockall,leaves", "default,block", "ignore,block", "siginfo,blockall"]

for how in HANDLED + ENDS:
    for kind in ("null", "write", "raise"):
        for when in ("early", "late"):
            compare.check([dispositions, how, kind, when], ends=None)
for kind in ("read", "kill", "queue", "noncanonical", "execute"):
    for how in ("siginfo,leaves", "default", "ignore"):
        compare.check([dispositions, how, kind, "late"], ends=None)
for how in ("siginfo,opens", "handler,opens,touches", "siginfo,opens,onstack,touches", "siginfo,opens,resethand"):
    for kind in ("read", "write"):
        for when in ("early", "late"):
            compare.check([dispositions, how, kind, when], ends=None)
for how in ("bus,siginfo,leaves", "bus,default", "bus,siginfo,touches,leaves", "bus,ignore", "bus,siginfo,maskall,touches,leaves"):
    for when in ("early", "late"):
        compare.check([dispositions, how, "bus", when], ends=None)
ENDED = {"blocked_all", "handler_fault_dies", "in_the_segv_handler"}  # by SIGSEGV
for case in soft.run([masks], preload=False)[1].decode().split():
    for protocol in ("rolling", "lazy", "batch"):
        compare.check([masks, case], ends=-signal.SIGSEGV if case in ENDED else 0, HPE_PROTOCOL=protocol)
compare.finish(300)

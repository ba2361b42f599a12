#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes one .ptx per instruction form: a kernel, out[i] = form(a[i], b[i], c[i]) over arrays of 8-byte cells.

usage: forms.py FOLDER OUT.list     (a line of the list: name, input domain, exact or the ulps that may be off, bytes of
                                    a result, form; its kernel is in FOLDER/name.ptx)
"""
import pathlib
import sys

SIZE = {'b16': 2, 'u16': 2, 's16': 2, 'f16': 2, 'bf16': 2, 'b32': 4, 'u32': 4, 's32': 4, 'f32': 4, 'f16x2': 4,
        'bf16x2': 4, 'b64': 8, 'u64': 8, 's64': 8, 'f64': 8, 'u8': 1, 's8': 1}
forms = []  # (name, domain, exact, result type, source types, text)


def add(text, result, *sources, domain=None, exact='exact'):
    kind = next((t for t in (list(sources) + [result]) if t.startswith(('f', 'bf'))), 'int')
    forms.append((domain or {'f16x2': 'f16', 'bf16x2': 'bf16'}.get(kind, kind), exact, result, sources, text))


D, A, B, C = '%d', '%a', '%b', '%c'
ints = ['u16', 's16', 'u32', 's32', 'u64', 's64']
for t in ints:
    for op in ('add', 'sub', 'mul.lo', 'mul.hi', 'min', 'max'):
        add(f'{op}.{t} {D}, {A}, {B};', t, t, t)
    for op in ('mad.lo', 'mad.hi', 'sad'):
        add(f'{op}.{t} {D}, {A}, {B}, {C};', t, t, t, t)
    # Division by zero is undefined, so the divisor is made odd.
    add(f'or.b{SIZE[t]*8} %b, %b, 1; div.{t} {D}, {A}, {B};', t, t, t)
    add(f'or.b{SIZE[t]*8} %b, %b, 1; rem.{t} {D}, {A}, {B};', t, t, t)
    add(f'shr.{t} {D}, {A}, {B};', t, t, 'u32', domain='small')
    if t[0] == 's':
        add(f'abs.{t} {D}, {A};', t, t)
        add(f'neg.{t} {D}, {A};', t, t)
    for c in ('eq', 'ne', 'lt', 'le', 'gt', 'ge'):
        add(f'setp.{c}.{t} %p, {A}, {B}; selp.u32 {D}, 1, 0, %p;', 'u32', t, t)
    if SIZE[t] < 8:
        w = t[0] + str(SIZE[t] * 16)
        add(f'mul.wide.{t} {D}, {A}, {B};', w, t, t)
        add(f'mad.wide.{t} {D}, {A}, {B}, {C};', w, t, t, w)
    if SIZE[t] >= 4:
        add(f'bfe.{t} {D}, {A}, {B}, {C};', t, t, 'u32', 'u32', domain='small')
        add(f'bfind.{t} {D}, {A};', 'u32', t)
        add(f'bfind.shiftamt.{t} {D}, {A};', 'u32', t)
for op in ('lo', 'hi'):
    for t in ('u32', 's32'):
        add(f'mul24.{op}.{t} {D}, {A}, {B};', t, t, t)
        add(f'mad24.{op}.{t} {D}, {A}, {B}, {C};', t, t, t, t)
add(f'add.sat.s32 {D}, {A}, {B};', 's32', 's32', 's32')
add(f'sub.sat.s32 {D}, {A}, {B};', 's32', 's32', 's32')
for t in ('b16', 'b32', 'b64'):
    for op in ('and', 'or', 'xor'):
        add(f'{op}.{t} {D}, {A}, {B};', t, t, t)
    add(f'not.{t} {D}, {A};', t, t)
    add(f'cnot.{t} {D}, {A};', t, t)
    add(f'shl.{t} {D}, {A}, {B};', t, t, 'u32', domain='small')
    if t != 'b16':
        for op in ('popc', 'clz'):
            add(f'{op}.{t} {D}, {A};', 'u32', t)
        add(f'brev.{t} {D}, {A};', t, t)
        add(f'bfi.{t} {D}, {A}, {B}, {C}, 9;', t, t, t, 'u32', domain='small')
        add(f'bfi.{t} {D}, {A}, 77, 5, {B};', t, t, 'u32', domain='small')
for m in ('', '.f4e', '.b4e', '.rc8', '.ecl', '.ecr', '.rc16'):
    add(f'prmt.b32{m} {D}, {A}, {B}, {C};', 'b32', 'b32', 'b32', 'b32')
for d in 'lr':
    for m in ('wrap', 'clamp'):
        add(f'shf.{d}.{m}.b32 {D}, {A}, {B}, {C};', 'b32', 'b32', 'b32', 'u32', domain='small')
for k in (0x96, 0xe8, 0xca, 0x1b, 0x78):
    add(f'lop3.b32 {D}, {A}, {B}, {C}, {k};', 'b32', 'b32', 'b32', 'b32')
for x in ('u32', 's32'):
    for y in ('u32', 's32'):
        add(f'dp4a.{x}.{y} {D}, {A}, {B}, {C};', 'b32', 'b32', 'b32', 'b32')
        for h in ('lo', 'hi'):
            add(f'dp2a.{h}.{x}.{y} {D}, {A}, {B}, {C};', 'b32', 'b32', 'b32', 'b32')
for m in ('clamp', 'wrap'):
    add(f'bmsk.{m}.b32 {D}, {A}, {B};', 'b32', 'u32', 'u32', domain='small')
for t in ('u32', 'u64'):
    add(f'add.cc.{t} %b, {A}, {B}; addc.{t} {D}, {A}, {C};', t, t, t, t)
    add(f'sub.cc.{t} %b, {A}, {B}; subc.{t} {D}, {A}, {C};', t, t, t, t)
    add(f'add.cc.{t} %b, {A}, {B}; addc.cc.{t} %b, {C}, {A}; addc.{t} {D}, %b, 0;', t, t, t, t)
    add(f'mad.lo.cc.{t} %b, {A}, {B}, {C}; madc.hi.{t} {D}, {A}, %b, {C};', t, t, t, t)
for t in ('s32', 's64', 'u32', 'f32'):
    add(f'slct.{t}.s32 {D}, {A}, {B}, {C};', t, t, t, 's32', domain='int')

for t in ('f32', 'f64'):
    modes = ('rn', 'rz', 'rm', 'rp')
    flushes = ('', '.ftz') if t == 'f32' else ('',)
    for r in modes:
        for f in flushes:
            for op in ('add', 'sub', 'mul', 'div'):
                add(f'{op}.{r}{f}.{t} {D}, {A}, {B};', t, t, t)
            add(f'fma.{r}{f}.{t} {D}, {A}, {B}, {C};', t, t, t, t)
            for op in ('rcp', 'sqrt'):
                add(f'{op}.{r}{f}.{t} {D}, {A};', t, t)
            if t == 'f32':
                for op in ('add', 'mul'):
                    add(f'{op}.{r}{f}.sat.{t} {D}, {A}, {B};', t, t, t)
                add(f'fma.{r}{f}.sat.{t} {D}, {A}, {B}, {C};', t, t, t, t)
    for f in flushes:
        for op in ('min', 'max'):
            add(f'{op}{f}.{t} {D}, {A}, {B};', t, t, t)
            if t == 'f32':
                add(f'{op}{f}.NaN.{t} {D}, {A}, {B};', t, t, t)
        for op in ('neg', 'abs'):
            add(f'{op}{f}.{t} {D}, {A};', t, t)
        for c in 'eq ne lt le gt ge equ neu ltu leu gtu geu num nan'.split():
            add(f'setp.{c}{f}.{t} %p, {A}, {B}; selp.u32 {D}, 1, 0, %p;', 'u32', t, t)
    add(f'setp.lt.or.{t} %p|%q, {A}, {B}, %p; selp.u32 {D}, 1, 0, %q;'.replace('setp', f'setp.gt.{t} %p, {B}, {C}; setp', 1),
        'u32', t, t, t)
    add(f'set.le.u32.{t} {D}, {A}, {B};', 'u32', t, t)
    add(f'set.le.f32.{t} {D}, {A}, {B};', 'f32', t, t, domain=t)
    add(f'copysign.{t} {D}, {A}, {B};', t, t, t)
    for p in 'finite infinite number notanumber normal subnormal'.split():
        add(f'testp.{p}.{t} %p, {A}; selp.u32 {D}, 1, 0, %p;', 'u32', t)
for f in ('', '.ftz'):
    for op in ('rcp', 'sqrt', 'rsqrt', 'ex2', 'lg2'):
        # Near 1 the logarithm has an absolute bound only.
        add(f'{op}.approx{f}.f32 {D}, {A};', 'f32', 'f32', exact='64' if op == 'lg2' else '3')
    for op in ('div.approx', 'div.full'):
        add(f'{op}{f}.f32 {D}, {A}, {B};', 'f32', 'f32', 'f32', exact='3')
add(f'tanh.approx.f32 {D}, {A};', 'f32', 'f32', exact='20000')

for t in ('f16', 'bf16', 'f16x2', 'bf16x2'):
    for op in ('add', 'sub', 'mul'):
        add(f'{op}.rn.{t} {D}, {A}, {B};', t, t, t)
        if t.startswith('f'):
            add(f'{op}.rn.ftz.{t} {D}, {A}, {B};', t, t, t)
            add(f'{op}.rn.sat.{t} {D}, {A}, {B};', t, t, t)
    add(f'fma.rn.{t} {D}, {A}, {B}, {C};', t, t, t, t)
    add(f'fma.rn.relu.{t} {D}, {A}, {B}, {C};', t, t, t, t)
    for op in ('min', 'max'):
        add(f'{op}.{t} {D}, {A}, {B};', t, t, t)
        add(f'{op}.NaN.{t} {D}, {A}, {B};', t, t, t)
    for op in ('neg', 'abs'):
        add(f'{op}.{t} {D}, {A};', t, t)
for t in ('f16', 'bf16'):
    for c in 'eq ne lt le gt ge equ neu ltu leu gtu geu num nan'.split():
        add(f'setp.{c}.{t} %p, {A}, {B}; selp.u32 {D}, 1, 0, %p;', 'u32', t, t)



def covers(x, y):
    low = lambda t: -(1 << (SIZE[t] * 8 - 1)) if t[0] == 's' else 0
    high = lambda t: (1 << (SIZE[t] * 8 - (t[0] == 's'))) - 1
    return low(x) <= low(y) and high(x) >= high(y)


everything = ['u8', 's8'] + ints
for x in everything:
    for y in everything:
        add(f'cvt.{x}.{y} {D}, {A};', x, y)
        if not covers(x, y):  # elsewhere the assembler refuses .sat
            add(f'cvt.sat.{x}.{y} {D}, {A};', x, y)
for y in ('f16', 'f32', 'f64'):
    for x in everything:
        for r in ('rni', 'rzi', 'rmi', 'rpi'):
            add(f'cvt.{r}.{x}.{y} {D}, {A};', x, y)
    for r in ('rni', 'rzi', 'rmi', 'rpi'):
        add(f'cvt.{r}.{y}.{y} {D}, {A};', y, y)
    for x in everything:
        for r in ('rn', 'rz', 'rm', 'rp'):
            add(f'cvt.{r}.{y}.{x} {D}, {A};', y, x, domain='int')
    add(f'cvt.sat.{y}.{y} {D}, {A};', y, y)
for x, y in (('f16', 'f32'), ('f16', 'f64'), ('f32', 'f64')):
    for r in ('rn', 'rz', 'rm', 'rp') if x == 'f32' else ('rn', 'rz'):
        add(f'cvt.{r}.{x}.{y} {D}, {A};', x, y)
        add(f'cvt.{r}.sat.{x}.{y} {D}, {A};', x, y)
    add(f'cvt.{y}.{x} {D}, {A};', y, x, domain=x)
for f in ('.ftz',):
    add(f'cvt.rn.ftz.f32.f64 {D}, {A};', 'f32', 'f64', domain='f64')
    add(f'cvt.ftz.f64.f32 {D}, {A};', 'f64', 'f32', domain='f32')
    add(f'cvt.rzi.ftz.s32.f32 {D}, {A};', 's32', 'f32')
add(f'cvt.f32.bf16 {D}, {A};', 'f32', 'bf16', domain='bf16')
for r in ('rn', 'rz'):
    add(f'cvt.{r}.bf16.f32 {D}, {A};', 'bf16', 'f32', domain='f32')
    add(f'cvt.{r}.relu.bf16.f32 {D}, {A};', 'bf16', 'f32', domain='f32')
    for t in ('f16x2', 'bf16x2'):
        add(f'cvt.{r}.{t}.f32 {D}, {A}, {B};', t, 'f32', 'f32', domain='f32')
        add(f'cvt.{r}.relu.{t}.f32 {D}, {A}, {B};', t, 'f32', 'f32', domain='f32')

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for stale in folder.glob('form_*.ptx'):
    stale.unlink()
with open(sys.argv[2], 'w') as names:
    for n, (domain, exact, result, sources, text) in enumerate(forms):
        name = f'form_{n:03}'
        names.write(f'{name} {domain} {exact} {SIZE[result]} {text}\n')
        reg = lambda t: 'b%d' % (max(2, SIZE[t]) * 8)
        ptx = [f'// {text}\n.version 8.0\n.target sm_90\n.address_size 64\n'
               f'.visible .entry {name}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 po)\n{{\n'
               '\t.reg .pred %p, %q;\n\t.reg .b32 %t, %u, %v;\n\t.reg .b64 %x, %i;\n'
               f'\t.reg .{reg(result)} %d;\n']
        types = list(sources) + ['b32'] * (3 - len(sources))
        for r, t in zip('abc', types):
            ptx.append(f'\t.reg .{reg(t)} %{r};\n')
        ptx.append('\tmov.u32 %t, %tid.x;\n\tmov.u32 %u, %ctaid.x;\n\tmov.u32 %v, %ntid.x;\n'
                   '\tmad.lo.u32 %t, %u, %v, %t;\n\tmul.wide.u32 %i, %t, 8;\n')
        for r, t in zip('abc', sources):
            ptx.append(f'\tld.param.u64 %x, [p{r}];\n\tadd.u64 %x, %x, %i;\n\tld.global.{reg(t)} %{r}, [%x];\n')
        ptx.append(f'\t{text}\n\tld.param.u64 %x, [po];\n\tadd.u64 %x, %x, %i;\n'
                   f'\tst.global.{reg(result)} [%x], %d;\n\tret;\n}}\n')
        (folder / f'{name}.ptx').write_text(''.join(ptx))

# SPDX-License-Identifier: MIT
"""What a module's file says of itself: its build-id, and the functions that it exports."""
import bisect
import struct


class Elf:
    """A 64-bit little-endian ELF file, read once. Raises ValueError where it is none, OSError where there is no file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no ELF file of this kind")
        try:
            self._sections = self._read_sections()
        except struct.error as wrong:
            raise ValueError(f"{path}: {wrong}") from None

    def _read_sections(self):
        at, = struct.unpack_from("<Q", self.data, 40)
        size, count, names = struct.unpack_from("<HHH", self.data, 58)
        found, self._names = [], []
        for i in range(count if at != 0 else 0):
            name, kind, _, address, offset, length, link, _, _, entry = struct.unpack_from("<IIQQQQIIQQ", self.data,
                                                                                          at + i * size)
            found.append((kind, offset, length, link, entry))
            self._names.append(name)
        begin = found[names][1] if names < len(found) else 0
        self._names = {self.data[begin + n:self.data.find(b"\0", begin + n)] for n in self._names}
        return found

    def has_lines(self):
        return not self._names.isdisjoint((b".debug_line", b".zdebug_line"))

    def build_id(self):
        """In hexadecimal, or None."""
        for kind, at, length, _, _ in self._sections:
            end = at + length
            while kind == 7 and at + 12 <= end:  # notes
                name, size, which = struct.unpack_from("<III", self.data, at)
                text = at + 12 + (name + 3) // 4 * 4
                if which == 3 and self.data[at + 12:at + 16] == b"GNU\0":
                    return self.data[text:text + size].hex()
                at = text + (size + 3) // 4 * 4
        return None

    def functions(self):
        """Of the symbol tables: begin, end and name, sorted."""
        found = set()
        for kind, at, length, link, entry in self._sections:
            if kind not in (2, 11) or entry == 0 or link >= len(self._sections):  # all symbols, dynamic ones
                continue
            names = self._sections[link][1]
            for symbol in range(at, at + length, entry):
                name, info, _, section, value, size = struct.unpack_from("<IBBHQQ", self.data, symbol)
                if info & 15 in (2, 10) and section != 0:
                    text = self.data[names + name:self.data.index(b"\0", names + name)]
                    found.add((value, value + size, text.decode(errors="replace")))
        return sorted(found)


class Functions:
    """Looks functions up by address."""

    def __init__(self, functions):
        self._all = functions
        self._begins = [f[0] for f in functions]

    def find(self, address):
        i = bisect.bisect_right(self._begins, address) - 1
        if i < 0 or address >= self._all[i][1]:
            return None
        return self._all[i][2]

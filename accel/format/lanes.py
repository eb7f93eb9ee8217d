"""Many Thrift structs of one kind, read in lockstep: a lane each, numpy over all lanes.

Source: apache/thrift `doc/specs/thrift-compact-protocol.md`.

Eight bytes of every lane are looked at together: a field's header and the number behind it. A lane where
something else comes than ascending fields that the caller names, each of its usual type, ends up marked
as odd, and what was read from it means nothing: it is for the plain reader. So nothing is decided here
about what is valid, only about what is usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from accel.format.thrift import FALSE, TRUE

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = ["Field", "Lanes", "Value", "Words", "as_words"]

Words: TypeAlias = npt.NDArray[np.uint64]
Value: TypeAlias = "Callable[[Lanes], dict[str, Int64s]]"
Field: TypeAlias = "tuple[int, int, Value]"
"""A field's number, its compact type (TRUE: either boolean), and what reads its header and value."""

_STOPS: Final = [np.uint64(int.from_bytes(b"\x80" * count, "little")) for count in range(9)]
"""By how many bytes there are: the bits that are clear in a number's last byte."""
_SEVENS: Final = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
_STEPS: Final = (
    (8, np.uint64(0x007F_007F_007F_007F), np.uint64(0x7F00_7F00_7F00_7F00), np.uint64(1)),
    (16, np.uint64(0x0000_3FFF_0000_3FFF), np.uint64(0x3FFF_0000_3FFF_0000), np.uint64(2)),
    (32, np.uint64(0x0000_0000_0FFF_FFFF), np.uint64(0x0FFF_FFFF_0000_0000), np.uint64(4)),
)
"""Sevens of bits are joined to fourteens, and so on: needed beyond how many bits, lower part, upper, shift."""
_ALL: Final = 64
"""The length in bits of a number that does not end within the bytes looked at."""


def as_words(data: bytes) -> Words:
    """The eight bytes from each position on as a number: a view that overlaps itself, `len(data) - 7` long."""
    return np.ndarray((len(data) - 7,), "<u8", buffer=data, strides=(1,))


class Lanes:
    """Positions in one buffer, moved together.

    Parameters
    ----------
    words : array of uint64
        Of `as_words`.
    pos : array of int64
        Where each lane is: at a field's header.
    last : int
        The number of the field before it; 0 at the start of a struct.

    Every method raises IndexError when a lane has left the buffer, or is in its last seven bytes.
    """

    __slots__ = ("_left", "_word", "last", "odd", "pos", "words")

    def __init__(self, words: Words, pos: Int64s, *, last: int = 0) -> None:
        self.words = words
        self.pos = pos
        self.last: int | Int64s = last
        self.odd: Bools = np.zeros(len(pos), np.bool_)
        self._word: Words = np.zeros(0, np.uint64)
        self._left = 0

    def word(self, need: int = 8) -> Words:
        """What follows each position: at least `need` bytes, zeros behind. Not to be written to."""
        if self._left < need:
            self._word = self.words[self.pos]
            self._left = 8
        return self._word

    def skip(self, count: int) -> None:
        """Move every lane by as many bytes."""
        self.pos = self.pos + count
        self._left -= count
        if self._left > 0:
            self._word = self._word >> np.uint64(8 * count)

    def move(self, counts: Int64s | int) -> None:
        self.pos = self.pos + counts
        self._left = 0

    def read(self, fields: Sequence[Field]) -> dict[str, Int64s]:
        """Read structs up to and with their STOP; returns what the fields' readers do, -1 for who has none."""
        into: dict[str, Int64s] = {}
        head = self.word(1) & np.uint64(0xFF)
        for field, ctype, value in fields:
            wanted = (field - self.last) * 16 + ctype
            if not isinstance(wanted, int):
                wanted = wanted.astype(np.uint64)
            hits = head == wanted
            if ctype == TRUE:
                hits |= head == wanted + (FALSE - TRUE)
            count = np.count_nonzero(hits)
            if not count:
                continue
            if count == len(hits):
                into |= value(self)
                self.last = field
            else:
                self._read_some(np.flatnonzero(hits), field, value, into)
            head = self.word(1) & np.uint64(0xFF)
        self.odd |= head != 0
        self.skip(1)
        return into

    def nested(self, fields: Sequence[Field]) -> dict[str, Int64s]:
        """Read the structs whose field header is next."""
        self.skip(1)
        self.last = 0
        return self.read(fields)

    def _read_some(self, index: Int64s, field: int, value: Value, into: dict[str, Int64s]) -> None:
        part = self.part(index)
        found = value(part)
        self.join(index, part)
        if isinstance(self.last, int):
            self.last = np.full(len(self.pos), self.last)
        self.last[index] = field
        for name, values in found.items():
            into[name] = whole = np.full(len(self.pos), -1, np.int64)
            whole[index] = values

    def part(self, index: Int64s) -> Lanes:
        """Some of the lanes, to be moved by themselves."""
        part = Lanes(self.words, self.pos[index])
        if self._left > 0:
            part._word, part._left = self._word[index], self._left
        return part

    def join(self, index: Int64s, part: Lanes) -> None:
        """Take over where the lanes of `part` have got to."""
        self.pos = self.pos.copy()
        self.pos[index] = part.pos
        self._left = 0
        self.odd[index] |= part.odd

    def number(self) -> Int64s:
        """The signed numbers after the headers."""
        value = self._varint()
        low = value & np.uint64(1)
        value >>= np.uint64(1)
        value ^= np.negative(low, out=low)
        return value.view(np.int64)

    def span(self) -> tuple[Int64s, Int64s]:
        """Starts and lengths of the binaries after the headers."""
        length = self._varint().view(np.int64)
        start = self.pos
        self.move(length)
        return start, length

    def _varint(self) -> Words:
        """The unsigned numbers after a byte of header: up to seven bytes."""
        word = self.word(4)
        value, bits = _cut(word, self._left)
        longest = int(bits.max(initial=0))
        if longest == _ALL and self._left < 8:
            self._left = 0
            value, bits = _cut(self.word(), 8)
            longest = int(bits.max(initial=0))
        if longest == _ALL:
            self.odd |= bits == _ALL
        elif longest == int(bits.min(initial=longest)):
            self.skip(1 + longest // 8)
            return _join(value, longest)
        bits += 8
        self.pos = self.pos + (bits >> 3)
        self._left -= 1 + longest // 8
        if self._left > 0:
            self._word = self._word >> bits
        return _join(value, longest)

    def pass_numbers(self, counts: Int64s) -> None:
        """Go over as many numbers as `counts` says, without a header between them."""
        index = np.flatnonzero(counts)
        if not len(index):
            return
        part = self if len(index) == len(counts) else self.part(index)
        part._pass_numbers(counts[index])
        if part is not self:
            self.join(index, part)

    def _pass_numbers(self, counts: Int64s) -> None:
        ends = ~self.word() & _STOPS[8]
        taken = np.minimum(np.bitwise_count(ends), counts)
        self.odd |= taken == 0  # a number of more than eight bytes
        for count in range(1, int(taken.max(initial=0))):
            ends = np.where(taken > count, ends & (ends - np.uint64(1)), ends)
        ends ^= ends - np.uint64(1)
        self.move((np.bitwise_count(ends) >> 3).astype(np.int64))
        rest = np.where(taken == 0, 0, counts - taken)
        if rest.any():
            self.pass_numbers(rest)


def _cut(word: Words, left: int) -> tuple[Words, npt.NDArray[np.uint8]]:
    """The varint behind the first byte, not yet joined, and its bits with all eight of a byte."""
    value = word >> np.uint64(8)
    ends = ~value
    ends &= _STOPS[left - 1]
    ends ^= ends - np.uint64(1)  # all bits up to the last byte's highest; all, where there is no last
    value &= ends
    return value, np.bitwise_count(ends)


def _join(value: Words, longest: int) -> Words:
    """The numbers that the sevens of bits spell, in place."""
    if longest > 8:
        value &= _SEVENS
    for beyond, lower, upper, shift in _STEPS:
        if longest <= beyond:
            break
        high = value & upper
        high >>= shift
        value &= lower
        value |= high
    return value

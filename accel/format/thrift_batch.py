"""Many Thrift structs of one kind, read field by field with numpy over all of them.

Source: apache/thrift `doc/specs/thrift-compact-protocol.md`.

The next eight bytes of every struct are read together: a field's header and the number behind it. A struct is
marked irregular where anything else comes than ascending fields that the caller names, each of its usual
type. What was read from an irregular struct means nothing, and `ThriftReader` reads it instead. So this
module decides nothing about what is valid, only about what is usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from accel.arrays import count_ones
from accel.format.model import Encoding, PageType
from accel.format.thrift import BINARY, FALSE, I32, I64, LIST, STRUCT, TRUE

if TYPE_CHECKING:
    from accel.arrays import Bools, Int64s

__all__ = [
    "CHUNK_FIELDS",
    "PAGE_FIELDS",
    "Field",
    "StructBatch",
    "Words",
    "as_words",
]

Words: TypeAlias = npt.NDArray[np.uint64]
Value: TypeAlias = "Callable[[StructBatch], dict[str, Int64s]]"
Field: TypeAlias = "tuple[int, int, Value]"
"""A field's number, its compact type (TRUE: either boolean), and what reads its header and value."""

_STOPS: Final = [np.uint64(int.from_bytes(b"\x80" * count, "little")) for count in range(9)]
"""By the number of bytes: the top bit of each, which is clear in a varint's last byte."""
_SEVENS: Final = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
_STEPS: Final = (
    (8, np.uint64(0x007F_007F_007F_007F), np.uint64(0x7F00_7F00_7F00_7F00), np.uint64(1)),
    (16, np.uint64(0x0000_3FFF_0000_3FFF), np.uint64(0x3FFF_0000_3FFF_0000), np.uint64(2)),
    (32, np.uint64(0x0000_0000_0FFF_FFFF), np.uint64(0x0FFF_FFFF_0000_0000), np.uint64(4)),
)
"""Steps that join groups of 7 bits to 14, 28 and 56: bits above which a step is needed, masks of the lower
and the upper half, shift."""
_ALL: Final = 64
"""The length in bits of a varint that does not end within the bytes read."""


def as_words(data: bytes) -> Words:
    """Return the eight bytes from each position on as a number: an overlapping view, `len(data) - 7` long."""
    return np.ndarray((len(data) - 7,), "<u8", buffer=data, strides=(1,))


class StructBatch:
    """The positions of many structs in one buffer, moved together.

    Parameters
    ----------
    words : array of uint64
        The buffer, as `as_words` gives it.
    pos : array of int64
        Where each struct's next field header is.
    last : int
        The number of the field before that; 0 at the start of a struct.

    Every method raises IndexError when a position leaves the buffer or reaches its last seven bytes.
    """

    __slots__ = ("_left", "_word", "irregular", "last", "pos", "words")

    def __init__(self, words: Words, pos: Int64s, *, last: int = 0) -> None:
        self.words = words
        self.pos = pos
        self.last: int | Int64s = last
        self.irregular: Bools = np.zeros(len(pos), np.bool_)
        self._word: Words = np.zeros(0, np.uint64)
        self._left = 0

    def word(self, least: int = 8) -> Words:
        """Return at least `least` bytes from each position on, padded with zeros. Callers must not write to
        it."""
        if self._left < least:
            self._word = self.words[self.pos]
            self._left = 8
        return self._word

    def skip(self, count: int) -> None:
        """Move every position by the same number of bytes."""
        self.pos = self.pos + count
        self._left -= count
        if self._left > 0:
            self._word = self._word >> np.uint64(8 * count)

    def move(self, counts: Int64s | int) -> None:
        """Move each position by its own number of bytes."""
        self.pos = self.pos + counts
        self._left = 0

    def read(self, fields: Sequence[Field]) -> dict[str, Int64s]:
        """Read the structs up to and including STOP; return the arrays of the fields' readers, -1 where a
        field is absent."""
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
        self.irregular |= head != 0
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

    def part(self, index: Int64s) -> StructBatch:
        """Return some of the structs as a batch that moves by itself."""
        part = StructBatch(self.words, self.pos[index])
        if self._left > 0:
            part._word, part._left = self._word[index], self._left
        return part

    def join(self, index: Int64s, part: StructBatch) -> None:
        """Take over the positions that `part` has reached."""
        self.pos = self.pos.copy()
        self.pos[index] = part.pos
        self._left = 0
        self.irregular[index] |= part.irregular

    def number(self) -> Int64s:
        """Read the signed numbers after the field headers."""
        value = self._varint()
        low = value & np.uint64(1)
        value >>= np.uint64(1)
        value ^= np.negative(low, out=low)
        return value.view(np.int64)

    def span(self) -> tuple[Int64s, Int64s]:
        """Read the binaries after the field headers; return their starts and lengths."""
        length = self._varint().view(np.int64)
        start = self.pos
        self.move(length)
        return start, length

    def _varint(self) -> Words:
        """Read the unsigned numbers, of up to seven bytes, after a header of one byte."""
        word = self.word(4)
        value, bits = _cut_varint(word, self._left)
        longest = int(bits.max(initial=0))
        if longest == _ALL and self._left < 8:
            self._left = 0
            value, bits = _cut_varint(self.word(), 8)
            longest = int(bits.max(initial=0))
        if longest == _ALL:
            self.irregular |= bits == _ALL
        elif longest == int(bits.min(initial=longest)):
            self.skip(1 + longest // 8)
            return _join_bits(value, longest)
        bits += 8
        self.pos = self.pos + (bits >> 3)
        self._left -= 1 + longest // 8
        if self._left > 0:
            self._word = self._word >> bits
        return _join_bits(value, longest)

    def pass_numbers(self, counts: Int64s) -> None:
        """Skip `counts` varints that follow one another without headers."""
        index = np.flatnonzero(counts)
        if not len(index):
            return
        part = self if len(index) == len(counts) else self.part(index)
        part._pass_numbers(counts[index])
        if part is not self:
            self.join(index, part)

    def _pass_numbers(self, counts: Int64s) -> None:
        ends = ~self.word() & _STOPS[8]
        taken = np.minimum(count_ones(ends), counts)
        self.irregular |= taken == 0  # a number of more than eight bytes
        for count in range(1, int(taken.max(initial=0))):
            ends = np.where(taken > count, ends & (ends - np.uint64(1)), ends)
        ends ^= ends - np.uint64(1)
        self.move((count_ones(ends) >> 3).astype(np.int64))
        rest = np.where(taken == 0, 0, counts - taken)
        if rest.any():
            self.pass_numbers(rest)


def _cut_varint(word: Words, left: int) -> tuple[Words, npt.NDArray[np.uint8]]:
    """Return the bytes of the varint behind the first byte, and its length in bits (eight a byte)."""
    value = word >> np.uint64(8)
    ends = ~value
    ends &= _STOPS[left - 1]
    ends ^= ends - np.uint64(1)  # all bits up to the last byte's highest; all, where there is no last
    value &= ends
    return value, count_ones(ends)


def _join_bits(value: Words, longest: int) -> Words:
    """Join the groups of seven bits to numbers, in place."""
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


_FEW: Final = 6
"""Most encodings in a regular list: what eight bytes hold besides two headers."""
_MANY: Final = 14
"""Most elements of a list whose header is one byte."""


def _byte(word: Words, at: int) -> Int64s:
    return ((word >> np.uint64(8 * at)) & np.uint64(0xFF)).view(np.int64)


def _number(name: str) -> Value:
    return lambda batch: {name: batch.number()}


def _passed(batch: StructBatch) -> dict[str, Int64s]:
    batch.number()
    return {}


def _span(name: str) -> Value:
    def read(batch: StructBatch) -> dict[str, Int64s]:
        start, length = batch.span()
        return {f"{name}_start": start, f"{name}_length": length}

    return read


def _flag(name: str) -> Value:
    def read(batch: StructBatch) -> dict[str, Int64s]:
        value = _byte(batch.word(1), 0) & 15
        batch.skip(1)
        return {name: FALSE - value}

    return read


def _struct(*fields: Field) -> Value:
    return lambda batch: batch.nested(fields)


def _list_sizes(batch: StructBatch, etype: int, most: int) -> Int64s:
    """Return the sizes of short lists, without moving past their headers; 0 for irregular structs."""
    header = _byte(batch.word(2), 1)
    size = header >> 4
    irregular = (header & 15) != etype
    irregular |= size > most
    if irregular.any():
        batch.irregular |= irregular
        size[irregular] = 0
    return size


def _read_encodings(batch: StructBatch) -> dict[str, Int64s]:
    size = _list_sizes(batch, I32, _FEW)
    word = batch.word()
    bits = np.zeros(len(size), np.int64)
    for at in range(int(size.max(initial=0))):
        code = _byte(word, 2 + at)
        here = size > at
        batch.irregular |= here & ((code & 0xC1) != 0)  # negative, of two bytes, or unknown
        bits |= np.where(here, 1 << (code >> 1), 0)
    batch.move(size + 2)
    return {"encodings": bits}


def _pass_path(batch: StructBatch) -> dict[str, Int64s]:
    size = _list_sizes(batch, BINARY, _MANY)
    batch.irregular |= size == 0
    batch.skip(1)
    batch.span()
    for at in range(1, int(size.max(initial=0))):
        index = np.flatnonzero(size > at)
        part = batch.part(index)
        part.move(-1)  # a span has a byte before it
        part.span()
        batch.join(index, part)
    return {}


def _read_encoding_stats(batch: StructBatch) -> dict[str, Int64s]:
    size = _list_sizes(batch, STRUCT, _MANY)
    batch.skip(2)
    dictionary = np.zeros(len(size), np.int64)
    plain = np.zeros(len(size), np.int64)
    for at in range(int(size.max(initial=0))):
        index = np.flatnonzero(size > at)
        part = batch if len(index) == len(size) else batch.part(index)
        kind, encoding, count = _encoding_stat(part)
        if part is not batch:
            batch.join(index, part)
        # The bytes are zigzag numbers: twice the values.
        is_data = (kind == PageType.DATA_PAGE << 1) | (kind == PageType.DATA_PAGE_V2 << 1)
        is_dictionary = (encoding == Encoding.PLAIN_DICTIONARY << 1) | (
            encoding == Encoding.RLE_DICTIONARY << 1
        )
        dictionary[index] += np.where(is_data & is_dictionary, count, 0)
        plain[index] += np.where(is_data & ~is_dictionary, count, 0)
    return {"dictionary_pages": dictionary, "plain_pages": plain}


def _encoding_stat(batch: StructBatch) -> tuple[Int64s, Int64s, Int64s]:
    """Read one PageEncodingStats: page type and encoding as raw zigzag bytes, and the number of pages."""
    word = batch.word()
    irregular = (word & np.uint64(0xFF_80_FF_80_FF)) != 0x15_00_15_00_15
    kind, encoding, count, after = (_byte(word, at) for at in (1, 3, 5, 6))
    long = count > 127
    if long.any():
        irregular |= long & (after > 127)
        count = np.where(long, count & 127 | after << 7, count)
        batch.move(long.astype(np.int64) + 7)
        after = np.where(long, _byte(word, 7), after)
    else:
        batch.skip(7)
    irregular |= after != 0  # STOP
    irregular |= (count & 1) != 0  # negative
    batch.irregular |= irregular
    return kind, encoding, count >> 1


def _levels(name: str) -> Value:
    def read(batch: StructBatch) -> dict[str, Int64s]:
        size = _list_sizes(batch, I64, _MANY)
        batch.skip(2)
        batch.pass_numbers(size)
        return {name: size}

    return read


_STATISTICS = _struct(
    (1, BINARY, _span("old_max")),
    (2, BINARY, _span("old_min")),
    (3, I64, _number("null_count")),
    (4, I64, _passed),
    (5, BINARY, _span("max")),
    (6, BINARY, _span("min")),
    (7, TRUE, _flag("max_exact")),
    (8, TRUE, _flag("min_exact")),
    (9, I64, _number("nan_count")),
)
_SIZES = _struct(
    (1, I64, _number("unencoded")),
    (2, LIST, _levels("repetitions")),
    (3, LIST, _levels("definitions")),
)
_METADATA = _struct(
    (1, I32, _number("physical")),
    (2, LIST, _read_encodings),
    (3, LIST, _pass_path),
    (4, I32, _number("codec")),
    (5, I64, _number("num_values")),
    (6, I64, _number("uncompressed")),
    (7, I64, _number("compressed")),
    (9, I64, _number("data_page_offset")),
    (10, I64, _passed),
    (11, I64, _number("dictionary_page_offset")),
    (12, STRUCT, _STATISTICS),
    (13, LIST, _read_encoding_stats),
    (14, I64, _number("bloom_offset")),
    (15, I32, _number("bloom_length")),
    (16, STRUCT, _SIZES),
)
CHUNK_FIELDS: Final[tuple[Field, ...]] = (
    (3, STRUCT, _METADATA),
    (4, I64, _number("offset_index_offset")),
    (5, I32, _number("offset_index_length")),
    (6, I64, _number("column_index_offset")),
    (7, I32, _number("column_index_length")),
)
"""The fields of a ColumnChunk from its metadata on."""


def _checksum(batch: StructBatch) -> dict[str, Int64s]:
    crc = batch.number()
    batch.irregular |= (crc < -0x8000_0000) | (crc > 0xFFFF_FFFF)
    return {"crc": crc & 0xFFFF_FFFF}


def _numbers(kind: str, *names: str) -> tuple[Field, ...]:
    return tuple((field, I32, _number(f"{kind}_{name}")) for field, name in enumerate(names, 1))


PAGE_FIELDS: Final[tuple[Field, ...]] = (
    (1, I32, _number("type")),
    (2, I32, _number("uncompressed")),
    (3, I32, _number("compressed")),
    (4, I32, _checksum),
    (
        5,
        STRUCT,
        _struct(
            *_numbers("v1", "num_values", "encoding", "level_encoding", "repetition"),
            (5, STRUCT, _STATISTICS),
        ),
    ),
    (7, STRUCT, _struct(*_numbers("dictionary", "num_values", "encoding"), (3, TRUE, _flag("sorted")))),
    (
        8,
        STRUCT,
        _struct(
            *_numbers("v2", "num_values", "num_nulls", "num_rows", "encoding", "definition", "repetition"),
            (7, TRUE, _flag("v2_compressed")),
            (8, STRUCT, _STATISTICS),
        ),
    ),
)
"""The fields of a PageHeader."""

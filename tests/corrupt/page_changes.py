"""Changes of pages, chosen by a seeded generator: of levels, runs, lengths, indices into dictionaries,
headers."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

from accel.format.thrift import encode_varint
from tests.corrupt.page_parts import Page

__all__ = ["INDEXED", "change_page"]

INDEXED = (2, 8)
"""PLAIN_DICTIONARY and RLE_DICTIONARY."""
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
Run = tuple[int, bytes]
"""The number that a run begins with, and its values."""


def change_page(page: Page, rng: random.Random) -> Page:
    """The page with one to three changes."""
    page = copy.deepcopy(page)
    for _ in range(rng.choice([1, 1, 2, 3])):
        rng.choice(_changes(page))(page, rng)
    return page


def _changes(page: Page) -> list[Callable[[Page, random.Random], None]]:
    found = [_change_values, _change_header, _change_sizes]
    if page.kind != _DICTIONARY:
        if page.encoding in INDEXED:
            found += [_change_index_runs] * 4 + [_change_width]
        if page.definition:
            found += [_change_definition] * 3
        if page.repetition:
            found += [_change_repetition] * 3
        if page.kind == _DATA and (page.repetition or page.definition):
            found.append(_change_prefix)
    return found


def _change_values(page: Page, rng: random.Random) -> None:
    page.values = _other_bytes(page.values, rng)


def _change_index_runs(page: Page, rng: random.Random) -> None:
    if page.values:
        page.values = page.values[:1] + _other_runs(page.values[1:], page.values[0], rng)


def _change_width(page: Page, rng: random.Random) -> None:
    if page.values:
        width = rng.choice([0, page.values[0] - 1, page.values[0] + 1, 8, 31, 32, 33, 64, 255]) & 0xFF
        page.values = bytes([width]) + page.values[1:]


def _change_definition(page: Page, rng: random.Random) -> None:
    page.definition = _other_runs(page.definition, rng.choice([1, 1, 2, 3]), rng)


def _change_repetition(page: Page, rng: random.Random) -> None:
    page.repetition = _other_runs(page.repetition, rng.choice([1, 1, 2]), rng)


def _change_prefix(page: Page, rng: random.Random) -> None:
    part = rng.choice(["repetition", "definition"])
    page.prefixes[part] = rng.choice([-1, 1, -2, 4, 100, 1 << 31, -len(page.definition)])


def _change_header(page: Page, rng: random.Random) -> None:
    # Of a v1 page: values, encoding, encoding of levels. Of a v2 page also nulls, rows, lengths of levels.
    numbers = {_DATA: [11, 11, 12, 13, 14], _DICTIONARY: [11, 12], _DATA_V2: [11, 12, 13, 14, 15, 16]}
    page.sizes[rng.choice(numbers[page.kind])] = rng.choice([-1, 1, -2, 3, 8, 1 << 20])
    if page.kind == _DATA_V2 and rng.random() < 0.2 and 7 in page.own:
        page.own[7] = (page.own[7][0], not page.own[7][1])


def _change_sizes(page: Page, rng: random.Random) -> None:
    if rng.random() < 0.5:
        page.sizes[rng.choice([2, 2, 3])] = rng.choice([-1, 1, -4, 8])
    else:
        page.cut = rng.choice([1, 2, 5])


def _other_bytes(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one change."""
    out = bytearray(data)
    at = rng.randrange(len(out) + 1)
    few = rng.choice([1, 1, 2, 4, 8])
    way = rng.randrange(7)
    if way == 0:
        del out[at : at + few]
    elif way == 1:
        out[at:at] = rng.randbytes(few)
    elif way == 2:
        out += rng.choice([bytes(few), rng.randbytes(few)])
    elif way == 3:
        del out[len(out) - few :]
    elif at < len(out):
        out[at] = rng.choice(
            [0, 0xFF, out[at] ^ 1 << rng.randrange(8), (out[at] + 1) & 0xFF, out[at] - 1 & 0xFF]
        )
    return bytes(out)


def _other_runs(data: bytes, width: int, rng: random.Random) -> bytes:
    """Runs with one change; bytes with one where they are no runs."""
    runs = _parse(data, width)
    if not runs or rng.random() < 0.15:
        return _other_bytes(data, rng)
    at = rng.randrange(len(runs))
    head, values = runs[at]
    way = rng.randrange(10)
    if way == 0:
        count = rng.choice(
            [0, 1, head >> 1 ^ 1, (head >> 1) + 1, 1 << 24, 1 << 28, (1 << 31) - 1, 1 << 31, 1 << 34]
        )
        runs[at] = count << 1 | head & 1, values
    elif way == 1:
        runs[at] = head ^ 1, values
    elif way == 2:
        del runs[at]
    elif way == 3:
        runs.insert(at, runs[rng.randrange(len(runs))])
    elif way == 4:
        whole = (width + 7) >> 3
        runs.insert(rng.randrange(len(runs) + 1), (rng.choice([1, 2, 9, 100]) << 1, rng.randbytes(whole)))
    elif way == 5:
        groups = rng.choice([1, 2, 5])
        runs.append((groups << 1 | 1, rng.randbytes(groups * width)))
    elif way == 6 and not head & 1 and head >> 1 > 1:
        runs[at : at + 1] = [(2, values), ((head >> 1) - 1 << 1, values)]
    elif way == 7:
        runs[at] = head, rng.randbytes(len(values))
    elif way == 8:
        runs[at] = head, values[:-1] if rng.random() < 0.5 else values + b"\0"
    else:
        runs[at] = head, _other_bytes(values, rng)
    out = b""
    for head, values in runs:
        number = encode_varint(head)
        if rng.random() < 0.03:
            # The same number in more bytes than it takes.
            number = number[:-1] + bytes([number[-1] | 0x80]) + b"\x80" * rng.randrange(4) + b"\0"
        out += number + values
    return out


def _parse(data: bytes, width: int) -> list[Run]:
    runs: list[Run] = []
    at = 0
    while at < len(data):
        head = shift = 0
        while True:
            if at >= len(data) or shift > 35:
                return runs
            byte = data[at]
            head |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        size = (head >> 1) * width if head & 1 else (width + 7) >> 3
        runs.append((head, data[at : at + size]))
        at += size
    return runs

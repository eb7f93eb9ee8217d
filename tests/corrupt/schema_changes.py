"""Changes of a file's footer, chosen by a seeded generator: of its schema above all."""

from __future__ import annotations

import random
from typing import Any

from accel.format.thrift import BINARY, I8, I16, I32, I64, LIST, STRUCT, ThriftList, read_struct, write_struct

__all__ = ["change_footer", "with_schema_of"]

Struct = dict[int, Any]
_SCHEMA, _ORDERS = 2, 7
_SIZES = {I8: 8, I16: 16, I32: 32, I64: 64}
_CONVERTED = range(22)
_LOGICAL = (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18)


def change_footer(data: bytes, rng: random.Random) -> bytes:
    """The file with one to three changes of its footer."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(data[-8 - length : -8])
    for _ in range(rng.choice([1, 1, 2, 3])):
        if rng.random() < 0.75:
            _change_schema(footer[_SCHEMA][1].items, rng)
        else:
            _change_any(footer, rng)
    blob = bytes(write_struct(footer))
    if rng.random() < 0.1:
        at = rng.randrange(len(blob))
        blob = blob[:at] + bytes([blob[at] ^ 1 << rng.randrange(8)]) + blob[at + 1 :]
    return data[: -8 - length] + blob + len(blob).to_bytes(4, "little") + b"PAR1"


def with_schema_of(changed: bytes, intact: bytes) -> bytes:
    """The file before its footer was changed, but for its schema. Nothing of it orders values any more."""
    footers = []
    for data in (changed, intact):
        length = int.from_bytes(data[-8:-4], "little")
        footers.append(read_struct(data[-8 - length : -8])[0])
    footer = {number: field for number, field in footers[1].items() if number != _ORDERS}
    footer[_SCHEMA] = footers[0][_SCHEMA]
    blob = bytes(write_struct(footer))
    return intact[: -8 - length] + blob + len(blob).to_bytes(4, "little") + b"PAR1"


def _change_schema(elements: list[Struct], rng: random.Random) -> None:
    if not elements:
        return
    at = rng.randrange(len(elements))
    element = elements[at]
    way = rng.randrange(12)
    if way == 0:
        del elements[at]
    elif way == 1:
        elements.insert(rng.randrange(len(elements) + 1), dict(element))
    elif way == 2:
        elements.insert(
            at + 1, {3: (I32, rng.randrange(3)), 4: (BINARY, b"group"), 5: (I32, rng.choice([0, 1]))}
        )
        _grow(elements, at, rng)
    elif way == 3:
        other = rng.randrange(len(elements))
        elements[at], elements[other] = elements[other], elements[at]
    elif way == 4:
        element[5] = (I32, rng.choice([-1, 0, 1, 2, 3, 1 << 20, (1 << 31) - 1]))
    elif way == 5:
        element[1] = (I32, rng.choice([*range(8), 8, 77, -1]))
    elif way == 6:
        element[3] = (I32, rng.choice([0, 1, 2, 3, -1]))
    elif way == 7:
        element[6] = (I32, rng.choice([*_CONVERTED, 22, 99, -1]))
    elif way == 8:
        element[10] = (STRUCT, {rng.choice(_LOGICAL): (STRUCT, _parameters(rng))})
    elif way == 9:
        element[4] = (
            BINARY,
            rng.choice([b"", b"n", b"a.b", b"list", b"element", b"\xff", "é".encode(), b"x" * 300]),
        )
    elif way == 10:
        element[rng.choice([2, 7, 8])] = (I32, rng.choice([-1, 0, 1, 3, 16, 39, 1 << 30]))
    else:
        element.pop(rng.choice(list(element)), None)


def _grow(elements: list[Struct], at: int, rng: random.Random) -> None:
    """Let a group have one child more, mostly."""
    if rng.random() < 0.7:
        group = elements[at] if 5 in elements[at] else elements[0]
        group[5] = (I32, group.get(5, (I32, 0))[1] + 1)


def _parameters(rng: random.Random) -> Struct:
    if rng.random() < 0.4:
        return {}
    return {1: (I32, rng.choice([-1, 0, 2, 40])), 2: (I32, rng.choice([0, 1, 18, 39, 77]))}


def _change_any(struct: Struct, rng: random.Random) -> None:
    """Change, drop or retype a field anywhere."""
    holder: Any = struct
    while True:
        places = list(range(len(holder))) if isinstance(holder, list) else list(holder)
        if not places:
            return
        place = rng.choice(places)
        kind, value = (STRUCT, holder[place]) if isinstance(holder, list) else holder[place]
        if isinstance(value, ThriftList) and value.items and isinstance(value.items[0], dict):
            holder = value.items
        elif isinstance(value, dict) and rng.random() < 0.95:
            holder = value
        elif isinstance(holder, list) or kind == LIST or rng.random() < 0.3:
            del holder[place]
            return
        elif kind in _SIZES:
            top = (1 << _SIZES[kind] - 1) - 1
            holder[place] = (
                kind,
                max(-top, min(top, rng.choice([0, 1, -1, value + 1, value - 1, top, -top]))),
            )
            return
        else:
            holder[place] = (BINARY, rng.choice([b"", b"\xff", b"x" * 40]))
            return

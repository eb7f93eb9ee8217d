"""Page headers: each field, and lies."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from accel.errors import ParquetFormatError
from accel.format.page_header import parse_page_header
from accel.format.thrift import BINARY, FALSE, I32, STRUCT, TRUE, write_struct


def header(kind: int, *, size: int = 100, stored: int = 60, crc: int | None = None, **inner: dict) -> bytes:
    fields: dict = {1: (I32, kind), 2: (I32, size), 3: (I32, stored)}
    if crc is not None:
        fields[4] = (I32, crc)
    fields |= {int(name[1:]): (STRUCT, value) for name, value in inner.items()}
    return write_struct(fields)


V1 = {1: (I32, 10), 2: (I32, 8), 3: (I32, 3), 4: (I32, 3), 5: (STRUCT, {6: (BINARY, b"min")})}
V2 = {1: (I32, 10), 2: (I32, 4), 3: (I32, 9), 4: (I32, 0), 5: (I32, 6), 6: (I32, 2)}
DICTIONARY = {1: (I32, 7), 2: (I32, 2), 3: (TRUE, True)}

PLAIN = {
    "uncompressed_size": 100,
    "compressed_size": 60,
    "num_rows": -1,
    "num_nulls": -1,
    "repetition_bytes": 0,
    "definition_bytes": 0,
    "is_compressed": True,
    "crc": None,
    "level_encoding": -1,
}
HEADERS = {
    "v1": (header(0, f5=V1), {"type": 0, "num_values": 10, "encoding": 8, "level_encoding": 3}),
    "v1 with crc": (
        header(0, crc=-2, f5=V1),
        {"type": 0, "num_values": 10, "encoding": 8, "crc": 0xFFFFFFFE, "level_encoding": 3},
    ),
    "dictionary": (header(2, f7=DICTIONARY), {"type": 2, "num_values": 7, "encoding": 2}),
    "v2": (
        header(3, f8=V2),
        {
            "type": 3,
            "num_values": 10,
            "num_nulls": 4,
            "num_rows": 9,
            "encoding": 0,
            "definition_bytes": 6,
            "repetition_bytes": 2,
        },
    ),
    "index page": (header(1, f6={}), {"type": 1, "num_values": 0, "encoding": -1}),
    "page of the future": (header(9), {"type": 9, "num_values": 0, "encoding": -1}),
    "another page's header besides": (
        header(0, f5=V1, f8=V2),
        {"type": 0, "num_values": 10, "encoding": 8, "level_encoding": 3},
    ),
}


@pytest.mark.parametrize(("encoded", "fields"), HEADERS.values(), ids=HEADERS.keys())
def test_headers(encoded, fields):
    found = parse_page_header(b"..." + encoded + b"body", 3)
    assert asdict(found) == PLAIN | fields | {"header_length": len(encoded)}


@pytest.mark.parametrize(("flag", "outcome"), [(TRUE, True), (FALSE, False)])
def test_a_v2_page_says_whether_it_is_compressed(flag, outcome):
    encoded = header(3, f8=V2 | {7: (flag, outcome)})
    assert parse_page_header(encoded).is_compressed is outcome


LIES = {
    "no type": write_struct({2: (I32, 1), 3: (I32, 1)}),
    "negative type": header(-3, f5=V1),
    "no sizes": write_struct({1: (I32, 0), 5: (STRUCT, V1)}),
    "negative size": header(0, stored=-1, f5=V1),
    "negative uncompressed size": header(0, size=-1, f5=V1),
    "size beyond 31 bits": header(0, stored=1 << 31, f5=V1),
    "crc beyond 32 bits": header(0, crc=1 << 33, f5=V1),
    "no inner header": header(0),
    "another page's inner header": header(0, f7=DICTIONARY),
    "negative values": header(0, f5=V1 | {1: (I32, -1)}),
    "no values": header(0, f5={2: (I32, 0)}),
    "no encoding": header(0, f5={1: (I32, 1)}),
    "encoding beyond a byte": header(0, f5=V1 | {2: (I32, 300)}),
    "dictionary without values": header(2, f7={2: (I32, 0)}),
    "levels longer than the page": header(3, f8=V2 | {5: (I32, 59)}),
    "negative levels": header(3, f8=V2 | {5: (I32, -6), 6: (I32, 6)}),
    "more nulls than values": header(3, f8=V2 | {2: (I32, 11)}),
    "more rows than values": header(3, f8=V2 | {3: (I32, 11)}),
    **{f"v2 without field {n}": header(3, f8={k: v for k, v in V2.items() if k != n}) for n in range(1, 7)},
    **{f"v1 without field {n}": header(0, f5={k: v for k, v in V1.items() if k != n}) for n in range(1, 5)},
    "ends early": header(0, f5=V1)[:-1],
    "nothing": b"",
}


@pytest.mark.parametrize("encoded", LIES.values(), ids=LIES.keys())
def test_headers_that_cannot_be_are_refused(encoded):
    with pytest.raises(ParquetFormatError) as caught:
        parse_page_header(encoded)
    assert caught.value.place == "page header at byte 0"

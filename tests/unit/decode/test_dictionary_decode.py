"""Few values picked from dictionary-encoded pages, and the pages that are left to pyarrow."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode import columns, dictionary_decode, direct_decoders
from accel.decode.dictionary_decode import PickedPages
from accel.errors import MemoryLimitError, ParquetFormatError
from accel.format.thrift import encode_varint
from accel.planning.selection import RowSelection
from tests.unit.decode.selected import assert_same, decode, truth


def _packed(values: list[int], width: int) -> bytes:
    groups = len(values) // 8
    number = sum(value << (place * width) for place, value in enumerate(values))
    return encode_varint(groups << 1 | 1) + number.to_bytes(groups * width, "little")


def _repeated(value: int, times: int, width: int) -> bytes:
    return encode_varint(times << 1) + value.to_bytes((width + 7) // 8, "little")


def _pick(data: bytes, count: int, wanted: list[int], *, entries: int = 1 << 32) -> list[int] | None:
    pages = PickedPages(entries)
    found = pages.indices(np.array(wanted, np.int64)) if pages.add(data, count) else None
    return None if found is None else found.tolist()


@pytest.mark.parametrize("width", range(33))
def test_every_width(width: int) -> None:
    rng = random.Random(width)
    top = (1 << width) - 1
    values: list[int] = []
    data = bytes([width])
    for _ in range(12):
        if rng.random() < 0.5:
            run = [rng.choice([0, top, rng.randint(0, top)]) for _ in range(8 * rng.randrange(1, 70))]
            data += _packed(run, width)
        else:
            run = [rng.randint(0, top)] * rng.randrange(1, 300)
            data += _repeated(run[0], len(run), width)
        values += run
    last = [rng.randint(0, top) for _ in range(8)]
    data, values = data + _packed(last, width), values + last
    count = len(values) - 3  # the last group may be filled up
    assert _pick(data, count, list(range(count))) == values[:count]
    few = sorted(rng.sample(range(count), 5))
    assert _pick(data, count, few) == [values[place] for place in few]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x03",
        b"\x21\x14\x00\x00\x00\x00\x00",
        b"\x03\x00\x00",
        b"\x03\x01",
        b"\x03\x05\x00\x00\x00",
        b"\x08\x14",
        b"\x03\x80\x80\x80\x80\x80\x01\x00",
        b"\x03\x06\x01",
        b"\x03\x80\x80\x80\x80\x10\x01",
        b"\x03\x16\x01",
        b"\x01\x07\x00\x00\x00",
        b"\x03\x14\x08",
    ],
    ids=[
        "nothing",
        "no run",
        "too wide",
        "no values in a run",
        "no groups",
        "ends early",
        "no value",
        "long head",
        "too few",
        "a run of 2**31",
        "a run of one too many",
        "a group too many",
        "a value of too many bits",
    ],
)
def test_bytes_that_are_left_to_pyarrow(data: bytes) -> None:
    assert _pick(data, 10, [0]) is None


@pytest.mark.parametrize("groups", [1, 3, 63, 64, 200])
@pytest.mark.parametrize("width", [0, 1, 7, 17, 32])
@pytest.mark.parametrize("runs", [1, 2, 9, 600])
def test_packed_runs_of_one_length_in_a_row(groups: int, width: int, runs: int) -> None:
    """As writers have them, a shorter one at the end; and with another run between them."""
    if runs == 600 and groups > 3:
        return
    rng = random.Random(groups)
    parts = [[rng.getrandbits(32) & ((1 << width) - 1) for _ in range(8 * groups)] for _ in range(runs)]
    parts.append(parts[0][:8])
    data = bytes([width]) + b"".join(_packed(part, width) for part in parts)
    values = [value for part in parts for value in part]
    count = len(values) - 5
    assert _pick(data, count, list(range(count))) == values[:count]
    assert _pick(data, count, [0, count - 1]) == [values[0], values[count - 1]]
    assert _pick(data[:-1], count, [0]) is None or not width
    between = data + _repeated(1 if width else 0, 20, width) + data[1:]
    more = [*values, *[1 if width else 0] * 20, *values]
    assert _pick(between, len(more), list(range(len(more)))) == more


def test_too_many_runs_are_left_to_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\x01" + _repeated(1, 1, 1) * 10
    assert _pick(data, 10, [0, 9]) == [1, 1]
    monkeypatch.setattr(dictionary_decode, "MOST_RUNS", 9)
    assert _pick(data, 10, [0, 9]) is None


@pytest.mark.parametrize("seed", range(12))
def test_pages_are_read_together_as_one_by_one(seed: int) -> None:
    """Of different widths and counts, the last group of each filled up."""
    rng = random.Random(seed)
    pages, wanted, expected, first = PickedPages(1 << 32), [], [], 0
    for _ in range(rng.randrange(1, 9)):
        width = rng.choice([0, 1, 5, 17, 32]) if seed % 3 else 17
        data, count = bytes([width]), 0
        for _ in range(rng.randrange(1, 6)):
            part = [rng.getrandbits(32) & ((1 << width) - 1) for _ in range(8 * rng.randrange(1, 40))]
            if rng.random() < 0.4:
                data += _repeated(part[0], len(part), width)
            else:
                data += _packed(part, width)
            count += len(part)
        data, count = data + _packed(part[:8], width), count + rng.randrange(1, 9)
        some = sorted(rng.sample(range(count), rng.randrange(1, count)))
        assert pages.add(data, count)
        expected += _pick(data, count, some) or []
        wanted += [first + place for place in some]
        first += count
    found = pages.indices(np.array(wanted, np.int64))
    assert found is not None and found.tolist() == expected


def test_each_page_must_hold_its_values() -> None:
    pages = PickedPages(1 << 32)
    assert pages.add(b"\x03" + _packed([1] * 16, 3), 10)
    assert not pages.add(b"\x03" + _packed([1] * 8, 3), 10)


def _write(array: pa.Array, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    settings: dict[str, Any] = {"write_page_index": True, "max_rows_per_page": 100, "write_batch_size": 10}
    pq.write_table(pa.Table.from_arrays([array], ["c"]), sink, **{**settings, **options})
    return bytes(sink.getvalue())


_COLUMNS = {
    "numbers": pa.array([row * 7 % 400 for row in range(1000)]),
    "moments": pa.array([row * 7 % 400 for row in range(1000)], pa.timestamp("us", "UTC")),
    "texts of one length": pa.array([f"{row * 7 % 400:05}" for row in range(1000)]),
    "texts": pa.array(["x" * (row % 9) for row in range(1000)]),
    "one text": pa.array(["x"] * 1000),
    "decimals": pa.array(range(1000)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(30, 0)),
}
_PAGES: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2": {"data_page_version": "2.0"},
    "zstd, checksums": {"compression": "zstd", "write_page_checksum": True},
}


@pytest.mark.parametrize("array", _COLUMNS.values(), ids=_COLUMNS)
@pytest.mark.parametrize("options", _PAGES.values(), ids=_PAGES)
def test_few_rows_need_no_reader(
    array: pa.Array, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _write(array, **options)
    few = RowSelection.of([(3, 4), (250, 252), (999, 1000)])
    expected = truth(data, few)
    decode(data, few)  # schemas are settled by pyarrow, once, and so are dictionaries of several lengths
    monkeypatch.setattr(columns, "open_reader", None)
    assert_same(decode(data, few), expected)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(range(1000)),
        pa.array([f"{row:05}" for row in range(1000)]),
        pa.array(range(1000)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(30, 0)),
    ],
    ids=["numbers", "texts of one length", "decimals"],
)
@pytest.mark.parametrize("options", _PAGES.values(), ids=_PAGES)
def test_a_full_dictionary_and_the_plain_pages_behind_it_need_no_reader(
    array: pa.Array, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _write(array, **options, dictionary_pagesize_limit=1500)
    meta = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(meta.encodings)
    some = [
        RowSelection.of([(3, 4), (250, 252), (999, 1000)]),
        RowSelection.of([(5, 6), (7, 9)]),
        RowSelection.of([(700, 702), (990, 1000)]),
        RowSelection.of([(0, 1000)]),
    ]
    expected = [truth(data, rows) for rows in some]
    decode(data, some[0])  # schemas are settled by pyarrow, once
    monkeypatch.setattr(columns, "open_reader", None)
    for rows, rows_expected in zip(some, expected, strict=True):
        assert_same(decode(data, rows), rows_expected)


def test_pages_behind_a_full_dictionary_that_have_nulls_are_decoded_by_pyarrow() -> None:
    array = pa.array([None if row == 990 else row for row in range(1000)])
    data = _write(array, dictionary_pagesize_limit=1500)
    for rows in (RowSelection.of([(3, 4), (989, 992)]), RowSelection.all(1000)):
        assert_same(decode(data, rows), truth(data, rows))


def test_many_pages_of_many_runs_are_decoded_by_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look through their runs one by one takes longer; of one page it never does."""
    array = pa.array([row // 9 % 50 for row in range(1000)])  # a run of each value
    data = _write(array)
    few, one = RowSelection.of([(row, row + 1) for row in range(5, 1000, 100)]), RowSelection.of([(5, 6)])
    expected = truth(data, few), truth(data, one)
    found: list[bool] = []
    read_picks = direct_decoders.read_picks
    monkeypatch.setattr(
        direct_decoders,
        "read_picks",
        lambda *a, **k: (array := read_picks(*a, **k), found.append(array is not None))[0],
    )
    for most, picked in ((1000, True), (100, False)):
        monkeypatch.setattr(dictionary_decode, "MOST_LOOKED_AT", most)
        assert_same(decode(data, few), expected[0])
        assert_same(decode(data, one), expected[1])
        assert found == [picked, True]
        found.clear()
    looked: list[bytes] = []
    add = PickedPages.add
    monkeypatch.setattr(PickedPages, "add", lambda self, data, *a: looked.append(data) or add(self, data, *a))
    assert_same(decode(data, few), expected[0])
    assert len(looked) == 1  # the other nine are taken to be as the first
    # Nothing is saved any more once the last page has been looked through, which has more runs than the
    # first.
    data = _write(pa.concat_arrays([pa.repeat(0, 100).cast(array.type), array]))
    two = RowSelection.of([(5, 6), (105, 106)])
    monkeypatch.setattr(dictionary_decode, "MOST_LOOKED_AT", 4)
    found.clear()
    assert_same(decode(data, two), truth(data, two))
    assert found == [True]


def test_most_rows_of_several_columns_are_decoded_by_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _write(_COLUMNS["numbers"])
    # Of all pages.
    half = RowSelection.of([(at, at + 50) for at in range(0, 1000, 100)])
    more = RowSelection.of([*half, (999, 1000)])
    expected = truth(data, half), truth(data, more)
    picked = []
    read_picks = direct_decoders.read_picks
    monkeypatch.setattr(
        direct_decoders, "read_picks", lambda *a, **k: picked.append(1) or read_picks(*a, **k)
    )
    assert_same(decode(data, more), expected[1])
    assert picked  # one column alone
    picked.clear()
    monkeypatch.setattr(direct_decoders, "SEVERAL", 1)
    assert_same(decode(data, more), expected[1])
    assert not picked
    assert_same(decode(data, half), expected[0])
    assert picked
    picked.clear()
    # Of a dictionary of more entries than there are rows, the few are looked up.
    data, page = _write(pa.array(np.arange(1000))), RowSelection.of([(100, 200)])
    assert_same(decode(data, page), truth(data, page))
    assert picked


def test_many_rows_are_decoded_by_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _write(_COLUMNS["numbers"])
    monkeypatch.setattr(direct_decoders, "MOST_PICKED", 999)
    monkeypatch.setattr(direct_decoders, "read_picks", None)
    assert_same(decode(data, RowSelection.all(1000)), truth(data, RowSelection.all(1000)))


@pytest.mark.parametrize("array", _COLUMNS.values(), ids=_COLUMNS)
def test_one_row_in_many_is_picked_however_many_there_are(
    array: pa.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _write(array)
    rare, few = RowSelection.of([(2, 4), (500, 501)]), RowSelection.of([(2, 900)])
    expected = truth(data, rare), truth(data, few)
    monkeypatch.setattr(direct_decoders, "MOST_PICKED", 10)
    monkeypatch.setattr(direct_decoders, "RARE", 10)
    assert_same(decode(data, few), expected[1])
    picked = []
    read_picks = direct_decoders.read_picks
    monkeypatch.setattr(
        direct_decoders, "read_picks", lambda *a, **k: picked.append(1) or read_picks(*a, **k)
    )
    assert_same(decode(data, few), expected[1])
    assert not picked
    assert_same(decode(data, rare), expected[0])
    assert picked


@pytest.mark.parametrize("data_page_version", ["1.0", "2.0"])
@pytest.mark.parametrize(
    "array",
    [pa.array(range(1000)), pa.array([f"{row:05}" for row in range(1000)])],
    ids=["numbers", "texts of one length"],
)
def test_up_to_half_of_the_rows_are_picked_where_plain_pages_follow(
    array: pa.Array, data_page_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _write(array, data_page_version=data_page_version, dictionary_pagesize_limit=1500)
    half = RowSelection.of([(row, row + 1) for row in range(0, 1000, 2)])
    more = RowSelection.of([*half, (999, 1000)])
    expected = truth(data, half), truth(data, more)
    monkeypatch.setattr(direct_decoders, "MOST_PICKED", 999)
    decode(data, half)  # schemas are settled by pyarrow, once
    read: list[int] = []
    open_reader = columns.open_reader
    monkeypatch.setattr(columns, "open_reader", lambda *a, **k: read.append(1) or open_reader(*a, **k))
    assert_same(decode(data, half), expected[0])
    assert not read
    assert_same(decode(data, more), expected[1])
    assert read


@pytest.mark.parametrize("lengths", [[4000], [4000, 1]], ids=["of one length", "of two"])
def test_texts_are_picked_if_they_fit_the_memory_limit(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the rows hold, not by what the size of the dictionary allows."""
    texts = [letter * lengths[at % len(lengths)] for at, letter in enumerate("abcdefgh")]
    rows = 100
    data = _write(pa.array([texts[row % 8] for row in range(rows)]), max_rows_per_page=rows)
    found: list[bool] = []
    read_picks = direct_decoders.read_picks
    monkeypatch.setattr(
        direct_decoders,
        "read_picks",
        lambda *a, **k: (array := read_picks(*a, **k), found.append(array is not None))[0],
    )
    some = RowSelection.of([(row, row + 1) for row in range(0, rows, 8)])
    size = some.count * 4000
    assert_same(decode(data, some, memory_limit=size), truth(data, some))
    assert found == [True]
    with pytest.raises(MemoryLimitError):
        decode(data, some, memory_limit=size - 1)
    assert found == [True, False]


def test_damage_is_told() -> None:
    data = _write(_COLUMNS["numbers"], compression="none", write_page_checksum=True, use_dictionary=True)
    at = data.index((7).to_bytes(8, "little"))
    broken = data[:at] + b"\x99" + data[at + 1 :]
    with pytest.raises(ParquetFormatError, match="row group 0, column c.*CRC"):
        decode(broken, RowSelection.of([(3, 4)]))


def test_an_index_beyond_the_dictionary_is_refused() -> None:
    data = _write(pa.array([f"{row % 3:05}" for row in range(1000)]), compression="none")
    # Two bits each: 0 1 2 0 | 1 2 0 1 | ...; the first four become 3.
    at = data.index(bytes([0b00100100, 0b01001001]))
    broken = data[:at] + b"\xff" + data[at + 1 :]
    with pytest.raises(ParquetFormatError, match="row group 0, column c"):
        decode(broken, RowSelection.of([(1, 2)]))


@pytest.mark.parametrize(
    ("data", "count"),
    [
        pytest.param(b"\x03" + _packed([1] * 8, 3) + b"\x00", 8, id="more bytes"),
        pytest.param(b"\x03" + _packed([1] * 8, 3) + _packed([1] * 8, 3), 8, id="another run"),
        pytest.param(b"\x03" + _repeated(5, 8, 3) + _repeated(1, 8, 3), 16, id="a run of no entry"),
        pytest.param(b"\x03" + _packed([1, 1, 1, 5, 1, 1, 1, 1], 3), 8, id="no entry beside"),
        pytest.param(b"\x03" + _packed([1] * 800 + [1, 1, 1, 1, 5, 1, 1, 1], 3), 808, id="no entry far away"),
    ],
)
def test_pages_that_are_not_as_writers_make_them_are_left_to_pyarrow(data: bytes, count: int) -> None:
    """A dictionary of five. What pyarrow refuses of a page was not looked at where one row of it was
    picked."""
    assert _pick(data, count, [0], entries=5) is None


@pytest.mark.parametrize("seed", range(4))
def test_damage_to_a_page_gives_just_what_its_runs_say(seed: int) -> None:
    """Any flip in runs of either kind: the indices are those that a plain loop over the runs gives, or
    none."""
    rng = random.Random(seed)
    read = 0
    for _ in range(60):
        entries = rng.choice([2, 5, 20, 129, 1000])
        width = (entries - 1).bit_length()
        data, count = bytes([width]), 0
        for _ in range(rng.randrange(1, 4)):
            values = [rng.randrange(entries) for _ in range(8 * rng.randrange(1, 30))]
            packed = rng.random() < 0.6
            data += _packed(values, width) if packed else _repeated(values[0], len(values), width)
            count += len(values)
        for _ in range(10):
            damaged = bytearray(data)
            damaged[rng.randrange(min(len(data), rng.choice([4, 400])))] ^= 1 << rng.randrange(8)
            found = _pick(bytes(damaged), count, list(range(count)), entries=entries)
            if found is not None:
                read += 1
                assert found == _plain_loop(bytes(damaged), count)
                assert max(found) < entries
    assert read


def _plain_loop(data: bytes, count: int) -> list[int]:
    width, at, values = data[0], 1, []
    while len(values) < count:
        head = shift = 0
        while True:
            byte, at = data[at], at + 1
            head |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        size = (head >> 1) * width if head & 1 else (width + 7) // 8
        number = int.from_bytes(data[at : at + size], "little")
        at += size
        if head & 1:
            values += [number >> place * width & ((1 << width) - 1) for place in range(8 * (head >> 1))]
        else:
            values += [number] * (head >> 1)
    return values[:count]


def test_what_fills_up_the_last_group_of_a_page_is_no_index() -> None:
    """A dictionary of five: writers put zeros there, and others may put anything."""
    data = b"\x03" + _packed([1, 2, 3, 4, 0, 1] * 4, 3) + _packed([4, 3, 7, 7, 7, 7, 7, 7], 3)
    assert _pick(data, 26, [24, 25], entries=5) == [4, 3]
    assert _pick(data, 26, list(range(26)), entries=5) == [1, 2, 3, 4, 0, 1] * 4 + [4, 3]
    assert _pick(data, 27, [24, 25], entries=5) is None

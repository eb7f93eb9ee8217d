"""Values that are read as dictionary indices and looked up: the same texts, the same limits, no index out of
bounds."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel import kernels
from accel.decode import dictionary_arrays, dictionary_decode, units
from accel.decode.arrow import projected_schema
from accel.decode.columns import StoredRowGroup, decode_columns
from accel.decode.dictionary_arrays import Values, is_indexed, look_up, take_texts
from accel.decode.dictionary_decode import stays_indexed
from accel.decode.verify import PageFacts, verify_chunk
from accel.errors import MemoryLimitError, ParquetFormatError
from accel.format.model import Codec
from accel.planning.selection import RowSelection
from tests.unit.decode.selected import (
    assert_same,
    chosen_pages,
    decode,
    open_metadata,
    random_rows,
    truth,
)


@pytest.fixture(autouse=True)
def _few_stay_indices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary_decode, "FEW_VALUES", 0)


_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    # Whose indices are the file's own type.
    pa.dictionary(pa.int32(), pa.string()),
]


def _write(array: pa.Array, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays([array], names=["s"]),
        sink,
        **{"write_page_index": True, "max_rows_per_page": 40, "write_batch_size": 40, **options},
    )
    return sink.getvalue().to_pybytes()


def _values(rng: random.Random, rows: int, different: int, nulls: float) -> list[str | None]:
    return [None if rng.random() < nulls else f"{rng.randrange(different)}é" * 3 for _ in range(rows)]


def _indexed(data: bytes, rows: RowSelection) -> pa.Array | pa.ChunkedArray:
    meta = open_metadata(data)
    return decode_columns(
        StoredRowGroup("file.parquet", 0, meta.schema, meta.key_value),
        {0: chosen_pages(data, meta, 0, 0, rows)},
        rows=rows,
        arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=[0]),
        values=Values.INDEXED,
    )[0]


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", _TYPES, ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data_page_version": "2.0"},
        {"dictionary_pagesize_limit": 200},
        {"use_dictionary": False},
        {"compression": "zstd", "store_schema": False},
    ],
    ids=["dictionary", "v2", "falls back to plain", "plain", "no Arrow schema"],
)
def test_both_ways_give_the_same_texts(
    kind: pa.DataType, nulls: float, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{kind} {nulls} {options}")
    data = _write(pa.array(_values(rng, 400, 30, nulls), pa.string()).cast(kind), **options)
    for _ in range(12):
        rows = random_rows(rng, 400)
        expected = truth(data, rows)
        assert_same(decode(data, rows), expected)
        found = _indexed(data, rows)
        if is_indexed(found, expected.schema.types[0]):
            found = look_up(found, expected.schema.types[0], memory_limit=None, place="here")
        assert found.to_pylist() == expected["s"].to_pylist()
        with monkeypatch.context() as patch:
            patch.setattr(units, "stays_indexed", lambda *given, **named: False)
            assert_same(decode(data, rows), expected)


def _facts(data: bytes, rows: RowSelection) -> PageFacts:
    meta = open_metadata(data)
    chunk = chosen_pages(data, meta, 0, 0, rows)
    return verify_chunk(
        chunk, meta.schema.leaves[0], element=meta.schema.elements[1], memory_limit=None, place=lambda: "here"
    )


@pytest.mark.parametrize(
    ("rows", "options", "stays"),
    [
        (400, {}, True),
        (30, {}, False),
        (400, {"dictionary_pagesize_limit": 200}, False),
        (400, {"use_dictionary": False}, False),
    ],
    ids=["each is named", "more entries than values", "falls back to plain", "plain"],
)
def test_which_texts_stay_indices(rows: int, options: dict[str, Any], stays: bool) -> None:
    data = _write(pa.array(_values(random.Random(1), 400, 100, 0.1)), **options)
    element, facts = open_metadata(data).schema.elements[1], _facts(data, RowSelection.all(rows))
    assert stays_indexed(pa.string(), element, facts=facts, codec=Codec.SNAPPY) is stays
    assert stays_indexed(pa.string_view(), element, facts=facts, codec=Codec.SNAPPY) is stays
    assert stays_indexed(pa.string(), element, facts=facts, codec=Codec.BROTLI) is False


def test_few_values_of_a_small_dictionary_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _write(pa.array(_values(random.Random(1), 400, 100, 0.1)))
    element, facts = open_metadata(data).schema.elements[1], _facts(data, RowSelection.all(400))
    assert facts.dictionary is not None
    large = replace(facts.dictionary, header=facts.dictionary.header._replace(uncompressed_size=1 << 20))
    for few, named, stays in (
        (400, facts.dictionary, False),
        (399, facts.dictionary, True),
        (400, large, True),
    ):
        monkeypatch.setattr(dictionary_decode, "FEW_VALUES", few)
        found = stays_indexed(
            pa.string(), element, facts=replace(facts, dictionary=named), codec=Codec.SNAPPY
        )
        assert found is stays
    monkeypatch.setattr(dictionary_decode, "FEW_VALUES", 400)
    monkeypatch.setattr(dictionary_decode, "dictionary_values", None)
    assert_same(decode(data, RowSelection.all(400)), truth(data, RowSelection.all(400)))


_ONCE = {
    "of one length": [f"{row:05}" for row in range(6000)],
    "of one length but a few nulls": [f"{row:05}" if row % 991 else None for row in range(6000)],
    # They come to 6 bytes each, as texts of one length might.
    "of lengths that come to as much": [f"{row:05}" + "x" * (row % 3) for row in range(6000)],
    "of other lengths": [f"{row}" for row in range(6000)],
    "empty": [""] * 6000,
}


@pytest.mark.parametrize("texts", _ONCE.values(), ids=_ONCE)
@pytest.mark.parametrize("kind", _TYPES, ids=str)
@pytest.mark.parametrize("whole", [True, False], ids=["chunk", "pages"])
def test_texts_that_are_named_once(
    texts: list[str | None], kind: pa.DataType, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dictionary_decode, "FEW_ENTRIES", 100)
    array = pa.array(texts, pa.string())
    data = _write(array.cast(kind), max_rows_per_page=2000)
    for rows in (RowSelection.all(6000), RowSelection.of([(5, 700), (3000, 5999)])):
        for values in Values:
            assert_same(decode(data, rows, whole=whole, values=values), truth(data, rows))


def test_only_the_rows_that_are_kept_count_against_the_limit() -> None:
    values = ["x" * 65_536 if i % 40 == 0 else "y" for i in range(400)]
    data = _write(pa.array(values))
    few = RowSelection.of([(0, 2), (41, 80)])
    assert decode(data, few, memory_limit=200_000)["s"].to_pylist() == [*values[:2], *values[41:80]]
    with pytest.raises(MemoryLimitError, match="column s: the column decodes to more than 200000 bytes"):
        decode(data, RowSelection.all(400), memory_limit=200_000)


def test_texts_beyond_what_an_array_holds_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary_arrays, "MOST_JOINED", 100)
    array = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 2, 0, 2, 1, 1], pa.int32()), pa.array(["a" * 30, "", "b" * 90])
    )
    found = look_up(array.slice(1), pa.string(), memory_limit=None, place="here")
    assert found.to_pylist() == ["", None, "b" * 90, "a" * 30, "b" * 90, "", ""]
    assert [len(chunk) for chunk in found.chunks] == [3, 1, 1, 2]


def _of_indices(indices: list[int | None], entries: list[str]) -> pa.Array:
    given = pa.array(indices, pa.int32())
    return pa.DictionaryArray.from_arrays(given, pa.array(entries, pa.string()), safe=False)


@pytest.mark.parametrize(
    ("indices", "entries"),
    [([0, 2], ["a", "b"]), ([0, -1], ["a"]), ([0], [])],
    ids=["high", "negative", "none"],
)
def test_indices_out_of_bounds_are_refused(indices: list[int | None], entries: list[str]) -> None:
    array = _of_indices(indices, entries)
    nested = pa.StructArray.from_arrays([array], names=["f"])
    listed = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)
    for bad in (array, nested, listed):
        with pytest.raises(ParquetFormatError, match="out of bounds"):
            dictionary_arrays.check_indices(pa.chunked_array([bad]))


def test_what_stands_under_a_null_is_no_index() -> None:
    valid = pa.py_buffer(np.packbits([True, False], bitorder="little"))
    places = pa.py_buffer(np.array([0, 77], np.int32))
    indices = pa.Array.from_buffers(pa.int32(), 2, [valid, places])
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["a"]), safe=False)
    for each in (array, pa.array([1.5]), _of_indices([None], [])):
        column = pa.chunked_array([each])
        assert dictionary_arrays.check_indices(column) is column


_CATEGORY = pa.field("f", pa.dictionary(pa.int32(), pa.string()), nullable=False)
_NULL_STRUCTS = pa.StructArray.from_arrays(
    [pa.array(["a"] * 3).dictionary_encode()], fields=[_CATEGORY], mask=pa.array([True] * 3)
)


def _lists(kind: pa.DataType, ends: list[int], values: pa.Array) -> pa.Array:
    width = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    offsets = pa.array([0, *ends], width).buffers()[1]
    return pa.Array.from_buffers(kind, len(ends), [None, offsets], children=[values])


@pytest.mark.parametrize(
    "array",
    [
        _NULL_STRUCTS,
        pa.StructArray.from_arrays(
            [pa.StructArray.from_arrays([_NULL_STRUCTS.field(0)], fields=[_CATEGORY])],
            fields=[pa.field("g", pa.struct([_CATEGORY]), nullable=False)],
            mask=pa.array([True] * 3),
        ),
        _lists(pa.list_(pa.struct([_CATEGORY])), [2, 2, 3], _NULL_STRUCTS),
        _lists(
            pa.large_list(pa.list_(pa.struct([_CATEGORY]))),
            [1, 2],
            _lists(pa.list_(pa.struct([_CATEGORY])), [1, 3], _NULL_STRUCTS),
        ),
        pa.FixedSizeListArray.from_arrays(_NULL_STRUCTS, 3),
        _lists(
            pa.map_(pa.string(), pa.struct([_CATEGORY])),
            [2, 3],
            pa.StructArray.from_arrays(
                [pa.array(["a", "b", "c"]), _NULL_STRUCTS],
                fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", _NULL_STRUCTS.type)],
            ),
        ),
    ],
    ids=["struct", "two structs", "list", "two lists", "fixed list", "map"],
)
def test_a_required_category_of_nothing_but_null_structs_is_read(array: pa.Array) -> None:
    # Without a dictionary page pyarrow makes an empty dictionary, and indices of 0 into it.
    data = _write(array, use_dictionary=False)
    found = decode(data, RowSelection.all(len(array)))
    found.validate(full=True)
    assert found["s"].to_pylist() == array.to_pylist()
    # It can be written again as it is.
    assert pq.read_table(pa.BufferReader(_write(found["s"]))).equals(found)


@pytest.mark.parametrize("stored", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_a_page_that_names_no_entry_is_refused(stored: pa.DataType) -> None:
    array = pa.array(["a", "b"] + ["c"] * 62).cast(stored)
    data = _write(array, compression="none", max_rows_per_page=100, write_batch_size=100)
    meta = open_metadata(data)
    chunk = chosen_pages(data, meta, 0, 0, RowSelection.all(64))
    (page,) = chunk.buffers
    broken = bytes(page)
    # The last run: 62 times the third entry. There is no fourth.
    assert broken[-1] == 2
    chunk = replace(chunk, buffers=(broken[:-1] + b"\x03",))
    with pytest.raises(ParquetFormatError):
        decode_columns(
            StoredRowGroup("file.parquet", 0, meta.schema, meta.key_value),
            {0: chunk},
            rows=RowSelection.all(64),
            arrow_schema=projected_schema(meta.schema, meta.key_value, leaves=[0]),
        )


def test_a_small_dictionary_is_decoded_once_for_the_very_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    read = dictionary_decode.dictionary_values

    def counted(*given: Any, **named: Any) -> pa.Array:
        decoded.append(1)
        return read(*given, **named)

    monkeypatch.setattr(dictionary_decode, "dictionary_values", counted)
    first, second = (_write(pa.array([f"{text} {i % 40}" for i in range(400)])) for text in ("one", "two"))
    for data in (first, second, first, second):
        assert_same(decode(data, RowSelection.all(400)), truth(data, RowSelection.all(400)))
    assert len(decoded) == 2
    many = _write(pa.array([f"many {i % 5000}" for i in range(20_000)]))
    for _ in range(2):
        assert_same(decode(many, RowSelection.all(20_000)), truth(many, RowSelection.all(20_000)))
    assert len(decoded) == 4


_KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


def _random(rng: random.Random) -> tuple[pa.Array, pa.Array]:
    kind = rng.choice(_KINDS)
    entries = rng.choice([1, 2, 3, 7, 8, 9, 40, 64, 65, 300])
    same = rng.random() < 0.4
    lengths = (
        [rng.choice([0, 1, 2, 3, 4, 8, 17])] * entries if same else [rng.randrange(9) for _ in range(entries)]
    )
    words = ["".join(rng.choice("abcé") for _ in range(length)) for length in lengths]
    if same:
        words = [word.replace("é", "e") for word in words]
    dictionary = pa.array(["beside", *words, "it"]).cast(kind).slice(1, entries)
    count = rng.choice([1, 2, 7, 64, 1001])
    share = rng.choice([0.0, 0.0, 0.4, 1.0])
    places = [None if rng.random() < share else rng.randrange(entries) for _ in range(count + 5)]
    cut = rng.choice([0, 3])
    return dictionary, pa.array(places, pa.int32()).slice(cut, count)


@pytest.mark.parametrize("seed", range(300))
def test_as_arrow_takes_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(dictionary_arrays, "LEAST_VALUES", 1)
    dictionary, indices = _random(rng)
    found = take_texts(dictionary, indices)
    found.validate(full=True)
    assert found.equals(kernels.take(dictionary, indices))


@pytest.mark.parametrize("words", [["a", "b"], ["a", "bcd"]], ids=["one length", "several"])
@pytest.mark.parametrize("place", [2, -1])
def test_an_index_that_names_no_entry_is_refused(
    words: list[str], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    indices = pa.array(np.array([0, 1] * 5000 + [place], np.int32))
    with pytest.raises(pa.ArrowIndexError):
        take_texts(pa.array(words), indices)


def test_a_null_index_may_be_out_of_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.array([0, 1, 77, 1] * 5000, np.int32)
    valid = pa.py_buffer(np.packbits(places != 77, bitorder="little"))
    indices = pa.Array.from_buffers(pa.int32(), len(places), [valid, pa.py_buffer(places)])
    for words in (["a", "b"], ["a", "bcd"]):
        found = take_texts(pa.array(words), indices)
        found.validate(full=True)
        assert found.to_pylist() == [words[0], words[1], None, words[1]] * 5000

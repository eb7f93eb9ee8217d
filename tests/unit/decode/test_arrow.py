"""Arrow schemas come from pyarrow, out of footers without row groups."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.decode.arrow import fields_of, file_schema, projected_schema, translate_errors
from accel.errors import ColumnNotFoundError, MemoryLimitError, ParquetFormatError
from tests.unit.decode.selected import open_metadata
from tests.unit.decode.typed import FLAT, NESTED


def _empty_file(schema: pa.Schema, *, keys: Mapping[str, bytes] | None = None, store: bool = True) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, store_schema=store) as writer:
        if keys:
            writer.add_key_value_metadata(keys)
    return sink.getvalue().to_pybytes()


_ALL = pa.schema(
    [
        pa.field(name, kind, nullable=i % 3 > 0 or kind == pa.null())
        for i, (name, (kind, _)) in enumerate({**FLAT, **NESTED}.items())
    ],
    metadata={"pandas": "{}", "note": "naïve"},
)


@pytest.mark.parametrize("store", [True, False], ids=["ARROW:schema", "none"])
def test_the_schema_of_a_file_is_pyarrows(store: bool) -> None:
    data = _empty_file(_ALL, store=store)
    meta = open_metadata(data)
    expected = pq.read_schema(pa.BufferReader(data))
    assert file_schema(meta.schema, meta.key_value).equals(expected, check_metadata=True)
    assert (expected.field("dictionary").type == FLAT["dictionary"][0]) is store


def test_no_column_metadata_reaches_pyarrow() -> None:
    # The file's row groups and statistics are in its own footer only: a schema needs none of them.
    data = _empty_file(_ALL)
    meta = open_metadata(data)
    found = file_schema(meta.schema, {})
    assert found.names == _ALL.names
    assert found.metadata is None


@pytest.mark.parametrize("store", [True, False], ids=["ARROW:schema", "none"])
def test_a_projection_is_pyarrows(store: bool) -> None:
    data = _empty_file(_ALL, store=store)
    meta = open_metadata(data)
    paths = [".".join(leaf.path) for leaf in meta.schema.leaves]
    file = pq.ParquetFile(pa.BufferReader(data))
    rng = random.Random(7)
    whole = file_schema(meta.schema, meta.key_value)
    flat = [leaf.ordinal for leaf in meta.schema.leaves if not leaf.ancestors]
    for size in [0, 1, 1, 1, 2, 3, 5, 10, 40, len(paths), -1, -2, -20]:
        leaves = rng.sample(range(len(paths)), size) if size >= 0 else rng.sample(flat, -size)
        print(leaves)
        expected = file.read_row_groups([], columns=[paths[i] for i in sorted(leaves)]).schema
        found = projected_schema(meta.schema, meta.key_value, leaves=leaves)
        assert found.equals(expected, check_metadata=True)
        same = projected_schema(open_metadata(data).schema, meta.key_value, leaves=leaves, whole=whole)
        assert same.equals(expected, check_metadata=True)


def _stored(*kinds: pa.DataType) -> bytes:
    schema = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(kinds)])
    return base64.b64encode(schema.serialize().to_pybytes())


_GOOD = _stored(pa.large_string(), pa.duration("s"), pa.int32())
_STORED = {
    "as written": _GOOD,
    "fewer fields": _stored(pa.large_string()),
    "more fields": _stored(pa.large_string(), pa.duration("s"), pa.int32(), pa.int32()),
    "as many as are projected": _stored(pa.large_string(), pa.duration("s")),
    "other types": _stored(pa.int32(), pa.large_string(), pa.struct([("a", pa.int8())])),
    "no base64": b"!!!!",
    "no schema": base64.b64encode(b"garbage" * 10),
    "empty": b"",
    "cut": _GOOD[: len(_GOOD) // 2],
    "cut, but base64": _GOOD[: len(_GOOD) // 8 * 4],
}


@pytest.mark.parametrize("case", _STORED)
def test_an_odd_stored_schema_is_taken_as_pyarrow_takes_it(case: str) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.int32())])
    data = _empty_file(schema, keys={"ARROW:schema": _STORED[case], "k": b"v"}, store=False)
    meta = open_metadata(data)
    try:
        expected = pq.read_schema(pa.BufferReader(data))
    except (pa.ArrowInvalid, OSError):
        for leaves in ([0, 1, 2], [0]):
            with pytest.raises(ParquetFormatError):
                projected_schema(meta.schema, meta.key_value, leaves=leaves)
        with pytest.raises(ParquetFormatError, match=r"^schema: pyarrow cannot decode it: "):
            file_schema(meta.schema, meta.key_value)
        return
    assert file_schema(meta.schema, meta.key_value).equals(expected, check_metadata=True)
    found = projected_schema(meta.schema, meta.key_value, leaves=[1, 0])
    assert found.types == [expected.field("a").type, expected.field("b").type]


def test_flipped_bytes_in_a_stored_schema_never_crash() -> None:
    data = _empty_file(_ALL)
    meta = open_metadata(data)
    message = bytearray(base64.b64decode(meta.key_value["ARROW:schema"]))
    rng = random.Random(5)
    refused = 0
    for _ in range(300):
        at = rng.randrange(len(message))
        old, message[at] = message[at], rng.randrange(256)
        damaged = {"ARROW:schema": base64.b64encode(bytes(message))}
        for leaves in ([0, 1], range(len(meta.schema.leaves))):
            try:
                found = projected_schema(meta.schema, damaged, leaves=leaves)
            except ParquetFormatError:
                refused += 1
            else:
                assert len(found) <= len(_ALL)
        message[at] = old
    assert refused > 0


def test_a_field_that_nests_too_deeply_leaves_the_others_readable() -> None:
    kind = pa.int32()
    for _ in range(120):
        kind = pa.struct([("s", kind)])
    meta = open_metadata(_empty_file(pa.schema([("deep", kind), ("flat", pa.int8())]), store=False))
    assert projected_schema(meta.schema, meta.key_value, leaves=[1]).types == [pa.int8()]
    with pytest.raises(ParquetFormatError, match="120 levels deep, more than 100"):
        file_schema(meta.schema, meta.key_value)


def test_fields_of_leaves() -> None:
    schema = open_metadata(
        _empty_file(pa.schema([("a", pa.int8()), ("s", pa.struct([("x", pa.int8()), ("y", pa.int8())]))]))
    ).schema
    assert fields_of(schema, []) == []
    assert fields_of(schema, [2, 1]) == [1]
    assert fields_of(schema, [2, 0, 2]) == [0, 1]
    for leaf in (3, -1):
        with pytest.raises(ColumnNotFoundError):
            fields_of(schema, [leaf])


_RAISED = [
    (pa.ArrowInvalid("x"), ParquetFormatError),
    (pa.ArrowNotImplementedError("x"), ParquetFormatError),
    (pa.ArrowKeyError("x"), ParquetFormatError),
    (OSError("x"), ParquetFormatError),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), ParquetFormatError),
    (OverflowError("x"), ParquetFormatError),
    (pa.ArrowMemoryError("x"), MemoryLimitError),
    (MemoryError("x"), MemoryLimitError),
]


@pytest.mark.parametrize(("raised", "kind"), _RAISED, ids=[type(e).__name__ for e, _ in _RAISED])
def test_what_pyarrow_raises_becomes_ours(raised: BaseException, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught, translate_errors(place="column c"):
        raise raised
    assert str(caught.value).startswith("column c: ")
    assert caught.value.__cause__ is raised


def test_cancellation_is_not_translated() -> None:
    with pytest.raises(KeyboardInterrupt), translate_errors():
        raise KeyboardInterrupt

"""Values as indexes hold them."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from accel.errors import SchemaMismatchError
from accel.indexes.native import Tag, code_values, from_natives, native_values, signature_of, tag_of, uniform

CASES = [
    (pa.int8(), Tag.INT64, "int64:1/1"),
    (pa.uint32(), Tag.INT64, "int64:1/1"),
    (pa.uint64(), Tag.UINT64, "uint64:1/1"),
    (pa.decimal128(9, 2), Tag.INT128, "int128:1/100"),
    (pa.decimal256(50, 0), Tag.INT256, "int256:1/1"),
    (pa.float16(), Tag.FLOAT64, "float64"),
    (pa.string_view(), Tag.BYTES, "bytes"),
    (pa.binary(4), Tag.BYTES, "bytes"),
    (pa.bool_(), Tag.BOOLEAN, "boolean"),
    (pa.date32(), Tag.INT64, "int64:86400000000000/1"),
    (pa.timestamp("us", "UTC"), Tag.INT64, "int64:1000/1"),
    (pa.time32("ms"), Tag.INT64, "int64:1000000/1"),
    (pa.dictionary(pa.int8(), pa.string()), Tag.BYTES, "bytes"),
    (pa.list_(pa.int8()), None, "opaque"),
    (pa.null(), None, "opaque"),
]


@pytest.mark.parametrize(("kind", "tag", "signature"), CASES, ids=[str(case[0]) for case in CASES])
def test_the_stored_form_of_a_type(kind: pa.DataType, tag: Tag | None, signature: str) -> None:
    assert (tag_of(kind), signature_of(kind)) == (tag, signature)


def test_zeros_and_nans_are_one_each() -> None:
    bits = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FF8DEADBEEF0000, 1 << 63, 0]
    array = pa.Array.from_buffers(pa.float64(), 6, [None, pa.py_buffer(struct.pack("<6Q", *bits))])
    stored = np.frombuffer(uniform(array).buffers()[1], np.uint64, 6).tolist()
    assert stored == [0x7FF8000000000000] * 4 + [0, 0]
    assert len(code_values(array).values) == 2


def test_a_dictionary_that_repeats_holds_nulls_and_holds_what_no_row_has() -> None:
    dictionary = pa.array(["a", None, "b", "a", "unused"])
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, 3, None, 2]), dictionary)
    coded = code_values(array)
    assert [coded.values.to_pylist()[code] if code >= 0 else None for code in coded.codes] == [
        b"a",
        None,
        b"a",
        None,
        b"b",
    ]
    assert sorted(coded.values.to_pylist()) == [b"a", b"b"]


def test_a_dictionary_of_nothing() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    coded = code_values(array)
    assert (len(coded.values), coded.codes.tolist()) == (0, [-1, -1])


NATIVES = [
    (pa.array([3, None, -1], pa.int16()), [3, -1]),
    (pa.array([2**64 - 1, 0], pa.uint64()), [2**64 - 1, 0]),
    (pa.array([decimal.Decimal("1.50"), None], pa.decimal128(9, 2)), [150]),
    (pa.array([decimal.Decimal(10) ** 50], pa.decimal256(60, 1)), [10**51]),
    (pa.array([datetime.date(1970, 1, 3)]), [2]),
    (pa.array([datetime.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ms")), [1000]),
    (pa.array(["é", None, ""]), ["é".encode(), b""]),
    (pa.array([True, None, False]), [True, False]),
    (pa.array([0.5, None, -0.0], pa.float32()), [0.5, 0.0]),
]


@pytest.mark.parametrize(("array", "expected"), NATIVES, ids=[str(array.type) for array, _ in NATIVES])
def test_native_values_are_those_of_literals_and_there_and_back(array: pa.Array, expected: list) -> None:
    found = native_values(array).tolist()
    assert found == expected
    assert not any(isinstance(v, float) and math.copysign(1, v) < 0 for v in found)
    tag = tag_of(array.type)
    assert tag is not None
    assert native_values(from_natives(found, tag)).tolist() == expected


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.null()], ids=str)
def test_types_without_an_order_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="an index cannot hold values of type"):
        uniform(pa.nulls(1, kind))


def test_kinds_are_light_until_they_are_used() -> None:
    heavy = ["xxhash", "pyroaring", "datasketches", "pandas", "pyarrow.acero", "pyarrow.dataset", "aiohttp"]
    code = (
        "import sys, accel, accel.indexes.registry as r, accel.indexes.registry, accel.format.embedded\n"
        "assert r.find_kind('bitmap') and r.find_kind('sketch') and r.find_kind('zonemap')\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_building_and_asking_import_no_pandas() -> None:
    code = """
import sys, numpy as np, pyarrow as pa
from accel.arrays import from_numpy, bytes_array
from accel.indexes.kind import ChunkValues, Level
from accel.indexes.registry import kinds
from accel.indexes.registry import ask
from accel.indexes.native import signature_of
from accel.indexes.question import question_of
from accel.predicate.bind import bind
from accel.predicate.parser import parse
for array, where in ((from_numpy(np.arange(9)), "x = 3"), (bytes_array([b"abc"] * 9, pa.string()), "x = 'abc'")):
    bound = bind(parse(where), pa.schema([("x", array.type)]))
    question = question_of(bound.root, bound.columns[0])
    for kind in kinds().values():
        if kind.name == "ngram" and array.type == pa.int64() or kind.name == "idx1":
            continue
        for level in kind.levels:
            data = kind.build(iter([ChunkValues(array, np.array([0, 4]), 9)]), level=level)
            units = {Level.PAGE: 2, Level.ROW_RANGE: 9}.get(level, 1)
            ask(kind.parse(data, level=level, units=units), question, units=units, signature=signature_of(array.type)) if units < 9 else 0
print([name for name in ("pandas", "pyarrow.acero", "pyarrow.dataset", "aiohttp") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")

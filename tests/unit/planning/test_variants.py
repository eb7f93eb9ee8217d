"""Variants of files that are shredded differently."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import accel
from accel.errors import SchemaMismatchError
from accel.planning.conform import check_variants
from accel.testing import write_file


def variant(typed: pa.DataType | None = None, **more: pa.DataType) -> pa.DataType:
    fields = {"metadata": pa.binary(), "value": pa.binary(), **more}
    return pa.struct({**fields, "typed_value": typed} if typed is not None else fields)


def shredded(**fields: pa.DataType) -> pa.DataType:
    """An object of which these fields are taken out."""
    return variant(
        pa.struct({n: pa.struct({"value": pa.binary(), "typed_value": k}) for n, k in fields.items()})
    )


PLAIN = variant()
ONE = shredded(a=pa.int64())
TWO = shredded(a=pa.int64(), b=pa.string())


@pytest.mark.parametrize(
    ("have", "to", "lost"),
    [
        pytest.param(ONE, PLAIN, "v.typed_value", id="shredded after unshredded"),
        pytest.param(PLAIN, ONE, None, id="unshredded after shredded"),
        pytest.param(TWO, ONE, "v.typed_value.b", id="a field more"),
        pytest.param(ONE, TWO, None, id="a field less"),
        pytest.param(ONE, shredded(a=pa.string()), "v.typed_value.a.typed_value", id="another type"),
        pytest.param(ONE, shredded(a=pa.int32()), "v.typed_value.a.typed_value", id="a wider type"),
        pytest.param(shredded(a=pa.int32()), ONE, None, id="a narrower type"),
        pytest.param(ONE, variant(pa.int64()), "v.typed_value", id="an object, and a number"),
        pytest.param(
            variant(pa.list_(ONE)), variant(pa.list_(PLAIN)), "v.typed_value.element.typed_value", id="array"
        ),
        pytest.param(pa.struct({"x": ONE}), pa.struct({"x": PLAIN}), "v.x.typed_value", id="in a struct"),
        pytest.param(pa.list_(ONE), pa.large_list(PLAIN), "v.element.typed_value", id="in a list"),
        pytest.param(
            pa.map_(pa.string(), ONE), pa.map_(pa.string(), PLAIN), "v.value.typed_value", id="in a map"
        ),
        pytest.param(
            variant(),
            pa.struct({"metadata": pa.binary(), "typed_value": pa.int64()}),
            "v.value",
            id="no value",
        ),
        pytest.param(ONE, pa.struct({"value": pa.large_binary()}), None, id="a field that the caller chose"),
        pytest.param(variant(ONE, kind=pa.string()), PLAIN, None, id="another struct"),
        pytest.param(
            pa.struct({"metadata": pa.string(), "value": pa.binary(), "typed_value": pa.int64()}),
            pa.struct({"metadata": pa.string(), "value": pa.binary()}),
            None,
            id="a struct with text",
        ),
        pytest.param(ONE, pa.int64(), None, id="for others to refuse"),
    ],
)
def test_what_a_variant_would_lose(have: pa.DataType, to: pa.DataType, lost: str | None) -> None:
    def check() -> None:
        check_variants(pa.schema([("v", have)]), pa.schema([("v", to)]), names=["v"], url="u")

    if lost is None:
        check()
        return
    with pytest.raises(SchemaMismatchError) as caught:
        check()
    assert str(caught.value) == (
        f"u: column 'v' holds a VARIANT that is shredded differently here: the scan's schema has no {lost!r} that its "
        "values would fit into (leave the column out by columns=, or read the files of one shredding at a time)"
    )


def test_a_scan_loses_no_variants(tmp_path: Path) -> None:
    row = {"metadata": b"m", "value": b"v"}
    typed = {"metadata": b"m", "value": None, "typed_value": 7}
    plain = pa.table({"k": [1], "v": pa.array([row], PLAIN)})
    number = pa.table({"k": [2], "v": pa.array([typed], variant(pa.int64()))})
    for name, table in (("plain", plain), ("typed", number)):
        (tmp_path / f"{name}.parquet").write_bytes(write_file(table))
    first, second = (str(tmp_path / f"{name}.parquet") for name in ("plain", "typed"))

    with pytest.raises(SchemaMismatchError) as caught:
        accel.scan([first, second]).to_table()
    assert caught.value.path == second
    assert accel.scan([first, second], columns=["k"]).to_table().to_pylist() == [{"k": 1}, {"k": 2}]
    assert accel.scan([second, first]).to_table().to_pylist() == [
        {"k": 2, "v": typed},
        {"k": 1, "v": {**row, "typed_value": None}},
    ]

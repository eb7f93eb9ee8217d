"""Lists that name long entries of a dictionary: refused before they are made, where they are too much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.errors import MemoryLimitError
from accel.planning.selection import RowSelection
from tests.support.arrow import counting_pool
from tests.unit.decode.selected import decode

MIB = 1 << 20
LONG = "x" * 65_536


def _write(array: pa.Array, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    # Without Arrow's schema, dictionary arrays are read back as texts.
    settings = {"store_schema": False, "write_page_index": True, "compression": "zstd"} | options
    pq.write_table(pa.Table.from_arrays([array], names=["c"]), sink, **settings)
    return sink.getvalue().to_pybytes()


def _named(names: list[int] | np.ndarray, entries: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(names, pa.int32()), pa.array(entries))


def _one_list(count: int) -> pa.Array:
    """A row of so many names of one long text."""
    return pa.ListArray.from_arrays([0, count], _named(np.zeros(count, np.int32), [LONG]))


@pytest.mark.parametrize("count", [1_000, 50_000], ids=["gathered", "beyond 32-bit offsets"])
@pytest.mark.parametrize("whole", [False, True], ids=["page", "chunk"])
def test_one_long_row_is_refused_before_it_is_made(
    count: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _write(_one_list(count))
    assert len(data) < 1_000
    counting = counting_pool()
    monkeypatch.setattr("accel.decode.arrow.pool", lambda: counting)
    with pytest.raises(MemoryLimitError) as caught:
        decode(data, RowSelection.all(1), memory_limit=4 * MIB, whole=whole)
    assert str(caught.value) == (
        "file.parquet, row group 0, column c.list.element: the column decodes to more than 4194304 bytes "
        "(raise options.memory_limit)"
    )
    assert counting.max_memory() < 4 * MIB


_NAMES = np.where(np.arange(900) % 300 == 0, 0, 1).astype(np.int32)
_TEXTS = _named(_NAMES, [LONG, "y"])
_LISTS = pa.ListArray.from_arrays(pa.array([0, 0, 300, None, 900], pa.int32()), _TEXTS)
_NUMBERS = pa.array(range(900))
_KINDS = {
    "lists": _LISTS,
    "lists of lists": pa.ListArray.from_arrays([0, 1, 4], _LISTS),
    "lists of structs": pa.ListArray.from_arrays(
        [0, 500, 900], pa.StructArray.from_arrays([_NUMBERS, _TEXTS, _TEXTS], names=["n", "s", "t"])
    ),
    "maps": pa.MapArray.from_arrays([0, 500, 900], _NUMBERS, _TEXTS),
    "large lists": pa.LargeListArray.from_arrays([0, 500, 900], _TEXTS),
}


@pytest.mark.parametrize("whole", [False, True], ids=["pages", "chunk"])
@pytest.mark.parametrize("store_schema", [False, True], ids=["as texts", "as dictionaries"])
@pytest.mark.parametrize("name", _KINDS)
def test_few_long_texts_among_many_are_read(name: str, store_schema: bool, whole: bool) -> None:
    """As many of the longest would be 58 MiB."""
    lists = _KINDS[name]
    data = _write(lists, store_schema=store_schema)
    rows = RowSelection.all(len(lists))
    found = decode(data, rows, memory_limit=MIB, whole=whole).column("c")
    assert found.to_pylist() == lists.to_pylist()
    if not store_schema:
        with pytest.raises(MemoryLimitError, match="decodes to more than 150000 bytes"):
            decode(data, rows, memory_limit=150_000, whole=whole)


def test_a_column_that_stays_coded_is_no_larger_for_what_it_names() -> None:
    lists = pa.ListArray.from_arrays([0, 100, 200], _named(np.zeros(200, np.int32), [LONG]))
    data = _write(lists, store_schema=True)
    found = decode(data, RowSelection.all(2), memory_limit=MIB).column("c")
    assert found.to_pylist() == lists.to_pylist()


def test_a_dictionary_that_ran_full() -> None:
    values = [[LONG[:999] + str(i % 40), f"text {i}"] for i in range(2_000)]
    data = _write(pa.array(values), dictionary_pagesize_limit=20_000, data_page_size=4_000)
    assert decode(data, RowSelection.all(2_000), memory_limit=3 * MIB).column("c").to_pylist() == values

"""The tests with an older pyarrow than the newest that accel supports.

What tests ask of pyarrow's writer, and an older one lacks, is done by what it has. Where it cannot be done
the test is skipped, with the version that it needs. Nothing is changed where pyarrow is new enough.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accel.arrow_features import arrow_major, has_writer_option

__all__ = ["install", "skip_what_needs_newer", "writes"]

_UNWRITTEN = (
    "Unhandled type for Arrow to Parquet schema conversion",
    "Lists with non-zero length null components are not supported",
)
_NEWEST = 26

_PAGES = (23, "pages of a number of rows, in lists too")
_DECODE, _FORMAT = "tests/unit/decode/", "tests/unit/format/"
_NEEDS: dict[str, tuple[int, str]] = {
    "tests/corrupt/test_page_changes.py::test_what_was_once_a_fault": (
        26,
        "the file of a seed is the newest writer's",
    ),
    _DECODE + "test_chunks.py::test_what_begins_with_a_row": _PAGES,
    _DECODE + "test_chunks.py::test_nor_of_what_is_too_large": _PAGES,
    _DECODE
    + "test_dictionary_arrays.py::test_a_required_category_of_nothing_but_null_structs_is_read[fixed list]": (
        26,
        "reads null lists of fixed size",
    ),
    _DECODE + "test_columns.py::test_projections_have_pyarrows_meaning": (
        20,
        "reads a part of structs in lists of a file without rows",
    ),
    _FORMAT + "test_schema.py::test_a_column_whose_repetition_is_of_another_type_is_no_optional_one": (
        20,
        "writes histograms of definitions",
    ),
    _DECODE + "test_instants.py::test_at_any_depth[fixed list]": (26, "reads null lists of fixed size"),
    _DECODE + "test_instants.py::test_microseconds_at_any_depth[fixed list]": (
        26,
        "reads null lists of fixed size",
    ),
    _DECODE + "test_instants.py::test_microseconds_tell_all_of_them": (23, "writes INT96 before 1970"),
    _DECODE + "test_instants.py::test_digits_after_the_sixth": (23, "writes INT96 before 1970"),
    _DECODE + "test_nested.py::test_lists_before_the_rows_that_are_wanted": _PAGES,
    _DECODE + "test_verify.py::test_a_lying_header[fewer values than rows in lists]": _PAGES,
    _DECODE + "test_verify.py::test_a_chunk_of_one_page_has_the_rows": _PAGES,
    _DECODE + "test_verify.py::test_rows_that_lie_on_other_pages": _PAGES,
    _DECODE + "test_verify.py::test_fewer_or_more_pages": _PAGES,
    _DECODE + "test_verify.py::test_a_flipped_byte": _PAGES,
    _FORMAT + "test_bloom.py::test_what_was_written_is_found": (24, "writes bloom filters"),
    _FORMAT + "test_bounds.py::test_bounds_are_the_true_ones[bool": _PAGES,
    _FORMAT + "test_footer.py::test_every_number_equals_pyarrows[bloom]": (24, "writes bloom filters"),
    _FORMAT + "test_footer.py::test_raw_bounds_point_into_the_footer": _PAGES,
    _FORMAT + "test_schema.py::test_annotations_and_shape": (23, "writes times that are not in UTC"),
    _FORMAT + "test_schema.py::test_what_pyarrow_writes[time32": (23, "writes times that are not in UTC"),
    _FORMAT + "test_schema.py::test_what_pyarrow_writes[extension<arrow.uuid>": (21, "writes UUIDs"),
}
"""Beginnings of the ids of tests, the version that they need, and what it can do."""


def skip_what_needs_newer(items: Sequence[pytest.Item]) -> None:
    """Skip the tests whose subject a later pyarrow has."""
    for item in items:
        for name, (since, why) in _NEEDS.items():
            if arrow_major() < since and item.nodeid.startswith(name):
                item.add_marker(pytest.mark.skip(reason=f"needs pyarrow {since}: {why}"))


def writes(array: pa.Array) -> bool:
    """Return whether pyarrow can write an array to Parquet."""
    try:
        pq.write_table(pa.Table.from_arrays([array], names=["c"]), pa.BufferOutputStream())
    except pa.ArrowNotImplementedError:
        return False
    return True


def install(*, skipping: bool = True) -> None:
    """Let `ParquetWriter` take `max_rows_per_page` and the codec `lz4_raw`.

    With `skipping` the test that writes what pyarrow cannot write is skipped.
    """
    if arrow_major() >= _NEWEST or hasattr(pq.ParquetWriter.__init__, "__wrapped__"):
        return
    begin, write = pq.ParquetWriter.__init__, pq.ParquetWriter.write_table
    attempt = _try if skipping else _do

    @functools.wraps(begin)
    def begin_as_newer(self: Any, *arguments: Any, **options: Any) -> None:
        attempt(begin, self, *arguments, **_translate(options))

    @functools.wraps(write)
    def write_as_newer(self: Any, *arguments: Any, **options: Any) -> None:
        attempt(write, self, *arguments, **options)

    pq.ParquetWriter.__init__ = begin_as_newer
    pq.ParquetWriter.write_table = write_as_newer


def _do(call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    call(*arguments, **options)


def _try(call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    try:
        call(*arguments, **options)
    except pa.ArrowNotImplementedError as error:
        if not str(error).startswith(_UNWRITTEN):
            raise
        pytest.skip(f"pyarrow {pa.__version__} cannot write it: {error}")


def _translate(options: dict[str, Any]) -> dict[str, Any]:
    out = dict(options)
    if str(out.get("compression")).lower() == "lz4_raw":
        # The older name stands for the same codec.
        out["compression"] = "lz4"
    if not has_writer_option("max_rows_per_page") and "max_rows_per_page" in out:
        rows = out.pop("max_rows_per_page")
        # With the least byte limit each batch is a page; a batch of lists is one of values.
        out |= {"data_page_size": 1, "write_batch_size": rows}
    return out

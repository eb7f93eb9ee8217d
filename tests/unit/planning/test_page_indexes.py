"""Which bytes hold a chunk's page index."""

from __future__ import annotations

import pytest

from accel.planning.page_indexes import index_want
from accel.ranges import ByteRange, Kind, ReadKey, Want
from accel.testing import Layout, flights_table, write_file
from tests.unit.planning.files import Bytes


@pytest.mark.parametrize("kind", [Kind.OFFSET_INDEX, Kind.COLUMN_INDEX])
@pytest.mark.parametrize("missing", [None, "offset", "length"])
def test_half_of_a_page_index_is_one_want_where_both_its_numbers_are_known(
    kind: Kind, missing: str | None
) -> None:
    chunks = Bytes(write_file(flights_table(100), Layout(page_rows=50))).open().metadata.chunks
    name = kind.name.lower()
    at, length = (int(getattr(chunks, f"{name}_{what}")[0, 1]) for what in ("offset", "length"))
    assert index_want(chunks, kind, 0, 1) == [Want(ReadKey(kind, 0, 1), ByteRange(at, at + length))]
    if missing is not None:
        getattr(chunks, f"{name}_{missing}")[0, 1] = -1
        assert index_want(chunks, kind, 0, 1) == []

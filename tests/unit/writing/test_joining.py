"""Indexes of many row groups in one: which, and how it is kept and listed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.format.embedded import parse_toc
from accel.format.footer import parse_footer
from accel.testing import Layout, write_file
from accel.writing.index_building import MANY_GROUPS
from accel.writing.scratch import Scratch, ScratchBytes

PAGE, PAGES = 50, 4


def rows(groups: int) -> pa.Table:
    count = groups * PAGE * PAGES
    keys = np.random.default_rng(5).permutation(count)
    return pa.Table.from_arrays([pa.array(keys), pa.array(keys % 7)], names=["key", "few"])


def entries(path: Path) -> list[tuple[str, int, str, int, int]]:
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    toc = parse_toc(parse_footer(data[start:-8], file_size=len(data), footer_start=start))
    assert toc is not None
    return [(e.kind, e.version, e.level, e.row_group, e.units) for e in toc.entries]


@pytest.mark.parametrize("groups", [1, MANY_GROUPS - 1, MANY_GROUPS, 9])
def test_many_row_groups_have_one_bitmap(tmp_path: Path, groups: int) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(write_file(rows(groups), Layout(group_rows=PAGE * PAGES, page_rows=PAGE)))
    report = accel.embed(str(path), str(path), indexes={"key": ["bitmap", "bloom"], "few": "distinct"})
    each = [(group, PAGES) for group in range(groups)]
    bitmaps = [("bitmap", 1, "page", *one) for one in each]
    if groups >= MANY_GROUPS:
        bitmaps = [("bitmap", 2, "page", -1, groups * PAGES)]
    others = [
        (kind, version, "page", *one) for kind, version in (("bloom", 2), ("distinct", 1)) for one in each
    ]
    assert entries(path) == bitmaps + others
    told = report.indexes[0]
    assert (told.count, told.units) == (len(bitmaps), groups * PAGES)
    # Embedded once more, from what is there.
    accel.embed(str(path), str(path), indexes={"key": "bitmap"})
    assert entries(path) == bitmaps


def test_pieces_are_one_after_the_other() -> None:
    scratch = Scratch(most_held=4)
    kept = ScratchBytes.joined(
        [scratch.keep(b"abc"), scratch.keep(b"defg"), ScratchBytes.joined([scratch.keep(b"h")])]
    )
    assert (kept.length, kept.read(), kept.read(2, 5)) == (8, b"abcdefgh", b"cde")
    assert list(kept.pieces()) == [b"abc", b"defg", b"h"]
    assert scratch.keep(b"0123456789").read(3, 6) == b"345"

"""What becomes of every page, as it is drawn: the fates, what is merged, and what is escaped."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.pictures.document import byte_count, page
from accel.pictures.file_map import FATES, ColumnMap, Fate, FileMap, draw_file, draw_legend
from accel.testing import DictStore, Layout, table, write_file

ROWS = 4000


@pytest.fixture(scope="module")
def data() -> dict[str, bytes]:
    """Two row groups of 2,000 rows, with pages of 200 rows; `part` is sorted, `free` is not."""
    part = pa.array([number // 10 for number in range(ROWS)], pa.int64())
    free = pa.array([(number * 7919) % ROWS for number in range(ROWS)], pa.int64())
    wide = pa.array([f"{number:060d}" for number in range(ROWS)])
    layout = Layout(group_rows=2000, page_rows=200, dictionary=False, codec="none")
    return {"t.parquet": write_file(table(part=part, free=free, wide=wide), layout)}


def fates(file: FileMap) -> dict[str, list[Fate]]:
    return {column.name: [Fate(int(fate)) for fate in column.fates] for column in file.columns}


def test_each_page_has_the_fate_that_planning_gave_it(data: dict[str, bytes]) -> None:
    explained = accel.scan("t.parquet", "part = 25", columns=["free"], store=DictStore(data)).explain()
    (file,) = explained.maps
    expected = [Fate.READ if first == 200 else Fate.PAGE_INDEX for first in range(0, 2000, 200)]
    found = fates(file)
    assert list(found) == ["part", "free"]
    # The second row group is never cut into pages, as its statistics exclude it.
    assert found["free"] == [*expected, Fate.STATISTICS]
    assert found["part"] == [*expected, Fate.STATISTICS]
    assert (file.num_rows, file.others, file.group_rows.tolist()) == (ROWS, 1, [0, 2000])
    assert file.columns[0].first_rows.tolist() == [*range(0, 2000, 200), 2000]
    # Pages of 200 numbers of 8 bytes, with their headers.
    assert 1600 < file.nbytes(Fate.READ) // 2 < 1700


def test_rows_that_are_known_to_match_are_not_read_for_the_filter(data: dict[str, bytes]) -> None:
    explained = accel.scan(
        "t.parquet", "part >= 90 AND part < 165", columns=["free"], store=DictStore(data)
    ).explain()
    found = fates(explained.maps[0])
    assert found["part"][4:9] == [Fate.READ, *[Fate.PROVED] * 3, Fate.READ]
    assert found["free"][4:9] == [Fate.READ] * 5


def test_a_selection_is_told_from_what_the_file_says(data: dict[str, bytes]) -> None:
    explained = accel.scan(
        "t.parquet",
        columns=["free"],
        selection={"t.parquet": {1: [(0, 200)]}},
        store=DictStore(data),
    ).explain()
    found = fates(explained.maps[0])
    assert set(found["free"][:-10]) == {Fate.OUTSIDE}
    assert found["free"][-10:] == [Fate.READ, *[Fate.OUTSIDE] * 9]


def test_an_index_of_the_file_is_named(data: dict[str, bytes]) -> None:
    store = DictStore(dict(data))
    accel.embed("t.parquet", "t.parquet", indexes={"free": "bitmap"}, store=store)
    explained = accel.scan("t.parquet", "free = 3", columns=["wide"], store=store).explain()
    found = fates(explained.maps[0])
    assert found["wide"].count(Fate.READ) == 1
    assert set(found["wide"]) == {Fate.READ, Fate.EMBEDDED, Fate.PAGE_INDEX}


def a_file(pages: int, fate: Fate = Fate.PAGE_INDEX) -> FileMap:
    numbers = np.arange(pages, dtype=np.int64)
    column = ColumnMap(
        name="<x>",
        first_rows=numbers * 10,
        fates=np.full(pages, fate, np.uint8),
        nbytes=np.full(pages, 100, np.int64),
    )
    return FileMap(
        name="<f>", size=1 << 20, num_rows=10 * pages, group_rows=np.zeros(1, np.int64), columns=(column,)
    )


@pytest.mark.parametrize(("pages", "drawn"), [(1, 1), (240, 240), (241, 240), (100_000, 240)])
def test_many_pages_are_drawn_together(pages: int, drawn: int) -> None:
    text = draw_file(a_file(pages))
    widths = [int(width) for width in re.findall(r'<rect[^>]* width="(\d+)"', text)]
    assert len(widths) == drawn
    assert sum(widths) == 10 * pages
    counted = sum(int(count.replace(",", "")) for count in re.findall(r"<title>[^:]*: ([\d,]+) page", text))
    assert counted == pages


def test_what_is_read_shows_among_thousands_of_pages() -> None:
    file = a_file(100_000)
    file.columns[0].fates[54_321] = Fate.READ
    assert draw_file(file).count(f'class="accel-f{Fate.READ:d}') == 1
    assert "1 page, 100 B" in draw_legend([file])


def test_names_are_escaped() -> None:
    text = draw_file(a_file(3)) + draw_legend([a_file(3)]) + page("<t>")
    assert "<x>" not in text
    assert "<f>" not in text
    assert "<t>" not in text
    assert "&lt;x&gt;" in text


def test_no_file_and_no_row_are_drawn_as_nothing() -> None:
    assert draw_legend([]) == ""
    assert "<rect" not in draw_file(a_file(0))


def test_every_fate_is_explained() -> None:
    assert list(FATES) == list(Fate)
    assert len(set(FATES.values())) == len(Fate)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (20 << 20, "20 MiB"), (1 << 43, "8,192 GiB")],
)
def test_bytes_as_people_read_them(number: int, text: str) -> None:
    assert byte_count(number) == text

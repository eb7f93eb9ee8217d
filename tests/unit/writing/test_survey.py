from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from accel.options import Options
from accel.writing.original import open_original
from accel.writing.scratch import Scratch
from accel.writing.source import BufferedSource
from accel.writing.survey import Survey
from accel.writing.wanted import read_wanted
from tests.unit.writing.files import sample, write


class Far:
    """A file as a store has it: each read is remembered."""

    window = 4 * 1024 * 1024
    name = "far"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        self.reads += ranges
        return [memoryview(self.data)[start:end] for start, end in ranges]

    def close(self) -> None:
        """Nothing is open."""


def test_a_far_file_without_page_index_is_read_once(tmp_path: Path) -> None:
    table = sample().drop_columns(["tags"])
    source = Far(Path(write(tmp_path / "a.parquet", table)).read_bytes())
    original = open_original(source, options=Options())
    chunks = original.metadata.chunks
    wanted = read_wanted({"category": ["distinct", "idx1"], "id": "bitmap"}, original.metadata)
    source.reads.clear()
    noted: list[int] = []
    survey = Survey(original, wanted, options=Options(), scratch=Scratch())
    pages, built = survey.run(noted.append)
    assert len(built) == 7
    assert pages.added == chunks.start.size
    assert sorted(source.reads) == sorted(
        zip(chunks.start.ravel().tolist(), chunks.end.ravel().tolist(), strict=True)
    )
    assert sum(noted) == survey.stored_bytes() == int(chunks.compressed.sum())


def test_chunks_too_long_to_hold_are_read_for_their_headers_and_for_their_pages(tmp_path: Path) -> None:
    source = Far(Path(write(tmp_path / "a.parquet", sample().select(["id"]))).read_bytes())
    options = Options(memory_limit=20_000)
    original = open_original(source, options=options)
    chunks = original.metadata.chunks
    lengths = (chunks.end - chunks.start).ravel()
    assert lengths.min() > options.memory_limit // 4
    source.reads.clear()
    pages, _ = Survey(original, (), options=options, scratch=Scratch()).run(lambda count: None)
    assert pages.added == pages.added_bounds == 3
    assert lengths.sum() * 1.9 < sum(b - a for a, b in source.reads) <= lengths.sum() * 2


@pytest.mark.parametrize("known", [True, False])
def test_what_needs_nothing_is_not_looked_at(tmp_path: Path, known: bool) -> None:
    source = Far(Path(write(tmp_path / "a.parquet", write_page_index=known)).read_bytes())
    original = open_original(source, options=Options())
    source.reads.clear()
    survey = Survey(original, (), options=Options(), scratch=Scratch())
    survey.run(lambda count: None)
    assert (source.reads == []) is known
    assert (survey.stored_bytes() == 0) is known


def test_a_stretch_in_memory_is_read_once() -> None:
    far = Far(bytes(range(100)))
    source = BufferedSource(far, capacity=50)
    assert (source.name, source.size, source.window) == (far.name, 100, far.window)
    source.fill(20, 60)
    assert [bytes(data) for data in source.read([(20, 22), (58, 60), (30, 30)])] == [b"\x14\x15", b":;", b""]
    assert far.reads == [(20, 60)]
    # If one range is outside, all are read from the source.
    assert [bytes(data) for data in source.read([(20, 21), (60, 61)])] == [b"\x14", b"<"]
    assert far.reads[1:] == [(20, 21), (60, 61)]
    source.release()
    source.read([(20, 21)])
    assert far.reads[3:] == [(20, 21)]


def test_a_stretch_beyond_the_capacity_is_not_read() -> None:
    far = Far(bytes(100))
    source = BufferedSource(far, capacity=50)
    source.fill(0, 51)
    source.fill(5, 5)
    assert far.reads == []
    assert source.read([]) == []

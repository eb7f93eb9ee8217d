"""Whatever of a file's metadata and indexes has to be passed over is a warning, and a refusal where a scan is
strict."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.format.embedded import parse_toc
from accel.format.footer import parse_footer
from accel.format.model import FileMetadata
from accel.indexes import Evidence, IndexKind, Level, registry
from accel.testing import DictStore, Layout, write_file
from tests.oracle.test_traps import without_header_sizes

ROWS = 4000
NAME = "f.parquet"


class Failing(IndexKind):
    """Raises when it is asked."""

    name = "failing"
    levels = frozenset({Level.PAGE})

    def build(self, chunks: Any, *, level: Level) -> bytes:
        return b"nothing"

    def parse(self, data: bytes, *, level: Level, units: int) -> Any:
        return self

    nbytes = 100

    def prune(self, question: Any) -> Evidence | None:
        raise RuntimeError("it is broken")


@pytest.fixture(autouse=True)
def failing_kind() -> Iterator[None]:
    accel.register_index(Failing())
    yield
    registry.kinds_by_name.pop("failing", None)
    registry.kinds_by_name.pop("foreign", None)


def table() -> pa.Table:
    texts = pa.array([f"text {row * 7919 % ROWS:05d}" for row in range(ROWS)])
    # So much that every index is worth its bytes.
    wide = pa.array([f"{row:0400d}" for row in range(ROWS)])
    return pa.Table.from_arrays([pa.array(np.arange(ROWS)), texts, wide], names=["n", "t", "w"])


def plain() -> bytes:
    return write_file(table(), Layout(group_rows=1000, page_rows=100, dictionary=False, codec="none"))


def indexed(folder: Path, kind: Any) -> bytes:
    path = folder / NAME
    path.write_bytes(plain())
    accel.embed(path, indexes={"t": kind})
    return path.read_bytes()


def metadata_of(raw: bytes) -> FileMetadata:
    start = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    return parse_footer(raw[start:-8], file_size=len(raw), footer_start=start)


def overwritten(raw: bytes, at: int, length: int = 4) -> bytes:
    return raw[:at] + b"\xff" * length + raw[at + length :]


def damaged_offset_index(folder: Path) -> bytes:
    raw = plain()
    return overwritten(raw, int(metadata_of(raw).chunks.offset_index_offset[3, 1]))


def damaged_column_index(folder: Path) -> bytes:
    raw = plain()
    return overwritten(raw, int(metadata_of(raw).chunks.column_index_offset[3, 1]))


def damaged_bloom(folder: Path) -> bytes:
    sink = io.BytesIO()
    blooms = {"t": {"ndv": 1000}}
    pq.write_table(table(), sink, row_group_size=1000, bloom_filter_options=blooms, use_dictionary=False)
    raw = sink.getvalue()
    return overwritten(raw, int(metadata_of(raw).chunks.bloom_offset[3, 1]))


def damaged_index(kind: Any) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        raw = indexed(folder, kind)
        toc = parse_toc(metadata_of(raw))
        assert toc is not None
        entry = toc.entries[-1]
        return overwritten(raw, entry.offset + entry.length // 2)

    return make


def damaged_toc(folder: Path) -> bytes:
    raw = indexed(folder, "distinct")
    at = raw.rindex(b'"checksum"')
    return raw[:at] + b'"checks"\xff' + raw[at + 9 :]


def of_another_file(folder: Path) -> bytes:
    toc = metadata_of(indexed(folder, "distinct")).key_value["accel.indexes"]
    changed = table().slice(0, ROWS).replace_schema_metadata({"accel.indexes": toc})
    return write_file(changed, Layout(group_rows=1000, page_rows=101, dictionary=False))


def of_an_unknown_kind(folder: Path) -> bytes:
    class Foreign(Failing):
        name = "foreign"

    accel.register_index(Foreign())
    raw = indexed(folder, "foreign")
    del registry.kinds_by_name["foreign"]
    return raw


CASES: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "page headers left out of an offset index": (
        lambda folder: without_header_sizes(plain()),
        "the page index contradicts the pages",
    ),
    "a damaged offset index": (damaged_offset_index, "offset index"),
    "a damaged column index": (damaged_column_index, "column index"),
    "a damaged bloom filter": (damaged_bloom, "bloom"),
    "a damaged distinct index": (damaged_index("distinct"), "distinct.*checksum"),
    "a damaged bitmap": (damaged_index("bitmap"), "bitmap.*checksum"),
    "a damaged bloom index": (damaged_index("bloom"), "bloom.*checksum"),
    "a damaged n-gram index": (damaged_index("ngram"), "ngram.*checksum"),
    "a damaged zone map": (damaged_index("zonemap"), "zonemap.*checksum"),
    "a damaged table of contents": (damaged_toc, "table of contents|JSON"),
    "indexes of another file": (of_another_file, "another file"),
    "an index of an unknown kind": (
        of_an_unknown_kind,
        "a kind that is not known here: 'foreign', version 1",
    ),
    "an index that raises": (lambda folder: indexed(folder, "failing"), "RuntimeError: it is broken"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_passed_over_warns_and_a_strict_scan_refuses_it(tmp_path: Path, case: str) -> None:
    make, message = CASES[case]
    store = DictStore({NAME: make(tmp_path)})
    row = 3500
    where = f"t = '{table()['t'][row]}'"

    def ask(cache: accel.Cache, *, strict: bool) -> accel.Scan:
        options = accel.Options(probe_min_bytes=0, max_gap_bytes=0, tail_hint=8, strict=strict)
        return accel.scan(NAME, where, columns=["n", "w"], store=store, cache=cache, options=options)

    lenient, warm = ask(cache := accel.Cache(), strict=False), accel.Cache()
    assert lenient.to_table()["n"].to_pylist() == [row]
    assert lenient.metrics.indexes_ignored > 0
    assert NAME in lenient.metrics.warnings[0]
    for known in (warm, warm, cache):
        # In a new cache, in one where a strict scan has failed before, and where another has passed it over.
        with pytest.raises(accel.IndexFormatError, match=message) as raised:
            ask(known, strict=True).to_table()
        assert raised.value.path == NAME
    # Nor does a refusal keep others from its rows.
    assert ask(warm, strict=False).to_table()["n"].to_pylist() == [row]


@pytest.mark.parametrize("case", ["page headers left out of an offset index", "a damaged offset index"])
@pytest.mark.parametrize("indexes", [{}, {"t": "distinct"}], ids=["page index", "an index"])
def test_embed_makes_such_a_page_index_anew_and_refuses_it_where_it_is_strict(
    tmp_path: Path, case: str, indexes: dict[str, Any]
) -> None:
    make, message = CASES[case]
    path = tmp_path / NAME
    path.write_bytes(make(tmp_path))
    with pytest.raises(accel.IndexFormatError, match=message):
        accel.embed(path, indexes=indexes, options=accel.Options(strict=True))
    report = accel.embed(path, indexes=indexes)
    assert report.page_indexes_added > 0
    (warning,) = report.warnings
    assert warning.startswith(f"{path}, row group ")
    assert warning.endswith("is made anew")
    row = 3500
    options = accel.Options(probe_min_bytes=0, strict=True)
    scan = accel.scan(path, f"n = {row} AND t = '{table()['t'][row]}'", options=options)
    assert scan.to_table()["n"].to_pylist() == [row]
    assert scan.metrics.rows.kept == 100
    assert accel.embed(path, indexes=indexes).warnings == ()

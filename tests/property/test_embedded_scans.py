"""Whatever is embedded in a file, and whatever becomes of those bytes, a scan gives the rows that it gives
without."""

from __future__ import annotations

import datetime
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accel
from accel.format.embedded import Toc, parse_toc
from accel.format.footer import parse_footer
from accel.format.model import FileMetadata
from accel.indexes import Bitmap, Bloom, Zonemap
from accel.testing import DictStore, Layout, table, write_file

ROWS = 400
OPTIONS = accel.Options(probe_min_bytes=0, max_gap_bytes=0)
FAR = accel.Options(probe_min_bytes=0, max_gap_bytes=0, tail_hint=1024, max_tail_hint=1024)
INDEXES: dict[str, Any] = {
    "number": ["distinct", ("distinct", "file"), "bloom", ("bloom", "row group"), "bitmap", "sketch"],
    "price": ["distinct", Bitmap(range_rows=3), "zonemap", "sketch"],
    "text": ["ngram", ("ngram", "row group"), Bloom(fpp=0.3), ("distinct", "row group"), ("bitmap", "page")],
    "at": ["zonemap", ("zonemap", "file"), "distinct"],
    "*": [Zonemap(columns=("number", "year(at)", "lower(text)", "(price, number)", "place.x")),
          (Zonemap(columns=("(text, at)", "(number, price, text)")), "row group")],
    "hour(at)": ("zonemap", "file"),
}  # fmt: skip
LEAVES = (
    "number = {n}", "number <= {n}", "number IN ({n}, {m}, NULL)", "number IS NULL", "price < {p}", "price = {p}",
    "price > {p}", "text = '{t}'", "text LIKE '%{t}%'", "text ILIKE '{t}%'", "text <> '{t}'", "text < '{t}'",
    "at >= '{d}'", "at = '{d}'", "place.x = {n}", "number IS DISTINCT FROM {n}", "price = number",
)  # fmt: skip
TEXTS = ("", "ab", "abc", "Straße", "STRASSE", "xabcx", "zz" * 40, "10.0.0.1")


def rows(seed: int, *, ordered: bool) -> pa.Table:
    rng = np.random.default_rng(seed)
    number = rng.integers(0, 30, ROWS)
    data = {
        "number": np.sort(number) if ordered else number,
        "price": rng.choice([0.0, -0.0, 1.5, np.nan, np.inf, 7.25], ROWS),
        "text": rng.choice(len(TEXTS), ROWS),
        "at": rng.integers(0, 4_000_000_000, ROWS),
    }
    null = rng.random((4, ROWS)) < 0.08

    def nulled(turn: int, values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if gone else v for v, gone in zip(values, null[turn], strict=True)], kind)

    epoch = datetime.datetime(1970, 1, 1)
    moments = [epoch + datetime.timedelta(seconds=int(s)) for s in data["at"]]
    return table(
        number=nulled(0, data["number"].tolist(), pa.int32()),
        price=nulled(1, data["price"].tolist(), pa.float64()),
        text=nulled(2, [TEXTS[i] for i in data["text"]], pa.string()),
        at=nulled(3, moments, pa.timestamp("us")),
        place=pa.array([None if i % 9 == 0 else {"x": i % 31} for i in range(ROWS)]),
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[bytes, bytes, bytes]]:
    """In order and in none: a file without indexes, the same with all, and one of other rows with all."""
    folder = tmp_path_factory.mktemp("files")

    def indexed(plain: bytes) -> bytes:
        (folder / "a.parquet").write_bytes(plain)
        accel.embed(str(folder / "a.parquet"), indexes=INDEXES)
        return pathlib.Path(folder / "a.parquet").read_bytes()

    out = {}
    for ordered in (True, False):
        # Few row groups have an index each, many have one together, where its kind can.
        layout = Layout(
            group_rows=150 if ordered else 60, page_rows=20, dictionary=["text"], statistics=ordered
        )
        plain, other = (write_file(rows(seed, ordered=ordered), layout) for seed in (1, 2))
        out[ordered] = (plain, indexed(plain), indexed(other))
    return out


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Iterator[None]:
    """Parts of few keys, and no index so small that it comes whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accel.indexes.ngram.PART_KEYS", 3)
        patch.setattr("accel.indexes.bitmap.LEAST_PART", 2)
        patch.setattr("accel.indexes.bitmap.MOST_PART", 3)
        patch.setattr("accel.indexes.bitmap.AT_ONCE", 7)
        patch.setattr("accel.indexes.bloom.part_count", lambda counts: 2)
        patch.setattr("accel.planning.embedded.SMALL", 64)
        yield


@st.composite
def predicates(draw: st.DrawFn) -> str:
    def leaf() -> str:
        text = draw(st.sampled_from(LEAVES)).format(
            n=draw(st.integers(-1, 31)),
            m=draw(st.integers(0, 30)),
            p=draw(st.sampled_from(("0", "1.5", "7.25", "8"))),
            t=draw(st.sampled_from((*TEXTS, "bcx", "0.0.", "nothing"))),
            d=draw(st.sampled_from(("1970-01-01", "2005-06-07 08:09:10", "2096-10-02"))),
        )
        return f"NOT ({text})" if draw(st.booleans()) else text

    groups = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    return " OR ".join("(" + " AND ".join(leaf() for _ in range(n)) + ")" for n in groups)


def footer_of(data: bytes) -> FileMetadata:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return parse_footer(data[start:-8], file_size=len(data), footer_start=start)


def toc_of(data: bytes) -> Toc:
    toc = parse_toc(footer_of(data))
    assert toc is not None
    return toc


def scan(data: bytes, where: str, options: accel.Options) -> tuple[list[Any], accel.Scan]:
    found = accel.scan(
        "f.parquet", where, store=DictStore({"f.parquet": data}), cache=accel.Cache(), options=options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [repr(row) for row in found.to_table().to_pylist()], found


@pytest.mark.parametrize("ordered", [True, False])
def test_a_pruned_scan_is_an_unpruned_scan(
    files: dict[bool, tuple[bytes, bytes, bytes]], ordered: bool
) -> None:
    plain, indexed, _ = files[ordered]

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(predicates(), st.sampled_from((OPTIONS, FAR)))
    def check(where: str, options: accel.Options) -> None:
        truth, _ = scan(plain, where, options)
        found, ran = scan(indexed, where, options)
        assert found == truth, where
        assert ran.metrics.indexes_ignored == 0, ran.metrics.warnings
        assert ran.metrics.warnings == []

    check()


@st.composite
def harms(draw: st.DrawFn) -> tuple[str, int, int]:
    return (
        draw(st.sampled_from(("flip", "zero", "cut", "swap", "stranger"))),
        draw(st.integers(0, 2**30)),
        draw(st.integers(0, 2**30)),
    )


def harmed(data: bytes, other: bytes, harm: tuple[str, int, int]) -> bytes:
    """The file with one of its indexes changed, its footer as it was; or with the indexes of another file."""
    how, turn, at = harm
    entries = toc_of(data).entries
    entry = entries[turn % len(entries)]
    start, end = entry.offset, entry.offset + entry.length
    blob = bytearray(data[start:end])
    if how == "flip":
        blob[at % len(blob)] ^= 1 << at % 8
    elif how == "zero":
        blob[at % len(blob) :] = bytes(len(blob) - at % len(blob))
    elif how == "cut":
        # What would have come behind it moves up.
        blob = bytearray(data[start + at % len(blob) : end + at % len(blob)])
    else:
        # Another index, of this file or at its place in the other one.
        source = data if how == "swap" else other
        others = toc_of(source).entries
        chosen = others[at % len(others)] if how == "swap" else others[turn % len(others)]
        blob = bytearray(source[chosen.offset : chosen.offset + chosen.length][: len(blob)])
        blob += bytes(end - start - len(blob))
    return data[:start] + bytes(blob) + data[end:]


@pytest.mark.parametrize("ordered", [True, False])
def test_changed_bytes_of_an_index_change_no_answer(
    files: dict[bool, tuple[bytes, bytes, bytes]], ordered: bool
) -> None:
    plain, indexed, other = files[ordered]
    ignored = 0

    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    @given(predicates(), st.lists(harms(), min_size=1, max_size=6), st.sampled_from((OPTIONS, FAR)))
    def check(where: str, harm: list[tuple[str, int, int]], options: accel.Options) -> None:
        nonlocal ignored
        data = indexed
        for each in harm:
            data = harmed(data, other, each)
        truth, _ = scan(plain, where, options)
        found, ran = scan(data, where, options)
        assert found == truth, (where, harm)
        ignored += ran.metrics.indexes_ignored

    check()
    assert ignored > 20


@pytest.mark.parametrize("ordered", [True, False])
def test_the_indexes_of_another_file_are_of_no_use(
    files: dict[bool, tuple[bytes, bytes, bytes]], ordered: bool
) -> None:
    """The whole table of contents of another file, and its indexes with it."""
    plain, indexed, other = files[ordered]
    theirs, ours = (footer_of(data).key_value["accel.indexes"] for data in (other, indexed))
    if len(theirs) != len(ours):
        theirs = theirs[: len(ours)].ljust(len(ours))
    data = indexed.replace(ours, theirs)
    assert data != indexed
    for where in ("number = 7", "text LIKE '%abc%'", "at >= '2005-06-07'"):
        found, ran = scan(data, where, OPTIONS)
        assert found == scan(plain, where, OPTIONS)[0]
        assert ran.metrics.indexes_ignored >= 1

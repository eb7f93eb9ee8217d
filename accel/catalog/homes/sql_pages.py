"""How the tables of a segment lie in a database: in pages, which prove that an answer lacks none.

A table is cut into parts, and a part into pages of so many rows. A page is a row of the SQL table `pages`:
its content are rows of the catalog's table, as Arrow has them, compressed. Where rows are looked for by a
value, a page has three keys, in the encoding of `bound_bytes`, which any database compares with its own
index:

- `most`: no value of the page is above it;
- `reach`: the highest `most` of the page and of all before it;
- `floor`: no value of the page, nor of any page behind it, is below it.

`floor` and `reach` ascend with the number of the page. So the pages that may hold values between two are
those from the first whose `reach` is not below the one to the last whose `floor` is not above the other.
Together with the page before these and the page behind them they prove themselves complete: each page is
sealed with a checksum over its place and its keys, and the head of the catalog says how many there are. A row
that is damaged, lost, or put elsewhere is noticed wherever it would change the answer.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from accel.catalog.describing import WHOLE_FILE
from accel.catalog.head import REBUILD, Table, ordinals_text
from accel.catalog.intervals import HIGHEST, LOWEST, Interval
from accel.catalog.ipc_messages import read_batch
from accel.catalog.kinds.kind import TableRows
from accel.errors import IndexFormatError
from accel.format.domain import Domain
from accel.indexes.bound_bytes import End, encode_natives
from accel.options import MIB
from accel.predicate.kinds import Kind, kind_of, native

__all__ = ["CutTable", "Layout", "Page", "Part", "check_range", "cut_table", "page_rows"]

PAGE_ROWS: Final = 1024
BOUNDS_ROWS: Final = 128
"""Files of a page of bounds: of those that a value lies between, so many come beside it."""
_CHUNK_PAGES: Final = 64
"""Pages that are cut at once."""
_MOST_ROWS: Final = 1 << 53
"""Rows of a part: their pages have numbers in any database."""
_MOST_PAGE_ROWS: Final = 1 << 16
"""Rows of a page: a few bytes may stand for any number of nulls."""
_MOST_PAGE_BYTES: Final = 64 * MIB
"""Bytes of a page, decompressed; of more where its content is not compressed more than `_MOST_RATIO`
times."""
_MOST_RATIO: Final = 1000
FEW_PAGES: Final = 4
"""Pages of a part that is read whole, and needs no keys."""
_Keys = tuple[list[bytes], list[bytes]]
"""The least and the highest encoding in each page."""
_VERSION: Final = 1
_RAW = struct.Struct("<I")
_PLACE = struct.Struct("<Iiq")


@dataclass(frozen=True, slots=True)
class Part:
    """Some columns of some rows of a table, in pages."""

    columns: tuple[str, ...]
    num_rows: int
    page_rows: int
    """Rows of each page but the last."""
    keyed: bool = False
    """Whether its pages have keys."""
    column: str | None = None
    """For a part of `bounds`: the column that all of its rows are about."""
    whole: bool = False
    """For a part of `bounds`: whether its rows are about whole files."""
    family: str | None = None
    """For a part of `bounds`: the family of all of its rows, where it is one."""
    absent: str | None = None
    """For a part of `bounds` with keys: the files that it has no row for, as heads write ordinals; None for
    none."""

    @property
    def num_pages(self) -> int:
        """The number of its pages."""
        return -(-self.num_rows // self.page_rows)

    def rows_of(self, page: int) -> int:
        """Return the rows of a page."""
        return min(self.page_rows, self.num_rows - page * self.page_rows)


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a table and its columns: what the head says of it (`SegmentObject.tail`)."""

    schema: pa.Schema
    parts: tuple[Part, ...]

    def check_rows(self, num_rows: int) -> None:
        """Raise IndexFormatError unless each column has so many rows."""
        for name in self.schema.names:
            if sum(part.num_rows for part in self.parts if name in part.columns) != num_rows:
                raise IndexFormatError("a table of the catalog lacks rows in the database", hint=REBUILD)

    def encode(self) -> bytes:
        """Return the layout as bytes."""
        described = {
            "schema": self.schema.serialize().to_pybytes().hex(),
            "parts": [
                [
                    one.columns,
                    one.num_rows,
                    one.page_rows,
                    one.keyed,
                    one.column,
                    one.whole,
                    one.family,
                    one.absent,
                ]
                for one in self.parts
            ],
            "version": _VERSION,
        }
        return json.dumps(described).encode()

    @staticmethod
    @lru_cache(maxsize=256)
    def decode(data: bytes) -> Layout:
        """Read the bytes of a layout back.

        Raises
        ------
        IndexFormatError
            They are none.
        """
        try:
            described = json.loads(data)
            schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(described["schema"])))
            parts = tuple(Part(tuple(one[0]), *one[1:]) for one in described["parts"])
            version = described["version"]
        except (pa.ArrowException, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise IndexFormatError(
                f"the catalog does not tell how a table of it is stored: {error}"
            ) from error
        if version != _VERSION:
            raise IndexFormatError(
                f"the tables of the catalog have version {version}, and this version of accel reads "
                f"{_VERSION}",
                hint="build the index again, or update accel",
            )
        for one in parts:
            if type(one.page_rows) is not int or type(one.num_rows) is not int:
                raise IndexFormatError("the catalog does not tell how many rows a table of it has")
            if one.page_rows < 1 or not 0 <= one.num_rows <= _MOST_ROWS:
                raise IndexFormatError("the catalog has a table of which a page has no rows")
            if one.page_rows > _MOST_PAGE_ROWS:
                raise IndexFormatError(f"the catalog has a table of which a page has {one.page_rows} rows")
        return Layout(schema, parts)


@dataclass(frozen=True, slots=True)
class Page:
    """A row of the SQL table `pages`."""

    part: int
    number: int
    floor: bytes | None
    reach: bytes | None
    most: bytes | None
    digest: bytes
    """The checksum of the content."""
    seal: bytes
    """The checksum of the object that the page belongs to, its place in it, its keys, and the digest."""
    content: bytes | None
    """None where it was not requested."""

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> Page:
        """Make a page of a row of a query.

        Raises
        ------
        IndexFormatError
            The values are of other types.
        """
        numbers, keys, sums, content = row[:2], row[2:5], row[5:7], row[7]
        if (
            not all(isinstance(value, int) for value in numbers)
            or not all(value is None or isinstance(value, bytes) for value in (*keys, content))
            or not all(isinstance(value, bytes) for value in sums)
        ):
            raise IndexFormatError("a page of the catalog has not the columns of one")
        return cls(*row)

    def check(self, name: str) -> None:
        """Compare the checksums.

        Parameters
        ----------
        name : str
            Of the object.

        Raises
        ------
        IndexFormatError
            They differ.
        """
        seal = _seal(name, self)
        if seal != self.seal or (self.content is not None and _checksum(self.content) != self.digest):
            raise IndexFormatError(
                f"page {self.number} of part {self.part} of the object {name} is damaged",
                hint=REBUILD,
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A part, and what its pages are made of."""

    part: Part
    chunks: Iterable[pa.Table]
    """The rows of some pages each, in order."""
    ends: Callable[[pa.Table, int], _Keys] | None = None
    """Between which two encodings the values of each page of a chunk lie; None where the part has no keys."""


@dataclass(frozen=True, slots=True, eq=False)
class CutTable:
    """A table of a segment that is cut into pages, whose contents are in a file."""

    layout: Layout
    size: int
    """The bytes of all contents."""
    _object_name: str
    _spool: BinaryIO
    _lengths: Sequence[Sequence[int]]
    """The bytes of the content of each page, by part."""
    _keys: Sequence[_Keys]
    """By part; empty lists where it has none."""

    def pages(self) -> Iterator[Page]:
        """Yield the pages, part by part, in the order of their numbers."""
        self._spool.seek(0)
        for number, (lengths, keys) in enumerate(zip(self._lengths, self._keys, strict=True)):
            floors, mosts = map(list, keys)
            reaches = list(itertools.accumulate(mosts, max))
            floors = list(itertools.accumulate(reversed(floors), min))[::-1]
            for at, length in enumerate(lengths):
                content = self._spool.read(length)
                digest = _checksum(content)
                floor, reach, most = (floors[at], reaches[at], mosts[at]) if mosts else (None, None, None)
                page = Page(number, at, floor, reach, most, digest, b"", content)
                yield replace(page, seal=_seal(self._object_name, page))


def cut_table(name: str, object_name: str, rows: TableRows, *, num_files: int, spool: BinaryIO) -> CutTable:
    """Cut a table of a segment into pages.

    Parameters
    ----------
    name : str
        The name of the table in the segment.
    object_name : str
        The name of the object that the pages are of.
    rows : TableRows
    num_files : int
        Of the segment.
    spool : binary file
        An empty file that takes the contents of pages.

    Raises
    ------
    AccelError
        There are other rows than there are to be.
    """
    schema = rows.rows.schema.remove_metadata()
    pieces: list[_Piece]
    if name == Table.FILES:
        table = rows.in_memory()
        small = [column for column in table.schema.names if column != "metadata"]
        pieces = [
            _plain_piece(table.select(small), PAGE_ROWS),
            _plain_piece(table.select(["metadata"]), 1),
        ]
    elif name == Table.BOUNDS:
        pieces = [_bounds_piece(one, num_files) for one in _runs(rows.in_memory().combine_chunks())]
    else:
        pieces = [_sorted_piece(rows)]
    lengths: list[list[int]] = []
    keys: list[_Keys] = []
    for piece in pieces:
        size, own, lows, highs, done = piece.part.page_rows, [], [], [], 0
        for chunk in piece.chunks:
            if piece.ends is not None:
                some = piece.ends(chunk, size)
                lows += some[0]
                highs += some[1]
            for start in range(0, len(chunk), size):
                own.append(spool.write(_encode(chunk.slice(start, size))))
            done += len(chunk)
        if piece.part.column is None and len(pieces) == 1:
            rows.check_written(done, name)
        lengths.append(own)
        keys.append((lows, highs))
    layout = Layout(schema, tuple(piece.part for piece in pieces))
    return CutTable(layout, sum(map(sum, lengths)), object_name, spool, lengths, keys)


def _plain_piece(table: pa.Table, size: int) -> _Piece:
    return _Piece(Part(tuple(table.schema.names), table.num_rows, size), [table])


def _runs(bounds: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each column, those about files and those about row groups by themselves.

    The rows are sorted so.
    """
    import pyarrow.compute as pc

    if not bounds.num_rows:
        return
    columns = bounds.column("column").combine_chunks()
    whole = np.asarray(bounds.column("row_group").to_numpy() == WHOLE_FILE)
    other = pc.not_equal(columns.slice(1), columns.slice(0, len(columns) - 1)).to_numpy(zero_copy_only=False)
    cuts = np.flatnonzero(other | (whole[1:] != whole[:-1])) + 1
    edges = [0, *cuts.tolist(), bounds.num_rows]
    for start, stop in itertools.pairwise(edges):
        yield bounds.slice(start, stop - start)


def _bounds_piece(table: pa.Table, num_files: int) -> _Piece:
    families = set(table.column("family").unique().to_pylist())
    whole = table.column("row_group")[0].as_py() == WHOLE_FILE
    size = BOUNDS_ROWS if whole else PAGE_ROWS
    keyed = whole and len(families) == 1 and table.num_rows > FEW_PAGES * size
    absent: frozenset[int] = frozenset()
    if keyed:
        absent = frozenset(range(num_files)) - frozenset(table.column("file").to_pylist())
        lowest, _ = _ends_of_bounds(table)
        order = sorted(range(len(lowest)), key=lowest.__getitem__)
        table = table.take(pa.array(order, pa.int64()))
    part = Part(
        tuple(table.schema.names),
        table.num_rows,
        size,
        keyed,
        table.column("column")[0].as_py(),
        whole,
        families.pop() if len(families) == 1 else None,
        ordinals_text(absent),
    )
    return _Piece(part, [table], _ends_of_bound_pages if keyed else None)


def _ends_of_bound_pages(table: pa.Table, size: int) -> _Keys:
    lowest, highest = _ends_of_bounds(table)
    starts = range(0, len(lowest), size)
    return [min(lowest[at : at + size]) for at in starts], [max(highest[at : at + size]) for at in starts]


def _ends_of_bounds(table: pa.Table) -> tuple[list[bytes], list[bytes]]:
    """Return the two encodings between which the values of each file lie."""
    lowest, highest = [], []
    rows = (table.column(name).to_pylist() for name in ("lower", "upper", "null_count", "num_rows"))
    for lower, upper, nulls, count in zip(*rows, strict=True):
        if nulls is not None and nulls == count:
            # No value: no comparison is true.
            lowest.append(HIGHEST)
            highest.append(LOWEST)
            continue
        # Bounds that contradict each other bound nothing.
        crossed = lower is not None and upper is not None and lower > upper
        lowest.append(LOWEST if lower is None or crossed else lower)
        highest.append(HIGHEST if upper is None or crossed else upper)
    return lowest, highest


def _sorted_piece(rows: TableRows) -> _Piece:
    """Return the piece of a table whose rows are looked up by the values of its first column."""
    schema, size = rows.rows.schema, PAGE_ROWS
    keyed = rows.num_rows > FEW_PAGES * size and kind_of(schema.field(0).type).domain is not Domain.NONE
    part = Part(tuple(schema.names), rows.num_rows, size, keyed)
    return _Piece(part, _chunks(rows, size), _ends_of_value_pages if keyed else None)


def _chunks(rows: TableRows, size: int) -> Iterator[pa.Table]:
    """Yield the rows in tables of whole pages, of which the last may be shorter."""
    step = size * _CHUNK_PAGES
    waiting: list[pa.Table] = []
    for batch in rows.batches():
        waiting.append(pa.Table.from_batches([batch]))
        while sum(map(len, waiting)) >= step:
            together = pa.concat_tables(waiting)
            yield together.slice(0, step)
            waiting = [together.slice(step)]
    if sum(map(len, waiting)):
        yield pa.concat_tables(waiting)


def _ends_of_value_pages(table: pa.Table, size: int) -> _Keys:
    """Return the two encodings between which the values of the first column lie in each page."""
    import pyarrow.compute as pc

    from accel.arrays import integers, mask, validity, whole

    kind = kind_of(table.schema.field(0).type)
    array = native(whole(table.column(0)))
    has = np.array(validity(array))
    nan = np.zeros(len(array), bool)
    values: Any = None
    if kind.domain is Domain.BOOLEAN:
        values = mask(array)
    elif kind.domain is not Domain.BYTES:
        values = integers(array)
        nan = np.isnan(values) if kind.domain is Domain.FLOAT else nan
    found: list[tuple[Any, Any]] = []
    for start in range(0, len(array), size):
        some = has[start : start + size] & ~nan[start : start + size]
        if not some.any():
            found.append((None, None))
        elif values is None:
            ends = pc.min_max(array.slice(start, size)).as_py()
            found.append((ends["min"], ends["max"]))
        else:
            inside = values[start : start + size][some]
            found.append((min(inside.tolist()), max(inside.tolist())))
    # A page without values: a null is equal to nothing, and NaN is above all.
    lows = _encoded([low for low, _ in found], kind, End.LOWER)
    highs = _encoded([high for _, high in found], kind, End.UPPER)
    empty = [low is None for low, _ in found]
    nans = [bool(nan[start : start + size].any()) for start in range(0, len(array), size)]
    lows = [HIGHEST if none else low for low, none in zip(lows, empty, strict=True)]
    highs = [
        HIGHEST if has_nan else LOWEST if none else high
        for high, none, has_nan in zip(highs, empty, nans, strict=True)
    ]
    return lows, highs


def _encoded(ends: Sequence[Any], kind: Kind, end: End) -> list[bytes]:
    unknown = LOWEST if end is End.LOWER else HIGHEST
    return [unknown if value is None else value for value in encode_natives(ends, kind, end)]


def _encode(rows: pa.Table) -> bytes:
    (batch,) = rows.combine_chunks().to_batches() or (pa.RecordBatch.from_pylist([], rows.schema),)
    raw = batch.serialize()
    packed: bytes = pa.Codec("zstd").compress(raw, asbytes=True)
    return _RAW.pack(raw.size) + packed


def page_rows(page: Page, part: Part, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a page, which was checked.

    Raises
    ------
    IndexFormatError
        They are not as many as there are to be.
    """
    if page.content is None:
        raise TypeError("the page came without its content")
    columns = pa.schema([schema.field(name) for name in part.columns])
    try:
        (length,) = _RAW.unpack_from(page.content)
        if length > max(_MOST_PAGE_BYTES, _MOST_RATIO * len(page.content)):
            raise IndexFormatError(f"a page of the catalog claims {length} bytes of {len(page.content)}")
        raw = pa.Codec("zstd").decompress(page.content[_RAW.size :], decompressed_size=length)
        batch = read_batch(raw, columns)
    except (pa.ArrowException, struct.error, OSError, EOFError, ValueError) as error:
        raise IndexFormatError(f"a page of the catalog cannot be read: {error}") from error
    if batch.num_rows != part.rows_of(page.number):
        raise IndexFormatError(f"a page of the catalog has {batch.num_rows} rows")
    return batch


def check_range(pages: Sequence[Page], part: Part, interval: Interval) -> list[Page]:
    """Return the pages that may hold values of an interval, among those that were found for it.

    Parameters
    ----------
    pages : sequence of Page
        Checked, in the order of their numbers.
    part : Part
    interval : Interval

    Raises
    ------
    IndexFormatError
        The pages do not prove that there are no others.
    """
    numbers = [page.number for page in pages]
    complete = bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    if complete:
        first, last = pages[0], pages[-1]
        complete = (first.number == 0 or _key(first.reach) < interval.lower) and (
            last.number == part.num_pages - 1 or _key(last.floor) > interval.upper
        )
    left = [
        page for page in pages if _key(page.most) >= interval.lower and _key(page.floor) <= interval.upper
    ]
    if not complete or any(page.content is None for page in left):
        raise IndexFormatError("a page of the catalog is missing from the database", hint=REBUILD)
    return left


def _key(key: bytes | None) -> bytes:
    if key is None:
        raise IndexFormatError("a page of the catalog lacks the keys by which it is found")
    return key


def _seal(name: str, page: Page) -> bytes:
    keys = [
        b"\0" if key is None else b"\1" + _RAW.pack(len(key)) + key
        for key in (page.floor, page.reach, page.most)
    ]
    place = _PLACE.pack(len(name), page.part, page.number)
    return _checksum(b"".join((place, name.encode(), *keys, page.digest)))


def _checksum(data: bytes) -> bytes:
    import xxhash

    return bytes(xxhash.xxh3_64_digest(data))

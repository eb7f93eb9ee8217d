"""Building one index by several processes: shares of the files are planned, described anywhere, and committed
together.

`plan_shares` lists the files and cuts those that the index lacks into shares, which travel as Arrow rows.
Whoever has a share describes it with `describe_shares` and writes a segment that nothing names yet.
`commit_shares` makes all of them part of the index, by one replacement of its head. A share that is lost, or
described twice, does no harm: what it has written is of no meaning until a commit names it, and is removed by
`vacuum_index` later.

The functions fit Spark: ``shares.mapInArrow(partial(describe_shares, index=…), schema)``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from accel.catalog.building.builder import IndexReport
from accel.catalog.building.describer import Described, FileDescriber
from accel.catalog.building.merging import SEGMENT_FILES
from accel.catalog.head import CatalogHead
from accel.catalog.homes.home import CatalogHome
from accel.catalog.verbs import IndexCall, Indexes, Path
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file_entry import FileEntry
from accel.runtime import io_loop

__all__ = ["DESCRIBED_SCHEMA", "SHARE_SCHEMA", "commit_shares", "describe_shares", "plan_shares"]

SHARE_SCHEMA = pa.schema(
    [
        pa.field("share", pa.int32()),
        pa.field("shares", pa.int32()),
        pa.field("head", pa.binary()),
        pa.field("path", pa.list_(pa.string())),
        pa.field("size", pa.list_(pa.int64())),
        pa.field("etag", pa.list_(pa.string())),
    ]
)
"""The columns of shares, a row for each: its number, and how many there are. `head` is that of an index
without segments: it says what to describe."""

DESCRIBED_SCHEMA = pa.schema(
    [
        pa.field("share", pa.int32()),
        pa.field("shares", pa.int32()),
        pa.field("segment", pa.binary()),
        pa.field("path", pa.list_(pa.string())),
        pa.field("etag", pa.list_(pa.string())),
        pa.field("failed", pa.list_(pa.string())),
        pa.field("reason", pa.list_(pa.string())),
        pa.field("requests", pa.int64()),
    ]
)
"""The columns of what `describe_shares` yields, a row for each share. `segment` is a head that names one
segment, or null where no file could be described; `path` and `etag` are those of its files, in its order."""


def plan_shares(
    source: Path | None,
    *,
    shares: int,
    most_files: int = SEGMENT_FILES,
    to: Path | None = None,
    columns: Sequence[str] | None = None,
    indexes: Indexes | None = None,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> pa.Table:
    """Cut the files that an index lacks into shares. An index that is not there yet is begun, without files.

    Parameters
    ----------
    source : str or PathLike, or None
        As for `accel.build_index`; None for an index that exists, which `to` names.
    shares : int
        How many there are to be; there are more where none may have so many files.
    most_files : int, default 20,000
        The most files of a share, of which the metadata are in memory at once.
    to, columns, indexes, store, storage_options, options
        As for `accel.build_index`.

    Returns
    -------
    pyarrow.Table
        A row of `SHARE_SCHEMA` for each share; none where the index lacks nothing.

    Raises
    ------
    ObjectNotFoundError
        There is no such index, or the source holds no file.
    StoreError
        A store did not answer, or cannot be written to.
    ValueError
        `shares` is less than 1, or neither a source nor an index is named.

    Examples
    --------
    >>> shares = plan_shares("s3://bucket/events/", shares=64)
    >>> described = pa.Table.from_batches(describe_shares(shares.to_batches(), index="s3://bucket/events/_accel/"))
    >>> report = commit_shares("s3://bucket/events/_accel/", described)
    """
    if shares < 1:
        raise ValueError(f"shares is a number of 1 or more, not {shares!r}")
    if not 1 <= most_files <= SEGMENT_FILES:
        raise ValueError(f"most_files is a number from 1 to {SEGMENT_FILES:,}, not {most_files!r}")
    work = IndexCall(store, storage_options, options)
    planning = _plan(work, source, shares, most_files, to, columns, indexes)
    del to, store, storage_options  # so that no traceback shows what they hold
    return io_loop.run(planning)


def describe_shares(
    batches: Iterable[pa.RecordBatch],
    *,
    index: Path,
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> Iterator[pa.RecordBatch]:
    """Describe shares: open their files, read what indexes need of them, and write a segment about each
    share.

    The index itself is neither read nor changed.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Rows of `SHARE_SCHEMA`.
    index : str or PathLike
        The directory of the index.
    store, storage_options, options
        As for `accel.build_index`.

    Yields
    ------
    pyarrow.RecordBatch
        A row of `DESCRIBED_SCHEMA` for each share, or several where its files have much metadata.

    Raises
    ------
    StoreError
        A store did not answer, or cannot be written to.
    IndexFormatError
        A row is no share.

    Examples
    --------
    >>> described = pa.Table.from_batches(describe_shares(shares.to_batches(), index="s3://bucket/events/_accel/"))
    """
    work = IndexCall(store, storage_options, options)
    home = work.home(index)
    del index, store, storage_options  # so that no traceback shows what they hold
    for batch in batches:
        for row in batch.to_pylist():
            yield from io_loop.run(_describe(work, home, row))


def commit_shares(
    index: Path,
    described: pa.Table | Iterable[pa.RecordBatch],
    *,
    committed: Collection[int] = (),
    store: object | None = None,
    storage_options: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> IndexReport:
    """Make what was described part of an index, by one commit.

    Parameters
    ----------
    index : str or PathLike
        The directory of the index.
    described : pyarrow.Table or iterable of pyarrow.RecordBatch
        Rows of `DESCRIBED_SCHEMA`, of all shares or of some. An index of which some shares have never been
        committed may be used, but not with `listing="index"`, until a refresh does the rest.
    committed : collection of int
        The numbers of the shares that earlier calls have committed.
    store, storage_options, options
        As for `accel.build_index`.

    Returns
    -------
    IndexReport
        The changes to the index, and what it covers now.

    Raises
    ------
    ObjectNotFoundError
        There is no such index.
    StoreError
        A store did not answer, or cannot be written to.
    IndexFormatError
        The index is damaged, or a row is not what `describe_shares` yields.

    Examples
    --------
    >>> report = commit_shares("s3://bucket/events/_accel/", described)
    """
    builder = IndexCall(store, storage_options, options).builder(index)
    del index, store, storage_options  # so that no traceback shows what they hold
    batches = described.to_batches() if isinstance(described, pa.Table) else described
    rows = [row for batch in batches for row in batch.to_pylist()]
    all_shares = rows[0]["shares"] if rows else -1
    completes = {*committed, *(row["share"] for row in rows)} == set(range(all_shares))
    return io_loop.run(builder.commit([_described(row) for row in rows], completes=completes))


async def _plan(
    work: IndexCall,
    source: Path | None,
    shares: int,
    most_files: int,
    to: Path | None,
    columns: Sequence[str] | None,
    indexes: Indexes | None,
) -> pa.Table:
    builder, head, dotted = work.builder_for(source, to, columns, indexes)
    del to
    planned = await builder.plan(make=head, dotted=dotted)
    size = min(most_files, max(1, -(-len(planned.new) // shares)))
    current = planned.snapshot.head
    blank = CatalogHead(base=current.base, columns=current.columns, indexes=current.indexes).encode()
    rows: list[dict[str, Any]] = []
    for start in range(0, len(planned.new), size):
        some = planned.new[start : start + size]
        files = {
            "path": [path for path, _ in some],
            "size": [file.size for _, file in some],
            "etag": [file.etag for _, file in some],
        }
        rows.append({"share": len(rows), "head": blank, **files})
    for row in rows:
        row["shares"] = len(rows)
    if not rows and not current.complete:
        await builder.commit([], completes=True)
    return pa.Table.from_pylist(rows, SHARE_SCHEMA)


async def _describe(work: IndexCall, home: CatalogHome, row: Mapping[str, Any]) -> list[pa.RecordBatch]:
    metrics = Metrics()
    head = CatalogHead.decode(row["head"])
    root, base = home.base(head)
    above = home.base_url(head).rstrip("/")
    files = [
        (path, FileEntry(root, base + path, f"{above}/{path}", size, etag))
        for path, size, etag in zip(row["path"], row["size"], row["etag"], strict=True)
    ]
    describer = FileDescriber(work, options=work.options, metrics=metrics)
    found = await describer.describe_all(files, head, home)
    return [_described_row(one, row, head, metrics.requests if not at else 0) for at, one in enumerate(found)]


def _described_row(
    found: Described, row: Mapping[str, Any], head: CatalogHead, requests: int
) -> pa.RecordBatch:
    named = None
    if found.segment is not None:
        named = CatalogHead(base=head.base, segments=(found.segment,)).encode()
    described = {
        "share": row["share"],
        "shares": row["shares"],
        "segment": named,
        "path": list(found.listed),
        "etag": [etag for _, etag in found.listed.values()],
        "failed": list(found.failed),
        "reason": list(found.failed.values()),
        "requests": requests,
    }
    return pa.RecordBatch.from_pylist([described], DESCRIBED_SCHEMA)


def _described(row: Mapping[str, Any]) -> Described:
    listed = {path: (at, etag) for at, (path, etag) in enumerate(zip(row["path"], row["etag"], strict=True))}
    failed = dict(zip(row["failed"], row["reason"], strict=True))
    if row["segment"] is None:
        return Described(failed=failed)
    (segment,) = CatalogHead.decode(row["segment"]).segments
    return Described(segment=segment, listed=listed, failed=failed)

"""The pieces of one task: nothing is fetched twice, dictionaries are met once, failures strand nobody."""

from __future__ import annotations

import asyncio
import io
import itertools
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode.codecs import StoredPage, UncompressedPage, store_page
from accel.decode.piece import decode_piece
from accel.errors import StoreError
from accel.metrics import Metrics
from accel.planning.pages import Piece, PieceSize, cut_pieces
from accel.planning.task import ScanTask
from accel.ranges import ByteRange, Suffix
from accel.reader import shared_pages as dictionary_reads
from accel.reader.task_reads import TaskReads
from accel.runtime import io_loop
from accel.store.clients import client_for
from accel.testing import (
    DictStore,
    FaultStore,
    LatencyStore,
    Layout,
    RecordingStore,
    Status,
    table,
    write_file,
)

ROWS = 2000
COLUMNS = table(
    wide=pa.array([f"{i:040}" for i in range(ROWS)]), kind=pa.array([f"k{i % 9}" for i in range(ROWS)])
)
# Pages of the two columns do not align: a page of the narrow one straddles most cuts.
SINK = io.BytesIO()
pq.write_table(
    COLUMNS,
    SINK,
    use_dictionary=["kind"],
    compression="none",
    write_page_index=True,
    write_batch_size=10,
    data_page_size=3_000,
    max_rows_per_page=150,
)
DATA = SINK.getvalue()
OPTIONS = accel.Options(tail_hint=8, max_gap_bytes=0, max_attempts=1, piece_bytes=9_000)


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore(DictStore({"f.parquet": DATA}))


def prepare(
    store: object, cache: accel.Cache, piece_bytes: int = 9_000
) -> tuple[ScanTask, TaskReads, list[Piece]]:
    (task,) = accel.plan("f.parquet", store=store, cache=None, options=OPTIONS).tasks
    client = client_for("store:", store=store, options=OPTIONS)
    reads = TaskReads(task, client, cache, Metrics(), None)
    pieces = cut_pieces(
        task.reads, task.rows, certain=task.certain, num_rows=task.num_rows, size=PieceSize(piece_bytes)
    )
    assert len(pieces) > 3
    return task, reads, pieces


def fetch_all(reads: TaskReads, pieces: list[Piece]) -> list[Any]:
    async def play() -> list[Any]:
        reads.expect(pieces)
        return await asyncio.gather(*(reads.fetch(piece) for piece in pieces), return_exceptions=True)

    return io_loop.run(play())


@pytest.mark.parametrize("memory", [1 << 20, 0], ids=["a cache", "no cache"])
def test_every_byte_once(store: RecordingStore, memory: int) -> None:
    task, reads, pieces = prepare(store, accel.Cache(memory=memory))
    store.clear()
    found = fetch_all(reads, pieces)
    assert [read.round_trips for read in found] == [1] * len(pieces)
    asked = sorted(call.range for call in store.calls if call.range is not None)
    for one, other in itertools.pairwise(asked):
        assert one.end <= other.start
    dictionary = task.reads[1].dictionary
    assert dictionary is not None
    assert sum(r.length for r in asked) == task.nbytes + dictionary.length
    for read, piece in zip(found, pieces, strict=True):
        for part in piece.leaves:
            got = b"".join(bytes(page) for page in read.leaves[part.reads.leaf].pages)
            at = slice(part.lo, part.hi)
            want = [DATA[o : o + s] for o, s in zip(part.reads.offset[at], part.reads.size[at], strict=True)]
            assert got == b"".join(want)
    assert any(part.carried for piece in pieces for part in piece.leaves)
    # What straddled a cut is not held once the last piece that needs it has it.
    assert len(reads.carried) == 0


def test_a_dictionary_is_kept_like_metadata(store: RecordingStore) -> None:
    cache = accel.Cache()
    _, reads, pieces = prepare(store, cache)
    fetch_all(reads, pieces)
    task, again, pieces = prepare(store, cache)
    store.clear()
    fetch_all(again, pieces)
    assert again.metrics.dictionary_hits > 0
    assert task.reads[1].dictionary not in [call.range for call in store.calls]
    assert store.bytes == task.nbytes


def test_the_dictionaries_of_a_large_scan_are_not_kept(
    store: RecordingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dictionary_reads, "SCANNED", 1)
    cache = accel.Cache(data=0)
    task, reads, pieces = prepare(store, cache)
    fetch_all(reads, pieces)
    assert cache.stats().entries == 0
    dictionary = task.reads[1].dictionary
    assert dictionary is not None
    asked = [call.range for call in store.calls if call.range is not None]
    assert sum(part.covers(dictionary) for part in asked) == 1


def test_a_failure_strands_nobody(store: RecordingStore) -> None:
    """Whoever waits for the failed piece's dictionary or page is let go."""
    inner = DictStore({"f.parquet": DATA})
    _, _, pieces = prepare(inner, accel.Cache())
    first = min(int(part.reads.offset[part.lo]) for part in pieces[0].leaves)

    def script(attempt: Any) -> Status | None:
        want: ByteRange | Suffix = attempt.want
        if isinstance(want, ByteRange) and want.start <= first < want.end and attempt.number > 3:
            return Status(403)
        return None

    faulty = FaultStore(inner, script)
    _, reads, pieces = prepare(faulty, accel.Cache())
    faulty.attempts.extend([None] * 4)  # type: ignore[list-item]

    async def play() -> list[Any]:
        reads.expect(pieces)
        async with asyncio.timeout(20):
            return await asyncio.gather(*(reads.fetch(p) for p in pieces), return_exceptions=True)

    found = io_loop.run(play())
    assert isinstance(found[0], StoreError)
    assert found[0].path == "f.parquet"
    assert any(isinstance(outcome, asyncio.CancelledError) for outcome in found[1:])


async def test_who_reads_meanwhile_takes_the_stored_dictionary_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many lookups at once one puts it into that form; the others find it when their pages have come."""
    monkeypatch.setattr("accel.reader.shared_pages.WORTH_STORING", 0)
    monkeypatch.setattr("accel.reader.reader.WHOLE_BYTES", 0)
    names = [f"name {i % 400:04}" for i in range(ROWS)]
    layout = Layout(page_rows=70, dictionary=["x"], codec="zstd")
    data = write_file(table(key=pa.array(range(ROWS)), x=pa.array(names)), layout)
    taken: list[type] = []
    made: list[int] = []

    def look(task: Any, piece: Any, leaves: Any, **keywords: Any) -> Any:
        taken.extend(type(leaf.dictionary.obj) for leaf in leaves.values() if leaf.dictionary is not None)
        return decode_piece(task, piece, leaves, **keywords)

    def later(page: Any, codec: int) -> StoredPage:
        made.append(codec)
        time.sleep(0.03)  # the others have begun by then, and wait for their pages
        return store_page(page, codec)

    monkeypatch.setattr("accel.reader.shared_pages.store_page", later)
    monkeypatch.setattr("accel.decode.piece.decode_piece", look)
    slow, cache = LatencyStore(DictStore({"f.parquet": data}), first_byte=0.1), accel.Cache(data=0)
    options = accel.Options(tail_hint=8)

    async def look_up(key: int) -> list[str]:
        scan = accel.scan("f.parquet", f"key = {key}", store=slow, cache=cache, options=options)
        found: list[str] = (await scan.to_table_async()).column("x").to_pylist()
        return found

    assert await look_up(5) == [names[5]]
    keys = range(100, 1700, 200)
    assert await asyncio.gather(*map(look_up, keys)) == [[names[key]] for key in keys]
    assert (taken, len(made)) == ([bytes] + [UncompressedPage] * len(keys), 1)


def test_a_dictionary_met_again_is_kept_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second read has it decompressed, once; the rows stay the same, and no request is added."""
    monkeypatch.setattr("accel.reader.shared_pages.WORTH_STORING", 0)
    made: list[int] = []
    real = store_page

    def counted(page: Any, codec: int) -> StoredPage:
        made.append(codec)
        return real(page, codec)

    monkeypatch.setattr("accel.reader.shared_pages.store_page", counted)
    names = [f"name {i % 400:04}" for i in range(ROWS)]
    data = write_file(table(x=pa.array(names)), Layout(page_rows=70, dictionary=["x"], codec="zstd"))
    store = RecordingStore(DictStore({"f.parquet": data}))
    cache = accel.Cache(data=0)
    monkeypatch.setattr("accel.reader.reader.WHOLE_BYTES", 0)
    options = accel.Options(tail_hint=8, max_gap_bytes=0)

    def rows(at: int) -> list[str]:
        scan = accel.scan(
            "f.parquet",
            selection={"f.parquet": {0: [(at, at + 2)]}},
            store=store,
            cache=cache,
            options=options,
        )
        return scan.to_table().column("x").to_pylist()  # type: ignore[no-any-return]

    for at, pages in ((0, 0), (700, 1), (1400, 1), (71, 1)):
        store.clear()
        assert rows(at) == names[at : at + 2]
        assert len(made) == pages
        assert store.requests <= 1 or at == 0


LARGE = 200 << 10
"""Bytes of each dictionary, of two columns."""


@pytest.fixture(scope="module")
def large() -> bytes:
    """A row group of few pages wanted beside large dictionaries."""
    texts = [f"{i:08}" for i in range(20_000)]
    data = table(key=pa.array(range(20_000)), one=pa.array(texts), two=pa.array(texts[::-1]))
    return write_file(data, Layout(page_rows=100, codec="none", dictionary=["one", "two"]))


def reads_of(store: DictStore, cache: accel.Cache, most_bytes: int) -> tuple[TaskReads, Piece]:
    (task,) = accel.plan("f.parquet", "key = 7", store=store, cache=None).tasks
    client = client_for("store:", store=store, options=accel.Options())
    reads = TaskReads(task, client, cache, Metrics(), None, most_bytes=most_bytes)
    (piece,) = cut_pieces(
        task.reads, task.rows, certain=task.certain, num_rows=task.num_rows, size=PieceSize(1 << 20)
    )
    return reads, piece


def test_dictionaries_are_held_too(large: bytes) -> None:
    store, cache = DictStore({"f.parquet": large}), accel.Cache()
    reads, piece = reads_of(store, cache, 1 << 30)
    assert reads.held_bytes(piece) > piece.held_bytes + 2 * LARGE
    # By the first piece of the task.
    assert reads.held_bytes(piece) == piece.held_bytes
    # What has its turn is read, whatever comes along.
    assert reads_of(store, cache, LARGE)[0].held_bytes(piece) == LARGE
    assert reads_of(store, cache, 0)[0].held_bytes(piece) == piece.held_bytes
    fetch_all(reads, [piece])
    # What is cached is held there.
    assert reads_of(store, cache, 1 << 30)[0].held_bytes(piece) == piece.held_bytes


class Abreast(DictStore):
    """Notes of how many files something large is read at once."""

    most = 0

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.under_way: list[str] = []

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Any:
        if isinstance(want, Suffix) or want.length < LARGE:
            return await super().read(path, want, if_match=if_match)
        self.under_way.append(path)
        self.most = max(self.most, len(set(self.under_way)))
        await asyncio.sleep(0.005)
        try:
            return await super().read(path, want, if_match=if_match)
        finally:
            self.under_way.remove(path)


@pytest.mark.parametrize(("limit", "alone"), [(4 * LARGE, True), (1 << 30, False)])
def test_files_whose_dictionaries_do_not_fit_are_read_one_after_another(
    large: bytes, limit: int, alone: bool
) -> None:
    store = Abreast({f"d/{i}": large for i in range(8)})
    options = accel.Options(memory_limit=limit, phases="one", tail_hint=8 << 10)
    assert accel.scan("d/", "key = 7", store=store, cache=None, options=options).to_table().num_rows == 8
    assert (store.most == 1) == alone

"""Where files come from, and what asking for them costs: files, lists, globs, directories, partitions,
HTTP."""

from __future__ import annotations

import asyncio
import datetime
import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.ranges import ByteRange, Suffix
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

OPTIONS = accel.Options(tail_hint=4096, max_gap_bytes=0)


def part(first: int, rows: int = 3000, *, kind: pa.DataType | None = None) -> pa.Table:
    """`k` counts from `first`; `noise` keeps the data longer than any tail that is read."""
    rng = np.random.default_rng(first)
    return table(
        k=pa.array(np.arange(first, first + rows), kind or pa.int64()),
        noise=pa.array(rng.standard_normal(rows)),
    )


def file(first: int, rows: int = 3000, **keywords: object) -> bytes:
    return write_file(part(first, rows, **keywords), Layout(page_rows=500, dictionary=False))  # type: ignore[arg-type]


def recorded(objects: dict[str, bytes]) -> RecordingStore:
    return RecordingStore(DictStore(objects))


def keys(scan: accel.Scan) -> list[int]:
    return scan.to_table().column("k").to_pylist()  # type: ignore[no-any-return]


def first_keys(scan: accel.Scan) -> list[int]:
    """The thousands that the rows come from, in the order they came."""
    return list(dict.fromkeys(k // 10_000 for k in keys(scan)))


@pytest.fixture(scope="module")
def three() -> dict[str, bytes]:
    return {f"d/part-{i}.parquet": file(10_000 * i) for i in range(3)}


def scan(source: object, store: RecordingStore, where: str | None = None, **keywords: object) -> accel.Scan:
    settings: dict[str, object] = {"store": store, "cache": accel.Cache(), "options": OPTIONS}
    return accel.scan(source, where, **(settings | keywords))  # type: ignore[arg-type]


# One file, lists, globs, directories.


def test_one_file_is_not_listed(three: dict[str, bytes]) -> None:
    store = recorded(three)
    assert keys(scan("d/part-1.parquet", store)) == list(range(10_000, 13_000))
    assert {call.path for call in store.calls} == {"d/part-1.parquet"}
    assert all(call.want is not None for call in store.calls)
    # The footer, then the data: no third.
    assert store.depth == 2


def test_a_list_keeps_its_order_and_reads_a_file_twice_that_is_named_twice(three: dict[str, bytes]) -> None:
    store = recorded(three)
    names = ["d/part-2.parquet", "d/part-0.parquet", "d/part-2.parquet"]
    found = keys(scan(names, store))
    assert found == [*range(20_000, 23_000), *range(3_000), *range(20_000, 23_000)]
    assert not any(call.want is None for call in store.calls)
    # Its footer was asked for once.
    assert sum(isinstance(c.want, Suffix) and c.path == names[0] for c in store.calls) == 1


@pytest.mark.parametrize("source", ["d/*.parquet", "d/part-[012].parquet", "**/*.parquet", "d/", "d"])
def test_globs_and_directories_take_one_listing(three: dict[str, bytes], source: str) -> None:
    store = recorded({**three, "d/_SUCCESS": b"", "d/.hidden.parquet": b"junk", "e/other.csv": b"x,y"})
    asked = scan(source, store)
    assert first_keys(asked) == [0, 1, 2]
    assert sum(call.want is None for call in store.calls) == 1
    # The listing, the footers, the data.
    assert store.depth == 3
    assert asked.metrics.round_trips == 3
    assert asked.metrics.files.total == 3


def test_a_name_with_wildcards_in_it_is_a_name_when_asked_so() -> None:
    store = recorded({"d/a[1].parquet": file(0), "d/a1.parquet": file(10_000)})
    assert first_keys(scan("d/a[1].parquet", store, glob=False)) == [0]
    # An object of exactly that name goes first anyway.
    assert first_keys(scan("d/a[1].parquet", store)) == [0]
    assert first_keys(scan("d/a?.parquet", store)) == [1]


def test_local_files(tmp_path: Path, three: dict[str, bytes]) -> None:
    for name, data in three.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    below = tmp_path / "d"
    sources = [
        str(below),
        f"{below}/",
        below,
        f"{below}/*.parquet",
        f"file://{below}/",
        sorted(below.iterdir()),
    ]
    for source in sources:
        found = accel.scan(source, "k >= 0", cache=accel.Cache(), options=OPTIONS)
        assert first_keys(found) == [0, 1, 2], source


# Partitions.


def hive() -> dict[str, bytes]:
    objects = {}
    first = 0
    for year in ("2023", "2024"):
        for day in ("2024-01-01", "2024-01-02"):
            for region in ("eu west", "__HIVE_DEFAULT_PARTITION__"):
                path = f"t/year={year}/day={day}/region={region.replace(' ', '%20')}/0.parquet"
                objects[path] = file(first)
                first += 10_000
    return objects


def test_partition_columns_are_typed_and_appended() -> None:
    found = scan("t/", recorded(hive())).to_table()
    assert found.schema == pa.schema(
        [
            ("k", pa.int64()),
            ("noise", pa.float64()),
            ("year", pa.int64()),
            ("day", pa.date32()),
            ("region", pa.string()),
        ]
    )
    rows = found.slice(3000, 1).to_pylist()[0]
    # `__HIVE...` sorts before `eu%20west`.
    assert (rows["k"], rows["year"], rows["day"]) == (0, 2023, datetime.date(2024, 1, 1))
    assert rows["region"] == "eu west"
    assert found.column("region").null_count == found.num_rows // 2


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("year = 2024", [4, 5, 6, 7]),
        ("day = '2024-01-02' AND year < 2024", [2, 3]),
        ("region IS NULL", [1, 3, 5, 7]),
        ("region LIKE 'eu%' AND NOT day > '2024-01-01'", [0, 4]),
        ("year = 2023 AND k >= 30000", [3]),
        ("year = 1999", []),
        ("region = 'eu west' OR k < 10001", [0, 1, 2, 4, 6]),
    ],
)
def test_files_that_partitions_exclude_are_never_opened(where: str, files: list[int]) -> None:
    objects = hive()
    names = list(objects)
    store = recorded(objects)
    asked = scan("t/", store, where)
    assert sorted(set(first_keys(asked))) == files
    opened = {call.path for call in store.calls if call.want is not None}
    # The first listed file settles the schema; those that only `k` excludes must be opened to be known.
    allowed = {names[i] for i in files} | {min(names)}
    if "k" in where:
        allowed |= {n for n in names if "year=2023" in n or " OR " in where}
    assert opened <= allowed


def test_partition_columns_alone_read_no_data() -> None:
    store = recorded(hive())
    found = scan("t/", store, "year = 2024", columns=["region", "year"]).to_table()
    assert found.schema.names == ["region", "year"]
    assert found.num_rows == 4 * 3000
    assert all(isinstance(call.want, Suffix) for call in store.calls if call.want is not None)


def test_partitions_may_be_typed_or_ignored() -> None:
    types = pa.schema([("year", pa.int16()), ("day", pa.string())])
    found = scan("t/", recorded(hive()), "day = '2024-01-02'", partitioning=types).to_table()
    assert found.schema.field("year").type == pa.int16()
    assert found.num_rows == 4 * 3000
    assert scan("t/", recorded(hive()), partitioning=None).schema.names == ["k", "noise"]


# Files that differ.


def test_a_missing_column_is_null_and_int32_widens() -> None:
    narrow = write_file(part(10_000, kind=pa.int32()).select(["k"]))
    store = recorded({"d/a.parquet": file(0), "d/b.parquet": narrow})
    found = scan("d/", store).to_table()
    assert found.schema == pa.schema([("k", pa.int64()), ("noise", pa.float64())])
    assert found.column("k").to_pylist() == [*range(3000), *range(10_000, 13_000)]
    assert found.column("noise").null_count == 3000
    # In the other order the first file's schema is too narrow.
    turned = recorded({"d/a.parquet": narrow, "d/b.parquet": file(0)})
    with pytest.raises(accel.SchemaMismatchError, match="int64 here and int32") as caught:
        scan("d/", turned).to_table()
    assert caught.value.path == "d/b.parquet"
    wide = pa.schema([("k", pa.int64()), ("noise", pa.float64())])
    assert scan("d/", turned, schema=wide).to_table().num_rows == 6000


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("noise IS NULL", [*range(10_000, 13_000)]),
        ("noise IS NOT NULL AND k < 5", [0, 1, 2, 3, 4]),
        ("k = 10005 OR k = 7", [7, 10_005]),
        ("k IN (2, 12999, 5000000000)", [2, 12_999]),
        ("k < 5000000000 AND k > 12997", [12_998, 12_999]),
    ],
)
def test_predicates_over_files_that_differ(where: str, expected: list[int]) -> None:
    narrow = write_file(part(10_000, kind=pa.int32()).select(["k"]), Layout(page_rows=500))
    assert keys(scan("d/", recorded({"d/a.parquet": file(0), "d/b.parquet": narrow}), where)) == expected


def test_a_schema_of_the_callers_own(three: dict[str, bytes]) -> None:
    schema = pa.schema([("extra", pa.string()), ("k", pa.float64())])
    with pytest.raises(accel.SchemaMismatchError, match="'k'"):
        scan("d/", recorded(three), schema=schema).to_table()
    schema = pa.schema([("extra", pa.string()), ("k", pa.decimal128(20, 0))])
    found = scan("d/", recorded(three), "k >= 22999", schema=schema).to_table()
    assert found.schema == schema
    assert [(r["extra"], int(r["k"])) for r in found.to_pylist()] == [(None, 22_999)]


# Order, limit, head.


def test_unordered_scans_give_the_same_rows(three: dict[str, bytes]) -> None:
    found = keys(scan("d/", recorded(three), order=False))
    assert sorted(found) == [*range(3000), *range(10_000, 13_000), *range(20_000, 23_000)]


@pytest.mark.parametrize("limit", [0, 1, 499, 500, 3000, 3001, 8999, 9000, 10**9])
def test_limit(three: dict[str, bytes], limit: int) -> None:
    every = [*range(3000), *range(10_000, 13_000), *range(20_000, 23_000)]
    store = recorded(three)
    asked = scan("d/", store, limit=limit)
    assert keys(asked) == every[:limit]
    assert asked.count_rows() == min(limit, 9000)
    assert sum(b.num_rows for b in asked) == min(limit, 9000)
    assert keys(scan("d/", store, "k >= 12999", limit=limit)) == [k for k in every if k >= 12_999][:limit]


def test_head_reads_of_one_file_only(three: dict[str, bytes]) -> None:
    store = recorded(three)
    assert scan("d/", store).head(3).column("k").to_pylist() == [0, 1, 2]
    data = [call for call in store.calls if isinstance(call.want, ByteRange)]
    assert {call.path for call in data} == {"d/part-0.parquet"}


# The caller's own access plan.


def test_a_selection_reads_exactly_its_pages() -> None:
    data = write_file(part(0, 6000), Layout(page_rows=500, group_rows=3000, dictionary=False))
    store = recorded({"f.parquet": data, "g.parquet": data})
    asked = scan(
        ["f.parquet", "g.parquet"],
        store,
        columns=["k"],
        selection={"f.parquet": {1: [(100, 102), (1499, 1501)]}},
    )
    assert keys(asked) == [3100, 3101, 4499, 4500]
    # Neither the other file nor the other row group; of this one the pages 0, 2 and 3 of one column.
    assert {call.path for call in store.calls} <= {"f.parquet", "g.parquet"}
    pages = [call for call in store.calls if isinstance(call.want, ByteRange) and call.path == "f.parquet"]
    metadata = pq.read_metadata(io.BytesIO(data))
    chunk = metadata.row_group(1).column(0)
    start, size = chunk.data_page_offset, chunk.total_compressed_size
    assert all(start <= call.want.start and call.want.end <= start + size for call in pages)  # type: ignore[union-attr]
    assert asked.metrics.pages.kept == 3
    assert sum(call.received for call in pages) < size * 4 // 6
    both = scan("f.parquet", store, "k = 4499 OR k = 5", selection={"f.parquet": {1: [(0, 3000)]}})
    assert keys(both) == [4499]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        ({"x.parquet": {0: [(0, 1)]}}, "not among the files"),
        ({"f.parquet": {7: [(0, 1)]}}, "row group 7"),
        ({"f.parquet": {0: [(0, 10**6)]}}, "row"),
        ({"f.parquet": {0: [(5, 2)]}}, "ends before it starts"),
        ({"f.parquet": {0: [(-1, 2)]}}, "negative"),
    ],
    ids=["file", "group", "beyond", "backwards", "negative"],
)
def test_a_selection_that_does_not_fit_is_refused(selection: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        scan("f.parquet", recorded({"f.parquet": file(0)}), selection=selection).to_table()


# Many files.


def test_two_hundred_files_in_three_waves() -> None:
    objects = {f"many/{i:03d}.parquet": file(10_000 * i, 600) for i in range(200)}
    store = recorded(objects)
    options = accel.Options(
        tail_hint=4096, max_files_in_flight=16, max_requests_in_flight=24, max_gap_bytes=0
    )
    asked = scan("many/", store, options=options)
    found = asked.to_table()
    assert found.num_rows == 200 * 600
    assert found.column("k").to_pylist() == [10_000 * i + j for i in range(200) for j in range(600)]
    assert store.peak <= 24
    assert asked.metrics.round_trips == 3
    assert asked.metrics.files.total == 200
    # Again, warm: the listing shows that each is what it was, and only data is asked for.
    cache = accel.Cache()
    scan("many/", store, options=options, cache=cache).count_rows()
    store.clear()
    again = scan("many/", store, "k = 1230005", options=options, cache=cache)
    assert keys(again) == [1_230_005]
    assert {call.path for call in store.calls if call.want is not None} == {"many/123.parquet"}
    assert store.depth == 1  # beside the listing


# HTTP.


class Web:
    """A small aiohttp server of its own thread: ranges or none, and a query string that it insists on."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.ranges = True
        self.signature: str | None = None
        self.etags = True
        self.requests: list[tuple[str, str | None]] = []
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *failure: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _serve(self) -> None:
        from aiohttp import web

        async def start() -> web.AppRunner:
            app = web.Application()
            app.router.add_get("/{path:.*}", self._answer)
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            return runner

        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _answer(self, request: object) -> object:
        from aiohttp import web

        asked = request.headers.get("Range")  # type: ignore[attr-defined]
        self.requests.append((request.path, asked))  # type: ignore[attr-defined]
        if self.signature is not None and request.query.get("X-Sig") != self.signature:  # type: ignore[attr-defined]
            return web.Response(status=403)
        data = self.objects.get(request.path.lstrip("/"))  # type: ignore[attr-defined]
        if data is None:
            return web.Response(status=404)
        headers = {"Accept-Ranges": "bytes"} if self.ranges else {}
        if self.etags:
            headers["ETag"] = f'"{hash(data) & 0xFFFFFFFF:x}"'
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", asked or "") if self.ranges else None
        if match is None:
            return web.Response(body=data, headers=headers)
        if match[1]:
            start, end = int(match[1]), min(int(match[2] or len(data)) + 1, len(data))
        else:
            start, end = max(0, len(data) - int(match[2])), len(data)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return web.Response(status=206, body=data[start:end], headers=headers)


@pytest.fixture
def web(three: dict[str, bytes]) -> Iterator[Web]:
    with Web(three) as server:
        yield server


def test_a_file_over_http(web: Web) -> None:
    asked = accel.scan(f"{web.url}/d/part-1.parquet", "k = 10007", cache=accel.Cache(), options=OPTIONS)
    assert keys(asked) == [10_007]
    assert asked.metrics.round_trips == 2
    assert all(wanted is not None for _, wanted in web.requests)
    assert asked.metrics.bytes < len(web.objects["d/part-1.parquet"])


def test_a_list_of_urls(web: Web) -> None:
    urls = [f"{web.url}/d/part-{i}.parquet" for i in (2, 0)]
    assert first_keys(accel.scan(urls, cache=accel.Cache(), options=OPTIONS)) == [2, 0]


def test_a_presigned_url_works_and_is_never_shown(web: Web) -> None:
    web.signature = "topsecret"
    url = f"{web.url}/d/part-0.parquet?X-Sig=topsecret&a=1"
    asked = accel.scan(url, "k < 5", cache=accel.Cache(), options=OPTIONS)
    assert keys(asked) == [0, 1, 2, 3, 4]
    assert asked.count_rows() == 5
    shown = [repr(asked), str(asked.explain(analyze=True)), str(asked.metrics.as_dict())]
    plan = accel.plan(url, "k < 5", cache=accel.Cache(), options=OPTIONS)
    shown += [repr(plan), *map(repr, plan.tasks)]
    with pytest.raises(accel.ColumnNotFoundError) as missing:
        accel.scan(url, columns=["zz"], cache=accel.Cache(), options=OPTIONS).to_table()
    shown.append(str(missing.value))
    with pytest.raises(accel.StoreError) as refused:
        accel.scan(url.replace("topsecret", "stalesecret"), cache=accel.Cache(), options=OPTIONS).to_table()
    assert refused.value.status == 403
    shown.append(str(refused.value))
    assert not any("secret" in text for text in shown)
    assert "part-0.parquet" in shown[-1]
    # In the task it is: reading takes it.
    assert keys(accel.scan(plan, options=OPTIONS)) == [0, 1, 2, 3, 4]


def test_a_server_that_knows_no_ranges(web: Web) -> None:
    """It answers 200 with everything: right, and not asked again for what it has sent."""
    web.ranges = False
    url = f"{web.url}/d/part-0.parquet"
    asked = accel.scan(url, "k < 5", cache=accel.Cache(), options=OPTIONS)
    assert keys(asked) == [0, 1, 2, 3, 4]
    small = accel.Options(max_unranged_bytes=1000)
    with pytest.raises(accel.StoreError) as caught:
        accel.scan(url, cache=accel.Cache(), options=small).to_table()
    assert caught.value.path == url


def test_no_such_url(web: Web) -> None:
    with pytest.raises(accel.ObjectNotFoundError) as caught:
        accel.scan(f"{web.url}/d/none.parquet", cache=accel.Cache(), options=OPTIONS).to_table()
    assert caught.value.path == f"{web.url}/d/none.parquet"


def test_a_directory_over_http_says_what_to_do(web: Web) -> None:
    with pytest.raises(accel.StoreError, match="list"):
        accel.scan(f"{web.url}/d/", cache=accel.Cache(), options=OPTIONS).to_table()

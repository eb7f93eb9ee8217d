"""What is secret in a URL, a header or a key stands nowhere in what a failure shows, or keeps for others to
show.

Error trackers, pytest and rich print the variables of every frame of a traceback, and of those of all errors
that led to it; so all of that is looked through.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import pickle
import re
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel

SECRET = "s3cretSignature"
QUERY = f"X-Amz-Credential=AK{SECRET}&X-Amz-Signature={SECRET}&sig={SECRET}"
QUICK = accel.Options(
    max_attempts=2, backoff_base=0.001, backoff_max=0.002, read_timeout=0.2, connect_timeout=0.5
)
FLIGHT = "flight.parquet"
KEYS = {"access_key_id": SECRET, "secret_access_key": SECRET, "session_token": SECRET, "region": "r"}


def large_file() -> bytes:
    sink = io.BytesIO()
    noise = np.random.default_rng(8).integers(0, 1 << 60, 200_000)
    table = pa.table({"k": pa.array(np.arange(200_000)), "v": pa.array(noise)})
    pq.write_table(table, sink, row_group_size=50_000, write_page_index=True)
    return sink.getvalue()


DATA = large_file()


def good(asked: bytes, etag: bytes = b'"v1"') -> bytes:
    """The answer of a server with nothing wrong."""
    found = re.match(rb"bytes=(\d*)-(\d*)", asked)
    if found is None:
        start, end = 0, len(DATA)
    elif found[1]:
        start, end = int(found[1]), min(int(found[2]) + 1, len(DATA))
    else:
        start, end = len(DATA) - min(int(found[2]), len(DATA)), len(DATA)
    span = b"Content-Range: bytes %d-%d/%d\r\n" % (start, end - 1, len(DATA))
    length = b"Content-Length: %d\r\n\r\n" % (end - start)
    return b"HTTP/1.1 206 OK\r\nETag: " + etag + b"\r\n" + span + length + DATA[start:end]


def scrambled(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n" + b"x" * len(body)


def moved(target: str) -> bytes:
    return b"HTTP/1.1 302 X\r\nContent-Length: 0\r\nLocation: " + target.encode() + b"\r\n\r\n"


ANSWERS: dict[str, Callable[[bytes, int], bytes]] = {
    **{
        str(status): lambda _, __, status=status: b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status
        for status in (301, 400, 401, 403, 404, 412, 416, 500)
    },
    "cut": lambda asked, _: good(asked)[:-20],
    "not HTTP": lambda *_: b"hello\r\n\r\n",
    "nothing": lambda *_: b"",
    "another range": lambda asked, _: good(asked).replace(b"bytes ", b"bytes 1"),
    "another version": lambda asked, count: good(asked, b'"v%d"' % count),
    "no etag": lambda asked, _: good(asked).replace(b'ETag: "v1"\r\n', b""),
    "no Parquet": lambda asked, _: scrambled(good(asked)),
    "moved in a circle": lambda *_: moved(f"/o.parquet?sig={SECRET}"),
    "moved to FTP": lambda *_: moved(f"ftp://user:{SECRET}@h/o?sig={SECRET}"),
    "moved to no host": lambda *_: moved(f"http://[::bad/o?sig={SECRET}"),
    "moved to no port": lambda *_: moved(f"http://h:99999/o?sig={SECRET}"),
    "moved away": lambda *_: moved(f"http://127.0.0.1:1/o?sig={SECRET}"),
}


class Server(socketserver.ThreadingTCPServer):
    """Answers every request in one way, but for the first ones; then it says no more, or hangs up."""

    daemon_threads = True
    answer: Callable[[bytes, int], bytes]
    well = 0
    silent = False
    count = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while self.rfile.readline():
                asked = b""
                while line := self.rfile.readline().strip():
                    name, _, value = line.partition(b":")
                    asked = value.strip() if name.lower() == b"range" else asked
                self.server.count += 1
                if self.server.count <= self.server.well:
                    self.wfile.write(good(asked))
                    continue
                self.wfile.write(self.server.answer(asked, self.server.count))
                if self.server.silent:
                    self.rfile.read(1)  # until the client has had enough
                return


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as it:
        threading.Thread(target=it.serve_forever, args=(0.01,), daemon=True).start()
        yield it
        it.shutdown()


def leaks(failure: BaseException) -> list[str]:
    """Where the secret stands in an error, in what led to it, and in the variables of accel's and others'
    frames."""
    found: list[str] = []
    seen: set[int] = set()
    pending: list[BaseException | None] = [failure]

    def look(where: str, text: str) -> None:
        if SECRET in text:
            found.append(where)

    while pending:
        error = pending.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        name = type(error).__name__
        shown = (str(error), repr(error), repr(error.args), repr(error.__dict__))
        look(f"{name} itself", " ".join(shown))
        for attribute in ("filename", "url", "request_info", "history", "headers"):
            look(f"{name}.{attribute}", repr(getattr(error, attribute, None)))
        look(f"{name} pickled", repr(pickle.dumps(error)))
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            for variable, value in trace.tb_frame.f_locals.items() if code.co_filename != __file__ else ():
                look(f"{name} in {code.co_qualname}: {variable}", repr(value))
            trace = trace.tb_next
        pending += [error.__cause__, error.__context__]
        pending += error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return found


def failure_of(ask: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:
        ask()
    return caught.value


@pytest.mark.parametrize("well", [0, 1], ids=["at once", "later"])
@pytest.mark.parametrize("wrong", ANSWERS)
def test_a_presigned_url_is_in_nothing_that_a_failure_keeps(
    server: Server, wrong: str, well: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.answer, server.well = ANSWERS[wrong], well
    scan = accel.scan(f"{server.url}/o.parquet?{QUERY}", "v > 5", cache=accel.Cache(), options=QUICK)
    error = failure_of(scan.to_table)
    assert isinstance(error, accel.AccelError)
    assert "o.parquet?X-Amz-Credential=***" in str(error)
    assert leaks(error) == []
    assert SECRET not in caplog.text
    assert SECRET not in f"{scan!r} {scan.metrics.as_dict()} {scan.metrics!r}"


def faces(url: str) -> dict[str, Callable[[], object]]:
    keywords: dict[str, Any] = {"cache": accel.Cache(), "options": QUICK}

    async def stream() -> None:
        async for _ in accel.scan([url, url], "v > 5", **keywords):
            pass

    return {
        "stream": lambda: asyncio.run(stream()),
        "count": lambda: accel.scan(url, "v > 5", **keywords).count_rows(),
        "plan": lambda: accel.plan(url, "v > 5", **keywords),
        "plan_async": lambda: asyncio.run(accel.plan_async(url, "v > 5", **keywords)),
        "schema": lambda: accel.scan(url, **keywords).schema,
        "explain": lambda: accel.scan(url, "v > 5", **keywords).explain(analyze=True),
        "head": lambda: accel.scan(url, **keywords).head(3),
    }


@pytest.mark.parametrize("face", faces(""))
@pytest.mark.parametrize("silent", [False, True], ids=["403", "cut and silent"])
def test_by_every_face(server: Server, face: str, silent: bool) -> None:
    server.answer, server.silent = ANSWERS["cut" if silent else "403"], silent
    error = failure_of(faces(f"{server.url}/o.parquet?{QUERY}")[face])
    assert isinstance(error, accel.StoreError)
    assert leaks(error) == []


def test_the_tasks_of_a_plan(server: Server) -> None:
    server.answer, server.well = ANSWERS["404"], 1
    plan = accel.plan(f"{server.url}/o.parquet?{QUERY}", "v > 5", cache=accel.Cache(), options=QUICK)
    assert SECRET not in f"{plan!r} {plan.tasks!r} {plan.explain()} {plan.tasks[0].file!r}"
    error = failure_of(
        accel.scan(pickle.loads(pickle.dumps(plan)), cache=accel.Cache(), options=QUICK).to_table
    )
    assert isinstance(error, accel.ObjectNotFoundError)
    assert leaks(error) == []


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:1/o.parquet?{QUERY}",
        f"http://no-such-host.invalid/o.parquet?{QUERY}",
        f"http://127.0.0.1:port/o.parquet?{QUERY}",
        f"http://[::bad/o.parquet?{QUERY}",
        f"http://user:{SECRET}@127.0.0.1:1/o.parquet",
        f"s3://key:with@sign@{SECRET}@bucket/o.parquet",
        f"ftp://h/o.parquet?{QUERY}",
    ],
)
def test_a_url_of_nothing(url: str) -> None:
    error = failure_of(accel.scan(url, cache=accel.Cache(), options=QUICK).to_table)
    assert isinstance(error, accel.StoreError)
    assert leaks(error) == []


def test_what_the_server_has_but_not_this(server: Server) -> None:
    server.answer, server.well = ANSWERS["404"], 99
    url = f"{server.url}/o.parquet?{QUERY}"
    for wrong in ({"columns": ["none"]}, {"where": "none = 1"}, {"selection": {f"{url}x": {0: [(0, 1)]}}}):
        error = failure_of(accel.scan(url, cache=accel.Cache(), options=QUICK, **wrong).to_table)  # type: ignore[arg-type]
        assert leaks(error) == [], wrong


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://h/o", {"headers": {"Authorization": SECRET, "Range": "x"}}),
        ("http://h/o", {"headers": {"Authorization": SECRET}, "unknown": SECRET}),
        ("http://h/o", {"headers": {"Authorization": f"{SECRET}\n"}}),
        ("s3://b/o", {**KEYS, "unknown": SECRET}),
        ("s3://b/o", {**KEYS, "endpoint": f"http://u:{SECRET}@127.0.0.1:1", "allow_http": True}),
        ("az://b/o", {"account_name": "a", "account_key": f"{SECRET}!!"}),
        ("az://b/o", {"account_name": "a", "sas_token": SECRET}),
        ("gs://b/o", {"service_account_key": '{"private_key":"' + SECRET + '"}'}),
    ],
    ids=[
        "own header",
        "no option",
        "line break",
        "no key",
        "endpoint",
        "account key",
        "sas",
        "service account",
    ],
)
def test_options_that_no_store_can_be_made_of(url: str, options: dict[str, Any]) -> None:
    scan = accel.scan(url, storage_options=options, cache=accel.Cache(), options=QUICK)
    error = failure_of(scan.to_table)
    assert isinstance(error, accel.StoreError)
    assert leaks(error) == []


WRITERS: dict[str, Callable[[str, dict[str, Any] | None], object]] = {
    "embed": lambda url, given: accel.embed(url, indexes={}, storage_options=given, options=QUICK),
    "embed elsewhere": lambda url, given: accel.embed(
        FLIGHT, url, indexes={}, storage_options=given, options=QUICK
    ),
    "embed_async": lambda url, given: asyncio.run(
        accel.embed_async(url, indexes={}, storage_options=given, options=QUICK)
    ),
    "write_table": lambda url, given: accel.write_table(
        pa.table({"a": [1]}), url, storage_options=given, options=QUICK
    ),
    "spark.read": lambda url, given: accel.spark.read(Session(), url, storage_options=given, options=QUICK),  # type: ignore[arg-type]
}


class Settings:
    """Those of a session, none of which is set."""

    def get(self, name: str, default: str) -> str:
        return default


class Session:
    """What planning needs of Spark's."""

    conf = Settings()

    def createDataFrame(self) -> None: ...


@pytest.mark.parametrize("given", ["a presigned URL", "no store", "a store that denies"])
@pytest.mark.parametrize("verb", WRITERS)
def test_what_writes_and_what_spark_reads(
    server: Server, verb: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(FLIGHT).write_bytes(DATA)
    server.answer = ANSWERS["403"]
    url, options = {
        "a presigned URL": (f"{server.url}/o.parquet?sig={SECRET}", None),
        "no store": ("s3://b/o.parquet", {**KEYS, "endpoint": ""}),
        "a store that denies": ("s3://b/o.parquet", {**KEYS, "endpoint": server.url}),
    }[given]
    error = failure_of(lambda: WRITERS[verb](url, options))
    assert isinstance(error, accel.StoreError)
    assert leaks(error) == []


def tables(url: str) -> dict[str, Callable[[], Any]]:
    """Tables at a server that denies, and catalogs that are not there."""
    keys = {**KEYS, "endpoint": url}
    rest = {"type": "rest", "token": SECRET, "credential": f"id:{SECRET}", "s3.secret-access-key": SECRET}
    away = f"u:{SECRET}@127.0.0.1:1"
    return {
        "delta, presigned": lambda: accel.tables.delta(f"{url}/t?{QUERY}"),
        "delta, a store that denies": lambda: accel.tables.delta("s3://b/t", storage_options=keys),
        "iceberg, presigned": lambda: accel.tables.iceberg(f"{url}/t/metadata/v1.metadata.json?{QUERY}"),
        "iceberg, a directory": lambda: accel.tables.iceberg(f"{url}/t?{QUERY}"),
        "iceberg, a store that denies": lambda: accel.tables.iceberg("s3://b/t", storage_options=keys),
        "iceberg, REST": lambda: accel.tables.iceberg("db.t", catalog={**rest, "uri": url}),
        "iceberg, REST with a user": lambda: accel.tables.iceberg(
            "db.t", catalog={"type": "rest", "uri": f"http://{away}/?sig={SECRET}"}
        ),
        "iceberg, SQL": lambda: accel.tables.iceberg(
            "db.t", catalog={"type": "sql", "uri": f"postgresql+psycopg2://{away}/db"}
        ),
        "iceberg, no catalog": lambda: accel.tables.iceberg(
            "db.t", catalog={"type": "none", "token": SECRET}
        ),
        "ducklake": lambda: accel.tables.ducklake(f"postgresql://{away}/db", "main.t"),
        "ducklake, a parameter": lambda: accel.tables.ducklake(
            f"postgresql://u@127.0.0.1:1/db?password={SECRET}", "main.t"
        ),
        "ducklake, no port": lambda: accel.tables.ducklake(f"postgresql://u:{SECRET}@h:x/db", "main.t"),
        "ducklake, no database": lambda: accel.tables.ducklake(f"mysql://u:{SECRET}@h/db", "main.t"),
        "hive, a user": lambda: accel.tables.hive(f"thrift://{away}", "db.t"),
    }


TABLE_VERBS: dict[str, Callable[[Any, Path], object]] = {
    "rows": lambda table, _: accel.scan(table, "v > 5", cache=accel.Cache(), options=QUICK).to_table(),
    "count": lambda table, _: accel.scan(table, cache=accel.Cache(), options=QUICK).count_rows(),
    "index": lambda table, at: accel.build_index(
        table, to=at / "index", indexes={"v": "keys"}, options=QUICK
    ),
}


@pytest.mark.parametrize("verb", TABLE_VERBS)
@pytest.mark.parametrize("name", tables(""))
@pytest.mark.filterwarnings("ignore")
def test_tables(server: Server, name: str, verb: str, tmp_path: Path) -> None:
    server.answer = ANSWERS["403"]

    def ask() -> object:
        table = tables(server.url)[name]()
        assert SECRET not in f"{table!r} {table}"
        return TABLE_VERBS[verb](table, tmp_path)

    error = failure_of(ask)
    assert isinstance(error, accel.AccelError)
    assert leaks(error) == []


def test_a_catalog_that_is_asked_for_credentials(server: Server) -> None:
    server.answer = ANSWERS["403"]
    error = failure_of(lambda: tables(server.url)["iceberg, SQL"]().vend())
    assert isinstance(error, accel.AccelError)
    assert leaks(error) == []


def test_a_failure_with_nothing_to_hide_keeps_its_frames(server: Server) -> None:
    server.answer = ANSWERS["403"]
    error = failure_of(accel.scan(f"{server.url}/o.parquet", cache=accel.Cache(), options=QUICK).to_table)
    trace, names = error.__traceback__, []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "fetch" in names

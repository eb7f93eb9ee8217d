"""Servers, and what stands before them, that answer anyhow: the rows of one version, or an AccelError, in
time."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import accel
from accel.options import Transport
from accel.store import s3_store as direct_store
from tests.faults.versions import WHERE, expected, version
from tests.support.object_server import ObjectServer, Reply, server

__all__ = ["server"]

ROWS = 6_000
VERSIONS = {name: version(name, rows=ROWS) for name in (1, 2)}
LONGER = version(2, rows=ROWS + 500)
TRUTH = {**{name: expected(name, rows=ROWS) for name in (1, 2)}, "longer": expected(2, rows=ROWS + 500)}
SEED = 20_261_121
SECONDS = 20.0
Edit = Callable[[random.Random, Reply], None]


def status(code: int, **headers: str) -> Edit:
    def edit(rng: random.Random, reply: Reply) -> None:
        reply.status, reply.body = code, b"<Error><Code>Some</Code></Error>"
        reply.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    return edit


def header(name: str, *values: str) -> Edit:
    return lambda rng, reply: reply.headers.update({name: rng.choice(values)})


def total(rng: random.Random, reply: Reply) -> None:
    """The object is said to have another size."""
    told = reply.headers.get("Content-Range", "")
    if "/" in told:
        size = rng.choice(["*", "0", "1", str(1 << 62), str(len(VERSIONS[1]) + rng.choice([-1, 1, 500]))])
        reply.headers["Content-Range"] = told.partition("/")[0] + "/" + size


def shifted(rng: random.Random, reply: Reply) -> None:
    """The range is said, or is, another."""
    if rng.random() < 0.5:
        reply.body = reply.body[1:] + reply.body[:1]
        reply.headers["Content-Range"] = reply.headers.get("Content-Range", "").replace("bytes ", "bytes 1")
    else:
        reply.headers["Content-Range"] = rng.choice(
            ["bytes 0-0/1", "bytes 5-4/9", "items 0-9/10", "bytes", "bytes -1-5/9"]
        )


def packed(rng: random.Random, reply: Reply) -> None:
    """A proxy compresses, and says so."""
    reply.body = gzip.compress(reply.body)
    reply.headers["Content-Encoding"] = rng.choice(["gzip", "x-gzip", "gzip, identity", "br", "zstd"])


def raw_of(reply: Reply, start: bytes = b"", *, body: bytes | None = None, more: bytes = b"") -> bytes:
    headers = {"Content-Length": str(len(reply.body)), **reply.headers} if body is None else reply.headers
    lines = [f"{name}: {value}\r\n".encode("latin-1") for name, value in headers.items()]
    head = f"HTTP/1.1 {reply.status} X\r\n".encode() + b"".join(lines) + more + b"\r\n"
    return start + head + (reply.body if body is None else body)


def interim(rng: random.Random, reply: Reply) -> None:
    """Nobody has asked whether to go on."""
    first = rng.choice([b"100 Continue", b"102 Processing", b"103 Early Hints"])
    reply.raw = raw_of(reply, b"HTTP/1.1 " + first + b"\r\n\r\n")


def chunked(rng: random.Random, reply: Reply) -> None:
    """In chunks, with trailers behind them."""
    body, out = reply.body, b""
    while body:
        size = rng.randrange(1, max(2, len(body)))
        out += f"{size:x};x=1\r\n".encode() + body[:size] + b"\r\n"
        body = body[size:]
    end = rng.choice(
        [b"0\r\nX-Trailer: 1\r\nContent-Range: bytes 0-1/2\r\n\r\n", b"0\r\n\r\n", b"0\r\n", b"zz\r\n", b""]
    )
    reply.raw = raw_of(reply, body=out + end, more=b"Transfer-Encoding: chunked\r\n")


def both(rng: random.Random, reply: Reply) -> None:
    """What smuggles requests: two ways to tell where the body ends."""
    more = rng.choice(
        [b"Transfer-Encoding: chunked\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: identity\r\n"]
    )
    reply.raw = raw_of(reply, more=more)


def excess(rng: random.Random, reply: Reply) -> None:
    """Another answer right behind it, that nobody has asked for."""
    reply.raw = raw_of(reply) + raw_of(reply)


def folded(rng: random.Random, reply: Reply) -> None:
    reply.raw = raw_of(
        reply, more=rng.choice([b"X: 1\r\n 2\r\n", b"Bad\r\n", b": 5\r\n", b"X y: 1\r\n", b"E\n: 1\r\n"])
    )


FAULTS: dict[str, Edit] = {
    "total": total,
    "shifted": shifted,
    "etag": header("ETag", '"other"', 'W/"v1"', "v1", '""', "", "\u00e9", '"v1", "v2"'),
    "packed": packed,
    "whole": lambda rng, reply: None,  # see Trouble
    "interim": interim,
    "chunked": chunked,
    "both": both,
    "excess": excess,
    "folded": folded,
    "moved": status(301, Location="/elsewhere"),
    "moved for now": status(307, Location="/b/f.parquet"),
    "round and round": status(302, Location="/b/f.parquet?again"),
    "nowhere": status(308, Location="http://127.0.0.1:1/b/f.parquet"),
    "not modified": status(304),
    "no content": status(204),
    "slow down": status(503, Retry_After="0"),
    "later": status(429, Retry_After="soon"),
    "forbidden": status(403),
    "gone": status(404),
    "changed": status(412),
    "teapot": status(418),
    "cut": lambda rng, reply: setattr(reply, "cut", rng.randrange(len(reply.body) + 1)),
    "vanish": lambda rng, reply: setattr(reply, "vanish", True),
    "stall": lambda rng, reply: setattr(reply, "stall", (rng.randrange(len(reply.body) + 1), 0.6)),
    "late": lambda rng, reply: setattr(reply, "delay", rng.choice([0.05, 0.6])),
    "longer": lambda rng, reply: setattr(reply, "body", reply.body + b"more"),
    "shorter": lambda rng, reply: setattr(reply, "body", reply.body[:-1]),
    "length": header("Content-Length", "-1", "+5", "0x10", "1e3", "99999999999999999999", "0", "\u00b2"),
    "garbage": lambda rng, reply: setattr(reply, "raw", rng.randbytes(rng.randrange(1, 300))),
    "no end": lambda rng, reply: setattr(reply, "raw", b"HTTP/1.1 206 X\r\n" + b"A: b\r\n" * 20_000),
}


@pytest.fixture(autouse=True)
async def plainly(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield
    direct_store.left_to_obstore.clear()


def settings_of(way: str, server: ObjectServer) -> tuple[str, dict[str, Any], Transport]:
    """What to scan, and how."""
    if way == "http":
        return f"{server.url}/b/f.parquet", {}, Transport.AUTO
    keys = {"access_key_id": "KEY", "secret_access_key": "SECRET", "region": "us-east-1"}
    storage = {"endpoint": server.url, "allow_http": "true", **keys}
    return "s3://b/f.parquet", storage, Transport.OBSTORE if way == "obstore" else Transport.AUTO


async def scanned(way: str, server: ObjectServer, rng: random.Random) -> str:
    """What came of a scan: the version, or the error's name."""
    source, storage, transport = settings_of(way, server)
    options = accel.Options(
        tail_hint=rng.choice([8 * 1024, 1 << 17]),
        max_attempts=2,
        backoff_base=0.001,
        backoff_max=0.002,
        read_timeout=0.4,
        connect_timeout=1.0,
        max_gap_bytes=0,
        transport=transport,
        max_unranged_bytes=rng.choice([1 << 10, 64 << 20]),
    )
    scan = accel.scan(source, WHERE, cache=accel.Cache(), options=options, storage_options=storage or None)
    try:
        async with asyncio.timeout(SECONDS):
            found = await scan.to_table_async()
    except accel.AccelError as error:
        assert "SECRET" not in f"{error!r} {error}"
        return type(error).__name__
    for name, rows in TRUTH.items():
        if found.equals(rows):
            return str(name)
    raise AssertionError(f"neither version whole: {found.num_rows} rows")


class Trouble:
    """What befalls the requests of one scan."""

    def __init__(self, server: ObjectServer, rng: random.Random) -> None:
        self.server, self.rng = server, rng
        self.kinds = rng.sample(list(FAULTS), rng.choice([1, 1, 2, 4]))
        self.share = rng.choice([0.1, 0.4, 1.0])
        self.other = rng.choice([None, VERSIONS[2], LONGER])
        self.turn = rng.randrange(1, 6)
        self.first = len(server.requests)
        server.objects, server.etags = {"/b/f.parquet": VERSIONS[1]}, {"/b/f.parquet": '"v1"'}
        server.always = self.spoil

    def spoil(self, reply: Reply) -> None:
        if self.other is not None and len(self.server.requests) - self.first == self.turn:
            # From now on it is another object.
            self.server.objects, self.server.etags = {"/b/f.parquet": self.other}, {"/b/f.parquet": '"v2"'}
        if self.rng.random() < self.share:
            kind = self.rng.choice(self.kinds)
            FAULTS[kind](self.rng, reply)
            if kind == "whole" and reply.status == 206:
                # Ranges are passed over.
                reply.status, reply.body = 200, next(iter(self.server.objects.values()))
                del reply.headers["Content-Range"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["direct", "obstore", "http"])
async def test_whatever_a_server_answers(way: str, server: ObjectServer, large: bool) -> None:
    rng = random.Random(SEED)
    told: Counter[str] = Counter()
    for _ in range(600 if large else 45):
        trouble = Trouble(server, rng)
        try:
            told[await scanned(way, server, rng)] += 1
        except BaseException as error:
            error.add_note(f"after {trouble.kinds}, {trouble.share}, {trouble.other is None}, {trouble.turn}")
            raise
        direct_store.left_to_obstore.clear()
    assert told["1"] > 0
    assert set(told) - {str(name) for name in TRUTH}

"""What a server may answer that is no metastore, or one that lies: each is an error by name, in bounded time and
memory."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import accel
from accel.tables.formats.hive import metastore as module

QUICK = accel.Options(connect_timeout=2.0, read_timeout=0.5)
REPLY, EXCEPTION = 2, 3


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers each connection so, once it has said something."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.settimeout(5)
                    connection.recv(1 << 16)
                    answer(connection)
                    ended.wait(2 if answer is silent else 0.05)
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"thrift://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def silent(_: socket.socket) -> None:
    """Say nothing."""


def saying(*parts: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"".join(parts))


def message(kind: int, body: bytes, *, name: bytes = b"get_table", number: int = 1) -> bytes:
    return struct.pack(">HHi", 0x8001, kind, len(name)) + name + struct.pack(">i", number) + body


def text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def field(kind: int, number: int, body: bytes) -> bytes:
    return struct.pack(">bh", kind, number) + body


STRING, STRUCT, MAP, LIST = 11, 12, 13, 15
INPUT = b"org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"
SERDE = b"org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"


def table(location: bytes) -> bytes:
    """The fields of a table of Parquet files, one column wide."""
    column = field(STRING, 1, text(b"id")) + field(STRING, 2, text(b"int")) + b"\0"
    serde = field(STRUCT, 7, field(STRING, 2, text(SERDE)) + b"\0")
    columns = field(LIST, 1, struct.pack(">bi", STRUCT, 1) + column)
    storage = columns + field(STRING, 2, text(location)) + field(STRING, 3, text(INPUT)) + serde + b"\0"
    return field(STRUCT, 7, storage) + b"\0"


def scan(url: str) -> None:
    accel.scan(accel.tables.hive(url, "db.t"), cache=None, options=QUICK).to_table()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "speaks HTTP", id="HTTP"),
        pytest.param(saying(b"\x15\x03\x03\0\x02\x02\x46"), "wants TLS", id="TLS"),
        pytest.param(saying(b"\x03\0\0\0\x13Invalid status -128"), "wants SASL", id="SASL"),
        pytest.param(saying(b"\0\0\0\x20", message(REPLY, b"\0")), "uses framed Thrift", id="framed"),
        pytest.param(saying(b"nonsense nonsense"), "no Thrift message", id="nonsense"),
        pytest.param(saying(), "SASL", id="closed"),
        pytest.param(silent, "no progress in time", id="silent"),
        pytest.param(saying(message(REPLY, b"\0")), "a table that is none", id="nothing"),
        pytest.param(saying(message(REPLY, b"\0", number=7)), "an answer to another question", id="number"),
        pytest.param(saying(message(REPLY, b"\0", name=b"x")), "an answer to another question", id="name"),
        pytest.param(saying(message(1, b"\0")), "an answer to another question", id="call"),
        pytest.param(
            saying(message(REPLY, field(STRUCT, 1, field(STRING, 1, text(b"down")) + b"\0") + b"\0")),
            "the metastore refused: down",
            id="MetaException",
        ),
        pytest.param(
            saying(message(EXCEPTION, field(STRING, 1, text(b"oh")) + field(8, 2, struct.pack(">i", 6)) + b"\0")),
            "the metastore refused: oh",
            id="TApplicationException",
        ),
        pytest.param(saying(message(REPLY, field(STRUCT, 0, table(b"/a\xff")) + b"\0")), "is no UTF-8", id="no UTF-8"),
        pytest.param(
            saying(message(REPLY, field(STRUCT, 0, field(STRING, 1, struct.pack(">i", 2_000_000_000))))),
            "is none", id="a text of gigabytes",
        ),
        pytest.param(
            saying(message(REPLY, field(STRUCT, 0, field(LIST, 8, struct.pack(">bi", STRUCT, 2_000_000_000))))),
            "is none", id="a list of gigabytes",
        ),
        pytest.param(
            saying(message(REPLY, field(STRUCT, 0, field(MAP, 9, struct.pack(">bbi", STRING, STRING, 2_000_000_000))))),
            "is none", id="a map of gigabytes",
        ),
        pytest.param(saying(message(REPLY, field(STRUCT, 0, field(STRUCT, 99, b"") * 100_000))), "is none|too early", id="deep"),
        pytest.param(saying(message(REPLY, field(STRUCT, 0, field(STRING, 1, text(b"t"))))), "too early", id="cut"),
        pytest.param(
            saying(message(REPLY, field(STRUCT, 0, field(STRING, 1, text(b"t")) + b"\0") + b"\0")),
            "says nothing of its storage", id="no storage",
        ),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_an_error_by_name(
    answer: Callable[[socket.socket], None], message: str
) -> None:
    with serving(answer) as url:
        began = time.monotonic()
        tracemalloc.start()
        try:
            with pytest.raises(accel.AccelError, match=message) as failed:
                scan(url)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert isinstance(failed.value, accel.TableFormatError | accel.StoreError)
        assert url in str(failed.value)
        assert "db.t" in str(failed.value)
        assert time.monotonic() - began < 10
        assert most < 64 << 20


def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)

    def endless(connection: socket.socket) -> None:
        connection.sendall(message(REPLY, field(STRUCT, 0, b"")))
        while True:
            connection.sendall(field(STRING, 50, text(b"x" * 10_000)))

    with serving(endless) as url, pytest.raises(accel.TableFormatError, match="an answer of more than"):
        scan(url)


def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOWEST", 1)

    def dripping(connection: socket.socket) -> None:
        for _ in range(40):
            connection.sendall(b"\x80")
            time.sleep(0.05)

    with serving(dripping) as url:
        began = time.monotonic()
        with pytest.raises(accel.AccelError):
            scan(url)
        assert time.monotonic() - began < 5


def test_a_location_that_no_store_is_for_is_named() -> None:
    with serving(saying(message(REPLY, field(STRUCT, 0, table(b"hdfs://n/a")) + b"\0"))) as url:
        with pytest.raises(accel.StoreError, match="accel has no store for hdfs://") as failed:
            scan(url)
        assert failed.value.path == "hdfs://n/a"


def test_no_server() -> None:
    with pytest.raises(accel.StoreError, match="connection refused") as failed:
        scan("thrift://127.0.0.1:1")
    assert failed.value.transient


def test_what_is_imported() -> None:
    """`import accel` loads nothing of it, and a table is named without the package."""
    code = (
        "import sys, accel; assert 'thrift' not in sys.modules; "
        "accel.tables.hive('thrift://h', 't'); assert 'thrift' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

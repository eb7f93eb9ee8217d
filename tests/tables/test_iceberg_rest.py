"""A REST catalog that sends credentials with the table: they reach accel's store, and nothing else does."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import accel
import accel.tables
from accel.testing import Status
from tests.support.proxy import Proxy
from tests.support.relay import Passage, Substitute
from tests.tables.iceberg_writer import IcebergWriter, parquet_bytes

if TYPE_CHECKING:
    from tests.support.s3 import S3Admin

pytest.importorskip("pyiceberg.catalog.rest", reason="pyiceberg is not installed")


class Catalog(ThreadingHTTPServer):
    """Answers as the REST specification has it, for one table."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.table: dict[str, Any] = {}
        self.vend: Callable[[], dict[str, Any]] | None = None
        """Gives the credentials of each answer anew."""
        self.asked: list[str] = []


class Answers(BaseHTTPRequestHandler):
    server: Catalog

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path.startswith("/v1/config"):
            self.reply(200, {"defaults": {}, "overrides": {}})
        elif self.path.partition("?")[0] == "/v1/namespaces/db/tables/events":
            vend = self.server.vend
            self.reply(200, self.server.table if vend is None else {**self.server.table, "config": vend()})
        else:
            error = {"message": "Table does not exist", "type": "NoSuchTableException", "code": 404}
            self.reply(404, {"error": error})

    def do_HEAD(self) -> None:
        self.do_GET()

    def reply(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(name="catalog")
def running_catalog() -> Iterator[Catalog]:
    server = Catalog()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def made_table(files: int) -> tuple[IcebergWriter, str]:
    """A table as pyiceberg's REST client takes it, and the URL of its metadata: files of three rows."""
    writer = IcebergWriter([(1, "id", "long")])
    body = parquet_bytes({"id": (1, pa.array([1, 2, 3], pa.int64()))})
    writer.manifest([writer.file(f"data/{at}.parquet", body, 3) for at in range(files)])
    writer.changes = {
        "last-sequence-number": 1,
        "last-updated-ms": 1000,
        "last-column-id": 1,
        "last-partition-id": 999,
    }
    writer.changes |= {"sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0}
    writer.changes |= {"table-uuid": "8bcdd8a5-6d1f-4b6c-9a3f-0d5a4d9b2a11", "refs": {}}
    return writer, writer.save()


def test_credentials_of_a_catalog_reach_the_store(
    s3: S3Admin, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    writer, url = made_table(1)
    s3.create_bucket("lake")
    for path, content in writer.store.objects.items():
        s3.put("lake", path, content)
    catalog.table = {
        "metadata-location": url,
        "metadata": json.loads(writer.store.objects["t/metadata/v1.metadata.json"]),
        "config": {
            "s3.endpoint": s3.url,
            "s3.access-key-id": s3.access_key,
            "s3.secret-access-key": s3.secret_key,
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
            "s3.session-token-expires-at-ms": str(int((time.time() + 3600) * 1000)),
        },
    }
    uri = f"http://127.0.0.1:{catalog.server_address[1]}"
    table = accel.tables.iceberg("db.events", catalog={"type": "rest", "uri": uri})
    cache = accel.Cache()
    assert accel.scan(table, "id >= 2", cache=cache).to_table()["id"].to_pylist() == [2, 3]
    asked = len(catalog.asked)
    assert accel.scan(table, "id = 3", cache=cache).count_rows() == 1
    assert len(catalog.asked) == asked  # the answer is not older than max_age
    catalog.table["config"]["s3.session-token-expires-at-ms"] = str(int((time.time() + 5) * 1000))
    accel.scan(table, "id = 3", cache=accel.Cache(max_age=0)).count_rows()
    asked = len(catalog.asked)
    assert accel.scan(table, "id = 3", cache=cache).count_rows() == 1
    assert len(catalog.asked) > asked  # they were about to end
    with pytest.raises(accel.errors.TableFormatError, match="no table 'db.other'"):
        accel.scan(accel.tables.iceberg("db.other", catalog={"type": "rest", "uri": uri})).to_table()


def test_credentials_that_end_are_asked_for_anew_while_a_scan_runs(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses the first key once it has ended, which is long before the scan has."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    writer, url = made_table(36)
    granted: list[tuple[str, float]] = []

    def vend() -> dict[str, Any]:
        ends = time.time() + (4 if not granted else 3600)
        granted.append((f"KEY{len(granted)}", ends))
        return {
            "s3.endpoint": store.url,
            "s3.access-key-id": granted[-1][0],
            "s3.secret-access-key": "secret",
            "s3.session-token": "token",
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
            "s3.session-token-expires-at-ms": str(int(ends * 1000)),
        }

    def serve(passage: Passage) -> Any:
        path, _, query = passage.path.partition("?")
        key = f"{query} {passage.headers}"
        ended = [name for name, ends in granted if time.time() > ends]
        if any(name in key for name in ended):
            return Status(403)
        found = writer.store.objects.get(path.removeprefix("/lake/"))
        return Status(404) if found is None else Substitute(found, etag='"e"')  # an index beside the table

    with Proxy(None, first_byte=0.12, script=serve) as store:
        catalog.vend = vend
        catalog.table = {
            "metadata-location": url,
            "metadata": json.loads(writer.store.objects["t/metadata/v1.metadata.json"]),
        }
        uri = f"http://127.0.0.1:{catalog.server_address[1]}"
        table = accel.tables.iceberg("db.events", catalog={"type": "rest", "uri": uri})
        options = accel.Options(max_files_in_flight=1, max_requests_in_flight=1)
        scan = accel.scan(table, cache=accel.Cache(), options=options)
        assert scan.to_table().num_rows == 108
        used = [next(name for name, _ in reversed(granted) if name in each.path) for each in store.passages]
        assert used == sorted(used) and {"KEY0", "KEY1"} <= set(used)
        # The answers of other objects of the same table, and of the executors' function, are of one store.
        other = accel.tables.iceberg("db.events", catalog={"type": "rest", "uri": uri})
        assert other.vend()["credential_provider"] is table.vend()["credential_provider"]
        assert accel.scan(url, table="iceberg", storage_options=other.vend()).count_rows() == 108
        assert pickle.loads(pickle.dumps(table)).vended_options is None

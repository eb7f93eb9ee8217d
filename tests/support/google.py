"""Two Google Cloud Storages: fake-gcs-server, and the part of the XML API that obstore uses, in memory.

fake-gcs-server, the well-known emulator, accepts writes by the JSON API alone, ignores If-Match and answers
500 where there is no bucket, so only tests that read run against it; `GoogleFake` serves all of them, without
credentials.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.programs import Program, build_with_go, cached_path, find_program

__all__ = ["FakeGcsServer", "GoogleFake", "install_fake_gcs"]

_FAKE_GCS_VERSION = "v1.56.1"
"""The pinned module version of github.com/fsouza/fake-gcs-server."""
_BUILD_SECONDS = 150.0
"""The build may take so long, which is less than a test may take."""

# obstore takes this for a service account whose requests it does not sign.
ACCOUNT = json.dumps(
    {
        "type": "service_account",
        "client_email": "tests@accel.invalid",
        "private_key": "SECRET-PRIVATE-KEY",
        "private_key_id": "SECRET-KEY-ID",
        "disable_oauth": True,
    }
)


@dataclass
class Stored:
    """One version of an object."""

    data: bytes
    generation: int

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


@dataclass
class Seen:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    status: int = 0


class GoogleFake:
    """The in-memory server, as a context manager; `requests` lists what it received."""

    writes = True
    page = 1000
    """Keys of a page of a listing."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, Stored]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[Seen] = []
        self.deny = 0
        """The status of every answer; 0: none."""
        self.lock = threading.RLock()
        self._generation = 0

    def __enter__(self) -> Self:
        fake: GoogleFake = self

        class Handler(_Handler):
            google = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def storage_options(self) -> dict[str, Any]:
        return {"base_url": self.url, "service_account_key": ACCOUNT}

    def create_bucket(self, name: str) -> None:
        self.buckets[name] = {}

    def put(self, bucket: str, key: str, data: bytes) -> Stored:
        with self.lock:
            self._generation += 1
            stored = self.buckets[bucket][key] = Stored(data, 1_700_000_000_000_000 + self._generation)
            return stored


@dataclass
class _Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class _Handler(BaseHTTPRequestHandler):
    google: GoogleFake
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        path = unquote(parts.path)
        seen = Seen(self.command, path, query, headers)
        with self.google.lock:
            self.google.requests.append(seen)
            answer = self._answer(seen, body)
        seen.status = answer.status
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if self.command != "HEAD" or "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _answer(self, seen: Seen, body: bytes) -> _Answer:
        if self.google.deny:
            return _error(self.google.deny, "AccessDenied")
        bucket, _, key = seen.path.removeprefix("/").partition("/")
        objects = self.google.buckets.get(bucket)
        if objects is None:
            return _error(404, "NoSuchBucket")
        if not key:
            return self._list(objects, seen.query)
        if seen.method in ("GET", "HEAD"):
            return _read(objects.get(key), seen)
        if "uploads" in seen.query:
            upload = f"upload-{len(self.google.uploads)}"
            self.google.uploads[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return _Answer(200, text.encode())
        if "partNumber" in seen.query:
            self.google.uploads[seen.query["uploadId"]][int(seen.query["partNumber"])] = body
            return _Answer(200, headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
        if seen.method == "DELETE":
            self.google.uploads.pop(seen.query.get("uploadId", ""), None)
            return _Answer(204)
        return self._put(bucket, key, seen, body)

    def _put(self, bucket: str, key: str, seen: Seen, body: bytes) -> _Answer:
        if "uploadId" in seen.query:
            parts = self.google.uploads.pop(seen.query["uploadId"])
            body = b"".join(data for _, data in sorted(parts.items()))
        there = self.google.buckets[bucket].get(key)
        generation = seen.headers.get("x-goog-if-generation-match")
        if generation is not None and int(generation) != (there.generation if there else 0):
            return _error(412, "PreconditionFailed")
        stored = self.google.put(bucket, key, body)
        if "uploadId" in seen.query:
            text = f"<CompleteMultipartUploadResult><ETag>{escape(stored.etag)}</ETag></CompleteMultipartUploadResult>"
            return _Answer(200, text.encode(), {"x-goog-generation": str(stored.generation)})
        return _Answer(200, headers={"ETag": stored.etag, "x-goog-generation": str(stored.generation)})

    def _list(self, objects: dict[str, Stored], query: dict[str, str]) -> _Answer:
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        keys = sorted(key for key in objects if key.startswith(query.get("prefix", "")) and key > after)
        page = keys[: self.google.page]
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key].data)}</Size>"
            f"<ETag>{escape(objects[key].etag)}</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in page
        )
        more = (
            f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
            if len(keys) > len(page)
            else ""
        )
        return _Answer(200, f"<ListBucketResult>{entries}{more}</ListBucketResult>".encode())


def _error(status: int, code: str) -> _Answer:
    return _Answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode())


def _read(stored: Stored | None, seen: Seen) -> _Answer:
    if stored is None:
        return _error(404, "NoSuchKey")
    headers = {
        "ETag": stored.etag,
        "x-goog-generation": str(stored.generation),
        "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
    }
    if seen.headers.get("if-match", stored.etag) != stored.etag:
        return _error(412, "PreconditionFailed")
    size = len(stored.data)
    span = re.fullmatch(r"bytes=(\d*)-(\d*)", seen.headers.get("range", ""))
    if span is None:
        return _Answer(200, stored.data, {**headers, "Content-Length": str(size)})
    start = int(span[1]) if span[1] else max(0, size - int(span[2]))
    end = min(size, int(span[2]) + 1) if span[1] and span[2] else size
    if start >= size:
        return _error(416, "InvalidRange")
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return _Answer(206, stored.data[start:end], {**headers, "Content-Length": str(end - start)})


def install_fake_gcs() -> pathlib.Path:
    """Find fake-gcs-server, or build it with Go into the cache that all checkouts share.

    Raises
    ------
    FileNotFoundError
        When there is neither the server nor a Go to build it with, or the build fails or takes too long.
    """
    target = cached_path(f"fake-gcs-server-{_FAKE_GCS_VERSION}")
    return find_program("fake-gcs-server", target) or build_with_go(
        "github.com/fsouza/fake-gcs-server",
        _FAKE_GCS_VERSION,
        target=target,
        takes="about a minute",
        timeout=_BUILD_SECONDS,
    )


class FakeGcsServer:
    """fake-gcs-server, in memory, as a context manager. `program` is what `install_fake_gcs` returned."""

    def __init__(self, program: str | os.PathLike[str]) -> None:
        self.program = os.fspath(program)

    def __enter__(self) -> Self:
        def command(port: int) -> list[str]:
            self.url = f"http://127.0.0.1:{port}"
            command_line = [
                self.program,
                "-scheme",
                "http",
                "-host",
                "127.0.0.1",
                "-port",
                str(port),
                "-backend",
                "memory",
            ]
            return [*command_line, "-public-host", f"127.0.0.1:{port}", "-external-url", self.url]

        self._running = Program.start(command, lambda _: self._ask("/storage/v1/b?project=p", b"", "GET"))
        return self

    def __exit__(self, *failure: object) -> None:
        self._running.end()

    def storage_options(self) -> dict[str, Any]:
        return {"base_url": self.url, "service_account_key": ACCOUNT}

    def create_bucket(self, name: str) -> None:
        self._ask("/storage/v1/b?project=p", json.dumps({"name": name}).encode(), "POST")

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self._ask(
            f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}", data, "POST"
        )

    def _ask(self, target: str, body: bytes, method: str) -> None:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + target, data=body or None, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()

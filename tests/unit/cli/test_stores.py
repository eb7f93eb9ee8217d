"""The command line against a real S3 server and over HTTP."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from accel.cli.main import main
from accel.testing import write_file
from tests.support.s3 import S3Admin

FILE = write_file(pa.Table.from_arrays([pa.array(range(100))], names=["id"]))


def s3_arguments(s3: S3Admin) -> list[str]:
    options = s3.storage_options()
    endpoint = options.pop("endpoint")
    pairs = [part for key, value in options.items() for part in ("--storage-option", f"{key}={value}")]
    return ["--endpoint", endpoint, *pairs]


def test_s3_by_directory_glob_and_name(s3: S3Admin, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    for key in ("t/year=2012/a b%20.parquet", "t/year=2013/c.parquet", "t/_SUCCESS", "t/x[1].parquet/part-0"):
        s3.put(bucket, key, b"" if key.endswith("_SUCCESS") else FILE)
    where = ["-w", "id = 7", "-c", "id,year"]
    arguments = s3_arguments(s3)
    for source in (f"s3://{bucket}/t/year=*/*.parquet", f"s3a://{bucket}/t/year=*/"):
        assert main(["scan", source, *where, *arguments]) == 0
        assert capsys.readouterr().out == "id,year\n7,2012\n7,2013\n"
    assert main(["scan", f"s3://{bucket}/t/year=2012/a b%20.parquet", *where, *arguments]) == 0
    assert capsys.readouterr().out == "id,year\n7,2012\n"
    assert main(["scan", f"s3://{bucket}/t/x[1].parquet/", "--no-glob", "--count", *arguments]) == 0
    assert capsys.readouterr().out == "100\n"
    assert main(["scan", f"s3://{bucket}/t/", "--count", *arguments]) == 1
    assert "partition keys year here, but none in" in capsys.readouterr().err
    assert main(["scan", f"s3://{bucket}/none.parquet", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"accel: error: s3://{bucket}/none.parquet: ")
    assert s3.secret_key not in error
    assert main(["inspect", f"s3://{bucket}/t/year=2013/", *arguments]) == 0
    assert f"s3://{bucket}/t/year=2013/c.parquet" in capsys.readouterr().out


def test_s3_without_credentials(s3: S3Admin, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{bucket}-open"
    s3.create_bucket(name, public=True)
    s3.put(name, "t/a.parquet", FILE)
    s3.put(bucket, "t/a.parquet", FILE)
    arguments = ["--count", "--anonymous", "--endpoint", s3.url, "--storage-option", "region=us-east-1"]
    assert main(["scan", f"s3://{name}/t", *arguments]) == 0
    assert capsys.readouterr().out == "100\n"
    if s3.kind == "minio":  # moto asks nobody who they are
        assert main(["scan", f"s3://{bucket}/t", *arguments]) == 1
        assert capsys.readouterr().err.startswith("accel: error: ")


@dataclass
class Site:
    url: str = ""
    headers: list[str | None] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.headers.append(self.headers["X-Token"])
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"] or "")
            assert match is not None
            end = min(int(match[2]) + 1, len(FILE)) if match[1] and match[2] else len(FILE)
            start = int(match[1]) if match[1] else max(0, len(FILE) - int(match[2]))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(FILE)}")
            self.send_header("Content-Length", str(end - start))
            self.send_header("ETag", '"v1"')
            self.end_headers()
            self.wfile.write(FILE[start:end])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def test_http_with_a_header_and_a_signature(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"{site.url}/year=1/f[x]*.parquet?X-Sig=secret&a=b"
    assert main(["scan", url, "-w", "id > 97", "--header", "X-Token: t1"]) == 0
    assert capsys.readouterr().out == "id,year\n98,1\n99,1\n"
    assert site.headers
    assert set(site.headers) == {"t1"}
    for argv in (["explain", url], ["inspect", url], ["inspect", url, "--json"]):
        assert main(argv) == 0
        out = capsys.readouterr().out
        assert "secret" not in out
        assert "X-Sig=***" in out


def test_http_has_no_directories(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", f"{site.url}/t/"]) == 1
    assert "list" in capsys.readouterr().err
    assert site.headers == []

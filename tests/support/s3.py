"""S3 servers: MinIO, found or built by Go once, moto in its place, and the requests that prepare either.

`python -m tests.support.s3` prints the path of MinIO's binary, and builds it first where there is none.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import os
import pathlib
import sys
import tempfile
import urllib.parse
import urllib.request
from typing import Self

from tests.support.programs import Program, build_with_go, cached_path, find_program

__all__ = ["Minio", "Moto", "S3Admin", "find_minio", "install_minio"]

_MINIO_VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
"""The pinned module version of github.com/minio/minio."""

_REGION = "us-east-1"


class S3Admin:
    """The blocking requests, signed with AWS Signature 4, that prepare an S3 server: buckets, objects, a
    policy.

    Parameters
    ----------
    url : str
        The server, path-style: "http://127.0.0.1:9000".
    access_key, secret_key : str
        The server's root user.
    """

    kind = "s3"

    def __init__(
        self, url: str = "", *, access_key: str = "accel-test", secret_key: str = "accel-secret"
    ) -> None:
        self.url = url
        self.access_key = access_key
        self.secret_key = secret_key

    def storage_options(self, endpoint: str | None = None) -> dict[str, str]:
        """Return obstore's options for this server, or for a proxy before it."""
        return {
            "endpoint": endpoint or self.url,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "region": _REGION,
            "allow_http": "true",
        }

    def list_buckets(self) -> bytes:
        """Return the server's XML list of buckets; OSError while it is not ready to serve."""
        return self._request("GET", "/")

    def create_bucket(self, name: str, *, public: bool = False) -> None:
        """Make a bucket; a public one may be listed and read by anybody."""
        self._request("PUT", f"/{name}")
        if public:
            statements = [
                {
                    "Effect": "Allow",
                    "Principal": "*",
                    "Action": [action],
                    "Resource": [resource],
                }
                for action, resource in (
                    ("s3:ListBucket", f"arn:aws:s3:::{name}"),
                    ("s3:GetObject", f"arn:aws:s3:::{name}/*"),
                )
            ]
            policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
            self._request("PUT", f"/{name}", query="policy=", body=policy.encode())

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Write or overwrite one object."""
        self._request("PUT", f"/{bucket}/{key}", body=data)

    def delete(self, bucket: str, key: str) -> None:
        """Remove one object."""
        self._request("DELETE", f"/{bucket}/{key}")

    def signed_get(self, path: str) -> tuple[str, dict[str, str]]:
        """Return the percent-encoded target and the headers of a GET of "/bucket/key", for another client to
        send."""
        target = urllib.parse.quote(path)
        return target, self._signed("GET", target)

    def _request(self, method: str, path: str, *, query: str = "", body: bytes = b"") -> bytes:
        path = urllib.parse.quote(path)
        # urllib would declare the body a form, and some servers would then parse it as one.
        headers = {**self._signed(method, path, query, body), "content-type": "application/octet-stream"}
        url = f"{self.url}{path}" + (f"?{query}" if query else "")
        request = urllib.request.Request(url, data=body or None, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: bytes = answer.read()
            return content

    def _signed(self, method: str, path: str, query: str = "", body: bytes = b"") -> dict[str, str]:
        """Make the headers of a signed request, which may have unsigned ones besides."""
        signed = {
            "host": urllib.parse.urlsplit(self.url).netloc,
            "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
            "x-amz-date": datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ"),
        }
        return {**signed, "authorization": self._authorization(method, path, query, signed)}

    def _authorization(self, method: str, path: str, query: str, signed: dict[str, str]) -> str:
        """Make the header of AWS Signature Version 4 over `signed` (sorted, lower-case names)."""
        names = ";".join(signed)
        lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
        canonical = "\n".join((method, path, query, lines, names, signed["x-amz-content-sha256"]))
        date = signed["x-amz-date"]
        scope = f"{date[:8]}/{_REGION}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = b"AWS4" + self.secret_key.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}".encode(), "sha256").hex()
        credential = f"{self.access_key}/{scope}"
        return f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"


def _minio_path() -> pathlib.Path:
    return cached_path(f"minio-{_MINIO_VERSION}")


def find_minio() -> pathlib.Path | None:
    """Find MinIO's binary on PATH, else in the cache of tools; None where there is none."""
    return find_program("minio", _minio_path())


def install_minio() -> pathlib.Path:
    """Find MinIO's binary, or build it with Go into the cache that all checkouts share.

    Raises
    ------
    FileNotFoundError
        When there is neither a MinIO nor a Go to build it with, or the build fails.
    """
    return find_minio() or build_with_go(
        "github.com/minio/minio", _MINIO_VERSION, target=_minio_path(), takes="about three minutes"
    )


class Minio(S3Admin):
    """A MinIO server over a directory of its own, as a context manager.

    Parameters
    ----------
    binary : path
        What `install_minio` returned.
    """

    kind = "minio"

    def __init__(self, binary: str | os.PathLike[str]) -> None:
        super().__init__()
        self.binary = os.fspath(binary)
        self._running: Program | None = None
        self._data: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._data = tempfile.TemporaryDirectory(prefix="accel-minio-")
        settings = {
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_DOMAIN": "localhost",
        }
        try:
            # A signed request, because the health checks succeed before the keys are loaded.
            self._running = Program.start(self._command, lambda _: self.list_buckets(), environment=settings)
        except BaseException:
            self._data.cleanup()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        if self._running is not None:
            self._running.end()
        if self._data is not None:
            self._data.cleanup()

    def _command(self, port: int) -> list[str]:
        self.url = f"http://127.0.0.1:{port}"
        data = "" if self._data is None else self._data.name
        return [self.binary, "server", "--quiet", "--address", f"127.0.0.1:{port}", data]


class Moto(S3Admin):
    """Moto's S3 in a thread, as a context manager: it stands in where there is no MinIO."""

    kind = "moto"

    def __enter__(self) -> Self:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.stop()


if __name__ == "__main__":
    try:
        print(install_minio())
    except FileNotFoundError as missing:
        sys.exit(f"no MinIO: {missing}")

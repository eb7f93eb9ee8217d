"""The S3 server of the tests answers through the proxy with the signature made for the proxy's own
address."""

from __future__ import annotations

import urllib.error
import urllib.request

import obstore
import pytest
from obstore.store import S3Store

from tests.support.proxy import Proxy
from tests.support.s3 import S3Admin

DATA = bytes(range(256))


def open_store(s3: S3Admin, bucket: str, endpoint: str) -> S3Store:
    options = s3.storage_options(endpoint)
    options.pop("allow_http")
    return S3Store(
        bucket, config=options, client_options={"allow_http": True}, retry_config={"max_retries": 0}
    )  # type: ignore[arg-type]


def test_signed_requests_pass_the_proxy(s3: S3Admin, bucket: str, proxy: Proxy) -> None:
    s3.put(bucket, "dir/an object.bin", DATA)
    store = open_store(s3, bucket, proxy.url)
    got = obstore.get(store, "dir/an object.bin", options={"range": {"suffix": 16}})
    assert bytes(got.bytes()) == DATA[-16:]
    assert got.meta["size"] == 256
    pinned = obstore.get(store, "dir/an object.bin", options={"range": (0, 4), "if_match": got.meta["e_tag"]})
    assert bytes(pinned.bytes()) == DATA[:4]
    assert [item["path"] for batch in obstore.list(store, "dir") for item in batch] == ["dir/an object.bin"]
    assert proxy.by_path()["GET", f"/{bucket}/dir/an%20object.bin"] == (2, 20)


def test_objects_are_overwritten_and_deleted(s3: S3Admin, bucket: str) -> None:
    store = open_store(s3, bucket, s3.url)
    s3.put(bucket, "x", b"old")
    first = obstore.head(store, "x")["e_tag"]
    s3.put(bucket, "x", b"new")
    assert obstore.head(store, "x")["e_tag"] != first
    s3.delete(bucket, "x")
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "x")


@pytest.mark.parametrize("public", [True, False])
def test_a_public_bucket_is_read_by_anybody(minio: S3Admin, public: bool) -> None:
    name = f"public-{public}".lower()
    minio.create_bucket(name, public=public)
    minio.put(name, "x", b"data")
    if public:
        with urllib.request.urlopen(f"{minio.url}/{name}/x", timeout=10) as answer:
            assert answer.read() == b"data"
    else:
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{minio.url}/{name}/x", timeout=10)

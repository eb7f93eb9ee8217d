"""Listings cut into stretches are those that MinIO gives page by page."""

from __future__ import annotations

import asyncio
import contextlib
import random
import urllib.error
from collections.abc import AsyncIterator

import obstore
import pytest
from obstore.store import S3Store

from accel.metrics import Metrics
from accel.options import Options
from accel.store import http_connections
from accel.store.client import Client
from accel.store.location import parse_url
from accel.store.storage_options import build_store
from tests.support.s3 import S3Admin


@pytest.fixture(autouse=True)
async def closed_connections() -> AsyncIterator[None]:
    """The loop of a test ends with its connections, which otherwise live on the loop of the process."""
    yield
    for pool in http_connections.shared_by_loop().servers.values():
        await pool.close()
    await asyncio.sleep(0)


def client_of(minio: S3Admin, bucket: str, **more: str) -> Client:
    options = {**minio.storage_options(), **more}
    store = build_store(parse_url(f"s3://{bucket}/"), options, options=Options())
    return Client(store, root=f"s3://{bucket}", token="t", options=Options())


async def put(minio: S3Admin, bucket: str, keys: list[str]) -> list[str]:
    """Those that MinIO takes. Not by obstore, which spells no `/` at the end of a name."""
    taken = []
    for key in keys:
        with contextlib.suppress(urllib.error.HTTPError):
            await asyncio.to_thread(minio.put, bucket, key, b"" if key.endswith("/") else key.encode())
            taken.append(key)
    return taken


async def test_any_cuts_give_the_same(minio: S3Admin, bucket: str) -> None:
    draw = random.Random(5)
    letters = "-./019AZa~ =+%"
    names = {"".join(draw.choices(letters, k=draw.randint(1, 5))) for _ in range(150)}
    keys = [f"d/{name}" for name in names if not {"", ".", ".."} & set(name.split("/"))]
    keys = await put(minio, bucket, keys)
    await put(minio, bucket, ["c", "d-", "d.x/y", "e/z"])
    client = client_of(minio, bucket)
    listings = client.listings
    found = await client.list_below("d")
    paths = [entry.path for entry in found]
    # MinIO keeps what is below the name of another object, and does not list it.
    assert len(paths) > 100
    assert set(paths) <= set(keys)
    assert paths == sorted(paths)
    assert [(entry.size, entry.etag is not None) for entry in found] == [(len(key), True) for key in paths]
    for _ in range(25):
        cuts = sorted(set(draw.sample([*paths, "d/0", "d/~~", "d/a/b/c", "d/-!"], draw.randint(1, 20))))
        listings.cuts["d"] = tuple(cuts)
        metrics = Metrics()
        assert await client.list_below("d", metrics=metrics) == found
        assert metrics.requests == len(cuts) + 1


async def test_markers_and_files_of_one_name(minio: S3Admin, bucket: str) -> None:
    keys = ["d/a-b", "d/a/", "d/a/x", "d/a0", "d/b/", "d/b/y", "d/c"]
    await put(minio, bucket, keys)
    client = client_of(minio, bucket)
    whole = await client.list_below("d")
    assert sorted(entry.path for entry in whole) == sorted(key.rstrip("/") for key in keys)
    for cut in ("d/a", "d/a-b", "d/a/x", "d/a0", "d/b", "d/b/y"):
        client.listings.cuts["d"] = (cut,)
        assert await client.list_below("d") == whole


async def test_a_directory_of_some_pages(minio: S3Admin, bucket: str) -> None:
    store = S3Store(bucket, config=minio.storage_options(), client_options={"allow_http": True})  # type: ignore[arg-type]
    keys = [f"many/day={n % 3}/part-{n:05}.parquet" for n in range(2300)]
    gate = asyncio.Semaphore(16)

    async def one(key: str) -> None:
        async with gate:
            await obstore.put_async(store, key, b"x")

    await asyncio.gather(*map(one, keys))
    client = client_of(minio, bucket)

    async def requests() -> int:
        metrics = Metrics()
        listed = await client.list_below("many", metrics=metrics)
        assert [entry.path for entry in listed] == sorted(keys)
        return metrics.requests

    assert [await requests() for _ in range(2)] == [3, 3]
    assert len(client.listings.cuts["many"]) == 2
    keys.append("many/day=2/z.parquet")
    await one(keys[-1])
    assert [await requests() for _ in range(2)] == [3, 3]
    keys.append("many/day=0/a.parquet")
    await one(keys[-1])
    assert [await requests() for _ in range(2)] == [4, 3]
    for key in client.listings.cuts["many"]:
        keys.remove(key)
        await obstore.delete_async(store, key)
    assert [await requests() for _ in range(2)] == [3, 3]
    # Two full pages; the server says that the second is the last.
    gone, keys[:] = keys[2000:], keys[:2000]
    await obstore.delete_async(store, gone)
    client = client_of(minio, bucket)
    assert [await requests() for _ in range(2)] == [2, 3]

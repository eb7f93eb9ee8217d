"""Writing to a real S3: multipart uploads, conditional puts, and the requests that are sent for them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store

from accel.errors import ObjectChangedError, ObjectNotFoundError
from accel.writing import EmbedProgress, embed, write_table
from tests.support.s3 import S3Admin
from tests.unit.writing.files import read_all, read_bytes, sample, write


def store_of(bucket: str, options: dict[str, str]) -> S3Store:
    config = {**options}
    config.pop("allow_http")
    return S3Store(bucket, config=config, client_options={"allow_http": True})


@pytest.fixture
def store(bucket: str, s3_options: dict[str, str]) -> S3Store:
    return store_of(bucket, s3_options)


def get(store: S3Store, path: str) -> bytes:
    return bytes(obstore.get(store, path).bytes())


def large() -> pa.Table:
    """Some 24 MB that do not compress: three parts."""
    rng = np.random.default_rng(3)
    return pa.table({"id": pa.array(range(1_500_000)), "x": pa.array(rng.random(1_500_000))})


def test_a_large_object_is_streamed_in_parts(bucket: str, store: S3Store, s3_options: dict[str, str]) -> None:
    sink = io.BytesIO()
    pq.write_table(large(), sink, use_dictionary=False, compression="none")
    obstore.put(store, "a.parquet", sink.getvalue())
    calls: list[EmbedProgress] = []
    report = embed(
        f"s3://{bucket}/a.parquet", f"s3://{bucket}/b.parquet", indexes={},
        storage_options=s3_options, progress=calls.append,
    )  # fmt: skip
    meta = obstore.head(store, "b.parquet")
    assert meta["size"] == report.size_after > 16 * 1024 * 1024
    etag = (meta["e_tag"] or "").strip('"')
    assert etag.endswith(f"-{-(-report.size_after // (8 * 1024 * 1024))}")  # S3's mark of an object in parts
    assert read_bytes(get(store, "b.parquet")).equals(large())
    assert calls[-1].done == report.size_after


def test_in_place_is_conditional(bucket: str, store: S3Store, s3_options: dict[str, str]) -> None:
    url = f"s3://{bucket}/a.parquet"
    write_table(sample(), url, storage_options=s3_options, write_page_index=False)
    embed(url, indexes={}, storage_options=s3_options)
    assert read_bytes(get(store, "a.parquet")).equals(sample())

    def change(now: EmbedProgress) -> None:
        if now.stage == "copy" and now.done == now.total:
            obstore.put(store, "a.parquet", b"theirs")

    with pytest.raises(ObjectChangedError, match="changed meanwhile"):
        embed(url, indexes={}, storage_options=s3_options, progress=change)
    assert get(store, "a.parquet") == b"theirs"


def test_the_server_itself_refuses_another_version(
    bucket: str, store: S3Store, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch, minio: S3Admin
) -> None:
    url = f"s3://{bucket}/a.parquet"
    write_table(sample(), url, storage_options=s3_options)
    head = obstore.head_async

    async def then_change(*args: object, **more: object) -> object:
        found = await head(*args, **more)  # type: ignore[arg-type]
        obstore.put(store, "a.parquet", b"theirs")
        return found

    monkeypatch.setattr(obstore, "head_async", then_change)
    with pytest.raises(ObjectChangedError, match="changed meanwhile"):
        embed(url, indexes={}, storage_options=s3_options)
    assert get(store, "a.parquet") == b"theirs"


def test_from_a_store_to_disk_and_back(
    tmp_path: Path, bucket: str, store: S3Store, s3_options: dict[str, str]
) -> None:
    local = write(tmp_path / "a.parquet")
    embed(local, f"s3://{bucket}/up.parquet", indexes={}, storage_options=s3_options)
    assert read_bytes(get(store, "up.parquet")).equals(sample())
    embed(f"s3://{bucket}/up.parquet", tmp_path / "down.parquet", indexes={}, storage_options=s3_options)
    assert read_all(tmp_path / "down.parquet").equals(sample())
    assert (tmp_path / "down.parquet").read_bytes() == get(store, "up.parquet")


def test_a_local_file_that_changes_while_it_is_sent(
    tmp_path: Path, bucket: str, store: S3Store, s3_options: dict[str, str]
) -> None:
    local = tmp_path / "a.parquet"
    pq.write_table(sample(), local)

    def change(now: EmbedProgress) -> None:
        if now.stage == "copy" and now.done == 0:
            with open(local, "r+b") as file:  # as `rsync --inplace` writes: name, inode and size stay
                file.write(bytes(1000))

    with pytest.raises(ObjectChangedError, match=f"{local}: the file was changed meanwhile"):
        embed(local, f"s3://{bucket}/up.parquet", indexes={}, storage_options=s3_options, progress=change)
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "up.parquet")


def test_an_upload_that_fails_leaves_nothing(bucket: str, store: S3Store, s3_options: dict[str, str]) -> None:
    url = f"s3://{bucket}/a.parquet"
    write_table(sample(), url, storage_options=s3_options)

    def stop(now: EmbedProgress) -> None:
        if now.stage == "copy" and now.done:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        embed(url, f"s3://{bucket}/b.parquet", indexes={}, storage_options=s3_options, progress=stop)
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "b.parquet")


def test_no_such_object(bucket: str, s3_options: dict[str, str]) -> None:
    with pytest.raises(ObjectNotFoundError):
        embed(f"s3://{bucket}/none.parquet", indexes={}, storage_options=s3_options)

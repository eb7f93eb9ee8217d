"""The store of the benchmark, and what is counted of what passed."""

from __future__ import annotations

from collections.abc import Iterator

import obstore
import pytest
from obstore.store import S3Store

import accel
from accel.testing import write_bench_file
from bench.__main__ import parse_arguments
from bench.network import BUCKET, Network, Store, Traffic, slow_network
from bench.peers.child import Child
from bench.queries import Query
from tests.support.s3 import S3Admin


@pytest.mark.parametrize("store", list(Store))
def test_objects_are_answered_and_requests_counted(minio: S3Admin, store: Store) -> None:
    data = bytes(range(256)) * 1000
    with slow_network(store) as network:
        stores = [
            S3Store(BUCKET, config=options, client_options={"allow_http": True})  # type: ignore[arg-type]
            for options in (
                network.storage_options,
                {**network.storage_options, "endpoint": network.endpoint.url},
            )
        ]
        obstore.put(stores[0], "dir/x", data)
        network.read(["dir/x", "absent"])
        network.begin()
        assert bytes(obstore.get_range(stores[1], "dir/x", start=7, end=70_007)) == data[7:70_007]
        assert [item["path"] for batch in obstore.list(stores[1], "dir") for item in batch] == ["dir/x"]
        assert network.end() == Traffic(requests=2, lists=1, trips=2, bytes=network.end().bytes)
        assert network.end().bytes > 70_000


@pytest.mark.parametrize("store", list(Store))
def test_the_same_store_is_reached_by_tls_by_whoever_trusts_its_authority(
    minio: S3Admin, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"0123456789" * 1000
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with slow_network(store) as network:
        network.put("x.bin", data)
        network.put("x.parquet", write_bench_file(rows=1000, groups=1))
        secure = network.secure_endpoint
        assert secure.tls and not network.endpoint.tls
        assert secure.url.startswith("https://127.0.0.1:")
        options = secure.storage_options()
        url = secure.object_url("x.parquet")
        with pytest.raises(accel.AccelError, match="certificate"):
            accel.scan(url, storage_options=options, cache=None).count_rows()
        network.begin()
        trusted = {**options, "ca_bundle": secure.authorities}
        assert accel.scan(url, "key = 3", storage_options=trusted, cache=None).to_table().num_rows == 1
        # The requests by TLS are in the same log.
        assert 1 <= network.end().requests <= 8


@pytest.mark.parametrize("name", ["accel", "datafusion", "duckdb", "floor", "polars", "pyarrow"])
def test_systems_reach_the_store_by_tls(secure_network: Network, name: str) -> None:
    query = Query("point", ("x.parquet",), ("key", "value"), (("key", "=", 3),))
    secure_network.begin()
    with Child(name, limit=60) as child:
        child.open(secure_network.secure_endpoint)
        assert child.run(query).rows == 1
        if name == "duckdb":  # its settings are of one cursor, unless they are said to be of all
            assert child.concurrently([query, query]).each == (1, 1)
    assert secure_network.end().requests > 0


@pytest.fixture(scope="module")
def secure_network() -> Iterator[Network]:
    with slow_network() as network:
        network.put("x.parquet", write_bench_file(rows=1000, groups=1))
        yield network


def test_the_store_is_chosen() -> None:
    assert [parse_arguments(given).store for given in ([], ["--store", "memory"], ["--store", "minio"])] == [
        Store.MEMORY,
        Store.MEMORY,
        Store.MINIO,
    ]

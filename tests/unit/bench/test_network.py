"""The store of the benchmark, and what is counted of what passed."""

from __future__ import annotations

import obstore
import pytest
from obstore.store import S3Store

from bench.__main__ import _parse
from bench.network import BUCKET, Store, Traffic, slow_network
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


def test_the_store_is_chosen() -> None:
    assert [_parse(given).store for given in ([], ["--store", "memory"], ["--store", "minio"])] == [
        Store.MEMORY,
        Store.MEMORY,
        Store.MINIO,
    ]

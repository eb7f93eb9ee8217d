"""What goes wrong with a store is an error that names the object and never the key."""

from __future__ import annotations

from typing import Any

import pytest

import accel
from tests.integration.conftest import Flights

OPTIONS = accel.Options(max_attempts=2, backoff_base=0.001, backoff_max=0.01, connect_timeout=2.0)


async def fail(url: str, options: dict[str, Any]) -> accel.AccelError:
    scan = accel.scan(url, storage_options=options, options=OPTIONS, cache=accel.Cache())
    with pytest.raises(accel.AccelError) as caught:
        await scan.to_table_async()
    return caught.value


@pytest.mark.parametrize("path", ["nyc/absent.parquet", "absent/", "nyc/*.csv"])
async def test_what_is_not_there(path: str, flights: Flights) -> None:
    error = await fail(f"s3://{flights.bucket}/{path}", flights.options)
    assert isinstance(error, accel.ObjectNotFoundError)
    assert isinstance(error, FileNotFoundError)
    assert path.rstrip("/") in str(error)


async def test_no_such_bucket(flights: Flights) -> None:
    error = await fail("s3://no-such-bucket/nyc/", flights.options)
    assert isinstance(error, accel.StoreError)
    assert "no-such-bucket" in str(error)


@pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
async def test_wrong_keys(wrong: str, flights: Flights) -> None:
    # A private bucket: a public one is read whoever asks.
    flights.server.create_bucket(f"private-{wrong.replace('_', '-')}")
    options = {**flights.options, wrong: "not-the-right-one"}
    error = await fail(f"s3://private-{wrong.replace('_', '-')}/nyc/flights.parquet", options)
    assert isinstance(error, accel.StoreError)
    assert error.status == 403
    for secret in ("not-the-right-one", flights.server.secret_key):
        assert secret not in str(error)
        assert secret not in repr(error.__dict__)


async def test_nobody_there(flights: Flights) -> None:
    error = await fail(
        f"s3://{flights.bucket}/nyc/a.parquet", {**flights.options, "endpoint": "http://127.0.0.1:1"}
    )
    assert isinstance(error, accel.StoreError)
    assert "nyc/a.parquet" in str(error)


async def test_an_unknown_option(flights: Flights) -> None:
    error = await fail(f"s3://{flights.bucket}/nyc/", {**flights.options, "enpoint": "x"})
    assert isinstance(error, accel.StoreError)
    assert "enpoint" in str(error)

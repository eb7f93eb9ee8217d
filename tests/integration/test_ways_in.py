"""Every way to name and reach the same flights in MinIO gives the same rows."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from obstore.store import MemoryStore, S3Store

import accel
from tests.integration.conftest import COLUMNS, WHERE, Flights
from tests.support.proxy import Proxy

MakeProxy = Callable[..., Proxy]
FILE = "nyc/month=7/flights.parquet"


def same(found: pa.Table, answer: pa.Table) -> bool:
    """Equal rows; the partition column's own type is the scan's to choose."""
    ordered = found.select(COLUMNS).sort_by("time_hour")
    return bool(ordered.cast(answer.schema).equals(answer))


async def ask(source: Any, **more: Any) -> pa.Table:
    return await accel.scan(source, WHERE, columns=COLUMNS, cache=accel.Cache(), **more).to_table_async()


SOURCES = [
    pytest.param("s3://{bucket}/nyc/", id="directory"),
    pytest.param("s3://{bucket}/nyc", id="directory without a slash"),
    pytest.param("s3a://{bucket}/nyc/", id="s3a"),
    pytest.param("s3://{bucket}/nyc/month=*/*.parquet", id="glob"),
    pytest.param("s3://{bucket}/nyc/**/*.parquet", id="deep glob"),
]


@pytest.mark.parametrize("url", SOURCES)
async def test_urls(url: str, flights: Flights, answer: pa.Table) -> None:
    found = await ask(url.format(bucket=flights.bucket), storage_options=flights.options)
    assert same(found, answer)


async def test_a_list_of_files(flights: Flights, answer: pa.Table) -> None:
    urls = [f"s3://{flights.bucket}/nyc/month={month}/flights.parquet" for month in (6, 7, 8)]
    found = await ask(urls, storage_options=flights.options, partitioning="hive")
    assert same(found, answer)


async def test_one_file_has_no_partition_unless_its_directory_is_read(
    flights: Flights, answer: pa.Table
) -> None:
    url = f"s3://{flights.bucket}/{FILE}"
    scan = accel.scan(
        url,
        "carrier = 'AS' AND dep_delay > 0",
        columns=COLUMNS[:3],
        storage_options=flights.options,
        cache=accel.Cache(),
    )
    found = await scan.to_table_async()
    assert found.sort_by("time_hour").equals(answer.select(COLUMNS[:3]))


async def test_environment_variables(
    flights: Flights, answer: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "AWS_ENDPOINT_URL": flights.server.url,
        "AWS_ACCESS_KEY_ID": flights.server.access_key,
        "AWS_SECRET_ACCESS_KEY": flights.server.secret_key,
        "AWS_REGION": "us-east-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert same(await ask(f"s3://{flights.bucket}/nyc/"), answer)


async def test_the_names_of_hadoop(flights: Flights, answer: pa.Table) -> None:
    options = {
        "fs.s3a.endpoint": flights.server.url,
        "fs.s3a.access.key": flights.server.access_key,
        "spark.hadoop.fs.s3a.secret.key": flights.server.secret_key,
        "fs.s3a.path.style.access": "true",
        "region": "us-east-1",
    }
    assert same(await ask(f"s3a://{flights.bucket}/nyc/", storage_options=options), answer)


async def test_anonymous(flights: Flights, answer: pa.Table) -> None:
    options = {"endpoint": flights.server.url, "region": "us-east-1", "skip_signature": "true"}
    assert same(await ask(f"s3://{flights.bucket}/nyc/", storage_options=options), answer)


async def test_virtual_hosted(flights: Flights, answer: pa.Table, make_proxy: MakeProxy) -> None:
    # The bucket's host name resolves nowhere: a forward proxy takes it to the server, as a resolver would.
    proxy = make_proxy(flights.server.url)
    port = flights.server.url.rpartition(":")[2]
    host = f"{flights.bucket}.localhost:{port}"
    options: dict[str, Any] = {
        **flights.options,
        "endpoint": f"http://{host}",
        "virtual_hosted_style_request": "true",
        "client_options": {"allow_http": True, "proxy_url": proxy.url},
    }
    assert same(await ask(f"s3://{flights.bucket}/nyc/", storage_options=options), answer)
    assert {passage.headers["host"] for passage in proxy.passages} == {host}
    assert f"GET http://{host}/{FILE}" in {f"{p.method} {p.path}".replace("%3D", "=") for p in proxy.passages}


async def test_requester_pays(flights: Flights, answer: pa.Table, make_proxy: MakeProxy) -> None:
    proxy = make_proxy(flights.server.url)
    options = {**flights.server.storage_options(proxy.url), "request_payer": "true"}
    assert same(await ask(f"s3://{flights.bucket}/nyc/", storage_options=options), answer)
    assert {passage.headers.get("x-amz-request-payer") for passage in proxy.passages} == {"requester"}


async def test_plain_http(flights: Flights, answer: pa.Table) -> None:
    url = f"{flights.server.url}/{flights.bucket}/{FILE}"
    found = await accel.scan(url, "carrier = 'AS' AND dep_delay > 0", columns=COLUMNS[:3]).to_table_async()
    assert found.sort_by("time_hour").equals(answer.select(COLUMNS[:3]))


async def test_a_presigned_url(flights: Flights, answer: pa.Table, make_proxy: MakeProxy) -> None:
    proxy = make_proxy(flights.server.url)
    options = flights.server.storage_options(proxy.url)
    options.pop("allow_http")
    flights.server.create_bucket("private-flights")
    flights.server.put("private-flights", FILE, (flights.folder / "month=7" / "flights.parquet").read_bytes())
    store = S3Store("private-flights", config=options, client_options={"allow_http": True})  # type: ignore[arg-type]
    url = obstore.sign(store, "GET", FILE, datetime.timedelta(minutes=5))
    # The question mark is no glob, and the signature is shown to nobody.
    scan = accel.scan(url, "carrier = 'AS' AND dep_delay > 0", columns=COLUMNS[:3], cache=accel.Cache())
    assert (await scan.to_table_async()).sort_by("time_hour").equals(answer.select(COLUMNS[:3]))
    assert {passage.method for passage in proxy.passages} == {"GET"}
    signature = url.rpartition("X-Amz-Signature=")[2]
    assert len(signature) == 64
    for told in (repr(scan), str(await scan.explain_async()), str(scan.metrics.as_dict())):
        assert signature not in told
    with pytest.raises(accel.StoreError) as caught:
        await accel.scan(
            url.replace("flights.parquet", "absent.parquet"), cache=accel.Cache()
        ).to_table_async()
    assert signature not in str(caught.value)


async def test_stores_of_obstore(flights: Flights, answer: pa.Table) -> None:
    options = flights.options
    options.pop("allow_http")
    remote = S3Store(flights.bucket, config=options, client_options={"allow_http": True})  # type: ignore[arg-type]
    assert same(await ask("nyc/", store=remote), answer)
    memory = MemoryStore()
    for path in sorted(flights.folder.rglob("*.parquet")):
        await obstore.put_async(
            memory, f"nyc/{path.relative_to(flights.folder).as_posix()}", path.read_bytes()
        )
    assert same(await ask("nyc/", store=memory), answer)


async def test_a_local_directory(flights: Flights, answer: pa.Table) -> None:
    assert same(await ask(flights.folder), answer)
    assert same(await ask(f"file://{flights.folder}"), answer)


async def test_every_row_arrives(flights: Flights) -> None:
    scan = accel.scan(f"s3://{flights.bucket}/nyc/", storage_options=flights.options, cache=accel.Cache())
    rows, delays = 0, 0
    async for batch in scan:
        rows += batch.num_rows
        delays += pc.sum(batch["dep_delay"]).as_py() or 0
    assert rows == 336_776
    assert delays == 4_152_200


async def test_a_selective_query_reads_a_fraction(
    flights: Flights, answer: pa.Table, make_proxy: MakeProxy
) -> None:
    proxy = make_proxy(flights.server.url)
    cache, options = accel.Cache(), flights.server.storage_options(proxy.url)

    async def run() -> accel.Scan:
        proxy.reset()
        scan = accel.scan(
            f"s3://{flights.bucket}/nyc/", WHERE, columns=COLUMNS, storage_options=options, cache=cache
        )
        assert same(await scan.to_table_async(), answer)
        # What the scan says of itself is what the proxy saw; list bodies are counted by neither alike.
        gets = [p for p in proxy.passages if "list-type" not in p.path]
        assert sum(p.sent for p in gets) == scan.metrics.bytes
        assert proxy.requests == scan.metrics.requests
        return scan

    cold = await run()
    assert cold.metrics.files.kept == 1
    assert cold.metrics.round_trips == 3
    assert cold.metrics.bytes < flights.size / 10
    warm = await run()
    assert warm.metrics.round_trips == 1  # the data is asked for beside the listing
    assert warm.metrics.bytes < cold.metrics.bytes

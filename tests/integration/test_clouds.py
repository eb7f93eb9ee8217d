"""Azure (Microsoft's emulator) and Google (a fake of our own, and fake-gcs-server, which can be read)."""

from __future__ import annotations

import datetime
import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import AzureStore, GCSStore

import accel
from accel.ranges import ByteRange, Kind
from accel.store.clients import client_for
from accel.store.http_store import HttpStore
from accel.store.obstore_store import ObstoreStore
from tests.support.azure import KEY, Azurite, install_azurite
from tests.support.google import ACCOUNT, FakeGcsServer, GoogleFake, install_fake_gcs

ROWS = 20_000
NAMES = ("AWS_", "GOOGLE_", "AZURE_")
# fake-gcs-server takes no object by the API that obstore speaks, and compares no If-Match.
WHOLE = pytest.mark.parametrize("cloud", ["azure", "google"], indirect=True)


def parquet(first: int, rows: int = ROWS) -> bytes:
    sink = io.BytesIO()
    table = pa.table(
        {"id": pa.array(range(first, first + rows)), "text": [f"t{i % 977}" for i in range(rows)]}
    )
    pq.write_table(table, sink, row_group_size=5_000, write_page_index=True, data_page_size=2_000)
    return sink.getvalue()


@dataclass(frozen=True)
class Cloud:
    """A container or bucket named "box" with three files under "fl/month=N/a.parquet"."""

    scheme: str
    options: dict[str, Any]
    secrets: tuple[str, ...]
    put: Callable[[str, bytes], Any]
    store: Callable[[], Any]

    def url(self, path: str) -> str:
        return f"{self.scheme}://box/{path}"

    def scan(self, path: str, *args: Any, **more: Any) -> accel.Scan:
        return accel.scan(
            self.url(path), *args, **{"storage_options": self.options, "cache": accel.Cache(), **more}
        )


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    try:
        program = install_azurite()
    except FileNotFoundError as missing:
        pytest.skip(f"no Azurite: {missing}")
    with Azurite(program) as server:
        server.create_container("box")
        yield server


def on_azure(azurite: Azurite) -> Cloud:
    def store() -> AzureStore:
        return AzureStore("box", config=azurite.storage_options(), client_options={"allow_http": True})  # type: ignore[arg-type]

    return Cloud("az", azurite.storage_options(), (KEY,), partial(obstore.put, store()), store)


def on_google(server: GoogleFake | FakeGcsServer) -> Cloud:
    server.create_bucket("box")

    def store() -> GCSStore:
        return GCSStore("box", config=server.storage_options(), client_options={"allow_http": True})  # type: ignore[arg-type]

    secrets = ("SECRET-PRIVATE-KEY", "SECRET-KEY-ID")
    return Cloud("gs", server.storage_options(), secrets, partial(server.put, "box"), store)


@pytest.fixture(scope="module")
def google() -> Iterator[GoogleFake]:
    with GoogleFake() as server:
        yield server


@pytest.fixture(scope="module")
def emulator() -> Iterator[FakeGcsServer]:
    try:
        program = install_fake_gcs()
    except FileNotFoundError as missing:
        pytest.skip(f"no fake-gcs-server: {missing}")
    with FakeGcsServer(program) as server:
        yield server


@pytest.fixture(scope="module", params=["azure", "google", "fake-gcs-server"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    if request.param == "azure":
        made = on_azure(request.getfixturevalue("azurite"))
    elif request.param == "google":
        made = on_google(request.getfixturevalue("google"))
    else:
        made = on_google(request.getfixturevalue("emulator"))
    for month in (1, 2, 3):
        made.put(f"fl/month={month}/a.parquet", parquet(month * 100_000))
    made.put("fl/_SUCCESS", b"done")
    yield made


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(NAMES):
            monkeypatch.delenv(name)


FOUND = [{"id": 200_007, "text": "t7", "month": 2}]


@pytest.mark.parametrize(
    "path", ["fl/", "fl", "fl/*/a.parquet", "fl/month=2/a.parquet", "fl/**/*.parquet"], ids=str
)
def test_ways_to_name(cloud: Cloud, path: str) -> None:
    assert cloud.scan(path, "id = 200007").to_table().to_pylist() == FOUND


def test_a_list_of_files(cloud: Cloud) -> None:
    urls = [cloud.url(f"fl/month={month}/a.parquet") for month in (1, 2)]
    scan = accel.scan(urls, "id >= 119990", storage_options=cloud.options, cache=accel.Cache())
    assert scan.count_rows() == 10 + ROWS


def test_the_other_spellings(cloud: Cloud) -> None:
    spellings = ["gcs://box"]
    if cloud.scheme == "az":
        account = "box@devstoreaccount1.dfs.core.windows.net"
        spellings = [
            "azure://box",
            "adl://box",
            "abfs://box",
            "abfss://box",
            f"abfs://{account}",
            f"abfss://{account}",
        ]
    for root in spellings:
        scan = accel.scan(f"{root}/fl/", "id = 200007", storage_options=cloud.options, cache=accel.Cache())
        assert scan.to_table().to_pylist() == FOUND, root


@pytest.mark.parametrize("given", ["url", "store"])
def test_what_a_directory_costs(cloud: Cloud, given: str) -> None:
    if given == "url":
        scan = cloud.scan("fl/", "id = 200007")
    else:
        scan = accel.scan("fl/", "id = 200007", store=cloud.store(), cache=accel.Cache())
    assert scan.to_table().to_pylist() == FOUND
    kinds = scan.metrics.requests_by_kind
    # Azure knows no suffix ranges: the listing has told the sizes.
    assert (kinds[Kind.LISTING], kinds[Kind.TAIL], kinds.get(Kind.HEAD, 0)) == (1, 3, 0)


def test_what_one_file_costs(cloud: Cloud) -> None:
    scan = cloud.scan("fl/month=2/a.parquet", "id = 200007")
    assert scan.count_rows() == 1
    kinds = scan.metrics.requests_by_kind
    more = 1 if cloud.scheme == "az" else 0
    assert (kinds[Kind.TAIL], kinds.get(Kind.HEAD, 0)) == (1, more)
    assert scan.metrics.round_trips == scan.metrics.requests  # one after the other


def test_counts_and_explain(cloud: Cloud) -> None:
    assert cloud.scan("fl/").count_rows() == 3 * ROWS
    scan = cloud.scan("fl/", "id = 200007")
    told = str(scan.explain())
    assert "1 of 3" in told
    assert not any(secret in told + repr(scan) for secret in cloud.secrets)


def test_an_unchanged_listing_vouches_for_what_is_cached(cloud: Cloud) -> None:
    cache = accel.Cache(max_age=0)
    for _ in range(2):  # the first brings the page along with the footer, which keeps no data
        cloud.scan("fl/", "id = 200007", cache=cache).to_table()
    again = cloud.scan("fl/", "id = 200007", cache=cache)
    assert again.to_table().to_pylist() == FOUND
    assert dict(again.metrics.requests_by_kind) == {Kind.LISTING: 1}


def test_a_named_file_is_revalidated(cloud: Cloud) -> None:
    cache = accel.Cache(max_age=0)
    for _ in range(3):
        scan = cloud.scan("fl/month=2/a.parquet", "id = 200007", cache=cache)
        assert scan.to_table().to_pylist() == FOUND
    assert dict(scan.metrics.requests_by_kind) == {Kind.REVALIDATE: 1}


def test_tasks_travel_without_credentials(cloud: Cloud) -> None:
    plan = accel.plan(cloud.url("fl/"), "id >= 300000", storage_options=cloud.options, cache=accel.Cache())
    pickled, arrow = pickle.dumps(plan), plan.to_arrow()
    told = pickled + repr((plan, plan.tasks, arrow.to_pydict(), plan.explain())).encode()
    assert not any(secret.encode() in told for secret in cloud.secrets)
    assert accel.scan(pickle.loads(pickled), storage_options=cloud.options).count_rows() == ROWS
    # What Spark's executors do: the function is unpickled there, and gets the tasks as batches.
    ask = pickle.loads(pickle.dumps(partial(accel.scan, storage_options=cloud.options)))
    assert sum(batch.num_rows for batch in ask(iter(arrow.to_batches()))) == ROWS


def test_replaced_since_it_was_planned(cloud: Cloud) -> None:
    path, data = "changed/a.parquet", parquet(0, 150_000)  # too much for one read of its end
    cloud.put(path, data)
    cache = accel.Cache()
    # Of the same length: nothing but the etag tells them apart.
    plan = accel.plan(cloud.url(path), "id >= 10000", storage_options=cloud.options, cache=cache)
    cloud.put(path, data.replace(b"parquet-cpp-arrow", b"parquet-cpp-ARROW"))
    with pytest.raises(accel.ObjectChangedError, match="changed/a.parquet"):
        accel.scan(plan, storage_options=cloud.options, cache=accel.Cache()).to_table()
    scan = cloud.scan(path, "id = 19999", cache=cache)
    assert scan.count_rows() == 1


@WHOLE
async def test_a_pinned_read(cloud: Cloud) -> None:
    cloud.put("pin/ned", b"0123456789" * 10)
    store = ObstoreStore(cloud.store())
    (entry,) = [entry async for entry in store.list("pin")]
    assert entry == await store.head("pin/ned")  # the etag, too, to the letter
    part = await store.read("pin/ned", ByteRange(10, 14), if_match=entry.etag)
    assert (bytes(part.data), part.size, part.etag) == (b"0123", 100, entry.etag)
    cloud.put("pin/ned", b"9876543210" * 10)
    with pytest.raises(accel.ObjectChangedError):
        await store.read("pin/ned", ByteRange(10, 14), if_match=entry.etag)


@WHOLE
def test_write_table(cloud: Cloud) -> None:
    table = pa.table({"id": pa.array(range(1_000))})
    url = cloud.url("w/small.parquet")
    report = accel.write_table(table, url, indexes={"id": "bitmap"}, storage_options=cloud.options)
    assert (report.rows, report.path) == (1_000, url)
    assert cloud.scan("w/small.parquet", "id = 77").to_table().to_pylist() == [{"id": 77}]


@WHOLE
def test_write_table_in_parts(cloud: Cloud) -> None:
    import numpy as np

    noise = np.random.default_rng(7).integers(0, 2**62, 2_500_000)
    table = pa.table({"noise": noise})
    url = cloud.url("w/large.parquet")
    report = accel.write_table(
        table, url, storage_options=cloud.options, use_dictionary=False, compression="none"
    )
    assert report.size_after > 16 * 1024**2
    assert cloud.scan("w/large.parquet").to_table().equals(table)


@WHOLE
def test_embed(cloud: Cloud) -> None:
    cloud.put("e/a.parquet", parquet(0))
    for target in (None, cloud.url("e/b.parquet")):
        report = accel.embed(
            cloud.url("e/a.parquet"), target, indexes={"text": "distinct"}, storage_options=cloud.options
        )
        assert report.written
    for name in ("a", "b"):
        assert cloud.scan(f"e/{name}.parquet", "text = 't5'").count_rows() == 21


@WHOLE
async def test_only_the_version_that_is_meant_is_replaced(cloud: Cloud) -> None:
    cloud.put("r", b"first")
    store = client_for(cloud.url("r"), storage_options=cloud.options).store
    assert isinstance(store, ObstoreStore)
    first = (await store.head("r")).etag
    await store.write("r", _parts(b"second"), size=6, if_match=first)
    with pytest.raises(accel.ObjectChangedError):
        await store.write("r", _parts(b"third"), size=5, if_match=first)
    assert bytes((await store.read("r", ByteRange(0, 6))).data) == b"second"


async def _parts(data: bytes) -> Any:
    yield data


def test_what_is_not_there(cloud: Cloud) -> None:
    with pytest.raises(accel.ObjectNotFoundError, match=r"/box/nope\.parquet: there is no such object"):
        cloud.scan("nope.parquet").to_table()
    with pytest.raises(accel.ObjectNotFoundError, match="holds no data file"):
        cloud.scan("nope/").to_table()


@WHOLE
def test_a_bucket_that_is_not_there(cloud: Cloud) -> None:
    scan = accel.scan(f"{cloud.scheme}://nobox/fl/", storage_options=cloud.options)
    with pytest.raises(accel.ObjectNotFoundError, match="there is no such bucket"):
        scan.to_table()


@pytest.mark.parametrize("path", ["fl/", "fl/month=2/a.parquet"])
def test_a_wrong_key_of_azure(azurite: Azurite, path: str) -> None:
    wrong = {**azurite.storage_options(), "account_key": "d3Jvbmcga2V5IHRoYXQgaXMgbm9uZQ=="}
    with pytest.raises(accel.StoreError, match=r"status 403.*check the credentials") as caught:
        accel.scan(f"az://box/{path}", storage_options=wrong).to_table()
    assert wrong["account_key"] not in repr(caught.value) + str(pickle.dumps(caught.value))


@pytest.mark.parametrize("path", ["fl/", "fl/month=2/a.parquet"])
@pytest.mark.parametrize("status", [401, 403])
def test_google_says_no(path: str, status: int) -> None:
    with GoogleFake() as server:
        denied = on_google(server)
        server.deny = status
        with pytest.raises(accel.StoreError, match=rf"status {status}.*check the credentials") as caught:
            denied.scan(path).to_table()
        assert len(server.requests) == 1
    assert "SECRET" not in repr(caught.value) + str(pickle.dumps(caught.value))
    assert "SECRET" in ACCOUNT


def test_markers_of_directories() -> None:
    with GoogleFake() as server:
        cloud = on_google(server)
        for marker in ("t/", "t/x.parquet/", "t/deep/"):
            cloud.put(marker, b"")
        cloud.put("t/x.parquet/part-0.parquet", parquet(0))
        for path in ("t/", "t", "t/*.parquet", "t/x.parquet/"):
            assert cloud.scan(path, "id = 5").count_rows() == 1, path


def test_google_lists_by_pages() -> None:
    with GoogleFake() as server:
        server.page = 7
        cloud = on_google(server)
        data = parquet(0)
        for number in range(20):
            cloud.put(f"many/{number:02}.parquet", data)
        scan = cloud.scan("many/", "id = 5")
        assert scan.count_rows() == 20
        assert len([seen for seen in server.requests if "list-type" in seen.query]) == 3


def test_a_shared_access_signature(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signed URL is read over plain HTTP, where there are no suffix ranges on Azure either."""
    monkeypatch.setattr(HttpStore, "suffixes", False)  # as for the hosts of Azure itself
    cloud = on_azure(azurite)
    cloud.put("signed/a.parquet", parquet(0))
    url = obstore.sign(cloud.store(), "GET", "signed/a.parquet", datetime.timedelta(minutes=5))
    scan = accel.scan(url, "id = 5", cache=accel.Cache())
    assert scan.to_table().to_pylist() == [{"id": 5, "text": "t5"}]
    assert "sig=***" in str(scan.explain())

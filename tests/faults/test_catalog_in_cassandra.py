"""A catalog in Cassandra: many at once, over connections that end, a server that ends, and secrets."""

from __future__ import annotations

import pickle
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, write_file
from tests.faults.test_catalog_commits import Crowd, InMemory
from tests.faults.test_secrets import failure_of, leaks
from tests.support.cassandra import Cassandra
from tests.support.cutting_relay import CuttingRelay
from tests.support.s3 import S3Admin

# Files are replaced all the time, which scans by the list of the index tell.
pytestmark = pytest.mark.filterwarnings("ignore:.*replaced since the index at:UserWarning")

SECRET = "s3cretSignature"
"""That of `test_secrets`, which looks for it."""
STRICT = accel.Options(
    max_attempts=2, backoff_base=0.001, backoff_max=0.002, connect_timeout=5.0, read_timeout=5.0, strict=True
)


@pytest.fixture
def files() -> DictStore:
    return DictStore(
        {
            f"t/{at:03}.parquet": write_file(pa.table({"n": list(range(at * 10, at * 10 + 10))}))
            for at in range(40)
        }
    )


@pytest.fixture
def relay(cassandra: Cassandra) -> Iterator[CuttingRelay]:
    with CuttingRelay(cassandra.port, rate=0.0, seed=3) as running:
        yield running


def test_writers_and_readers(cassandra: Cassandra, keyspace: str, large: bool) -> None:
    url = cassandra.url(keyspace, secrets.token_hex(8))
    crowd = Crowd(InMemory(seed=21, rate=0.0), seed=21, faulty=False, to=url)
    crowd.run(writers=4, readers=8, seconds=60.0 if large else 2.5)
    print(f"{crowd.refreshed} changes, {crowd.answered} answers, {len(crowd.history.states)} states")


def test_a_server_that_cannot_be_reached_costs_a_warning(
    cassandra: Cassandra, keyspace: str, relay: CuttingRelay, files: DictStore
) -> None:
    url = cassandra.url(keyspace, secrets.token_hex(8)).replace(f":{cassandra.port}/", f":{relay.port}/")
    accel.build_index("t/", to=url, store=files)

    def rows(**given: Any) -> tuple[int, accel.Metrics]:
        scan = accel.scan("t/", "n = 321", store=files, index=url, cache=None, **given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return scan.to_table().num_rows, scan.metrics

    count, metrics = rows()
    assert (count, metrics.catalog.total, metrics.catalog.kept) == (1, 40, 2)
    relay.rate = 1.0
    quick = accel.Options(max_attempts=2, connect_timeout=1.0, read_timeout=1.0)
    count, metrics = rows(options=quick)
    assert (count, metrics.catalog.total, metrics.indexes_ignored, len(metrics.warnings)) == (1, 0, 1, 1)
    with pytest.raises(accel.StoreError):
        rows(options=STRICT, listing="index")
    relay.rate = 0.0
    assert rows()[1].catalog.total == 40


@pytest.mark.parametrize("verb", ["build", "refresh", "scan", "plan"])
@pytest.mark.parametrize("wrong", ["password", "port", "URL"])
def test_the_password_is_in_nothing_that_a_failure_keeps(
    verb: str, wrong: str, cassandra: Cassandra, keyspace: str, files: DictStore
) -> None:
    url = {
        "password": cassandra.url(keyspace, password=f"other-{SECRET}"),
        "port": f"cassandra://u:{SECRET}@127.0.0.1:1/k",
        "URL": f"cassandra://u:{SECRET}@h/k?x={SECRET}",
    }[wrong]
    given: dict[str, Any] = {"store": files, "options": STRICT}
    calls: dict[str, Callable[[], object]] = {
        "build": lambda: accel.build_index("t/", to=url, **given),
        "refresh": lambda: accel.refresh_index(url, **given),
        "scan": lambda: accel.scan("t/", "n = 5", index=url, cache=None, **given).to_table(),
        "plan": lambda: accel.plan("t/", "n = 5", index=url, cache=None, **given),
    }
    error = failure_of(calls[verb])
    assert isinstance(error, accel.AccelError)
    assert [leak for leak in leaks(error) if "keeps.<locals>" not in leak] == []  # that is this file


def test_the_password_is_in_no_result(cassandra: Cassandra, keyspace: str, files: DictStore) -> None:
    url = cassandra.url(keyspace, f"n{secrets.token_hex(4)}")
    report = accel.build_index("t/", to=url, store=files)
    scan = accel.scan("t/", "n = 321", index=url, store=files, cache=accel.Cache())
    plan = accel.plan("t/", "n = 321", index=url, store=files, cache=None)
    shown = [report, scan, scan.explain(), scan.metrics, plan, plan.tasks, plan.explain()]
    assert report.index == f"cassandra://127.0.0.1:{cassandra.port}/{keyspace}#{url.rpartition('#')[2]}/"
    # User and password of a new cluster are one word, which is also the scheme.
    assert ":cassandra@" not in " ".join(f"{one!r} {one}" for one in shown)
    assert b":cassandra@" not in pickle.dumps(plan)


def test_metadata_of_files_is_shared(
    cassandra: Cassandra, keyspace: str, minio: S3Admin, bucket: str
) -> None:
    """What one cache has read of a file, another one finds there: of a process that lives long enough."""
    minio.put(bucket, "a.parquet", write_file(pa.table({"n": list(range(1000))})))
    cache = accel.Cache(shared=cassandra.url(keyspace, timeout=20))
    for hits in (0, 1):
        another = pickle.loads(pickle.dumps(cache))
        scan = accel.scan(
            f"s3://{bucket}/a.parquet", "n = 7", cache=another, storage_options=minio.storage_options()
        )
        assert scan.to_table().num_rows == 1
        assert (scan.metrics.shared_hits, scan.metrics.warnings) == (hits, [])
        deadline = time.monotonic() + 30
        while not hits and not another.shared_tier.written and time.monotonic() < deadline:
            time.sleep(0.01)


def test_over_tls_the_certificate_is_checked(cassandra: Cassandra, keyspace: str, files: DictStore) -> None:
    """Against a server that has signed its certificate itself."""
    name = secrets.token_hex(8)
    url = cassandra.url(keyspace, name, ca=cassandra.authorities)
    assert accel.build_index("t/", to=url, store=files).files == 40
    scan = accel.scan("t/", "n = 7", index=url, store=files, cache=None, options=STRICT)
    assert (scan.to_table()["n"].to_pylist(), scan.metrics.catalog.kept) == ([7], 1)
    unknown = cassandra.url(keyspace, name, tls="true")
    with pytest.raises(accel.StoreError, match="(?i)certificate|cassandra"):
        accel.scan("t/", "n = 7", index=unknown, store=files, cache=None, options=STRICT).to_table()
    with pytest.raises(accel.StoreError, match="authorities in the file of ca="):
        accel.build_index("t/", to=cassandra.url(keyspace, name, ca="/nowhere.pem"), store=files)

"""Redis over TLS, by the authority that the environment names; and Redis Clusters, which are refused."""

from __future__ import annotations

import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

import accel
from accel.cache.shared_stores import open_shared
from accel.testing import DictStore, RecordingStore, write_file
from tests.support.redis_server import RedisServer, find_redis

SECRET = "s3cretSignature"
QUICK = accel.Options(max_attempts=2, backoff_base=0.001, backoff_max=0.002, connect_timeout=5.0)
STRICT = accel.Options(
    max_attempts=2, backoff_base=0.001, backoff_max=0.002, connect_timeout=5.0, strict=True
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def binary() -> str:
    found = find_redis()
    if found is None:
        pytest.skip("needs redis-server on PATH: apt-get update && apt-get install redis-server")
    return found


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The certificate of the authority that vouches for `localhost`, and that of another."""
    folder = tmp_path_factory.mktemp("authorities")
    for name in ("known", "other"):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / f"{name}.pem"))
        if name == "known":
            issued = authority.issue_cert("localhost")
            issued.private_key_pem.write_to_path(str(folder / "key.pem"))
            for at, blob in enumerate(issued.cert_chain_pems):
                blob.write_to_path(str(folder / "certificate.pem"), append=at > 0)
    return folder / "known.pem", folder / "other.pem"


@pytest.fixture(scope="module")
def secure(binary: str, authorities: tuple[Path, Path]) -> Iterator[int]:
    """The port of a server over TLS."""
    folder = authorities[0].parent
    port = free_port()
    settings = {
        "tls-port": str(port),
        "tls-cert-file": str(folder / "certificate.pem"),
        "tls-key-file": str(folder / "key.pem"),
        "tls-ca-cert-file": str(authorities[0]),
        "tls-auth-clients": "no",
    }
    with RedisServer(binary, password=SECRET, settings=settings):
        yield port


@pytest.fixture
def files() -> RecordingStore:
    return RecordingStore(
        DictStore({f"t/{at}.parquet": write_file(pa.table({"n": [at, at + 10]})) for at in range(4)})
    )


def test_an_index_over_tls(
    secure: int, authorities: tuple[Path, Path], files: RecordingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities[0]))
    index = f"rediss://:{SECRET}@localhost:{secure}/0/tls?ttl=600"
    assert accel.build_index("t/", to=index, store=files).files == 4
    files.clear()
    scan = accel.scan("t/", "n = 13", store=files, index=index, listing="index", cache=None)
    assert scan.to_table().to_pylist() == [{"n": 13}]
    assert {call.path for call in files.calls} == {"t/3.parquet"}


async def test_a_shared_cache_over_tls(
    secure: int, authorities: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities[0]))
    store = open_shared(f"rediss://:{SECRET}@localhost:{secure}/0/shared?timeout=5").store
    await store.put_many({b"key": b"entry"})
    assert (await store.get_many([b"key", b"none"])).entries == {b"key": b"entry"}
    await store.close()


@pytest.mark.parametrize(
    ("host", "authority", "message"),
    [
        ("localhost", 1, "certificate"),
        ("127.0.0.1", 0, "certificate"),
        ("localhost", None, "certificate"),
    ],
    ids=["another authority", "another name", "the authorities of the system"],
)
def test_a_certificate_that_nobody_vouches_for(
    secure: int,
    authorities: tuple[Path, Path],
    files: RecordingStore,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    authority: int | None,
    message: str,
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if authority is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(authorities[authority]))
    index = f"rediss://:{SECRET}@{host}:{secure}/0/tls{host}{authority}"
    with pytest.raises(accel.StoreError, match=message) as refused:
        accel.build_index("t/", to=index, store=files, options=QUICK)
    assert SECRET not in f"{refused.value} {refused.value!r}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scan = accel.scan("t/", "n = 13", store=files, index=index, cache=None, options=QUICK)
        assert scan.to_table().to_pylist() == [{"n": 13}]
    assert scan.metrics.indexes_ignored == 1
    with pytest.raises(accel.StoreError, match=message):
        accel.scan("t/", "n = 13", store=files, index=index, cache=None, options=STRICT).to_table()


def test_plain_and_tls_are_not_mixed_up(secure: int, files: RecordingStore) -> None:
    with pytest.raises(accel.StoreError) as refused:
        accel.build_index("t/", to=f"redis://:{SECRET}@localhost:{secure}/0/x", store=files, options=QUICK)
    assert SECRET not in f"{refused.value} {refused.value!r}"


@pytest.mark.parametrize("slots", ["none", "all"])
def test_a_cluster_is_refused(binary: str, tmp_path: Path, files: RecordingStore, slots: str) -> None:
    """One server of it, which has no part of the keys, or all of them."""
    settings = {"cluster-enabled": "yes", "dir": str(tmp_path)}
    with RedisServer(binary, password=SECRET, settings=settings) as server:
        if slots == "all":
            server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            deadline = time.monotonic() + 30
            while b"cluster_state:ok" not in server.ask("CLUSTER", "INFO"):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        index = server.url("cluster", ttl=600)
        with pytest.raises(accel.StoreError, match="part of a Redis Cluster") as refused:
            accel.build_index("t/", to=index, store=files, options=QUICK)
        assert SECRET not in f"{refused.value} {refused.value!r}"
        assert "without cluster mode" in (refused.value.hint or "")


async def test_keys_that_have_moved_tell_of_a_cluster() -> None:
    from redis import exceptions

    from accel.store.redis_connection import OBJECT_SETTINGS, RedisAddress

    address = RedisAddress.parse(f"redis://:{SECRET}@h", settings=OBJECT_SETTINGS)
    for error in (exceptions.MovedError("866 127.0.0.1:7001"), exceptions.AskError("866 127.0.0.1:7001")):

        async def request(error: Exception = error) -> None:
            raise error

        with pytest.raises(accel.StoreError, match="part of a Redis Cluster"):
            await address.call(request())

"""The store that all systems read: a real MinIO behind the slow network, and what passed it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from bench.chains import round_trips
from bench.peers.endpoint import Endpoint
from tests.support.certificate import Certificate, make_certificate
from tests.support.object_cache import DEFAULT_CACHE_BYTES
from tests.support.proxy import ProxyProcess
from tests.support.relay import Passage
from tests.support.s3 import Minio, install_minio

__all__ = ["BANDWIDTH", "BUCKET", "FIRST_BYTE", "Network", "Store", "Traffic", "slow_network", "traffic_of"]

BUCKET = "bench"
FIRST_BYTE = 0.030
"""Seconds from a request to the first byte of its answer."""
BANDWIDTH = 90e6
"""Bytes a second of each response."""
_DRAIN = 2.0


class Store(StrEnum):
    """Who answers reads of objects."""

    MEMORY = "memory"
    """MinIO answers each object once, then its bytes come from the memory of the proxy."""
    MINIO = "minio"
    """MinIO answers every request, through the proxy."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one call sent and got."""

    requests: int
    lists: int
    trips: int
    bytes: int


def traffic_of(passages: Sequence[Passage]) -> Traffic:
    """The counts of the requests that passed."""
    lists = sum("list-type=" in passage.path or passage.path.count("/") < 2 for passage in passages)
    times = [(p.begin, p.end if p.end is not None else p.begin) for p in passages]
    return Traffic(len(passages), lists, round_trips(times), sum(p.sent for p in passages))


class Network:
    """The proxy, and how a system reaches it."""

    def __init__(self, minio: Minio, proxy: ProxyProcess, certificate: Certificate) -> None:
        self._proxy = proxy
        self.endpoint = Endpoint(
            url=proxy.url,
            access_key_id=minio.access_key,
            secret_access_key=minio.secret_key,
            region=minio.storage_options()["region"],
            bucket=BUCKET,
            origin=minio.url,
        )
        self.secure_endpoint = replace(
            self.endpoint, url=proxy.secure_url, authorities=str(certificate.authorities)
        )
        """The same by TLS."""
        self.storage_options = minio.storage_options()
        """obstore's, past the proxy."""

    def put(self, key: str, content: Path | bytes) -> None:
        """Put an object into the bucket, past the slow network, and have the proxy cache it."""
        from obstore.store import S3Store

        store = S3Store(BUCKET, **{**self.storage_options, "allow_http": True})  # type: ignore[arg-type]
        store.put(key, content)
        self.read([key])

    def read(self, keys: Iterable[str]) -> None:
        """Have the proxy cache these objects of the bucket now, so that no sample pays for the first read."""
        self._proxy.read(f"/{BUCKET}/{key}" for key in keys)

    def begin(self, first_byte: float = FIRST_BYTE) -> None:
        """Forget what passed; `first_byte` seconds from now on."""
        self._proxy.reset(first_byte=first_byte)

    @property
    def passages(self) -> Sequence[Passage]:
        """What has passed since `begin`."""
        return self._proxy.passages

    def end(self) -> Traffic:
        """What has passed since `begin`, after all of it has ended: some systems leave reads behind them."""
        deadline = time.monotonic() + _DRAIN
        while True:
            passages = self._proxy.passages
            if all(p.end is not None for p in passages) or time.monotonic() > deadline:
                return traffic_of(passages)
            time.sleep(0.01)


@contextlib.contextmanager
def slow_network(store: Store = Store.MEMORY, *, cache_bytes: int = DEFAULT_CACHE_BYTES) -> Iterator[Network]:
    """Start MinIO and the proxy, with an empty bucket; `cache_bytes` bounds the memory of `Store.MEMORY`."""
    with Minio(install_minio()) as minio, make_certificate() as certificate:
        minio.create_bucket(BUCKET)
        cache_as = minio if store is Store.MEMORY else None
        network = {"first_byte": FIRST_BYTE, "bandwidth": BANDWIDTH}
        with ProxyProcess(
            minio.url, **network, cache_as=cache_as, cache_bytes=cache_bytes, certificate=certificate
        ) as proxy:
            yield Network(minio, proxy, certificate)

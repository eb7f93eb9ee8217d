"""The ways to S3 in turns: obstore's client, aiohttp, and connections of accel's own, plain and by TLS.

The figures of decision 10. Ranges are read through the stores that a scan reads through; a lookup is a scan. A
round asks each way in turn, in an order that changes. CPU is that of this process, the proxy's is not in it.
Medians of the rounds are printed, and the least wall time, which says more on a machine that others use: accel's
own way is one thread, to which a scheduler gives less than to the many of obstore. aiohttp stands at the seam of
accel's own connections (`bench.latency.aiohttp_connections`), so all else is the same for both. A full scan reads
MinIO itself, past the slow network.

`python -m bench.latency.transports [--rounds N]` prints one table.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import enum
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import accel
from accel.options import Options, Transport
from accel.ranges import ByteRange
from accel.testing import write_bench_file
from bench.latency.aiohttp_connections import aiohttp_instead, close_connections
from bench.latency.lookups import COLUMNS, print_rows
from bench.network import BUCKET, Network, slow_network
from bench.peers.endpoint import Endpoint

__all__ = ["main"]

KEY, BLOB = "lookups.parquet", "blob"
_BLOB_BYTES = 64 << 20
_ROWS = 400_000

Ask = Callable[[], Awaitable[None]]


class Way(enum.Enum):
    """A client of HTTP."""

    OBSTORE = "obstore"
    AIOHTTP = "aiohttp"
    OWN = "own"

    @property
    def transport(self) -> Transport:
        """The option that chooses it; aiohttp stands in for accel's own connections."""
        return Transport.OBSTORE if self is Way.OBSTORE else Transport.AUTO


class Asked(enum.Enum):
    """A scan, and what it has to begin with."""

    WARM = "warm"
    COLD = "cold"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of one size, so many of them at a time."""

    count: int
    size: int
    at_once: int

    def __str__(self) -> str:
        size = f"{self.size / 1000:g} KB" if self.size < 1 << 17 else f"{self.size / (1 << 20):g} MiB"
        return f"{self.count:,} of {size}, {self.at_once} at once"


SHAPES = (
    Ranges(5, 46_000, 5),
    Ranges(512, 19_000, 128),
    Ranges(2_000, 19_000, 256),
    Ranges(48, 256 << 10, 16),
    Ranges(48, 1 << 20, 16),
    Ranges(24, 4 << 20, 8),
)


def _ask_ranges(endpoint: Endpoint, way: Way, shape: Ranges) -> Ask:
    import obstore.store

    from accel.store.s3_store import adapt

    options = endpoint.storage_options()
    client: Any = {"allow_http": options.pop("allow_http") == "true"}
    store = adapt(
        obstore.store.S3Store(BUCKET, client_options=client, **options),  # type: ignore[arg-type]
        Options(transport=way.transport),
        # Where the authority is named to accel alone, obstore is left nothing.
        authorities=endpoint.authorities if way is not Way.OBSTORE else "",
    )
    drawn = random.Random(shape.count)

    async def ask() -> None:
        gate = asyncio.Semaphore(shape.at_once)

        async def one(begin: int) -> None:
            async with gate:
                await store.read(BLOB, ByteRange(begin, begin + shape.size))

        async with asyncio.TaskGroup() as group:
            for _ in range(shape.count):
                group.create_task(one(drawn.randrange(_BLOB_BYTES - shape.size)))

    return ask


def _ask_scans(endpoint: Endpoint, way: Way, asked: Asked, at_once: int) -> Ask:
    warm, drawn = accel.Cache(), random.Random(at_once)
    options = Options(transport=way.transport)
    settings = endpoint.storage_options(past_network=asked is Asked.WHOLE)
    if way is not Way.OBSTORE and endpoint.tls:
        settings["ca_bundle"] = endpoint.authorities

    async def ask() -> None:
        scans = [
            accel.scan(
                f"s3://{BUCKET}/{KEY}",
                f"key = {3 * drawn.randrange(_ROWS)}" if asked is not Asked.WHOLE else None,
                columns=COLUMNS if asked is not Asked.WHOLE else None,
                storage_options=settings,
                cache=warm if asked is Asked.WARM else None,
                options=options,
            )
            for _ in range(at_once)
        ]
        await asyncio.gather(*(scan.to_table_async() for scan in scans))

    return ask


async def _measure(ways: Sequence[tuple[Way, Ask]], rounds: int) -> list[tuple[float, float, float]]:
    """CPU, wall time and least wall time in ms of each way, after a round that opens connections."""
    taken: list[list[tuple[float, float]]] = [[] for _ in ways]
    for turn in range(-1, rounds):
        order = list(range(len(ways)))
        for number in order[turn % len(ways) :] + order[: turn % len(ways)]:
            way, ask = ways[number]
            with aiohttp_instead() if way is Way.AIOHTTP else contextlib.nullcontext():
                cpu, wall = time.process_time(), time.perf_counter()
                await ask()
            if turn >= 0:
                took = time.process_time() - cpu, time.perf_counter() - wall
                taken[number].append((1000 * took[0], 1000 * took[1]))
    await close_connections()
    found = []
    for each in taken:
        walls = [wall for _, wall in each]
        found.append((statistics.median(cpu for cpu, _ in each), statistics.median(walls), min(walls)))
    return found


def _rows(network: Network, rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    cases: list[tuple[str, Callable[[Endpoint, Way], Ask]]] = [
        (str(shape), lambda endpoint, way, shape=shape: _ask_ranges(endpoint, way, shape))  # type: ignore[misc]
        for shape in SHAPES
    ]
    cases += [
        ("a warm lookup", lambda endpoint, way: _ask_scans(endpoint, way, Asked.WARM, 1)),
        ("256 lookups at once", lambda endpoint, way: _ask_scans(endpoint, way, Asked.WARM, 256)),
        ("a cold lookup", lambda endpoint, way: _ask_scans(endpoint, way, Asked.COLD, 1)),
        ("a full scan", lambda endpoint, way: _ask_scans(endpoint, way, Asked.WHOLE, 1)),
    ]
    for name, make in cases:
        for endpoint in (network.endpoint, network.secure_endpoint):
            if endpoint.tls and "full" in name:
                continue
            often = rounds * (8 if name.startswith(("a ", "5 ")) else 1)
            ways = [(way, make(endpoint, way)) for way in Way]
            figures = asyncio.run(_measure(ways, max(2, often // (3 if "256 lookups" in name else 1))))
            rows.append(
                {
                    "asked": name,
                    "way": "TLS" if endpoint.tls else "plain",
                    **{
                        f"{figure} ms, obstore / aiohttp / own": " / ".join(
                            f"{value:.1f}" for value in values
                        )
                        for figure, values in zip(
                            ("CPU", "wall", "least wall"), zip(*figures, strict=True), strict=True
                        )
                    },
                }
            )
            print(*rows[-1].values(), sep=" | ", flush=True)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    with slow_network() as network:
        # Before any client looks for authorities.
        network.secure_endpoint.trust()
        network.put(BLOB, os.urandom(_BLOB_BYTES))
        network.put(KEY, write_bench_file(rows=_ROWS))
        print_rows(_rows(network, given.rounds))


if __name__ == "__main__":
    main()

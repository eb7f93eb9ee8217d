"""Real files in MinIO behind the slow network: questions by the catalog, and how long it takes to build."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import accel
from accel.runtime import io_loop
from bench.data import generated
from bench.data.folder import made
from bench.e2e.catalog_peers import INDEX, LAKE, DuckLake
from bench.e2e.figures import Figure, in_new_process, peak_memory
from bench.network import BUCKET, Network, Traffic
from bench.peers.child import Child
from bench.peers.protocol import PeerError, Unsupported
from bench.queries import Query

__all__ = ["building", "keys", "real_files", "texts", "upload_folder"]

_SAMPLES = 3
_AT_ONCE = 16
_WARM = 20
_RARE = "xylophonist"


def upload_folder(network: Network, folder: Path, name: str) -> str:
    """Put the files of a folder into the bucket, past the slow network; the key that ends in a slash."""
    from obstore.store import S3Store

    store = S3Store(BUCKET, **{**network.storage_options, "allow_http": True})  # type: ignore[arg-type]

    async def run() -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def put(path: Path) -> None:
            async with gate:
                await store.put_async(f"{name}/{path.name}", path)

        async with asyncio.TaskGroup() as group:
            for path in sorted(folder.iterdir()):
                group.create_task(put(path))

    asyncio.run(run())
    network.read(f"{name}/{path.name}" for path in sorted(folder.iterdir()))
    return f"{name}/"


def _build(network: Network, folder: str, **given: Any) -> accel.IndexReport:
    return accel.build_index(
        network.endpoint.object_url(folder),
        to=network.endpoint.object_url(f"{INDEX}/{folder}"),
        storage_options=network.storage_options,
        **given,
    )


# -- a: one selective predicate over many files ------------------------------------------------------


def real_files(network: Network, quick: bool) -> list[Figure]:
    """One key of many files, by each system in a new process."""
    count, rows = (200, 5_000) if quick else (2_000, 5_000)
    path = generated.files(count, rows)
    folder = upload_folder(network, path, f"files-{count}")
    data = sum(each.stat().st_size for each in path.iterdir())
    report = _build(network, folder)
    network.put(LAKE, DuckLake().make(network.endpoint, folder))
    query = Query("one", (folder,), ("key", "value"), (("key", "=", 3 * rows * (count // 3) + 300),))
    case, figures, seconds = f"{count:,} files, one by bounds", [], {}
    systems = ["accel with index", "accel", "datafusion", "duckdb", "ducklake", "ducklake, catalog local"]
    for system in systems:
        found = _ask(system, network, query)
        if found is None:
            continue
        first, seconds[system], traffic = found
        trips, requests = traffic.trips, traffic.requests
        mine = system == systems[0]
        figures += [
            Figure(
                case=case, what=f"{system}: first in a process, with imports", value=1e3 * first, unit="ms"
            ),
            Figure(case=case, what=f"{system}: nothing cached", value=1e3 * seconds[system], unit="ms"),
            Figure(case=case, what=f"{system}: trips", value=trips, unit="", target=2 if mine else None),
            Figure(
                case=case, what=f"{system}: requests", value=requests, unit="", target=5 if mine else None
            ),
        ]
    ratio = seconds["accel with index"] / seconds["accel"]
    figures += [
        Figure(case=case, what="time with the index over without", value=ratio, unit="x", target=0.1),
        Figure(case=case, what="index over data", value=100 * report.nbytes / data, unit="%", target=2),
    ]
    return figures


def _ask(system: str, network: Network, query: Query) -> tuple[float, float, Traffic] | None:
    """Seconds of the first query in a process, imports included, and of one with nothing cached, and what
    that one sent; None where the system cannot."""
    command = (sys.executable, "-m", "bench.e2e.catalog_peers", system)
    first: list[float] = []
    later: list[float] = []
    traffic = Traffic(0, 0, 0, 0)
    try:
        for _ in range(_SAMPLES):
            with Child(system, command=command) as child:
                opening = child.open(network.endpoint).seconds
                for seconds in (first, later):
                    network.begin()
                    measured = child.run(query)
                    seconds.append(opening + measured.seconds)
                    opening = 0.0
                    if measured.rows != 1:
                        raise AssertionError(f"{system} found {measured.rows} rows of one")
                    traffic = network.end()
                    child.forget()
    except (PeerError, Unsupported) as error:
        print(f"{system}: {error}", flush=True)
        return None
    return statistics.median(first), statistics.median(later), traffic


# -- b: one key of many in no order ------------------------------------------------------------------


def _keyed_files(files: int, rows: int) -> Path:
    """Files of a 64-bit id that is each number once, in no order, and a payload."""

    def make(folder: Path) -> None:
        folder.mkdir()
        rng = np.random.default_rng(5)
        ids = rng.permutation(files * rows)
        for number in range(files):
            some = ids[number * rows : (number + 1) * rows]
            table = pa.table({"id": some, "payload": rng.standard_normal(rows)})
            # A dictionary of values that are each there once helps nobody.
            path = folder / f"part-{number:05d}.parquet"
            accel.write_table(table, path, page_rows=2_000, use_dictionary=False)

    return made(f"keyed-plain-{files}-{rows}", make)


def keys(network: Network, quick: bool) -> list[Figure]:
    """One key among the keys of many files, with nothing cached, and again with other keys."""
    files, rows = (100, 5_000) if quick else (1_000, 20_000)
    path = _keyed_files(files, rows)
    folder = upload_folder(network, path, f"keyed-{files}")
    data = sum(each.stat().st_size for each in path.iterdir())
    case = f"one of {files * rows:,} keys in {files:,} files"
    made_by = in_new_process(build_keys, network.storage_options, folder)
    found = in_new_process(look_up, network.endpoint.storage_options(), folder, files * rows)
    values = 8 * files * rows / 1e6
    return [
        Figure(case=case, what="building: MB of values a second and core", value=values / made_by["cpu"], unit="MB/s", target=100, least=True),
        Figure(case=case, what="building: peak memory", value=made_by["peak"] / 1e6, unit="MB", target=512),
        Figure(case=case, what="building: seconds", value=made_by["seconds"], unit="s"),
        Figure(case=case, what="index over data", value=100 * made_by["nbytes"] / data, unit="%"),
        *(
            Figure(case=case, what=f"{state}: {what}", value=found[state][what], unit=unit, target=target)
            for state, targets in (
                ("cold", {"trips": 3, "KB": 1000, "ms": 150}),
                ("warm", {"trips": 2, "KB": 150, "ms": None}),
            )
            for (what, target), unit in zip(targets.items(), ("", "KB", "ms"), strict=True)
        ),
    ]  # fmt: skip


def build_keys(options: dict[str, str], folder: str) -> dict[str, float]:
    """Build in this process, without a slow network."""
    return _timed_build(options, folder, {"id": "keys"})


def _timed_build(
    options: dict[str, str], folder: str, indexes: dict[str | tuple[str, ...], str | Sequence[str]]
) -> dict[str, float]:
    begun, used = time.perf_counter(), time.process_time()
    report = accel.build_index(
        f"s3://{BUCKET}/{folder}",
        to=f"s3://{BUCKET}/{INDEX}/{folder}",
        indexes=indexes,
        storage_options=options,
    )
    return {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - used,
        "peak": peak_memory(),
        "nbytes": report.nbytes,
    }


def look_up(options: dict[str, str], folder: str, keys: int) -> dict[str, dict[str, float]]:
    """Look up random keys in this process: each with a new cache, then with one cache for all."""
    rng = np.random.default_rng(9)

    def one(cache: accel.Cache) -> tuple[int, float, float]:
        begun = time.perf_counter()
        scan = accel.scan(
            f"s3://{BUCKET}/{folder}",
            f"id = {int(rng.integers(keys))}",
            index=f"s3://{BUCKET}/{INDEX}/{folder}",
            listing="index",
            storage_options=options,
            cache=cache,
        )
        if scan.to_table().num_rows != 1:
            raise AssertionError("a key was not found")
        metrics = scan.metrics
        return metrics.round_trips, metrics.bytes / 1e3, 1e3 * (time.perf_counter() - begun)

    one(accel.Cache())  # imports and connections
    cache = accel.Cache()
    cold = [one(accel.Cache()) for _ in range(5)]
    one(cache)
    warm = [one(cache) for _ in range(_WARM)]
    return {
        state: dict(zip(("trips", "KB", "ms"), (max(c[0] for c in found), *(statistics.median(c[at] for c in found) for at in (1, 2))), strict=True))
        for state, found in (("cold", cold), ("warm", warm))
    }  # fmt: skip


# -- texts -----------------------------------------------------------------------------------------


def _text_files(files: int, rows: int) -> Path:
    """Files of texts of ten words out of a thousand; one row of one file has a word that no other has."""

    def make(folder: Path) -> None:
        folder.mkdir()
        rng = np.random.default_rng(6)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        words = ["".join(rng.choice(letters, rng.integers(3, 10))) for _ in range(1_000)]
        for number in range(files):
            picked = rng.integers(0, len(words), (rows, 10)).tolist()
            texts = [" ".join(words[word] for word in row) for row in picked]
            if number == files // 3:
                texts[rows // 2] += f" {_RARE} "
            accel.write_table(
                pa.table({"id": np.arange(rows) + number * rows, "text": texts}),
                folder / f"part-{number:05d}.parquet",
                page_rows=500,
                use_dictionary=False,
            )

    return made(f"texts-{files}-{rows}", make)


def texts(network: Network, quick: bool) -> list[Figure]:
    """LIKE '%…%' over many files."""
    files, rows = (100, 1_000) if quick else (1_000, 5_000)
    path = _text_files(files, rows)
    folder = upload_folder(network, path, f"texts-{files}")
    data = sum(each.stat().st_size for each in path.iterdir())
    made_by = in_new_process(build_texts, network.storage_options, folder)
    found = in_new_process(search, network.endpoint.storage_options(), folder)
    case = f"LIKE over {files:,} files, {data / 1e6:,.0f} MB"
    return [
        Figure(case=case, what="building: seconds", value=made_by["seconds"], unit="s"),
        Figure(case=case, what="building: peak memory", value=made_by["peak"] / 1e6, unit="MB"),
        Figure(case=case, what="index over data", value=100 * made_by["nbytes"] / data, unit="%"),
        Figure(case=case, what="cold: trips", value=found["trips"], unit="", target=3),
        Figure(case=case, what="cold: bytes over those of the files", value=found["bytes"] / data, unit="x", target=1 / 50),
        Figure(case=case, what="cold", value=found["ms"], unit="ms"),
    ]  # fmt: skip


def build_texts(options: dict[str, str], folder: str) -> dict[str, float]:
    """Build in this process, without a slow network."""
    return _timed_build(options, folder, {"text": "ngram"})


def search(options: dict[str, str], folder: str) -> dict[str, float]:
    """Search in this process, with a new cache each time: the medians."""

    def one() -> tuple[int, int, float]:
        begun = time.perf_counter()
        scan = accel.scan(
            f"s3://{BUCKET}/{folder}",
            f"text LIKE '%{_RARE}%'",
            index=f"s3://{BUCKET}/{INDEX}/{folder}",
            listing="index",
            storage_options=options,
            cache=accel.Cache(),
        )
        if scan.to_table().num_rows != 1:
            raise AssertionError("the text was not found")
        return scan.metrics.round_trips, scan.metrics.bytes, 1e3 * (time.perf_counter() - begun)

    one()  # imports and connections
    found = [one() for _ in range(5)]
    trips, size, seconds = (statistics.median(column) for column in zip(*found, strict=True))
    return {"trips": trips, "bytes": size, "ms": seconds}


# -- e: building ---------------------------------------------------------------------------------------


def building(network: Network, quick: bool) -> list[Figure]:
    """The index of many small files, behind the slow network, against as many bare requests."""
    count = 200 if quick else 2_000
    path = generated.files(count, 5_000)
    folder = upload_folder(network, path, f"built-{count}")
    names = [f"{folder}{each.name}" for each in sorted(path.iterdir())]
    options = network.endpoint.storage_options()
    bare = in_new_process(read_bare, options, names)
    built = in_new_process(build_all, options, folder)
    case = f"building over {count:,} files"
    return [
        Figure(case=case, what="bare requests for the footers", value=bare, unit="s"),
        Figure(case=case, what="build_index", value=built["seconds"], unit="s", target=3 * bare),
        Figure(case=case, what="requests a file", value=built["requests"] / count, unit=""),
        Figure(case=case, what="peak memory", value=built["peak"] / 1e6, unit="MB", target=512),
    ]


def read_bare(options: dict[str, str], names: Sequence[str]) -> float:
    """Seconds of a request for the last 32 KiB of each object, by accel's own client at its defaults."""
    from accel.metrics import Metrics
    from accel.options import Options
    from accel.store.clients import Connector
    from accel.store.location import parse_url

    connector = Connector(storage_options=options, store=None, options=Options())
    client = connector.client(parse_url(f"s3://{BUCKET}/"))

    async def run() -> float:
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(client.read_tail(name, 32 << 10, metrics=Metrics()))
        return time.perf_counter() - begun

    return io_loop.run(run())


def build_all(options: dict[str, str], folder: str) -> dict[str, float]:
    """Build in this process, which has imported what that takes: so have the bare requests."""
    import pyarrow.parquet  # noqa: F401

    import accel.catalog.building.builder
    import accel.writing.table_writer

    begun = time.perf_counter()
    report = accel.build_index(
        f"s3://{BUCKET}/{folder}", to=f"s3://{BUCKET}/{INDEX}/{folder}", storage_options=options
    )
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "requests": report.requests, "peak": peak_memory()}

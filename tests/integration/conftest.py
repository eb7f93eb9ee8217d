"""The 336,776 flights of 2013 in a public bucket of a real MinIO, and the answer that every way in must
give."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo.flights import read_flights, write_flights
from tests.support.s3 import S3Admin

WHERE = "month = 7 AND carrier = 'AS' AND dep_delay > 0"
COLUMNS = ["time_hour", "flight", "dep_delay", "month"]


@dataclass(frozen=True)
class Flights:
    """Where the data set is: `bucket`/nyc/month=1/flights.parquet and so on."""

    server: S3Admin
    bucket: str
    folder: Path
    size: int
    """Bytes of all files."""

    @property
    def options(self) -> dict[str, str]:
        return self.server.storage_options()


@pytest.fixture(scope="session")
def flights(minio: S3Admin, tmp_path_factory: pytest.TempPathFactory) -> Flights:
    folder = tmp_path_factory.mktemp("nyc")
    size = write_flights(folder)
    bucket = "integration-flights"
    minio.create_bucket(bucket, public=True)
    for path in sorted(folder.rglob("*.parquet")):
        minio.put(bucket, f"nyc/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return Flights(minio, bucket, folder, size)


@pytest.fixture(scope="session")
def answer(flights: Flights) -> pa.Table:
    """WHERE and COLUMNS by pyarrow, from the package's own rows in the order of the files."""
    table = read_flights().sort_by([(name, "ascending") for name in ("month", "carrier", "time_hour")])
    mask = pc.and_(pc.equal(table["month"], 7), pc.equal(table["carrier"], "AS"))
    found = table.filter(pc.and_(mask, pc.fill_null(pc.greater(table["dep_delay"], 0), False)))
    assert 5 <= found.num_rows <= 62
    return found.select(COLUMNS).sort_by("time_hour")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials from outside."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)

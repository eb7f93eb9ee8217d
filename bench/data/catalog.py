"""All data sets of a scale: object keys and the local files behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from obstore.store import S3Store

from bench.data import generated, lineitem
from bench.data.scale import Scale

__all__ = ["Catalog", "make_catalog", "upload"]

_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Catalog:
    """Local path of each object key; a key that ends in "/" names a folder of files."""

    scale: Scale
    files: Mapping[str, Path]
    _columns: dict[tuple[str, str], np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def column(self, key: str, name: str) -> np.ndarray:
        """The values of one column of a single file, in the order of its rows; read once, for all cases that
        ask by it."""
        values = self._columns.get((key, name))
        if values is None:
            values = pq.read_table(self.files[key], columns=[name])[name].to_numpy()
            if values.dtype == np.int64 and len(values) and values.max() < 1 << 31 and values.min() >= 0:
                # At scale 10 there are 60 million of each.
                values = values.astype(np.int32)
            self._columns[key, name] = values
        return values

    def group_starts(self, key: str) -> list[int]:
        """The first row of every row group of a single file, and after the last one the number of rows."""
        metadata = pq.ParquetFile(self.files[key]).metadata
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        return [0, *np.cumsum(rows).tolist()]

    def only(self, keys: Collection[str]) -> Catalog:
        """What has these keys."""
        return replace(self, files={key: path for key, path in self.files.items() if key in keys})

    @property
    def bytes(self) -> int:
        """Bytes of all objects."""
        return sum(path.stat().st_size for _, path in self.objects())

    def objects(self) -> list[tuple[str, Path]]:
        """Every single object and its file."""
        found: list[tuple[str, Path]] = []
        for key, path in self.files.items():
            inner = [path] if path.is_file() else sorted(path.iterdir())
            found += [(key + each.name if path.is_dir() else key, each) for each in inner]
        return found


def make_catalog(scale: Scale) -> Catalog:
    """Make what is not there yet."""
    files: dict[str, Path] = {
        "lineitem/tpchgen.parquet": lineitem.by_tpchgen(scale.lineitem),
        "lineitem/accel.parquet": lineitem.by_accel(scale.lineitem),
        "flights.parquet": generated.flights(),
        "synthetic.parquet": generated.synthetic(scale.synthetic_rows, scale.synthetic_groups),
    }
    if scale.by_spark:
        files["lineitem/spark.parquet"] = lineitem.by_spark(scale.lineitem)
    for columns in scale.wide_columns:
        files[f"wide-{columns}.parquet"] = generated.wide(columns, scale.wide_groups)
    for count in scale.file_counts:
        files[f"files-{count}/"] = generated.files(count, scale.file_rows)
    files["small-groups.parquet"] = generated.small_groups(scale.small_groups, scale.group_rows)
    files["larger-files/"] = generated.files(scale.larger_files, scale.larger_rows)
    return Catalog(scale, files)


def upload(catalog: Catalog, bucket: str, storage_options: Mapping[str, str]) -> None:
    """Put every object into the bucket, past the proxy."""
    store = S3Store(bucket, **{**storage_options, "allow_http": True})  # type: ignore[arg-type]

    async def run() -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def put(key: str, path: Path) -> None:
            async with gate:
                await store.put_async(key, path)

        async with asyncio.TaskGroup() as group:
            for key, path in catalog.objects():
                group.create_task(put(key, path))

    asyncio.run(run())

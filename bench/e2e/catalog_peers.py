"""The systems that hold an index outside the files: accel with its catalog, and DuckLake.

`python -m bench.e2e.catalog_peers <name>` serves one of them, or one of `bench.peers.registry`, as
`bench.peers.worker` does.

DuckLake is PyPI's `duckdb-extension-ducklake`, loaded by path, over the same files
(`ducklake_add_data_files`). Its catalog is a DuckDB database: once read from the object store, as accel's is,
and once a local file, which costs it no request.
"""

from __future__ import annotations

import importlib.resources
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.peers import sql, worker
from bench.peers.accel import Accel
from bench.peers.duckdb import DuckDB
from bench.peers.endpoint import Endpoint
from bench.peers.protocol import Unsupported
from bench.peers.registry import PEERS
from bench.queries import Query

__all__ = ["INDEX", "LAKE", "AccelWithIndex", "DuckLake"]

INDEX = "index"
"""The folder of the bucket below which the catalog of the files of each folder lies, under the folder's own
name."""
LAKE = "lake.ducklake"
"""The object that holds DuckLake's catalog."""


class AccelWithIndex(Accel):
    """accel at its defaults, with a catalog that lists the files too."""

    def _scan(self, query: Query) -> Any:
        (path,) = query.paths
        return self._accel.scan(
            self._endpoint.object_url(path),
            sql.where(query) or None,
            columns=query.columns,
            index=self._endpoint.object_url(f"{INDEX}/{path}"),
            listing="index",
            storage_options=self._options,
            cache=self._cache,
        )


class DuckLake(DuckDB):
    """DuckDB over a DuckLake that has the files of one folder as the table `t`.

    Parameters
    ----------
    local : bool
        Its catalog is a local file.
    """

    def __init__(self, *, local: bool = False) -> None:
        super().__init__()
        self._local = local
        self._copy: Path | None = None

    def open(self, endpoint: Endpoint) -> None:
        if self._local:
            from obstore.store import S3Store

            options = endpoint.storage_options(past_network=True)
            store = S3Store(endpoint.bucket, **{**options, "allow_http": True})  # type: ignore[arg-type]
            self._copy = Path(tempfile.mkdtemp()) / LAKE
            self._copy.write_bytes(bytes(store.get(LAKE).bytes()))
        super().open(endpoint)

    def forget(self) -> None:
        super().forget()
        self._attached = False

    def prepare(self, query: Query) -> None:
        """Nothing is to be known before."""

    def make(self, endpoint: Endpoint, folder: str) -> bytes:
        """Return a catalog that holds the files of a folder of the bucket, made past the slow network."""
        super().open(replace(endpoint, url=endpoint.origin))
        connection = self._connection
        load_ducklake(connection)
        files = sql.literal(endpoint.object_url(f"{folder}*.parquet"))
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / LAKE
            data = sql.literal(endpoint.object_url("lake-data/"))
            connection.execute(f"ATTACH 'ducklake:{path}' AS lake (DATA_PATH {data})")
            connection.execute(f"CREATE TABLE lake.t AS SELECT * FROM read_parquet({files}) LIMIT 0")
            connection.execute(f"CALL ducklake_add_data_files('lake', 't', {files})")
            connection.execute("DETACH lake")
            connection.close()
            return path.read_bytes()

    def _statement(self, query: Query) -> str:
        # Attaching reads the catalog: it belongs to the first query of a process.
        if not self._attached:
            load_ducklake(self._connection)
            place = self._endpoint.object_url(LAKE) if self._copy is None else str(self._copy)
            self._connection.execute(f"ATTACH 'ducklake:{place}' AS lake (READ_ONLY)")
            self._attached = True
        return sql.select(query, "lake.t")


def load_ducklake(connection: Any) -> None:
    """Load the extension into a DuckDB."""
    import duckdb

    try:
        folder = importlib.resources.files("duckdb_extension_ducklake")
    except ModuleNotFoundError:
        raise Unsupported("PyPI's duckdb-extension-ducklake is not installed") from None
    connection.load_extension(
        str(folder / "extensions" / f"v{duckdb.__version__}" / "ducklake.duckdb_extension")
    )


if __name__ == "__main__":
    PEERS["accel with index"] = AccelWithIndex
    PEERS["ducklake"] = DuckLake
    PEERS["ducklake, catalog local"] = lambda: DuckLake(local=True)
    worker.main()

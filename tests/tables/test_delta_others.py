"""Delta tables of other projects: each is read as DuckDB reads it, or as its authors say, or refused by name.

They are test data of delta-kernel-rs (Apache-2.0, see `delta_others/LICENSE`), packed.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import accel
from accel.options import Options
from tests.support.delta_reference import DuckDelta, rows_of

HERE = Path(__file__).parent / "delta_others"
NAMES = sorted(path.name.removesuffix(".tar.zst") for path in HERE.glob("*.tar.zst"))
REFUSED = {
    "app-txn-with-last-updated": "no such file",  # a log without its files, as some of the following are
    "checkpoint": "delta/15: the file is gone: version 14 of",
    "crc-malformed": "neither commits nor checkpoints",
    "data-reader-absolute-paths-escaped-chars": "no metadata up to version 1",
    "delete-re-add-same-file-different-transactions": "no such file",
    "deltalog-commit-info": "no schema",
    "deltalog-invalid-protocol-version": "reader version 99",
    "deltalog-state-reconstruction-from-checkpoint-missing-metadata": "version 10: the log has no metadata",
    "deltalog-state-reconstruction-from-checkpoint-missing-protocol": "version 10: the log has no protocol",
    "deltalog-state-reconstruction-without-metadata": "no metadata up to version 0",
    "deltalog-state-reconstruction-without-protocol": "no protocol up to version 0",
    "hive": "neither commits nor checkpoints",
    "log-replay-special-characters-b": "special p@#h: the file is gone: version 0 of",
    "no-delta-log-folder": "neither commits nor checkpoints",
    "partition_cm": "neither commits nor checkpoints",
    "table-with-geo": "'geospatial'",
    "update-deleted-directory": "no metadata up to version 0",
    "versions-not-contiguous": "lacks version 1",
    "with_checkpoint_no_last_checkpoint": "no such file",
}
BY_ITS_AUTHORS = {
    "data-reader-timestamp_ntz-id-mode",  # DuckDB gives null for the partition column
    "data-reader-timestamp_ntz-name-mode",
    "parquet-all-types-legacy-format",  # DuckDB fails over lists of two levels
}
EMPTY = {
    # Files that are named in one way are removed in another.
    "canonicalized-paths-normal-a",
    "canonicalized-paths-normal-b",
    "canonicalized-paths-special-a",
    "canonicalized-paths-special-b",
}
KNOWN = {
    "unshredded-variant": (102, "id"),  # rows; DuckDB has no such type in Arrow
    "void-column": (3, "void_col"),  # DuckDB knows no such type
}


def unpacked(name: str, to: Path) -> Path:
    """Return the directory of a table, once it is unpacked."""
    with pa.input_stream(str(HERE / f"{name}.tar.zst"), compression="zstd") as stream:
        data = io.BytesIO(stream.read())
    with tarfile.open(fileobj=data) as archive:
        archive.extractall(to, filter="data")
    inner = to / name / "delta"
    return inner if inner.is_dir() else to / name


@pytest.fixture(scope="module")
def duck() -> Iterator[DuckDelta]:
    yield DuckDelta()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_as_others_read_it(name: str, tmp_path: Path, duck: DuckDelta) -> None:
    at = unpacked(name, tmp_path)
    scan = accel.scan(accel.tables.delta(at))
    if name in REFUSED:
        with pytest.raises((accel.TableFormatError, accel.ObjectNotFoundError), match=REFUSED[name]):
            scan.to_table()
        return
    found = scan.to_table()
    assert scan.count_rows() == found.num_rows
    if name in EMPTY:
        assert found.num_rows == 0
    elif name in KNOWN:
        rows, column = KNOWN[name]
        assert found.num_rows == rows
        assert column in found.schema.names or name == "unshredded-variant"
    elif name in BY_ITS_AUTHORS:
        files = sorted((at.parent / "expected").rglob("*.parquet"))
        expected = accel.scan(
            files, table=None, partitioning=None, options=Options(int96_unit="us_utc")
        ).to_table()
        assert rows_of(found) == rows_of(expected)
    else:
        assert rows_of(found) == rows_of(duck.read(str(at)))


def test_nothing_is_listed_that_is_not_there() -> None:
    assert {*REFUSED, *BY_ITS_AUTHORS, *EMPTY, *KNOWN} <= set(NAMES)

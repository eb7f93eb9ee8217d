"""Reads files whose footers are changed, in a process of its own, as `page_worker` does."""

from __future__ import annotations

import faulthandler
import random
import resource
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import accel
from accel.testing import DictStore
from tests.corrupt.page_worker import say
from tests.corrupt.schema_changes import change_footer, with_schema_of
from tests.support import older_pyarrow
from tests.support.arrow import as_text

older_pyarrow.install(skipping=False)

PATH = "dir/changed.parquet"
SECONDS = 30.0
_MEMORY = 8 << 30


def _table() -> pa.Table:
    rows = 30
    numbers = [None if n % 7 == 0 else n for n in range(rows)]
    structs = [None if n % 5 == 0 else {"x": n, "y": {"z": str(n % 3)}} for n in range(rows)]
    lists = [None if n % 6 == 0 else [{"u": n, "v": [n] * (n % 2)}] * (n % 3) for n in range(rows)]
    inner = pa.struct([("u", pa.int32()), ("v", pa.list_(pa.int16()))])
    return pa.Table.from_arrays(
        [
            pa.array(range(rows), pa.int64()),
            pa.array(numbers, pa.int32()),
            pa.array([f"w{n % 4}" for n in range(rows)]),
            pa.array(numbers, pa.int32()).cast(pa.decimal128(12, 2)),
            pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array(structs, pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])),
            pa.array(lists, pa.list_(inner)),
            pa.array([[("k", n)] for n in range(rows)], pa.map_(pa.string(), pa.int32())),
        ],
        names=["n", "i", "w", "d", "t", "s", "l", "m"],
    )


def _files() -> list[bytes]:
    found = []
    for options in (
        {"write_page_index": True, "max_rows_per_page": 10, "write_batch_size": 10, "row_group_size": 20},
        {"store_schema": False, "data_page_version": "2.0", "compression": "none"},
        {"write_statistics": False, "use_dictionary": False, "write_page_checksum": True},
    ):
        sink = pa.BufferOutputStream()
        pq.write_table(_table(), sink, **options)
        found.append(sink.getvalue().to_pybytes())
    return found


def _ways(store: DictStore) -> list[tuple[str, Callable[[], Any]]]:
    def scan(**asked: Any) -> accel.Scan:
        return accel.scan(
            PATH, store=store, cache=accel.Cache(), options=accel.Options(memory_limit=64 << 20), **asked
        )

    return [
        ("full", lambda: scan().to_table()),
        ("schema", lambda: scan().schema),
        ("filter", lambda: scan(where="n > 12 AND w = 'w1'").to_table()),
        ("nested", lambda: scan(where="s.x < 9 OR i IS NULL", columns=["s.y", "l", "n"]).to_table()),
        ("count", lambda: scan(where="d > 3").count_rows()),
        ("aggregate", lambda: scan().aggregate([("n", "max"), ("w", "min"), ("i", "count")])),
        (
            "plan",
            lambda: accel.plan(PATH, store=store, cache=accel.Cache(), where="t IS NOT NULL").to_arrow(),
        ),
        ("explain", lambda: str(scan(where="n = 3").explain())),
        (
            "several",
            lambda: accel.scan([PATH, PATH], store=store, cache=accel.Cache(), where="n >= 5").to_table(),
        ),
    ]


def run(data: bytes, intact: bytes, rng: random.Random, tell: Callable[[str, str, str], None]) -> None:
    """Ask a file with changed footer two things, and tell what came of each."""
    store = DictStore({PATH: data})
    for name, ask in [_ways(store)[0], rng.choice(_ways(store)[1:])]:
        say(reader="accel")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = ask()
        except accel.AccelError as error:
            tell(name, "refused", f"{type(error).__name__}: {error}")
            continue
        except BaseException as error:  # noqa: BLE001 - what comes out is the finding
            lines = traceback.format_exception(error)
            tell(name, "ESCAPED", f"{type(error).__name__}: {error}: {lines[-2][:300]}")
            continue
        if name != "full":
            tell(name, "answered", "")
            continue
        say(reader="pyarrow")
        wanted, why = _reference(data)
        if wanted is None:
            # It may be about what is of no use to read by: the rows are right if they are so by the schema
            # alone.
            others = [_reference(with_schema_of(data, intact))[0], pq.read_table(pa.BufferReader(intact))]
            right = any(other is not None and _values(found) == _values(other) for other in others)
            tell(
                name,
                "only pyarrow refuses" if right else "WRONG ROWS",
                f"{why}; accel {as_text(found)[:800]}",
            )
        elif as_text(found) == as_text(wanted):
            tell(name, "same rows", "")
        else:
            tell(name, "OTHER ROWS", f"pyarrow {as_text(wanted)[:800]}; accel {as_text(found)[:800]}")


def _values(table: pa.Table) -> str:
    """The rows, whatever their columns and fields are called."""
    return repr([_nameless(column.to_pylist()) for column in table.columns])


def _nameless(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_nameless(each) for each in value.values())
    return [_nameless(each) for each in value] if isinstance(value, list) else value


def _reference(data: bytes) -> tuple[pa.Table | None, str]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        return file.read(use_threads=False), ""
    except Exception as error:  # noqa: BLE001 - whatever pyarrow raises on damaged bytes
        return None, str(error)


def main(start: int, stop: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    files = _files()
    for seed in range(start, stop):
        say(seed=seed)
        rng = random.Random(f"schema {seed}")
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        intact = rng.choice(files)
        data = change_footer(intact, rng)
        run(data, intact, rng, lambda name, outcome, words: say(read=name, outcome=outcome, words=words))
        faulthandler.cancel_dump_traceback_later()
    say(done=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

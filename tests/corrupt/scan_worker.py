"""Runs damaged files through accel.scan in a process of its own, so that an abort is a failed test.

Reads pickled cases from the file named by its first argument, writes one line of JSON a case to standard
output: before it ("start") and after it (what came of it). Killed by a watchdog when a case hangs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import accel
import accel.reader.reader
from accel.testing import DictStore
from tests.support import older_pyarrow
from tests.support.arrow import as_text

older_pyarrow.install(skipping=False)

PATH = "dir/damaged.parquet"
SECONDS = 20.0
"""A case that takes longer is a hang."""
WHOLE = accel.Options(memory_limit=64 << 20)
PIECES = accel.Options(tail_hint=8, piece_bytes=1, max_gap_bytes=0, memory_limit=64 << 20)


SELECTION = {0: [(3, 14), (25, 26)], 1: [(0, 1), (19, 30)]}
"""Of the file of `sweep.small_file`: rows in some pages, none in others."""
SELECTED = [*range(3, 14), 25, 30, *range(49, 60)]


def read(data: bytes, mode: str, options: accel.Options) -> tuple[str, Any]:
    """("rows", table) or ("error", what it says) of a scan of these bytes."""
    store = DictStore({PATH: data})
    keywords: dict[str, Any] = {"store": store, "cache": accel.Cache(), "options": options}
    if mode == "selection":
        keywords["selection"] = {PATH: SELECTION}
    elif mode != "full":
        keywords["where"] = mode
    scan = accel.scan(PATH, **keywords)
    try:
        table = scan.to_table()
        check(table)
        return "rows", table
    except accel.AccelError as error:
        if error.path != PATH:
            return "unnamed", f"{type(error).__name__}: {error}"
        return "error", f"{type(error).__name__}: {error}"
    except ValueError as error:
        if "selection goes to row" in str(error):
            # The caller's own rows, which the file no longer has.
            return "error", str(error)
        return "escaped", f"{type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001 - what comes out is the finding
        return "escaped", f"{type(error).__name__}: {error}"


def check(table: pa.Table) -> None:
    """Arrow's own check, that no later use of the table goes out of bounds."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        # Text that is not UTF-8 is handed on as it is, as pyarrow does.
        if "Invalid UTF8" not in str(error):
            raise


def reference(data: bytes) -> pa.Table | None:
    """What pyarrow reads, page checksums verified; None where it cannot."""
    try:
        return pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
    except Exception:  # noqa: BLE001 - whatever pyarrow raises on damaged bytes
        return None


def judge(data: bytes, intact: pa.Table, mode: str, options: accel.Options) -> dict[str, str]:
    """What came of a case. Scans with a predicate are held against nothing: statistics are trusted."""
    kind, found = read(data, mode, options)
    if kind != "rows":
        return {"outcome": kind, "told": found}
    if mode not in ("full", "selection"):
        return {"outcome": "rows", "told": str(found.num_rows)}
    text = as_text(found)
    if text == as_text(_chosen(intact, mode)):
        return {"outcome": "intact", "told": ""}
    wanted = reference(data)
    if wanted is None:
        return {"outcome": "WRONG", "told": f"pyarrow refuses it; here {text[:300]}"}
    wanted_text = as_text(_chosen(wanted, mode))
    if wanted_text == text:
        return {"outcome": "as pyarrow", "told": ""}
    return {"outcome": "WRONG", "told": f"pyarrow {wanted_text[:300]}; here {text[:300]}"}


def _chosen(table: pa.Table, mode: str) -> pa.Table:
    if mode == "full":
        return table
    return pa.concat_tables([table.slice(row, 1) for row in SELECTED if row < table.num_rows])


def _peak_kib() -> int:
    """The most that this process held; `ru_maxrss` begins with what its parent does, which may have run all
    other tests."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def main(path: str) -> None:
    # However small these files are, their page indexes are to be met. Here, as it is for the whole process.
    accel.reader.reader.WHOLE_BYTES = 0
    intact, cases = pickle.loads(Path(path).read_bytes())
    out = sys.stdout
    full = pq.read_table(pa.BufferReader(intact))
    for number, (name, data, mode, pieces) in enumerate(cases):
        out.write(json.dumps({"case": number, "name": name, "start": True}) + "\n")
        out.flush()
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        begun = time.monotonic()
        verdict: dict[str, Any] = dict(judge(data, full, mode, PIECES if pieces else WHOLE))
        verdict |= {"case": number, "name": name, "seconds": time.monotonic() - begun}
        faulthandler.cancel_dump_traceback_later()
        out.write(json.dumps(verdict) + "\n")
    out.write(json.dumps({"done": len(cases), "peak_kib": _peak_kib()}) + "\n")
    out.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(sys.argv[1])

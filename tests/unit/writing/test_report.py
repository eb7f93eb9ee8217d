"""Indexes that come to rule nothing out say so, and what to take instead."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import accel
from accel.cli.main import main
from accel.writing import EmbedReport, embed_async

ROWS, GROUP = 12_000, 6_000
TOO_MANY = "it lists no values, as there are too many; take bitmap instead"
OPAQUE = "some value of every unit is no text that can be searched in; take bitmap or bloom instead"
UNBOUNDED = "no unit's values have bounds; take distinct, bitmap or bloom instead"


def table() -> pa.Table:
    columns = {
        "different": pa.array([f"v{row:06d}" for row in range(ROWS)]),
        "few": pa.array([f"v{row % 9}" for row in range(ROWS)]),
        "half": pa.array([f"v{row if row < GROUP else row % 9}" for row in range(ROWS)]),
        "long": pa.array([f"{row % 20:0200000d}" if row % 1000 < 20 else None for row in range(ROWS)]),
        "none": pa.nulls(ROWS, pa.string()),
        "bytes": pa.array([b"\xff\xfe" + str(row).encode() for row in range(ROWS)]),
        # Assigned after the Unicode of the oldest Python: how it folds is not settled.
        "unsettled": pa.array(["\U0001e4d0" + str(row) for row in range(ROWS)]),
    }
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("idle") / "plain.parquet"
    accel.write_table(table(), path, row_group_size=GROUP, page_rows=1000)
    return path


CASES: dict[str, tuple[str, Any, int, str | None]] = {
    "too many values": ("different", "distinct", 2, TOO_MANY),
    "too many in a row group": ("half", "distinct", 1, TOO_MANY),
    "too many in a file": ("half", ("distinct", "file"), 1, TOO_MANY),
    "too many by row group": ("different", ("distinct", "row group"), 2, TOO_MANY),
    "too long values": ("long", "distinct", 2, TOO_MANY),
    "too few are allowed": ("few", accel.indexes.Distinct(max_values=8), 2, TOO_MANY),
    "few values": ("few", "distinct", 0, None),
    "no value": ("none", "distinct", 0, None),
    "no text": ("bytes", "ngram", 2, OPAQUE),
    "unsettled text": ("unsettled", "ngram", 2, OPAQUE),
    "text": ("different", "ngram", 0, None),
    "no text at all": ("none", "ngram", 0, None),
    "unsettled text, folded": ("unsettled", accel.indexes.Zonemap(of="lower"), 2, UNBOUNDED),
    "unsettled text, folded and as it is": ("lower(unsettled), unsettled", "zonemap", 0, None),
    "a zone map of no value": ("none", "zonemap", 0, None),
    "a bitmap": ("different", "bitmap", 0, None),
    "a bloom index": ("different", "bloom", 0, None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dry_run", [False, True], ids=["written", "a dry run"])
def test_the_report_says_what_rules_nothing_out(file: Path, tmp_path: Path, case: str, dry_run: bool) -> None:
    column, kind, idle, shortcoming = CASES[case]
    target = tmp_path / "f.parquet"

    def run() -> EmbedReport:
        return accel.embed(file, target, indexes={column: kind}, dry_run=dry_run)

    if idle:
        with pytest.warns(UserWarning, match="rules nothing out") as warned:
            report = run()
        assert tuple(str(each.message) for each in warned) == report.warnings
    else:
        report = run()
    (index,) = report.indexes
    assert (index.idle, index.shortcoming) == (idle, shortcoming)
    where = "" if index.count == 1 else f" in {idle} of 2 row groups"
    expected = f"{target}: the {index.kind} index of {column} rules nothing out{where}: {shortcoming}"
    assert report.warnings == ((expected,) if idle else ())


@pytest.mark.parametrize("case", CASES)
def test_inspect_says_so_too(
    file: Path, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str], recwarn: Any
) -> None:
    column, kind, idle, shortcoming = CASES[case]
    target = tmp_path / "f.parquet"
    accel.embed(file, target, indexes={column: kind})
    assert main(["inspect", str(target), "--json"]) == 0
    (index,) = json.loads(capsys.readouterr().out)["embedded"]
    assert (index["idle"], index["shortcoming"]) == (idle, shortcoming)
    assert main(["inspect", str(target)]) == 0
    assert ("rules nothing out" in capsys.readouterr().out) == bool(idle)


def test_the_command_says_so_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", str(file), "--index", "different=distinct", "--dry-run"]) == 0
    printed = capsys.readouterr().err
    where = "rules nothing out in 2 of 2 row groups"
    assert printed == f"accel: warning: {file}: the distinct index of different {where}: {TOO_MANY}\n"


def test_every_way_to_write_one_warns(tmp_path: Path, file: Path) -> None:
    indexes = {"different": "distinct"}
    with pytest.warns(UserWarning, match="take bitmap instead"):
        accel.write_table(table().select(["different"]), tmp_path / "a.parquet", indexes=indexes)
    with pytest.warns(UserWarning, match="take bitmap instead"):
        asyncio.run(embed_async(file, tmp_path / "b.parquet", indexes=indexes))

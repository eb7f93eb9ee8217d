"""Which objects of a Delta log make up a version."""

from __future__ import annotations

import pytest

import accel
from accel.store.range_store import ObjectEntry
from accel.tables.formats.delta.log_files import LogListing


def listing(*names: str, preferred: str | None = None) -> LogListing:
    entries = [ObjectEntry(f"t/_delta_log/{name}", 10, '"e"') for name in sorted(names)]
    return LogListing.of(entries, "t/_delta_log", preferred=preferred)


def commit(version: int) -> str:
    return f"{version:020d}.json"


def parts(
    found: LogListing, version: int | None = None, known: int | None = None
) -> tuple[list[str], list[str]]:
    segment = found.segment(version, known=known)
    checkpoint = [] if segment.checkpoint is None else [e.path for e in segment.checkpoint.parts]
    return (
        [path.removeprefix("t/_delta_log/").lstrip("0") for path in checkpoint],
        [one.entry.path.removeprefix("t/_delta_log/").lstrip("0") for one in segment.commits],
    )


def test_the_last_checkpoint_and_the_commits_after_it() -> None:
    found = listing(
        *map(commit, range(1, 16)),
        f"{10:020d}.checkpoint.parquet",
        f"{5:020d}.checkpoint.parquet",
        "_last_checkpoint",
    )
    assert parts(found) == (["10.checkpoint.parquet"], [f"{v}.json" for v in range(11, 16)])
    assert parts(found, 10) == (["10.checkpoint.parquet"], [])
    assert parts(found, 8) == (["5.checkpoint.parquet"], ["6.json", "7.json", "8.json"])
    assert parts(found, known=13) == ([], ["14.json", "15.json"])


def test_a_checkpoint_that_lacks_a_part_does_not_count() -> None:
    several = [f"{3:020d}.checkpoint.{at:010d}.0000000003.parquet" for at in (1, 2, 3)]
    commits = [commit(v) for v in range(5)]
    assert parts(listing(*commits, *several)) == (
        [f"3.checkpoint.{at:010d}.0000000003.parquet" for at in (1, 2, 3)],
        ["4.json"],
    )
    assert parts(listing(*commits, *several[:2]))[0] == []


def test_compacted_commits_stand_for_several() -> None:
    commits = [commit(v) for v in range(10)]
    found = listing(*commits, f"{1:020d}.{4:020d}.compacted.json", f"{1:020d}.{8:020d}.compacted.json")
    assert [one.first for one in found.segment().commits] == [0, 1, 9]
    assert [one.first for one in found.segment(6).commits] == [0, 1, 5, 6]
    single = found.segment().single
    assert single is not None
    assert [one.first for one in single] == list(range(10))
    assert found.segment(0).single is None


@pytest.mark.parametrize(
    ("names", "version", "message"),
    [
        ([commit(0), commit(2)], None, "lacks version 1"),
        ([commit(3), commit(4)], None, "lacks version 0"),
        ([f"{3:020d}.checkpoint.parquet", commit(5)], None, "lacks version 4"),
        ([commit(0), commit(1)], 7, "no version 7: the newest one is 1"),
        ([f"{3:020d}.checkpoint.parquet"], 2, "lacks version 0"),
        (
            [commit(0), f"_staged_commits/{1:020d}.{'a' * 8}-aaaa-aaaa-aaaa-{'a' * 12}.json"],
            None,
            "version 1 is staged",
        ),
        (["_last_checkpoint"], None, "neither commits nor checkpoints"),
    ],
)
def test_what_is_missing_is_said(names: list[str], version: int | None, message: str) -> None:
    with pytest.raises(accel.TableFormatError, match=message):
        listing(*names).segment(version)


def test_the_checkpoint_that_is_named_is_preferred() -> None:
    names = [
        f"{4:020d}.checkpoint.{one * 8}-0000-0000-0000-000000000000.{form}"
        for one, form in (("a", "json"), ("b", "parquet"))
    ]
    for name in names:
        found = listing(*names, preferred=name).segment().checkpoint
        assert found is not None
        assert found.parts[0].path.endswith(name)

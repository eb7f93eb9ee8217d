"""What names in any case cost: not a request and not a byte more than the same files spelled alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import accel
from accel.testing import DictStore, Layout, RecordingStore, table, write_file

FILES, ROWS = 30, 3000
LAYOUT = Layout(page_rows=500, group_rows=1500, dictionary=False)
SPELLINGS = (("k", "noise", "S", "deep"), ("K", "Noise", "s", "Deep"), ("k", "NOISE", "S", "dEEp"))


def file(number: int, spelling: tuple[str, ...]) -> bytes:
    key, noise, struct, field = spelling
    first = 10_000 * number
    values = pa.array(np.random.default_rng(number).standard_normal(ROWS))
    inner = pa.StructArray.from_arrays([pa.array(np.arange(first, first + ROWS))], [field])
    data = {key: pa.array(np.arange(first, first + ROWS)), noise: values, struct: inner}
    return write_file(table(**data), LAYOUT)


def directory(spellings: tuple[tuple[str, ...], ...]) -> dict[str, bytes]:
    return {f"d/{n:02}.parquet": file(n, spellings[n % len(spellings)]) for n in range(FILES)}


@pytest.fixture(scope="module")
def mixed() -> dict[str, bytes]:
    return directory(SPELLINGS)


@pytest.fixture(scope="module")
def alike() -> dict[str, bytes]:
    return directory(SPELLINGS[:1])


def sent(
    objects: dict[str, bytes], ask: Any, source: Any = "d/", **keywords: Any
) -> tuple[Any, list[str], int]:
    """What comes out, the requests by wave, and how many depend on one another."""
    store = RecordingStore(DictStore(objects))
    found = ask(partial_scan(store, source, keywords))
    calls = sorted(f"{call.wave} {call.path} {call.want} {call.received}" for call in store.calls)
    return found, calls, store.depth


def partial_scan(store: RecordingStore, source: Any, keywords: dict[str, Any]) -> Any:
    options = accel.Options(tail_hint=4096)

    def scan(where: str | None = None, **more: Any) -> accel.Scan:
        return accel.scan(source, where, store=store, cache=None, options=options, **keywords, **more)

    return scan


def values(found: pa.Table) -> list[Any]:
    return [column.to_pylist() for column in found]


@pytest.mark.parametrize("source", ["d/", "d/07.parquet", ["d/07.parquet", "d/08.parquet"]])
@pytest.mark.parametrize("where", ["k = 70100", "S.deep = 70100", "noise > 3.5", None])
def test_a_cold_scan(
    mixed: dict[str, bytes], alike: dict[str, bytes], source: Any, where: str | None
) -> None:
    expected = sent(alike, lambda scan: values(scan(where, columns=["k"]).to_table()), source)
    question = None if where is None else where.swapcase()
    found = sent(
        mixed,
        lambda scan: values(scan(question, columns=["K"]).to_table()),
        source,
        case_sensitive=False,
    )
    assert found == expected
    assert expected[2] == (3 if source == "d/" else 2)
    # Nor where all is spelled alike.
    assert sent(
        alike, lambda scan: values(scan(where, columns=["k"]).to_table()), source, case_sensitive=False
    ) == (expected)


@pytest.mark.parametrize(
    "ask",
    [
        lambda scan: scan("k > 250000").count_rows(),
        lambda scan: scan().aggregate([("k", "max"), ("noise", "count")]).to_pylist(),
        lambda scan: values(scan(order_by="k DESC", limit=3, columns=["noise"]).to_table()),
        lambda scan: scan("k < 20").distinct("k").to_pylist(),
        lambda scan: values(scan("k = 10", schema="union", columns=["k"]).to_table()),
    ],
)
def test_other_questions(mixed: dict[str, bytes], alike: dict[str, bytes], ask: Any) -> None:
    assert sent(mixed, ask, case_sensitive=False) == sent(alike, ask)


def test_a_warm_lookup(mixed: dict[str, bytes]) -> None:
    store, cache = RecordingStore(DictStore(mixed)), accel.Cache()
    for where in ("K = 70100", "k = 70200", "k = 70100"):
        store.clear()
        found = accel.scan("d/", where, columns=["s.DEEP"], store=store, cache=cache, case_sensitive=False)
        assert found.to_table().to_pylist() == [{"S": {"deep": int(where[4:])}}]
    # The listing alone: pages are cached by place, whatever they are called.
    assert store.requests == 1


def test_an_index_rules_out_the_files_that_are_spelled_as_the_first(mixed: dict[str, bytes]) -> None:
    store = DictStore(mixed)
    accel.build_index("d/", store=store)
    recording = RecordingStore(store)

    def footers(where: str) -> set[str]:
        recording.clear()
        scan = accel.scan("d/", where, columns=["k"], store=recording, cache=None, case_sensitive=False)
        assert len(scan.to_table()) == 1
        return {call.path for call in recording.calls if call.path.endswith(".parquet")}

    # Those that spell `k` so: the index has the footers of the others, which say the rest.
    assert footers("K = 90100") == {"d/09.parquet"}
    assert footers("k = 100100") == {"d/10.parquet"}


@pytest.mark.parametrize("kind", ["distinct", "bitmap"])
def test_embedded_indexes_serve_every_spelling(kind: str, tmp_path: Path) -> None:
    layout = Layout(page_rows=500, group_rows=1500, statistics=False, page_index=False, dictionary=False)
    objects = {}
    for spelling in ("name", "NAME"):
        source, target = tmp_path / f"{spelling}.source", tmp_path / f"{spelling}.parquet"
        source.write_bytes(write_file(table(**{spelling: [f"n{n % 40}" for n in range(ROWS)]}), layout))
        accel.embed(str(source), str(target), indexes={spelling: kind})
        objects[f"d/{spelling}.parquet"] = target.read_bytes()

    def data_read(path: list[str], where: str) -> tuple[int, int]:
        scan = accel.scan(path, where, store=DictStore(objects), cache=None, case_sensitive=False)
        rows = scan.to_table().num_rows
        return rows, scan.metrics.row_groups.kept

    for names in (["d/name.parquet", "d/NAME.parquet"], ["d/NAME.parquet", "d/name.parquet"]):
        assert data_read(names, "Name = 'absent'") == (0, 0)
        assert data_read(names, "Name = 'n7'") == (2 * ROWS // 40, 4)

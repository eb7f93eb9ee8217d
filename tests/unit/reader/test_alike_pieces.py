"""Small pieces of many files that are alike are decoded together, and each file has its own rows."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode import stack
from accel.decode.stack import Layer
from accel.errors import ParquetFormatError
from accel.reader import alike_pieces
from accel.reader.alike_pieces import AlikePieces
from accel.reader.reader import MANY_FILES
from accel.testing import DictStore

FILES, ROWS = 24, 30


def table(files: int = FILES) -> pa.Table:
    rows = range(files * ROWS)
    texts = pa.array([None if row % 7 == 0 else f"text {row % 6}" for row in rows])
    return pa.table({"key": pa.array(rows, pa.int64()), "text": texts})


def written(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **{"compression": "zstd", "use_dictionary": ["text"], **options})
    return sink.getvalue()


def files(count: int = FILES) -> dict[str, bytes]:
    return {f"{at:03}": written(table(count).slice(at * ROWS, ROWS)) for at in range(count)}


def ask(data: dict[str, bytes], where: Any = None, **more: Any) -> accel.Scan:
    more = {"store": DictStore(data), "cache": None, **more}
    return accel.scan(list(data), where, **more)


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        (None, range(FILES * ROWS)),
        ("key >= 100 AND key < 500", range(100, 500)),
        ("text = 'text 5' AND key >= 0", [row for row in range(5, FILES * ROWS, 6) if row % 7]),
        ("text = 'text 9'", []),
    ],
    ids=["all", "a range", "some of each", "none"],
)
@pytest.mark.parametrize("batch_rows", [131_072, 7])
def test_each_file_has_its_rows(
    where: str | None, keys: Sequence[int], batch_rows: int, counted: list[tuple[int, bool]]
) -> None:
    scan = ask(files(), where, options=accel.Options(batch_rows=batch_rows))
    batches = list(scan)
    rows = table().take(pa.array(keys, pa.int64()))
    assert pa.Table.from_batches(batches, rows.schema).equals(rows)
    assert max((batch.num_rows for batch in batches), default=0) <= min(batch_rows, ROWS)
    assert counted or not keys
    assert all(together for _, together in counted)
    assert scan.metrics.rows_out == len(keys)


def test_no_column_is_asked_for(counted: list[tuple[int, bool]]) -> None:
    batches = list(ask(files(), "text = 'text 5'", columns=[]))
    assert sum(batch.num_rows for batch in batches) == sum(row % 7 > 0 for row in range(5, FILES * ROWS, 6))
    assert counted


@pytest.mark.parametrize("where", [None, "text <> 'text 9'"])
def test_what_is_wrong_names_its_file(where: str | None, counted: list[tuple[int, bool]]) -> None:
    data = files()
    start = pq.read_metadata(io.BytesIO(data["007"])).row_group(0).column(1).dictionary_page_offset
    broken = bytearray(data["007"])
    broken[start] ^= 0xFF
    data["007"] = bytes(broken)
    with pytest.raises(ParquetFormatError, match="row group 0, column text") as caught:
        ask(data, where).to_table()
    assert caught.value.path == "007"
    assert (FILES, True) not in counted


def test_files_of_other_schemas_are_others(counted: list[tuple[int, bool]]) -> None:
    data = files()
    for at in range(0, FILES, 2):
        wider = table().slice(at * ROWS, ROWS).append_column("more", pa.array([at] * ROWS, pa.int8()))
        data[f"{at:03}"] = written(wider)
    found = ask(data, schema="union").to_table()
    assert found.drop(["more"]).equals(table())
    assert found["more"].drop_null().to_pylist() == [at for at in range(0, FILES, 2) for _ in range(ROWS)]
    assert max(many for many, _ in counted) <= FILES // 2


def test_partitions_are_apart() -> None:
    data = {f"d/p={at % 3}/{name}": data for at, (name, data) in enumerate(files().items())}
    found = accel.scan("d/", "p = 1", store=DictStore(data), cache=None).to_table()
    assert found["p"].unique().to_pylist() == [1]
    keys = [row for row in range(FILES * ROWS) if row // ROWS % 3 == 1]
    assert sorted(found["key"].to_pylist()) == keys


def test_few_files_are_decoded_by_themselves(counted: list[tuple[int, bool]]) -> None:
    assert ask(files(MANY_FILES - 1)).to_table().equals(table(MANY_FILES - 1))
    assert counted == []


def test_their_results_are_cached() -> None:
    cache, store = accel.Cache(), DictStore(files())
    recalled = []
    for _ in range(3):
        scan = ask({name: b"" for name in files()}, "text = 'text 5'", store=store, cache=cache)
        rows = scan.to_table().num_rows
        recalled.append(scan.metrics.rows_recalled)
    assert recalled == [0, 0, rows]


class Decoder:
    """Stands for the decoder: the batches of a piece are its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
        monkeypatch.setattr(stack, "stack_kind", lambda task, piece: "kind")
        self.calls: list[int] = []
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self._fails = fails
        self.pieces = AlikePieces(self._decode)
        self._file = SimpleNamespace(
            schema=0, arrow_schema=0, query=0, created_by="", int96_unit="ns", key_value={}
        )

    async def _decode(self, layers: Sequence[Layer]) -> Any:
        self.calls.append(len(layers))
        self.begun.set()
        await self.may_end.wait()
        return None if self._fails else [[layer.piece.name] for layer in layers]

    def start(self, name: int, *, held: int = 1) -> asyncio.Task[Any]:
        task = SimpleNamespace(file=self._file)
        read = SimpleNamespace(piece=SimpleNamespace(held_bytes=held, name=name), leaves={})
        return asyncio.create_task(self.pieces.decode(task, read, None))  # type: ignore[arg-type]


def test_each_piece_has_its_own_result(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        decoder = Decoder(monkeypatch)
        decoder.may_end.set()
        found = await asyncio.gather(*(decoder.start(name) for name in range(6)))
        assert found == [[name] for name in range(6)]
        assert decoder.calls == [6]
        few = await asyncio.gather(*(decoder.start(name) for name in range(alike_pieces.LEAST - 1)))
        assert few == [None] * (alike_pieces.LEAST - 1)
        assert decoder.calls == [6]

    asyncio.run(run())


def test_a_group_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its pieces, or by what they hold."""

    async def run() -> None:
        decoder = Decoder(monkeypatch)
        decoder.may_end.set()
        many = alike_pieces.MOST + 5
        assert await asyncio.gather(*(decoder.start(name) for name in range(many))) == [
            [name] for name in range(many)
        ]
        assert sum(decoder.calls) == many
        found = await asyncio.gather(*(decoder.start(name, held=2 << 20) for name in range(2)))
        assert found in ([None, None], [[0], [1]])

    asyncio.run(run())


@pytest.mark.parametrize("moment", ["waiting", "decoding"])
def test_the_others_are_decoded_by_themselves_if_the_first_is_cancelled(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        decoder = Decoder(monkeypatch)
        first, *others = [decoder.start(name) for name in range(6)]
        if moment == "decoding":
            await decoder.begun.wait()
        else:
            await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.gather(*others) == [None] * 5
        with pytest.raises(asyncio.CancelledError):
            await first
        # Nothing is left behind: those that come next are a group of their own.
        decoder.may_end.set()
        assert await asyncio.gather(*(decoder.start(name) for name in range(4))) == [[0], [1], [2], [3]]

    asyncio.run(run())


def test_one_that_is_cancelled_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        decoder = Decoder(monkeypatch)
        begun = [decoder.start(name) for name in range(6)]
        await decoder.begun.wait()
        begun[3].cancel()
        decoder.may_end.set()
        found = await asyncio.gather(*begun, return_exceptions=True)
        assert isinstance(found.pop(3), asyncio.CancelledError)
        assert found == [[0], [1], [2], [4], [5]]

    asyncio.run(run())


def test_what_cannot_be_decoded_together_is_left_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        decoder = Decoder(monkeypatch, fails=True)
        decoder.may_end.set()
        assert await asyncio.gather(*(decoder.start(name) for name in range(5))) == [None] * 5
        assert decoder.calls == [5]

    asyncio.run(run())

"""Small row groups decoded together give the rows that each gives by itself."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import accel
from accel.decode import stack
from accel.decode.chunks import ChunkPages
from accel.decode.piece import decode_piece
from accel.decode.stack import (
    Layer,
    NotStackable,
    StackedPages,
    StackKind,
    decode_stack,
    stack_kind,
    verify_stack,
)
from accel.decode.verify import verify_chunk
from accel.errors import ParquetFormatError
from accel.format.model import Codec, Encoding, PageType
from accel.format.page_header import walk_pages
from accel.format.thrift import I32, STRUCT, write_struct
from accel.planning.pages import LeafReads
from accel.testing import DictStore, Layout, write_file
from tests.unit.decode.selected import open_metadata

GROUPS, ROWS = 12, 40
LIMIT = 1 << 30


def table() -> pa.Table:
    rows = range(GROUPS * ROWS)
    return pa.table(
        {
            "key": pa.array(rows, pa.int64()),
            "number": pa.array([None if row % 11 == 0 else row % 17 for row in rows], pa.int32()),
            "text": pa.array([None if row % 5 == 0 else f"text {row % 9}" for row in rows]),
            "late": pa.array([f"{row:07d}" * 2 for row in rows]),
            "kind": pa.array([f"kind {row % 3}" for row in rows]).dictionary_encode(),
            "list": pa.array([[row] * (row % 3) for row in rows]),
            "pair": pa.array([{"a": row, "b": str(row)} for row in rows]),
        }
    )


def written(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(), sink, **{"row_group_size": ROWS, "compression": "zstd"} | options)
    return sink.getvalue()


class Met:
    """The layers that a scan decodes together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stacks: list[list[Layer]] = []
        self.found: list[list[pa.RecordBatch] | None] = []
        monkeypatch.setattr(stack, "decode_stack", self._decode)

    def _decode(self, layers: list[Layer], **settings: Any) -> list[pa.RecordBatch] | None:
        self.stacks.append(layers)
        self.found.append(decode_stack(layers, **settings))
        return self.found[-1]


def ask(data: bytes, where: Any = None, *, columns: list[str] | None = None) -> pa.Table:
    return accel.scan("f", where, columns=columns, store=DictStore({"f": data}), cache=None).to_table()


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> Met:
    return Met(monkeypatch)


FLAT = ["key", "number", "text", "late"]
WHERE = {
    "all rows": None,
    "a range": "key >= 85 AND key < 370",
    "a condition": "number = 3",
    "nulls": "text IS NULL AND number > 4",
    "in few of them": "text = 'text 8' AND number = 2 AND key < 200",
    "none": "text = 'text 5' AND number = 4 AND key < 290",
}


@pytest.mark.parametrize("where", WHERE.values(), ids=WHERE)
@pytest.mark.parametrize("columns", [FLAT, ["late"], ["number", "key"]], ids=["all", "late", "two"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_together_as_one_by_one(where: str | None, columns: list[str], version: str, met: Met) -> None:
    data = written(data_page_version=version)
    found = ask(data, where, columns=columns)
    expected = table() if where is None else table().filter(pq_filter(where))
    assert found.equals(expected.select(columns))
    assert met.stacks
    for layers, batches in zip(met.stacks, met.found, strict=True):
        alone = [
            batch
            for one in layers
            for batch in decode_piece(one.task, one.piece, one.leaves, batch_rows=1000, memory_limit=LIMIT)
        ]
        assert batches is not None
        assert len(batches) == (1 if alone else 0)
        assert pa.Table.from_batches(batches, found.schema).equals(pa.Table.from_batches(alone, found.schema))


def test_more_chunks_than_are_walked_at_once(met: Met) -> None:
    """Columns of several types, some of which have dictionary pages, statistics or levels."""
    wide = pa.table(
        {f"{name} {copy}": column for copy in range(12) for name, column in zip(FLAT, table().select(FLAT))}
    )
    sink = io.BytesIO()
    pq.write_table(wide, sink, row_group_size=10, use_dictionary=["text 1", "number 3"], data_page_size=64)
    assert ask(sink.getvalue()).equals(wide)
    assert max(len(layers) for layers in met.stacks) * wide.num_columns > 2048
    assert None not in met.found


def pq_filter(where: str) -> pa.Array:
    """By Python, row by row."""
    conditions: dict[str, Any] = {
        WHERE["a range"]: lambda row: 85 <= row["key"] < 370,
        WHERE["a condition"]: lambda row: row["number"] == 3,
        WHERE["nulls"]: lambda row: row["text"] is None and (row["number"] or 0) > 4,
        WHERE["in few of them"]: lambda row: (
            row["text"] == "text 8" and row["number"] == 2 and row["key"] < 200
        ),
        WHERE["none"]: lambda row: False,
    }
    return pa.array([conditions[where](row) for row in table().select(FLAT).to_pylist()])


def test_of_the_other_columns_only_row_groups_are_decoded_in_which_rows_match(
    met: Met, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    verify = stack.verify_stack

    def counted(chunks: Any, leaf: Any, **facts: Any) -> Any:
        asked.append((leaf.ordinal, len(chunks)))
        return verify(chunks, leaf, **facts)

    monkeypatch.setattr(stack, "verify_stack", counted)
    assert ask(written(), "number = 3 AND text = 'text 1'", columns=["late"]).num_rows == 2
    assert asked == [(1, GROUPS), (2, GROUPS), (3, 2)]


def test_batches_have_at_most_so_many_rows(met: Met) -> None:
    ask(written(), columns=FLAT)
    [layers] = met.stacks
    batches = decode_stack(layers, batch_rows=100, memory_limit=LIMIT)
    assert batches is not None
    assert [batch.num_rows for batch in batches] == [100, 100, 100, 100, 80]


def test_what_they_have_in_common(met: Met) -> None:
    ask(written(), "key >= 85 AND key < 370", columns=["key", "text"])
    kinds = [{stack_kind(one.task, one.piece) for one in layers} for layers in met.stacks]
    # What the two at the ends have is undecided, and these are not neighbours.
    assert kinds == [{StackKind((0, 2), (True, True), False)}]
    assert [one.task.row_group for one in met.stacks[0]] == [3, 4, 5, 6, 7, 8]


def wide() -> pa.Table:
    """Of more than 8 KiB in each row group, which does not compress."""
    rng = random.Random(4)
    return pa.table({"key": range(400), "wide": [rng.randbytes(400).hex() for _ in range(400)]})


def test_pages_that_are_located(met: Met) -> None:
    """A file without a page index shows where its pages are when it is read whole."""
    sink = io.BytesIO()
    pq.write_table(wide(), sink, row_group_size=ROWS, max_rows_per_page=10)
    store, cache = DictStore({"f": sink.getvalue()}), accel.Cache()
    for _ in range(2):
        found = accel.scan("f", "key >= 35 AND key < 370", store=store, cache=cache).to_table()
        assert found.equals(wide().slice(35, 335))
    kinds = [stack_kind(layers[0].task, layers[0].piece) for layers in met.stacks]
    # The keys are so little that they are read whole again.
    assert kinds == [StackKind((0, 1), (True, whole), False) for whole in (True, False)]
    assert [len(layers) for layers in met.stacks] == [8, 8]
    assert None not in met.found


@pytest.mark.parametrize(("stop", "together"), [(200, [5]), (185, [4]), (145, [])])
def test_some_pages_of_a_row_group_are_read_by_themselves(stop: int, together: list[int], met: Met) -> None:
    sink = io.BytesIO()
    pq.write_table(wide(), sink, row_group_size=ROWS, max_rows_per_page=10, write_page_index=True)
    assert ask(sink.getvalue(), f"wide <> '' AND key < {stop}").equals(wide().slice(0, stop))
    # Of the last row group the last pages have no such key, unless one is 199. The three before it are too
    # few.
    assert [len(layers) for layers in met.stacks] == together


@pytest.mark.parametrize("columns", [["list"], ["pair"], ["key", "list"]])
def test_nested_columns_are_decoded_one_by_one(columns: list[str], met: Met) -> None:
    assert ask(written(), columns=columns).equals(table().select(columns))
    assert met.stacks == []


def test_so_are_instants_and_large_row_groups(met: Met) -> None:
    moments = pa.table({"at": pa.array(range(480), pa.timestamp("us"))})
    sink = io.BytesIO()
    pq.write_table(moments, sink, row_group_size=40, use_deprecated_int96_timestamps=True)
    assert ask(sink.getvalue())["at"].cast(pa.timestamp("us")).equals(moments["at"])
    many = pa.table({"n": pa.array(range(5 * stack.MOST_PAGE_ROWS + 5), pa.int64())})
    sink = io.BytesIO()
    pq.write_table(many, sink, row_group_size=stack.MOST_PAGE_ROWS + 1)
    assert ask(sink.getvalue()).equals(many)
    assert met.stacks == []


@pytest.mark.parametrize("pages", [1, 2])
def test_larger_row_groups_are_if_each_chunk_is_one_page(met: Met, pages: int) -> None:
    rows = stack.MOST_ROWS + 2
    numbers = np.arange(5 * rows)
    many = pa.table({"n": pa.array(numbers), "m": pa.array(numbers % 3)})
    data = write_file(many, Layout(group_rows=rows, page_rows=rows // pages))
    assert ask(data).equals(many)
    assert ask(data, "m = 1").equals(many.filter(pa.array(numbers % 3 == 1)))
    # Without a filter chunks are read whole, however many pages they have.
    assert [len(layers) for layers in met.stacks] == ([5, 5] if pages == 1 else [5])


KINDS = {
    "number": pa.field("number", pa.int64()),
    "required": pa.field("required", pa.int64(), nullable=False),
    "small": pa.field("small", pa.int16()),
    "real": pa.field("real", pa.float64(), nullable=False),
    "text": pa.field("text", pa.string()),
    "name": pa.field("name", pa.string(), nullable=False),
    "flag": pa.field("flag", pa.bool_()),
    "bytes": pa.field("bytes", pa.binary(3)),
    "longer": pa.field("longer", pa.binary(5), nullable=False),
    "amount": pa.field("amount", pa.decimal128(30, 2)),
    "day": pa.field("day", pa.date32()),
}


def many_columns(rows: int, *, more: tuple[pa.Field, ...] = ()) -> pa.Table:
    """Three columns of each kind, in no order, with nulls where there may be some."""
    rng = random.Random(rows)
    fields = [kind.with_name(f"{name} {at}") for name, kind in KINDS.items() for at in range(3)]
    rng.shuffle(fields)
    arrays = []
    for field in fields:
        numbers = pa.array([rng.randrange(90) for _ in range(rows)])
        if pa.types.is_fixed_size_binary(field.type):
            width = field.type.byte_width
            array = pa.array([f"{n:0{width}}".encode() for n in numbers.to_pylist()], field.type)
        elif pa.types.is_date32(field.type):
            array = numbers.cast(pa.int32()).cast(field.type)
        elif pa.types.is_boolean(field.type):
            array = pa.array([n % 2 == 0 for n in numbers.to_pylist()])
        else:
            array = numbers.cast(field.type)
        some = pa.array([not field.nullable or rng.random() < 0.7 for _ in range(rows)])
        arrays.append(pc.if_else(some, array, pa.scalar(None, field.type)))
    for field in more:
        fields.append(field)
        arrays.append(pa.array([f"{row % 3}" for row in range(rows)]).cast(field.type))
    return pa.table(arrays, schema=pa.schema(fields))


def write_columns(rows: int, **options: Any) -> bytes:
    sink = io.BytesIO()
    settings = {"compression": "zstd", "use_dictionary": ["text 0", "small 1", "name 2"]} | options
    pq.write_table(many_columns(rows), sink, **settings)
    return sink.getvalue()


@pytest.mark.parametrize("rows", [1, 40, stack.MOST_ROWS])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionaries", [True, False])
def test_many_columns_of_few_rows_are_decoded_together(
    rows: int, version: str, dictionaries: bool, met: Met
) -> None:
    table = many_columns(rows)
    data = write_columns(rows, data_page_version=version, use_dictionary=dictionaries)
    assert ask(data).equals(table)
    [[layer]], [batches] = met.stacks, met.found
    alone = decode_piece(layer.task, layer.piece, layer.leaves, batch_rows=1 << 20, memory_limit=LIMIT)
    assert batches == alone == table.combine_chunks().to_batches()
    some = table.schema.names[4:30]
    assert ask(data, columns=some).equals(table.select(some))
    assert [len(layers) for layers in met.stacks] == [1, 1]
    assert None not in met.found


def test_columns_are_decoded_one_by_one_where_they_are_few_or_filtered_or_long(met: Met) -> None:
    table = many_columns(40)
    some = table.schema.names[:23]
    assert ask(write_columns(40), columns=some).equals(table.select(some))
    text = '"required 0" < 45'
    keep = pc.less(table["required 0"], 45)
    assert ask(write_columns(40), text).equals(table.filter(keep))
    rows = stack.MOST_ROWS + 1
    assert ask(write_columns(rows)).equals(many_columns(rows))
    assert met.stacks == []


def test_many_columns_of_which_some_cannot_be_decoded_together(met: Met) -> None:
    more = (pa.field("kind", pa.dictionary(pa.int32(), pa.string())),)
    table = many_columns(40, more=more)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    assert ask(sink.getvalue()).equals(table)
    assert met.found == [None]


def test_of_many_columns_the_one_that_is_damaged_is_named(met: Met) -> None:
    data = write_columns(40, compression="none", use_dictionary=False)
    metadata = pq.read_metadata(io.BytesIO(data)).row_group(0)
    [at] = [c for c in range(33) if metadata.column(c).path_in_schema == "real 1"]
    start = metadata.column(at).data_page_offset
    broken = data[:start] + b"\xff" + data[start + 1 :]
    with pytest.raises(ParquetFormatError, match="row group 0, column real 1"):
        ask(broken)
    assert met.found == [None]


def test_dictionaries_of_arrow_are_left_to_others(met: Met) -> None:
    assert ask(written(), columns=["kind"])["kind"].to_pylist() == table()["kind"].to_pylist()
    assert met.found == [None]


def test_so_is_what_might_exceed_the_limit_on_memory(met: Met) -> None:
    ask(written(), columns=FLAT)
    [layers] = met.stacks
    assert decode_stack(layers, batch_rows=1000, memory_limit=1000) is None


def test_a_long_text_that_many_rows_may_name_is_read_by_steps(met: Met) -> None:
    """Each dictionary has one of 300 bytes: named by all of 4,000 rows it would be 1.2 MB."""
    once = ["x" * 300 if row % 100 == 0 else "y" for row in range(4000)]
    often = ["y" if row % 100 == 0 else "x" * 300 for row in range(4000)]
    for texts in (once, often):
        sink = io.BytesIO()
        pq.write_table(pa.table({"t": texts}), sink, row_group_size=100)
        assert ask(sink.getvalue())["t"].to_pylist() == texts
    [few, many] = met.stacks
    for limit, steps in ((4000 * 301, 1), (1500 * 301, 3), (1024 * 301, 4), (1023 * 301, None)):
        found = decode_stack(few, batch_rows=10_000, memory_limit=limit)
        assert (None if found is None else [batch.num_rows for batch in found]) == (
            None if steps is None else [min(limit // 301, 4000 - at) for at in range(0, 4000, limit // 301)]
        )
        assert found is None or len(found) == steps
    assert decode_stack(many, batch_rows=10_000, memory_limit=4000 * 304) is not None
    assert decode_stack(many, batch_rows=10_000, memory_limit=2000 * 301) is None


@pytest.mark.parametrize("place", range(3), ids=["its header", "its compressed body", "its end"])
def test_so_is_what_is_damaged(place: int, met: Met) -> None:
    ask(written(), columns=FLAT)
    [layers] = met.stacks
    one = layers[5]
    held = one.leaves[2]
    (chunk,) = held.pages
    frame = bytes(chunk).replace(b"\x28\xb5\x2f\xfd", b"none")
    broken = [b"\xff" + bytes(chunk[1:]), frame, bytes(chunk[:-1])]
    leaves = {**one.leaves, 2: replace(held, pages=(memoryview(broken[place]),))}
    damaged = [*layers[:5], replace(one, leaves=leaves), *layers[6:]]
    assert decode_stack(damaged, batch_rows=1000, memory_limit=LIMIT) is None


STACKED_GROUPS, STACKED_ROWS = 4, 50
COLUMNS = {
    "number": pa.array(range(STACKED_GROUPS * STACKED_ROWS), pa.int64()),
    "text": pa.array(
        [None if row % 7 == 0 else f"text {row % 5}" for row in range(STACKED_GROUPS * STACKED_ROWS)]
    ),
    "flag": pa.array([row % 3 == 0 for row in range(STACKED_GROUPS * STACKED_ROWS)]),
    "unique": pa.array([f"{row:09d}" for row in range(STACKED_GROUPS * STACKED_ROWS)]),
}


def write_stacked(**options: Any) -> bytes:
    fields = [
        pa.field(name, array.type, nullable=name != "unique" and name != "number")
        for name, array in COLUMNS.items()
    ]
    table = pa.table(list(COLUMNS.values()), schema=pa.schema(fields))
    sink = io.BytesIO()
    settings: dict[str, Any] = {
        "row_group_size": STACKED_ROWS,
        "compression": "zstd",
        "use_dictionary": ["text"],
    }
    pq.write_table(table, sink, **settings | options)
    return sink.getvalue()


class Column:
    """One column's chunks of all row groups of a file."""

    def __init__(self, data: bytes, name: str) -> None:
        metadata = open_metadata(data)
        self.leaf = next(leaf for leaf in metadata.schema.leaves if leaf.path == (name,))
        self.element = metadata.schema.elements[self.leaf.element]
        table, at = metadata.chunks, self.leaf.ordinal
        self.chunks = [
            memoryview(data)[int(table.start[group, at]) : int(table.end[group, at])]
            for group in range(STACKED_GROUPS)
        ]
        self.codec = int(table.codec[0, at])
        self.values = [STACKED_ROWS] * STACKED_GROUPS
        self.parts: list[tuple[memoryview, ...]] = []
        """The pages of each, where they are known one by one, and the rows that each page is said to have."""
        self.page_rows: list[list[int]] = []

    def place_pages(self) -> None:
        """As an offset index does."""
        for chunk in self.chunks:
            pages = walk_pages(chunk, max_pages=9)
            self.parts.append(
                tuple(chunk[a:b] for a, b in zip(pages.start.tolist(), pages.end.tolist(), strict=True))
            )
            self.page_rows.append(pages.num_values[pages.type != PageType.DICTIONARY_PAGE].tolist())

    def reads(self, group: int) -> LeafReads:
        """What the metadata says of one, as far as it is looked at."""
        facts: Any = object.__new__(LeafReads)
        stops = np.cumsum(self.page_rows[group] if self.parts else [], dtype=np.int64)
        for name, value in (
            ("codec", self.codec),
            ("num_values", self.values[group]),
            ("whole", not self.parts),
            ("first_row", np.append(0, stops[:-1])),
            ("stop_row", stops),
        ):
            object.__setattr__(facts, name, value)
        return facts

    def verify(self, *, memory_limit: int | None = None, num_rows: list[int] | None = None) -> StackedPages:
        return verify_stack(
            self.parts or [(chunk,) for chunk in self.chunks],
            self.leaf,
            reads=[self.reads(group) for group in range(STACKED_GROUPS)],
            element=self.element,
            num_rows=np.array(num_rows or [STACKED_ROWS] * STACKED_GROUPS, np.int64),
            memory_limit=memory_limit,
        )

    def verify_one(self, group: int) -> Any:
        """The same by `verify_chunk`."""
        chunk = ChunkPages(
            leaf=self.leaf.ordinal,
            codec=self.codec,
            dictionary=None,
            buffers=(self.chunks[group],),
            first_rows=np.zeros(1, np.int64),
            stop_rows=np.array([STACKED_ROWS], np.int64),
            num_values=self.values[group],
            whole=True,
        )
        return verify_chunk(chunk, self.leaf, element=self.element, memory_limit=None, place=lambda: "here")


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("page_rows", [1 << 20, 20])
def test_they_are_what_each_is_by_itself(name: str, version: str, page_rows: int) -> None:
    column = Column(write_stacked(data_page_version=version, max_rows_per_page=page_rows), name)
    found = column.verify()
    each = [column.verify_one(group) for group in range(STACKED_GROUPS)]
    for chunk, alone, whole in zip(found.chunks, each, column.chunks, strict=True):
        assert (chunk.codec, chunk.num_values, chunk.uncompressed) == (
            Codec.ZSTD,
            STACKED_ROWS,
            alone.uncompressed,
        )
        assert [bytes(part) for part in chunk.parts] == [bytes(part) for part in alone.parts]
        assert bytes(whole).startswith(bytes(chunk.parts[0]))
    facts = found.facts
    assert facts.page_values.tolist() == [count for one in each for count in one.page_values.tolist()]
    assert facts.encoded.tolist() == [flag for one in each for flag in one.encoded.tolist()]
    assert facts.num_values == STACKED_GROUPS * STACKED_ROWS
    assert facts.uncompressed == sum(one.uncompressed for one in each)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("page_rows", [1 << 20, 20])
def test_pages_of_stacks_that_are_located(name: str, page_rows: int) -> None:
    column = Column(write_stacked(max_rows_per_page=page_rows), name)
    whole = column.verify()
    column.place_pages()
    found = column.verify()
    for one, other in zip(found.chunks, whole.chunks, strict=True):
        assert b"".join(map(bytes, one.parts)) == b"".join(map(bytes, other.parts))
        assert (one.codec, one.num_values, one.uncompressed) == (
            other.codec,
            other.num_values,
            other.uncompressed,
        )
    assert found.facts.page_values.tolist() == whole.facts.page_values.tolist()
    for lie in ([30, 10, 10], [20, 20], [20, 20, 9], [20, 20, 11], [20, 20, 10, 1]):
        column.page_rows[2] = lie
        with pytest.raises(NotStackable):
            column.verify()


def test_a_dictionary_that_was_not_asked_for() -> None:
    column = Column(write_stacked(), "text")
    column.place_pages()
    column.verify()
    column.parts[1] = column.parts[1][1:]
    with pytest.raises(NotStackable):
        column.verify()


def test_nothing_of_a_chunk() -> None:
    column = Column(write_stacked(), "number")
    column.place_pages()
    column.parts[1] = ()
    with pytest.raises(NotStackable):
        column.verify()


def page(kind: int, values: int, body: bytes, encoding: int = Encoding.PLAIN) -> bytes:
    """A page that is not compressed."""
    inner: dict[int, Any] = {1: (I32, values), 2: (I32, int(encoding))}
    if kind == 0:
        inner |= {3: (I32, int(Encoding.RLE)), 4: (I32, int(Encoding.RLE))}
    field = {0: 5, 1: 6, 2: 7}[kind]
    fields: dict[int, Any] = {
        1: (I32, kind),
        2: (I32, len(body)),
        3: (I32, len(body)),
        field: (STRUCT, inner),
    }
    return write_struct(fields) + body


NUMBERS = bytes(8 * STACKED_ROWS)
INDICES = b"\x01" + bytes(7)
WRONG = {
    "no page at all": b"",
    "a row too few": page(0, STACKED_ROWS - 1, bytes(8 * (STACKED_ROWS - 1))),
    "a row too many": page(0, STACKED_ROWS + 1, bytes(8 * (STACKED_ROWS + 1))),
    "levels of a required column": page(0, STACKED_ROWS, NUMBERS + b"\x06\x00\x00\x00\x64\x01"),
    "indices without a dictionary": page(0, STACKED_ROWS, INDICES, Encoding.RLE_DICTIONARY),
    "a dictionary behind its pages": page(0, 1, bytes(8)) + page(2, 1, bytes(8)) + page(0, STACKED_ROWS - 1, bytes(8 * STACKED_ROWS - 8)),
    "two dictionaries": page(2, 1, bytes(8)) * 2 + page(0, STACKED_ROWS, INDICES, Encoding.RLE_DICTIONARY),
    "a dictionary of too few bytes": page(2, 9, bytes(8)) + page(0, STACKED_ROWS, INDICES, Encoding.RLE_DICTIONARY),
    "an index page between": page(0, 1, bytes(8)) + page(1, 0, b"") + page(0, STACKED_ROWS - 1, bytes(8 * STACKED_ROWS - 8)),
    "a page of no values": page(0, 0, b"") + page(0, STACKED_ROWS, NUMBERS),
    "more pages than a small chunk has": page(0, 0, b"") * 64 + page(0, STACKED_ROWS, NUMBERS),
    "texts by their prefixes": page(0, STACKED_ROWS, NUMBERS, Encoding.DELTA_BYTE_ARRAY),
    "padding": page(0, STACKED_ROWS, NUMBERS) + b"padding",
    "a page behind all values": page(0, STACKED_ROWS, NUMBERS) + page(0, 5, NUMBERS[:40]),
    "a header that ends": page(0, STACKED_ROWS, NUMBERS)[:9],
    "a body that ends": page(0, STACKED_ROWS, NUMBERS)[:-1],
}  # fmt: skip


def test_the_pages_made_here_are_right_but_for_what_is_said_of_them() -> None:
    column = Column(write_stacked(), "number")
    column.chunks[1] = memoryview(
        page(2, 1, bytes(8)) + page(0, STACKED_ROWS, INDICES, Encoding.RLE_DICTIONARY)
    )
    column.chunks[3] = memoryview(page(0, STACKED_ROWS, NUMBERS))
    assert [chunk.uncompressed for chunk in column.verify().chunks][1::2] == [
        8 + len(INDICES),
        8 * STACKED_ROWS,
    ]


@pytest.mark.parametrize("chunk", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("group", [0, 3])
def test_what_is_wrong_or_rare_is_left_to_others(chunk: bytes, group: int) -> None:
    column = Column(write_stacked(), "number")
    column.verify()
    column.chunks[group] = memoryview(chunk)
    with pytest.raises((NotStackable, ParquetFormatError)):
        column.verify()


def test_a_dictionary_of_booleans() -> None:
    column = Column(write_stacked(), "flag")
    column.verify()
    column.chunks[1] = memoryview(
        page(2, 1, bytes(8)) + page(0, STACKED_ROWS, INDICES, Encoding.RLE_DICTIONARY)
    )
    with pytest.raises(NotStackable):
        column.verify()


@pytest.mark.parametrize("codec", [Codec.LZO, 99])
def test_a_codec_that_cannot_be_read(codec: int) -> None:
    column = Column(write_stacked(), "number")
    column.codec = codec
    with pytest.raises(NotStackable):
        column.verify()


def test_rows_that_the_row_group_does_not_have() -> None:
    column = Column(write_stacked(), "number")
    with pytest.raises(NotStackable):
        column.verify(num_rows=[STACKED_ROWS, STACKED_ROWS, STACKED_ROWS + 1, STACKED_ROWS])


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("number", STACKED_GROUPS * STACKED_ROWS * 8),
        ("text", STACKED_GROUPS * STACKED_ROWS * (4 + 2)),
        ("unique", STACKED_GROUPS * STACKED_ROWS * (4 + 9)),
    ],
)
def test_no_more_is_decoded_than_the_limit(name: str, most: int) -> None:
    column = Column(write_stacked(), name)
    column.verify(memory_limit=most)
    with pytest.raises(NotStackable):
        column.verify(memory_limit=most - 1)


@pytest.mark.parametrize(("name", "longest"), [("number", 0), ("text", 5 * 6), ("flag", 0), ("unique", 0)])
def test_a_text_is_no_longer_than_all_of_its_dictionary(name: str, longest: int) -> None:
    assert Column(write_stacked(), name).verify().longest == longest


def test_the_longest_of_several_dictionaries() -> None:
    column = Column(write_stacked(), "text")
    texts = b"".join(len(text).to_bytes(4, "little") + text for text in (b"one", b"of these", b""))
    column.chunks[2] = memoryview(page(2, 3, texts) + page(0, STACKED_ROWS, INDICES, Encoding.RLE_DICTIONARY))
    assert column.verify().longest == 5 * 6
    column.chunks[1] = memoryview(
        page(2, 3, texts + bytes(50)) + page(0, STACKED_ROWS, INDICES, Encoding.PLAIN)
    )
    # Whose pages name no entry of it.
    assert column.verify().longest == 5 * 6
    column.chunks[1] = memoryview(
        page(2, 3, texts + bytes(50)) + page(0, STACKED_ROWS, INDICES, Encoding.RLE_DICTIONARY)
    )
    assert column.verify().longest == len(b"oneof these") + 50

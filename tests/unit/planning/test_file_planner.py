"""From an opened file to its tasks: what is asked for, what is planned, what is counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from accel.decode.dictionary_decode import dictionary_values
from accel.errors import AccelError, EncryptedFileError, IndexFormatError, ParquetFormatError
from accel.planning import task as task_files
from accel.planning.file_entry import FileEntry
from accel.planning.file_planner import FilePlan, plan_file
from accel.planning.handle import FileHandle
from accel.planning.page_indexes import PlanSizes
from accel.planning.pages import LeafReads
from accel.planning.projection import project_schema
from accel.planning.query import FileQuery, Question
from accel.planning.selection import RowSelection
from accel.planning.task import describe_file
from accel.predicate.where import to_expr
from accel.ranges import Kind
from accel.testing import Layout, table, write_file
from tests.support.file_steps import Bytes

ROWS = 400
# Four groups of a hundred rows in pages of ten: numbers that ascend, the same in turn, texts of which each
# page has two.
COLUMNS = table(
    up=pa.array(range(ROWS), pa.int64()),
    turn=pa.array([n % 10 for n in range(ROWS)], pa.int64()),
    word=pa.array([f"w{n // 5 % 40:02d}" for n in range(ROWS)]),
)
LAYOUT = Layout(group_rows=100, page_rows=10, dictionary=False, codec="none")
DATA = write_file(COLUMNS, LAYOUT)


def unexpected(error: IndexFormatError) -> None:
    raise error


class Planner:
    """One file, opened with just its footer, planned as often as asked."""

    def __init__(self, data: bytes = DATA, *, hint: int = 8) -> None:
        self.bytes = Bytes(data)
        self.handle = self.bytes.open(hint=hint)
        self.bytes.waves.clear()

    def plan(self, where: str | None = None, columns: list[str] | None = None, **keywords: Any) -> FilePlan:
        schema = self.handle.arrow_schema
        question = Question(to_expr(where), schema, project_schema(schema, columns), ())
        arguments: dict[str, Any] = {
            "selection": None,
            "sizes": PlanSizes(
                piece_bytes=keywords.pop("piece_bytes", 1 << 20),
                probe_min_bytes=keywords.pop("probe_min_bytes", 1 << 30),
            ),
            "on_bad_index": unexpected,
            "read_dictionary": lambda page, codec, element, kind: dictionary_values(
                page, codec, element, arrow_type=kind
            ),
        }
        steps = plan_file(
            self.handle,
            describe_file(
                FileEntry("store:", "f", "the file"),
                self.handle,
                question,
                partition={},
                schema=self.handle.metadata.schema,
                arrow_schema=self.handle.arrow_schema,
                int96_unit="ns",
            ),
            **arguments | keywords,
        )
        return self.bytes.run(steps)

    def asked(self) -> list[set[tuple[Kind, int, int]]]:
        """What was asked for since last time: a set of kind, row group and leaf for each wave."""
        waves = [{(w.key.kind, w.key.row_group, w.key.column) for w in wave} for wave in self.bytes.waves]  # type: ignore[union-attr]
        self.bytes.waves.clear()
        return waves


def pages(plan: FilePlan) -> list[tuple[int, list[tuple[int, int]], list[list[int]]]]:
    """Of each task: the row group, the rows, the pages of each leaf."""
    return [
        (task.row_group, list(task.rows), [reads.ordinal.tolist() for reads in task.reads])
        for task in plan.tasks
    ]


OFFSETS, BOUNDS = Kind.OFFSET_INDEX, Kind.COLUMN_INDEX


def test_a_lookup_asks_for_the_indexes_of_one_group_once() -> None:
    file = Planner()
    plan = file.plan("up = 123", ["turn"])
    assert file.asked() == [{(BOUNDS, 1, 0), (OFFSETS, 1, 0), (OFFSETS, 1, 1)}]
    assert pages(plan) == [(1, [(20, 30)], [[2], [2]])]
    assert (plan.row_groups, plan.row_groups_kept, plan.rows, plan.rows_kept) == (4, 1, ROWS, 10)
    assert (plan.pages, plan.pages_kept, plan.rows_certain, plan.index_round_trips) == (20, 2, 0, 1)
    (task,) = plan.tasks
    assert [(r.leaf, r.for_filter, r.for_output) for r in task.reads] == [(0, True, False), (1, False, True)]
    again = file.plan("up = 123", ["turn"])
    assert file.asked() == []
    assert (pages(again), again.index_round_trips) == (pages(plan), 0)


def test_nothing_is_asked_for_where_no_group_may_match() -> None:
    file = Planner()
    plan = file.plan("up > 1000")
    assert (file.asked(), plan.tasks) == ([], [])
    assert (plan.row_groups, plan.row_groups_kept, plan.rows, plan.pages) == (4, 0, ROWS, 0)


def test_groups_that_match_for_sure_need_no_filter_and_no_index() -> None:
    file = Planner()
    plan = file.plan("up >= 100 AND up < 300", ["word"])
    assert file.asked() == []
    assert [(t.row_group, t.rows.count, t.needs_filter) for t in plan.tasks] == [
        (1, 100, False),
        (2, 100, False),
    ]
    assert [[r.leaf for r in t.reads] for t in plan.tasks] == [[2], [2]]
    assert (plan.rows_kept, plan.rows_certain) == (200, 200)


def test_rows_that_are_sure_are_read_without_the_filter_column() -> None:
    plan = Planner().plan("up >= 195 AND up < 225", ["word"])
    assert [(t.row_group, list(t.rows), list(t.certain)) for t in plan.tasks] == [
        (1, [(90, 100)], []),
        (2, [(0, 30)], [(0, 20)]),
    ]
    assert pages(plan)[1][2] == [[2], [0, 1, 2]]


def test_pages_that_do_not_align_are_cut_where_any_starts() -> None:
    twos = write_file(
        table(a=pa.array(range(100)), b=pa.array(range(100))),
        Layout(group_rows=100, page_rows=10, dictionary=False),
    )
    file = Planner(twos)
    file.plan("a = 5 AND b = 5")  # brings the indexes
    # The second column's pages are joined two by two, as another writer may have cut them.
    index, bounds = file.handle.view.offset_indexes[0, 1], file.handle.view.page_bounds[0, 1]
    assert index is not None
    halves = slice(None, None, 2)
    file.handle.view.offset_indexes[0, 1] = type(index)(
        index.offset[halves], index.size[halves] * 2, index.first_row[halves]
    )
    places = file.handle.view.page_bounds[0, 0].take(index.first_row[halves] // 10)
    file.handle.view.page_bounds[0, 1] = type(bounds)(
        **{name: getattr(places, name) for name in bounds.__match_args__}
        | {"upper": bounds.upper[1::2], "num_values": bounds.num_values[halves] * 2}
    )
    column = file.handle.view.column_indexes[0, 1]
    assert column is not None
    file.handle.view.column_indexes[0, 1] = type(column)(
        **{
            name: value[halves] if hasattr(value := getattr(column, name), "shape") else value
            for name in column.__slots__
        }
    )
    assert pages(file.plan("a >= 30 AND b < 35")) == [(0, [(30, 40)], [[3], [1]])]
    assert pages(file.plan("a = 45 OR b = 3")) == [(0, [(0, 20), (40, 50)], [[0, 1, 4], [0, 2]])]


@pytest.mark.parametrize(
    ("selection", "rows"),
    [
        ({1: [(0, 100)]}, [(1, [(20, 30)])]),
        ({1: [(25, 100)], 2: [(0, 10)]}, [(1, [(25, 30)])]),
        ({0: [(0, 100)]}, []),
        ({1: []}, []),
    ],
)
def test_a_selection_meets_what_pruning_left(selection: Any, rows: Any) -> None:
    chosen = {group: RowSelection.of(ranges) for group, ranges in selection.items()}
    plan = Planner().plan("up = 123", selection=chosen)
    assert [(task.row_group, list(task.rows)) for task in plan.tasks] == rows


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({4: [(0, 1)]}, "selection names row group 4; the file has 4"),
        ({-1: [(0, 1)]}, "selection names row group -1; the file has 4"),
        ({0: [(0, 101)]}, "selection goes to row 101 of row group 0 of the file, which has 100 rows"),
        ({0: [(0, 1), (5, 102)]}, "selection goes to row 102 of row group 0 of the file, which has 100 rows"),
    ],
)
def test_selections_that_the_file_has_not(selection: Any, message: str) -> None:
    chosen = {group: RowSelection.of(ranges) for group, ranges in selection.items()}
    with pytest.raises(ValueError, match=message):
        Planner().plan(selection=chosen)


def test_a_limit_wants_the_pages_of_the_groups_that_may_end_it() -> None:
    file = Planner()
    file.plan(limit=150)
    assert file.asked() == [{(OFFSETS, group, leaf) for group in (0, 1) for leaf in range(3)}]


def test_large_groups_are_to_be_cut() -> None:
    file = Planner()
    file.plan(columns=["up", "word"], piece_bytes=100)
    assert file.asked() == [{(OFFSETS, group, leaf) for group in range(4) for leaf in (0, 2)}]


def test_chunks_without_an_index_are_counted() -> None:
    file = Planner(write_file(COLUMNS, Layout(group_rows=100, page_index=False)))
    plan = file.plan("turn = 3 AND up < 150", ["word"])
    assert file.asked() == []
    assert [(t.row_group, t.rows.count, t.reads_whole_chunks) for t in plan.tasks] == [
        (0, 100, True),
        (1, 100, True),
    ]
    assert (plan.chunks_whole, plan.pages) == (6, 0)
    # Where all rows are wanted nothing is lost.
    assert file.plan(columns=["word"]).chunks_whole == 0


def test_what_the_first_read_brought_is_not_asked_for() -> None:
    file = Planner(hint=1 << 16)
    assert pages(file.plan("up = 123", ["turn"])) == [(1, [(20, 30)], [[2], [2]])]
    assert file.asked() == []


def test_a_dictionary_excludes_a_group() -> None:
    words = table(
        word=pa.array(["a", "c"] * 3000 + ["a", "b", "c"] * 2000),
        long=pa.array([f"{n:064d}" for n in range(12_000)]),
    )
    file = Planner(
        write_file(words, Layout(group_rows=6000, page_rows=500, dictionary=["word"], codec="none"))
    )
    plan = file.plan("word = 'b'", probe_min_bytes=1)
    kinds = [{kind for kind, _, _ in wave} for wave in file.asked()]
    assert kinds == [{OFFSETS, BOUNDS}, {Kind.DICTIONARY}]
    assert [task.row_group for task in plan.tasks] == [1]
    assert (plan.probed_groups, plan.row_groups_kept, plan.index_round_trips) == (1, 1, 2)


@pytest.mark.parametrize(("width", "kept"), [(3, True), (3000, False)])
def test_a_small_dictionary_is_decoded_once(width: int, kept: bool) -> None:
    texts = [f"{n:0{width}d}" for n in range(0, 100, 2)]
    words = table(word=pa.array(texts * 120), long=pa.array([f"{n:0600d}" for n in range(6000)]))
    file = Planner(
        write_file(words, Layout(group_rows=6000, page_rows=500, dictionary=["word"], codec="none"))
    )
    decoded: list[int] = []

    def decode(page: Any, codec: Any, element: Any, kind: Any) -> pa.Array:
        decoded.append(len(page))
        return dictionary_values(page, codec, element, arrow_type=kind)

    before = file.handle.nbytes
    for absent, there in ((5, 4), (7, 8)):
        for number, tasks in ((absent, 0), (there, 1)):
            plan = file.plan(f"word = '{number:0{width}d}'", probe_min_bytes=1, read_dictionary=decode)
            assert len(plan.tasks) == tasks
    assert len(decoded) == (1 if kept else 4)
    assert (0, 0) in file.handle.view.dictionaries if kept else not file.handle.view.dictionaries
    assert file.handle.nbytes > before


def test_a_bad_table_of_indexes_is_told_of() -> None:
    file = Planner()
    file.handle.bad_toc = IndexFormatError("damaged")
    for where, times in (("up = 5", 1), ("up > 1000", 1), (None, 0)):
        told: list[IndexFormatError] = []
        file.plan(where, on_bad_index=told.append)
        assert told == [file.handle.bad_toc] * times


def test_an_index_that_does_not_verify_is_told_of_and_done_without() -> None:
    file = Planner()
    damaged = bytearray(DATA)
    chunks = file.handle.metadata.chunks
    start, length = int(chunks.offset_index_offset[1, 0]), int(chunks.offset_index_length[1, 0])
    damaged[start : start + length] = bytes(length)
    file.bytes.data = bytes(damaged)
    told: list[IndexFormatError] = []
    plan = file.plan("up = 123", ["turn"], on_bad_index=told.append)
    (error,) = told
    assert "f" in str(error)
    assert [(t.row_group, list(t.rows), t.reads_whole_chunks) for t in plan.tasks] == [(1, [(0, 100)], True)]


def spoil(handle: FileHandle, name: str, value: Any) -> None:
    array = getattr(handle.metadata.chunks, name)
    array.flags.writeable = True
    array[1, 2] = value


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("encrypted", True, EncryptedFileError, "encrypted"),
        ("external", True, ParquetFormatError, "another file"),
        ("codec", 9, ParquetFormatError, "codec 9 is not supported"),
        ("start", 0, ParquetFormatError, "no bytes"),
        ("end", 4, ParquetFormatError, "no bytes"),
    ],
)
def test_chunks_that_cannot_be_read(name: str, value: Any, kind: type[AccelError], message: str) -> None:
    file = Planner()
    spoil(file.handle, name, value)
    for _ in range(2):
        with pytest.raises(kind, match=message) as raised:
            file.plan("up >= 0")
        assert "row group 1, column word" in str(raised.value)
    # As long as nobody wants it, it does no harm.
    assert len(file.plan("up >= 0", ["turn"]).tasks) == 4
    assert [task.row_group for task in file.plan("up < 50").tasks] == [0]


def test_a_file_asked_again_answers_as_one_asked_first() -> None:
    questions = [
        "up >= 0 AND turn = 3",
        "turn = 3",
        "up BETWEEN 95 AND 205",
        "word = 'w03' OR turn > 8",
        "turn IN (1, 2) AND word < 'w20'",
        "NOT (word = 'w03')",
    ]
    again = Planner()
    for where in [*questions, *reversed(questions)]:
        found, fresh = again.plan(where), Planner().plan(where)
        assert [(task.row_group, task.rows, task.certain) for task in found.tasks] == [
            (task.row_group, task.rows, task.certain) for task in fresh.tasks
        ]


def spelt(reads: Iterable[LeafReads]) -> list[dict[str, Any]]:
    """Every field, arrays as lists."""
    return [
        {
            name: value.tolist() if isinstance(value := getattr(leaf, name), np.ndarray) else value
            for name in (field.name for field in dataclasses.fields(leaf))
        }
        for leaf in reads
    ]


def test_what_reading_takes_is_known_anew_when_a_page_index_comes_or_goes() -> None:
    file = Planner()
    assert file.plan().tasks[0].reads[0].whole
    assert not file.plan("up = 5").tasks[0].reads[0].whole
    file.handle.distrusted = True
    file.handle.view.offset_indexes.clear()
    file.handle.view.column_indexes.clear()
    file.handle.view.page_bounds.clear()
    assert file.plan("up = 5").tasks[0].reads[0].whole


def test_chunks_whose_pages_begin_at_the_same_rows_share_the_array() -> None:
    file = Planner()
    file.plan("up = 5 AND turn = 5", ["up", "turn"])
    first = file.handle.view.offset_indexes[0, 0]
    other = file.handle.view.offset_indexes[0, 1]
    assert first is not None and other is not None and first.first_row is other.first_row


def test_columns_are_not_looked_for_among_all_columns_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Leaves(tuple[int, ...]):
        def __contains__(self, leaf: object) -> bool:
            raise AssertionError("the square of the columns")

    compile_query = task_files.compile_query

    def compiled(*args: Any, **keywords: Any) -> FileQuery:
        query = compile_query(*args, **keywords)
        outputs, filters = Leaves(query.output_leaves), Leaves(query.filter_leaves)
        return dataclasses.replace(query, output_leaves=outputs, filter_leaves=filters)

    monkeypatch.setattr(task_files, "compile_query", compiled)
    reads = Planner().plan("turn = 3", ["up", "turn"]).tasks[0].reads
    assert [(leaf.leaf, leaf.for_filter, leaf.for_output) for leaf in reads] == [
        (0, False, True),
        (1, True, True),
    ]

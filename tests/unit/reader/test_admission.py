"""Admission against a model, the and the rows left by a limit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accel
from accel.errors import MemoryLimitError
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask
from accel.reader.admission import Admission, Budget, Priority
from accel.testing import DictStore, Layout, table, write_file

LIMIT = 100


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@dataclass
class Entrant:
    """A piece that wants in."""

    order: Priority
    nbytes: int
    task: asyncio.Task[None]

    @property
    def inside(self) -> bool:
        return self.task.done() and not self.task.cancelled()


def enter(admission: Admission, order: Priority, nbytes: int) -> Entrant:
    return Entrant(order, nbytes, asyncio.create_task(admission.enter(order, nbytes)))


async def test_in_by_order_and_by_bytes() -> None:
    admission = Admission(LIMIT, 3)
    first = enter(admission, (0, 0), 60)
    await settle()
    large, small = enter(admission, (0, 1), 50), enter(admission, (1, 0), 10)
    await settle()
    # The small one would fit, but the large one is wanted sooner.
    assert [e.inside for e in (first, large, small)] == [True, False, False]
    admission.leave((0, 0))
    await settle()
    assert admission.admitted == {(0, 1): 50, (1, 0): 10}


async def test_what_is_needed_next_gets_in_over_the_limits() -> None:
    admission = Admission(LIMIT, 1)
    later = enter(admission, (5, 0), 100)
    await settle()
    needed = enter(admission, (0, 0), 100)
    await settle()
    assert (later.inside, needed.inside) == (True, True)
    # And it is the only one that does.
    other = enter(admission, (1, 0), 1)
    await settle()
    assert not other.inside
    other.task.cancel()
    await settle()


async def test_one_that_gives_up_no_longer_stands_in_the_way() -> None:
    admission = Admission(LIMIT, 8)
    await admission.enter((0, 0), 60)
    large, small = enter(admission, (0, 1), 90), enter(admission, (0, 2), 10)
    await settle()
    assert not small.inside
    large.task.cancel()
    await settle()
    assert small.inside
    assert admission.admitted == {(0, 0): 60, (0, 2): 10}


async def test_one_cancelled_just_when_it_was_admitted_holds_nothing() -> None:
    admission = Admission(LIMIT, 8)
    await admission.enter((0, 0), 100)
    late = enter(admission, (0, 1), 100)
    await settle()
    admission.leave((0, 0))
    late.task.cancel()
    await settle()
    assert late.task.cancelled()
    assert admission.admitted == {}
    await asyncio.wait_for(admission.enter((0, 2), 100), 1)


async def test_more_than_the_limit_is_refused_at_once() -> None:
    with pytest.raises(MemoryLimitError, match="takes about 101 bytes, the limit is 100") as caught:
        await Admission(LIMIT, 8).enter((0, 0), 101)
    assert "options.memory_limit" in str(caught.value.hint)


async def test_parts_pass_the_whole_that_they_are_cut_from_and_others_do_not() -> None:
    admission = Admission(LIMIT, 8)
    await admission.enter((0, 0), 90)
    admission.pin((0, 0))
    other, part = enter(admission, (0, 1), 20), enter(admission, (0, 0, 1), 20)
    await settle()
    # Nothing is "held", yet only the pinned one's own part may exceed the limit.
    assert (other.inside, part.inside) == (False, True)
    admission.leave((0, 0, 1))
    await settle()
    assert not other.inside
    admission.leave((0, 0))
    await settle()
    assert other.inside
    assert (admission.admitted, admission.pinned) == ({(0, 1): 20}, {})


async def test_a_small_piece_takes_the_part_of_a_place_that_it_is() -> None:
    admission = Admission(LIMIT, 2)
    for number in range(4):
        await admission.enter((0, number), 1, 0.25)
    whole, small = enter(admission, (0, 5), 1), enter(admission, (0, 6), 1)
    await settle()
    assert (whole.inside, small.inside) == (True, False)
    for number in range(4):
        admission.leave((0, number))
    await settle()
    assert small.inside


async def test_growing_lets_more_in() -> None:
    admission = Admission(LIMIT, 1)
    await admission.enter((0, 0), 1)
    second = enter(admission, (0, 1), 1)
    await settle()
    assert not second.inside
    admission.grow(2)
    admission.grow(1)
    await settle()
    assert second.inside
    assert admission.limit_pieces == 2


FILES = st.lists(st.lists(st.integers(0, LIMIT), min_size=1, max_size=5), min_size=1, max_size=4)


@given(FILES, st.integers(1, 4), st.lists(st.integers(0, 3), max_size=40))
def test_against_a_model(files: list[list[int]], pieces: int, choices: list[int]) -> None:
    """Each file's pieces enter one after the other; the consumer takes them in order. Some are cancelled."""

    async def play() -> None:
        admission = Admission(LIMIT, pieces)
        queues = [[((f, i), n) for i, n in enumerate(sizes)] for f, sizes in enumerate(files)]
        waiting: dict[int, Entrant] = {}
        inside: set[Priority] = set()
        taken: list[Priority] = []
        turns = iter(choices)
        while any(queues) or waiting or inside:
            for f, queue in enumerate(queues):
                if queue and f not in waiting:
                    waiting[f] = enter(admission, *queue.pop(0))
            await settle()
            before = set(inside)
            for f, entrant in list(waiting.items()):
                if entrant.inside:
                    inside.add(entrant.order)
                    del waiting[f]
            admitted = sum(admission.admitted.values())
            assert set(admission.admitted) == inside
            if inside - before and (admitted > LIMIT or len(inside) > pieces):
                # Over a limit only by one that nothing came before when it entered.
                assert any(order == min(inside) for order in inside - before)
            # Never a stall: somebody is always in, and what all wait for is.
            lowest = min([*inside, *(e.order for e in waiting.values())], default=None)
            assert lowest is None or lowest in inside
            if next(turns, 0) == 3 and waiting:
                f, entrant = waiting.popitem()
                entrant.task.cancel()
                await settle()
                continue
            if inside:
                order = min(inside)
                inside.remove(order)
                taken.append(order)
                admission.leave(order)
        assert admission.admitted == {}
        assert taken == sorted(set(taken))

    asyncio.run(play())


@pytest.fixture(scope="module")
def tasks() -> tuple[ScanTask, ...]:
    data = write_file(table(x=pa.array(np.arange(100))), Layout(group_rows=50, page_rows=10))
    store = DictStore({"f.parquet": data})
    return accel.plan("f.parquet", store=store, cache=None).tasks


@pytest.mark.parametrize(
    ("left", "rows", "spent"),
    [
        pytest.param(None, [50, 50], False, id="no limit"),
        pytest.param(200, [50, 50], False, id="more than there are"),
        pytest.param(100, [50, 50], True, id="just so many"),
        pytest.param(70, [50, 20], True, id="within the second"),
    ],
)
def test_a_budget_cuts_tasks(
    tasks: tuple[ScanTask, ...], left: int | None, rows: list[int], spent: bool
) -> None:
    budget = Budget(left)
    assert [budget.cut(task).rows.count for task in tasks] == rows
    assert budget.spent is spent
    assert budget.left == (None if left is None else left - sum(rows))


def test_a_task_with_a_filter_spends_nothing(tasks: tuple[ScanTask, ...]) -> None:
    budget = Budget(5)
    filtered = replace(tasks[0], certain=RowSelection.none())
    assert budget.cut(filtered) is filtered
    assert budget.left == 5


@pytest.mark.parametrize("left", [0, -3])
def test_a_budget_spent(left: int) -> None:
    assert Budget(left).spent


async def test_what_is_pinned_counts_by_its_bytes_alone() -> None:
    """Others take the place of the piece, as long as there is room for what they hold."""
    admission = Admission(limit_bytes=100, limit_pieces=1)
    await admission.enter((0, 0), 60)
    admission.pin((0, 0))
    await asyncio.wait_for(admission.enter((1, 0), 40), 20)
    waiting = asyncio.ensure_future(admission.enter((2, 0), 1))
    await asyncio.sleep(0)
    assert (admission.admitted, admission.pinned, waiting.done()) == ({(1, 0): 40}, {(0, 0): 60}, False)
    admission.leave((1, 0))
    await asyncio.wait_for(waiting, 20)
    assert admission.admitted == {(2, 0): 1}

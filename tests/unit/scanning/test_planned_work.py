"""The tasks of a plan as the work of a run: by file, and final."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

import accel
from accel.planning.task import ScanTask
from accel.scanning import planned_work as module
from accel.scanning.planned_work import planned_work
from accel.scanning.works import FileWork
from accel.testing import DictStore, Layout, table, write_file


class FakeReader:
    """Notes what it is told to forget."""

    def __init__(self) -> None:
        self.forgotten: list[tuple[str, str]] = []

    def client(self, root: str) -> None:
        return None

    def forget(self, root: str, path: str) -> None:
        self.forgotten.append((root, path))


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Sequence[ScanTask]:
    """Of the files a, b, and b once more: two row groups each."""
    monkeypatch.setattr(module, "load_ahead", lambda client, where: None)
    data = write_file(table(x=pa.array(range(8), pa.int64())), Layout(group_rows=4))
    return accel.plan(["a", "b", "b"], store=DictStore({"a": data, "b": data}), cache=None).tasks


async def works_of(reader: FakeReader, tasks: Sequence[ScanTask]) -> tuple[FileWork | None, list[FileWork]]:
    works = await planned_work(reader, tasks)  # type: ignore[arg-type]
    return works.only, [work async for work in works]


async def test_tasks_of_a_file_that_follow_each_other_are_one_work(tasks: Sequence[ScanTask]) -> None:
    only, works = await works_of(FakeReader(), tasks)
    told = [await work.tasks() for work in works]
    assert [([(task.path, task.row_group) for task in given], trips) for given, trips in told] == [
        ([("a", 0), ("a", 1)], 0),
        ([("b", 0), ("b", 1)], 0),
        ([("b", 0), ("b", 1)], 0),
    ]
    assert only is None


async def test_each_file_is_forgotten_by_itself_and_not_planned_again(tasks: Sequence[ScanTask]) -> None:
    reader = FakeReader()
    _, works = await works_of(reader, tasks)
    assert works[1].forget() is False
    assert reader.forgotten == [("store:", "b")]
    assert works[1].distrust is None


async def test_a_single_task_is_known_to_be_all(tasks: Sequence[ScanTask]) -> None:
    only, works = await works_of(FakeReader(), tasks[:1])
    assert works == [only]


async def test_no_task() -> None:
    assert await works_of(FakeReader(), ()) == (None, [])

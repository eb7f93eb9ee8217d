"""The tasks of a plan as the work of a run: by file, and final."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

import accel
from accel.planning.task import ScanTask
from accel.scanning.file_jobs import FileJob, PlannedTasks
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
def tasks() -> Sequence[ScanTask]:
    """Of the files a, b, and b once more: two row groups each."""
    data = write_file(table(x=pa.array(range(8), pa.int64())), Layout(group_rows=4))
    return accel.plan(["a", "b", "b"], store=DictStore({"a": data, "b": data}), cache=None).tasks


async def jobs_of(reader: FakeReader, tasks: Sequence[ScanTask]) -> list[FileJob]:
    return [job async for job in PlannedTasks(reader, tasks)]  # type: ignore[arg-type]


async def test_tasks_of_a_file_that_follow_each_other_are_one_job(tasks: Sequence[ScanTask]) -> None:
    planned = [await job.tasks() for job in await jobs_of(FakeReader(), tasks)]
    assert [([(task.path, task.row_group) for task in given], trips) for given, trips in planned] == [
        ([("a", 0), ("a", 1)], 0),
        ([("b", 0), ("b", 1)], 0),
        ([("b", 0), ("b", 1)], 0),
    ]


async def test_each_file_is_forgotten_by_itself_and_not_planned_again(tasks: Sequence[ScanTask]) -> None:
    reader = FakeReader()
    job = (await jobs_of(reader, tasks))[1]
    assert job.forget() is False
    assert reader.forgotten == [("store:", "b")]
    assert job.distrust is None


async def test_no_task() -> None:
    assert await jobs_of(FakeReader(), ()) == []

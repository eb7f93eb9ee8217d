"""The outputs of a rewrite before they have their names: hidden files, and the records by which the same job,
run again, takes them over.

A job writes its plan first, and a record behind the files that are complete. Where it is killed, the next
call finds both: if it would follow an equal plan, it does only what no record covers. A record is trusted as
far as its files are there in their sizes.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa

from accel.arrays import from_ipc, to_ipc
from accel.errors import IndexFormatError
from accel.format.embedded import check_seal, seal
from accel.maintenance.commits import DirectoryCommit
from accel.maintenance.layout import WrittenFile
from accel.options import check_options
from accel.store.clients import Connector
from accel.store.location import Location
from accel.tables.journal import STAGE_PREFIX
from accel.writing.table_writer import open_target

__all__ = [
    "PLAN_NAME",
    "OutputRecord",
    "RestartUnit",
    "RewritePlan",
    "find_outputs",
    "open_staged",
    "record_name",
    "staged_name",
]

PLAN_NAME: Final = "plan.json"
_RECORD: Final = re.compile(r"(\d{5,9})-(\d{5,9})\.json")


class RestartUnit(enum.StrEnum):
    """What a job that is run again takes over."""

    FILE = "file"
    """Each file: the rows of a folder have one order, and files cut it."""
    PART = "part"
    """All files of a part together: of equal rows, each attempt at the part may put others first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RewritePlan:
    """How the rows of a table are cut into outputs, as far as its files and the arguments do not say it."""

    key: str
    """A digest of the versions of all files and of the arguments."""
    curve: tuple[pa.Table, ...] = ()
    """The limits of `Ordering`, which a sample of the rows gave."""
    limits: pa.Table | None = None
    """The keys between the parts."""
    firsts: tuple[int, ...] = ()
    """The number of the first part of each folder, and in the end of all parts."""

    def encode(self) -> bytes:
        """Return the content of the object."""
        return _encode(
            {
                "key": self.key,
                "curve": [_text_of(table) for table in self.curve],
                "limits": None if self.limits is None else _text_of(self.limits),
                "firsts": self.firsts,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the content of the object. Raises IndexFormatError."""
        with _damage("plan"):
            found = _decode(data)
            return cls(
                key=str(found["key"]),
                curve=tuple(_table_of(text) for text in found["curve"]),
                limits=None if found["limits"] is None else _table_of(found["limits"]),
                firsts=tuple(int(first) for first in found["firsts"]),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """Files that are complete: one file of a folder, or all files of a part."""

    start: int
    """Rows of the folder or part before these files."""
    files: tuple[WrittenFile, ...]

    @property
    def rows(self) -> int:
        """Rows of these files."""
        return sum(file.rows for file in self.files)

    def encode(self) -> bytes:
        """Return the content of the object."""
        return _encode(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the content of the object. Raises IndexFormatError."""
        with _damage("record"):
            found = _decode(data)
            files = [WrittenFile(**{**each, "warnings": tuple(each["warnings"])}) for each in found["files"]]
            return cls(start=found["start"], files=tuple(files))


def _encode(content: Mapping[str, Any]) -> bytes:
    return seal(json.dumps(content).encode())


def _decode(data: bytes) -> Any:
    check_seal(data)
    return json.loads(data)


@contextlib.contextmanager
def _damage(what: str) -> Iterator[None]:
    try:
        yield
    except (IndexFormatError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise IndexFormatError(f"the {what} of a rewrite is damaged") from error


def _text_of(table: pa.Table) -> str:
    return base64.b64encode(to_ipc(table)).decode()


def _table_of(text: str) -> pa.Table:
    return from_ipc(base64.b64decode(text, validate=True))


def staged_name(part: int, number: int) -> str:
    """Return a name for a new file of a part, which no other attempt uses."""
    return f"{part:05d}-{number:05d}-{secrets.token_hex(4)}.parquet"


def record_name(part: int, number: int) -> str:
    """Return the name of the record of files of a part, from a number on."""
    return f"{part:05d}-{number:05d}.json"


def _numbers_of(name: str) -> tuple[int, int]:
    part, number = name.removesuffix(".json").split("-")
    return int(part), int(number)


@contextlib.contextmanager
def open_staged(target: Location, job: str, name: str, given: Mapping[str, Any]) -> Iterator[BinaryIO]:
    """Open a new file that appears under a hidden name of a job when the context ends well.

    Parameters
    ----------
    target : Location
        The directory.
    job : str
        The name of the job.
    name : str
        As `staged_name` returns it.
    given : mapping
        The store, its options, and accel's, as far as they are given.
    """
    whole: dict[str, Any] = {"store": None, "storage_options": None, **given}
    whole["options"] = check_options(whole.get("options"))
    path = f"{target.path}{STAGE_PREFIX}{job}-{name}"
    place = Location(target.scheme, target.root, path, target.options)
    with open_target(place, Connector(**whole)) as file:
        yield file


async def find_outputs(
    directory: DirectoryCommit, key: str, unit: RestartUnit
) -> tuple[RewritePlan, dict[int, list[WrittenFile]]] | None:
    """Return the plan of a job that was killed, and the files that it completed of each folder or part, and
    remove all others.

    Returns
    -------
    tuple or None
        None if there is no such plan.
    """
    sizes = await directory.staged_files()
    if PLAN_NAME not in sizes:
        return None
    try:
        plan = RewritePlan.decode(await directory.read_staged(PLAN_NAME))
    except IndexFormatError:
        return None
    if plan.key != key:
        return None
    names = sorted((name for name in sizes if _RECORD.fullmatch(name)), key=_numbers_of)
    contents = await directory.read_all_staged(names)
    found: dict[int, list[WrittenFile]] = {}
    used = {PLAN_NAME}
    for name in names:
        part, number = _numbers_of(name)
        before = found.get(part, [])
        try:
            record = OutputRecord.decode(contents[name])
        except IndexFormatError:
            continue
        # Another process may have been at the same folder: only files that follow each other go together.
        follows = (number, record.start) == (len(before), sum(file.rows for file in before))
        whole = all(sizes.get(file.name) == file.size for file in record.files)
        if follows and whole and (unit is RestartUnit.FILE or not before):
            found[part] = [*before, *record.files]
            used |= {name, *(file.name for file in record.files)}
    await directory.remove_staged([name for name in sizes if name not in used])
    return plan, found

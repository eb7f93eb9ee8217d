"""The actions of a Delta log, as columns: files that come and go, protocol, metadata, sidecars.

Commits are JSON, an action on each line. Lines that say what the table is are few, and read one by one; those
of files are read together by pyarrow's reader, for which their schema has to be known.

Source: the Delta protocol, "Actions".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accel.arrays import from_numpy, mask
from accel.errors import TableFormatError
from accel.memory import returning_pool
from accel.options import MIB

__all__ = [
    "BLOCK_BYTES",
    "VECTOR_TYPE",
    "FileActions",
    "Sidecar",
    "TableActions",
    "read_file_actions",
    "read_table_actions",
]

VECTOR_TYPE: Final = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
"""What an action says of a deletion vector."""
BLOCK_BYTES: Final = 1 * MIB
"""Bytes of JSON that are parsed at a time, which takes several times as much memory."""
_NEWLINE: Final = re.compile(rb"\n")
_NAMED: Final = re.compile(rb'"(?:metaData|protocol|sidecar|checkpointMetadata|inCommitTimestamp)"')


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A file of a v2 checkpoint that has its files."""

    path: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableActions:
    """What some actions say of the table."""

    protocol: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    sidecars: tuple[Sidecar, ...] = ()
    timestamp: int | None = None
    """The time within the commit, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileActions:
    """Files that come and go, in the order of the log."""

    path: pa.Array
    """As it is written: percent-encoded."""
    size: pa.Array
    """Null where the file goes."""
    added: np.ndarray[Any, np.dtype[np.bool_]]
    """Whether the file comes."""
    partition: Mapping[str, pa.Array]
    """By physical name, the texts of the partition values."""
    vector: pa.Array
    """Of `VECTOR_TYPE`."""
    stats: pa.Array
    """The texts of the statistics."""
    commit: np.ndarray[Any, np.dtype[np.int64]]
    """The number of the commit, among those that were read together, that has the action; -1 for those of a
    checkpoint."""

    def __len__(self) -> int:
        return len(self.path)

    @classmethod
    def none(cls, partition: Iterable[str]) -> FileActions:
        """Return no actions."""
        texts = pa.nulls(0, pa.string())
        return cls(
            path=texts,
            size=pa.nulls(0, pa.int64()),
            added=np.zeros(0, bool),
            partition={name: texts for name in partition},
            vector=pa.nulls(0, VECTOR_TYPE),
            stats=texts,
            commit=np.zeros(0, np.int64),
        )

    @classmethod
    def concat(cls, parts: Sequence[FileActions]) -> FileActions:
        """Return the actions of several parts of a log, one part at least, in their order."""
        if len(parts) == 1:
            return parts[0]

        def joined(arrays: Iterable[pa.Array]) -> pa.Array:
            return pa.concat_arrays(list(arrays), memory_pool=returning_pool())

        no_vectors = all(part.vector.null_count == len(part) for part in parts)
        return cls(
            path=joined(part.path for part in parts),
            size=joined(part.size for part in parts),
            added=np.concatenate([part.added for part in parts]),
            partition={name: joined(part.partition[name] for part in parts) for name in parts[0].partition},
            vector=pa.nulls(sum(map(len, parts)), VECTOR_TYPE)
            if no_vectors
            else joined(part.vector for part in parts),
            stats=joined(part.stats for part in parts),
            commit=np.concatenate([part.commit for part in parts]),
        )


def read_table_actions(data: memoryview) -> TableActions:
    """Return what the lines of a commit, or of a v2 checkpoint in JSON, say of the table.

    Raises
    ------
    TableFormatError
        A line is no action.
    """
    protocol = metadata = timestamp = None
    sidecars: list[Sidecar] = []
    for line in _lines_that_name(bytes(data)) if _NAMED.search(data) else ():
        try:
            action = json.loads(line)
            if not isinstance(action, dict):
                raise TypeError("no object")
            if action.get("protocol") is not None:
                protocol = _object(action["protocol"])
            if action.get("metaData") is not None:
                metadata = _object(action["metaData"])
            if action.get("sidecar") is not None:
                found = _object(action["sidecar"])
                sidecars.append(sidecar_of(found))
            if action.get("commitInfo") is not None and timestamp is None:
                given = _object(action["commitInfo"]).get("inCommitTimestamp")
                timestamp = given if isinstance(given, int) and not isinstance(given, bool) else None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if isinstance(error, TableFormatError):
                raise
            raise TableFormatError(f"a line of the log cannot be read: {error!r:.200}") from error
    return TableActions(protocol=protocol, metadata=metadata, sidecars=tuple(sidecars), timestamp=timestamp)


def sidecar_of(found: Mapping[str, Any]) -> Sidecar:
    """Read the action `sidecar`.

    Raises
    ------
    TableFormatError
        It names no file of the directory of sidecars.
    """
    path, size = found.get("path"), found.get("sizeInBytes")
    if not isinstance(path, str) or not path or "/" in path or path in (".", ".."):
        raise TableFormatError(f"{path!r:.100} is no file of the directory of sidecars")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise TableFormatError(f"the sidecar {path!r:.100} has the size {size!r:.40}")
    return Sidecar(path, size)


def read_file_actions(data: Sequence[memoryview], partition: Sequence[str]) -> list[FileActions]:
    """Return the files that commits add and remove, in parts of about as many bytes.

    Parameters
    ----------
    data : sequence of memoryview
        The commits, in order.
    partition : sequence of str
        The physical names of the partition columns.

    Raises
    ------
    TableFormatError
        A line is no JSON, or no action.
    """
    return [
        _read_block(b"\n".join(pieces), partition, lines=lines, commits=commits)
        for pieces, lines, commits in _blocks(data)
    ]


def _schema(data: bytes, partition: Sequence[str]) -> pa.Schema:
    """Return the fields of actions that some lines may have: each takes its time for every line."""
    # A key may be written with escapes.
    escaped = b"\\" in data and b"\\u" in data
    vector = [("deletionVector", VECTOR_TYPE)] if escaped or b'"deletionVector"' in data else []
    fields: list[tuple[str, pa.DataType]] = [("path", pa.string()), ("size", pa.int64()), *vector]
    if escaped or b'"stats"' in data:
        fields.append(("stats", pa.string()))
    if partition:
        fields.append(("partitionValues", pa.struct([(name, pa.string()) for name in partition])))
    actions = [("add", pa.struct(fields))]
    if escaped or b'"remove"' in data:
        actions.append(("remove", pa.struct([("path", pa.string()), *vector])))
    return pa.schema(actions)


def _blocks(data: Iterable[memoryview]) -> Iterator[tuple[list[memoryview], list[int], list[int]]]:
    """Yield the lines of commits in blocks of about `BLOCK_BYTES`: some pieces, and for each the number of
    its lines and the number of its commit."""
    pieces: list[memoryview] = []
    lines: list[int] = []
    commits: list[int] = []
    nbytes = 0
    for number, commit in enumerate(data):
        for piece in _pieces(commit):
            count = _count_lines(piece)
            if not count:
                continue
            if pieces and nbytes + len(piece) > BLOCK_BYTES:
                yield pieces, lines, commits
                pieces, lines, commits, nbytes = [], [], [], 0
            pieces.append(piece)
            lines.append(count)
            commits.append(number)
            nbytes += len(piece)
    if pieces:
        yield pieces, lines, commits


def _pieces(commit: memoryview) -> Iterator[memoryview]:
    """Yield a commit in pieces of whole lines, of about `BLOCK_BYTES` as far as the lines allow."""
    start = 0
    while len(commit) - start > BLOCK_BYTES:
        found = _NEWLINE.search(commit, start + BLOCK_BYTES)
        if found is None:
            break
        yield commit[start : found.end()]
        start = found.end()
    yield commit[start:]


def _count_lines(data: memoryview) -> int:
    """Return the number of lines that are not blank."""
    if not len(data):
        return 0
    characters = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero(characters[:-1] == ord("\n")) + 1
    begun = int(characters[0] == ord("{")) + int(np.count_nonzero(characters[starts] == ord("{")))
    if begun == len(starts) + 1:
        return begun
    return sum(1 for line in bytes(data).split(b"\n") if line.strip())


def _read_block(
    data: bytes, partition: Sequence[str], *, lines: Sequence[int], commits: Sequence[int]
) -> FileActions:
    """Return the files of some lines, of which so many are of each of the commits."""
    try:
        if not data.isascii():
            data.decode()  # which pyarrow does not check
    except UnicodeDecodeError as error:
        raise TableFormatError(f"a line of the log is no text: {error}") from None
    table = parse_lines(data, _schema(data, partition))
    if sum(lines) != table.num_rows:
        raise TableFormatError("the lines of the log are not an action each")
    adds = _struct(table.column("add"))
    removes = _struct(table.column("remove")) if "remove" in table.column_names else None
    added = mask(adds.is_valid())
    removed = np.zeros(len(added), bool) if removes is None else mask(removes.is_valid())
    if (added & removed).any():
        raise TableFormatError("a line of the log has two actions")
    which = np.flatnonzero(added | removed)
    at = None if len(which) == len(added) else from_numpy(which)

    def chosen(struct: pa.Array, *path: str) -> pa.Array:
        found = pc.struct_field(struct, list(path))
        return found if at is None else found.take(at)

    def vectors(struct: pa.Array) -> pa.Array:
        has = struct.type.get_field_index("deletionVector") >= 0
        return chosen(struct, "deletionVector") if has else pa.nulls(len(which), VECTOR_TYPE)

    path, vector = chosen(adds, "path"), vectors(adds)
    if removes is not None:
        is_added = from_numpy(added[which])
        path = pc.if_else(is_added, path, chosen(removes, "path"))
        vector = pc.if_else(is_added, vector, vectors(removes))
    has_stats = adds.type.get_field_index("stats") >= 0
    return checked(
        FileActions(
            path=path,
            size=chosen(adds, "size"),
            added=added[which],
            partition={name: chosen(adds, "partitionValues", name) for name in partition},
            vector=_short(vector),
            stats=chosen(adds, "stats") if has_stats else pa.nulls(len(which), pa.string()),
            commit=np.repeat(np.array(commits, np.int64), lines)[which],
        )
    )


def _short(vectors: pa.Array) -> pa.Array:
    """Return vectors; where there is none, as nulls that share their bytes."""
    return pa.nulls(len(vectors), VECTOR_TYPE) if vectors.null_count == len(vectors) else vectors


def checked(actions: FileActions) -> FileActions:
    """Return actions after a check that they name files and sizes.

    Raises
    ------
    TableFormatError
        One does not.
    """
    if actions.path.null_count:
        raise TableFormatError("an action of the log names no file")
    try:
        vectors = () if actions.vector.null_count == len(actions) else (actions.vector,)
        for array in (actions.path, *vectors, *actions.partition.values()):
            array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise TableFormatError(f"an action of the log has what is no text: {error!s:.160}") from None
    sizes = actions.size.filter(from_numpy(actions.added))
    if sizes.null_count or (len(sizes) and pc.min(sizes).as_py() < 0):
        raise TableFormatError("an action of the log gives no size for its file")
    return actions


def parse_lines(data: bytes | pa.Buffer, schema: pa.Schema) -> pa.Table:
    """Return the values of lines of JSON that a schema names, a row for each line.

    Raises
    ------
    TableFormatError
        A line is no JSON, or a value is of another type.
    """
    import pyarrow.json as paj

    try:
        return paj.read_json(
            pa.BufferReader(data),
            read_options=paj.ReadOptions(use_threads=False, block_size=max(1, len(data) + 1)),
            parse_options=paj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            memory_pool=returning_pool(),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError) as error:
        raise TableFormatError(f"a line cannot be read as JSON: {error!s:.200}") from error


def _lines_that_name(data: bytes) -> Iterator[bytes]:
    """Yield the lines that may hold other actions than of files."""
    last = -1
    for found in _NAMED.finditer(data):
        if found.start() < last:
            continue
        start = data.rfind(b"\n", 0, found.start()) + 1
        end = data.find(b"\n", found.start())
        last = len(data) if end < 0 else end
        line = data[start:last]
        if len(line) < 1 << 20 or not line.lstrip().startswith((b'{"add"', b'{"remove"')):
            yield line


def _object(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise TypeError("an action is an object")
    return found


def _struct(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)

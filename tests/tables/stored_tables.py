"""Tables that others have written, kept in the repository, with the rows that their own engine reads of them."""

from __future__ import annotations

import base64
import datetime
import functools
import io
import json
import tarfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from accel.testing import DictStore

STORED = Path(__file__).parent / "iceberg"


@dataclass(frozen=True, eq=False)
class StoredTable:
    """A table of the repository."""

    name: str
    objects: dict[str, bytes]
    """By path in a store in which all of its URLs lead to it."""
    directory: str
    versions: dict[str, dict[str, Any]]
    """By version, the columns and the rows, which are sorted, as JSON has them."""

    @functools.cached_property
    def store(self) -> DictStore:
        """One store for all tests, as they only read."""
        return DictStore(dict(self.objects))


@functools.cache
def stored_table(name: str) -> StoredTable:
    with pa.CompressedInputStream(pa.OSFile(str(STORED / f"{name}.tar.zst")), "zstd") as packed:
        data = packed.read()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    facts = json.loads(files.pop("expected.json"))
    below = facts["lake"].strip("/")
    objects = {f"{below}/{path}": content for path, content in files.items()}
    return StoredTable(name, objects, f"{below}/db/{name}", facts["versions"])


def as_json(value: Any, kind: pa.DataType) -> Any:
    """A value as Spark's `to_json` has it: null fields of structs are left out, bytes are base64."""
    t = pa.types
    if value is None:
        return None
    if t.is_struct(kind):
        found = {field.name: as_json(value[field.name], field.type) for field in kind}
        return {name: one for name, one in found.items() if one is not None}
    if t.is_map(kind):
        return {str(key): as_json(one, kind.item_type) for key, one in value}
    if t.is_list(kind):
        return [as_json(one, kind.value_type) for one in value]
    if t.is_float32(kind):
        return float(str(np.float32(value)))
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z" if value.tzinfo is not None else text
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and np.isnan(value):
        return "NaN"
    return value


def rows_of(table: pa.Table) -> list[list[Any]]:
    """The rows as the stored ones are: sorted by their text."""
    columns = [
        [as_json(value, field.type) for value in table[field.name].to_pylist()] for field in table.schema
    ]
    return sorted([list(row) for row in zip(*columns, strict=True)], key=json.dumps)

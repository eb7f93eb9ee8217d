"""What has happened to the columns of a data set since its older files were written.

Types may have changed so that digits are lost, fields may have been added with a default, and nulls of a
column may stand for a value that the file has as a whole.

Sources: the Iceberg specification, "Default values" and "Row Lineage"; DuckLake, "Schema Evolution".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from accel.arrays import from_ipc, repeat_scalar, to_ipc
from accel.planning.promotion import Promotion

__all__ = ["NO_DEFAULTS", "NO_EVOLUTION", "Evolution", "FieldDefaults"]


@dataclass(frozen=True, slots=True, eq=False)
class FieldDefaults:
    """The values of what a file lacks below a column: of fields of structs, at any depth."""

    values: Mapping[tuple[str, ...], pa.Scalar] = field(default_factory=dict)
    """By path; below a list it goes on by "element", below a map by "key" and "value"."""

    def below(self, name: str) -> FieldDefaults:
        """Return those below a field."""
        if not self.values:
            return self
        return FieldDefaults({path[1:]: value for path, value in self.values.items() if path[0] == name})

    def of(self, name: str) -> pa.Scalar | None:
        """Return the value of a field; None for null."""
        return self.values.get((name,))


NO_DEFAULTS: Final = FieldDefaults()


@dataclass(frozen=True, eq=False)
class Evolution:
    """How the columns of a data set may differ from those of its files."""

    promotion: Promotion = Promotion.EXACT
    """The changes of types that are followed."""
    defaults: FieldDefaults = NO_DEFAULTS
    """Those of fields below columns; those of columns are in the mapping of each file."""
    coalesced: frozenset[str] = frozenset()
    """Columns whose nulls in a file stand for the default that the mapping of the file has."""

    @cached_property
    def metadata(self) -> Mapping[bytes, bytes]:
        """It as metadata of a schema; none where nothing has happened."""
        if self.promotion is Promotion.EXACT and not self.defaults.values and not self.coalesced:
            return {}
        import json

        paths = list(self.defaults.values)
        told = {"promotion": self.promotion.value, "coalesced": sorted(self.coalesced), "defaults": paths}
        arrays = [repeat_scalar(value, 1) for value in self.defaults.values.values()]
        values = pa.RecordBatch.from_arrays(arrays, names=[str(at) for at in range(len(paths))])
        return {_TOLD: json.dumps(told).encode(), _VALUES: to_ipc(values)}

    @classmethod
    def decode(cls, metadata: Mapping[bytes, bytes] | None) -> Evolution:
        """Return what `metadata` is made of."""
        if metadata is None or _TOLD not in metadata:
            return NO_EVOLUTION
        import json

        told: Mapping[str, Any] = json.loads(metadata[_TOLD])
        columns: Sequence[pa.ChunkedArray] = from_ipc(metadata[_VALUES]).columns
        paths = [tuple(map(str, path)) for path in told["defaults"]]
        values = {path: column[0] for path, column in zip(paths, columns, strict=True)}
        return cls(
            Promotion(told["promotion"]), FieldDefaults(values), frozenset(map(str, told["coalesced"]))
        )


_TOLD: Final = b"evolution"
_VALUES: Final = b"evolution.values"
NO_EVOLUTION: Final = Evolution()

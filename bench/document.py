"""The report as data: every sample, and what the run was."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.sample import Failure, Sample
from bench.suite import Case
from bench.summary import Summary, summarise

__all__ = ["CaseNote", "Document", "about_machine", "joined", "read_document", "write_document"]

FORMAT = 1
_VERSIONS = (
    "accel-parquet",
    "arro3-io",
    "datafusion",
    "duckdb",
    "duckdb-extension-httpfs",
    "numpy",
    "obstore",
    "polars",
    "pyarrow",
    "pyspark",
    "tpchgen-cli",
)


@dataclass(frozen=True, slots=True)
class CaseNote:
    """What readers of a report are told of a case."""

    name: str
    what: str
    axis: str

    @classmethod
    def of(cls, case: Case) -> CaseNote:
        """The note of a case."""
        return cls(case.name, case.what, case.axis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A run."""

    scale: str
    systems: Sequence[str]
    cases: Mapping[str, CaseNote]
    samples: Sequence[Sample]
    failures: Sequence[Failure]
    skipped: Mapping[str, str]
    """Systems, data sets and micro-benchmarks that were left out, and why."""
    micro: Mapping[str, Mapping[str, float]]
    """What each micro-benchmark measured, by its own names."""
    machine: Mapping[str, Any]
    network: Mapping[str, float]
    store: str = "minio"
    """Who answered reads of objects (`bench.network.Store`); reports that do not say are older than the other
    one."""
    effort: Mapping[str, float | None] = field(default_factory=dict)
    """How the samples were taken (`bench.runner.Effort`): seconds, and rounds at least."""
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The "systems" and "cases" that were asked for by name; what is not here were all."""
    format: int = FORMAT
    _summary: list[Summary] = field(default_factory=list, repr=False, compare=False)

    @property
    def summary(self) -> Summary:
        """The samples brought together, once."""
        if not self._summary:
            self._summary.append(summarise(self.samples))
        return self._summary[0]

    @property
    def setting(self) -> str:
        """What runs must share to be compared: the scale, and the store where it is not MinIO itself."""
        return self.scale if self.store == "minio" else f"{self.scale}, {self.store}"

    @property
    def wrong(self) -> list[Failure]:
        """Where systems disagreed about the rows."""
        return [failure for failure in self.failures if failure.kind == "rows"]


def joined(first: Document, other: Document) -> Document:
    """Return a run with the cases of another one in place of its own of these names.

    The load of the machine is the greater one.

    Raises
    ------
    ValueError
        They differ in what runs must share to be compared, or in the network or the versions measured.
    """
    for what, one, two in (
        ("settings", first.setting, other.setting),
        ("networks", first.network, other.network),
        ("versions", first.machine["versions"], other.machine["versions"]),
    ):
        if one != two:
            raise ValueError(f"the runs differ in their {what}: {one} and {two}")
    of_other = {sample.case for sample in other.samples}
    return dataclasses.replace(
        first,
        cases={**first.cases, **other.cases},
        samples=[*(one for one in first.samples if one.case not in of_other), *other.samples],
        failures=[*(one for one in first.failures if one.case not in of_other), *other.failures],
        machine={**first.machine, "load": max(first.machine["load"], other.machine["load"])},
        _summary=[],
    )


def about_machine() -> dict[str, Any]:
    """What absolute times hold for, and the versions that were measured."""
    versions = {}
    for name in _VERSIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": versions,
    }


def write_document(document: Document, path: Path) -> None:
    """As JSON, a sample a line."""
    fields = {f.name: getattr(document, f.name) for f in dataclasses.fields(document) if f.name[0] != "_"}
    fields["cases"] = {name: dataclasses.asdict(note) for name, note in document.cases.items()}
    fields["failures"] = [dataclasses.asdict(failure) for failure in document.failures]
    del fields["samples"]
    head = json.dumps(fields, indent=1)[:-2]
    lines = ",\n  ".join(json.dumps(dataclasses.asdict(sample)) for sample in document.samples)
    path.write_text(f'{head},\n "samples": [\n  {lines}\n ]\n}}\n')


def read_document(path: Path) -> Document:
    """What `write_document` wrote.

    Raises
    ------
    ValueError
        When it is of another version of this file's format.
    """
    fields = json.loads(path.read_text())
    if fields["format"] != FORMAT:
        raise ValueError(f"{path} is a report of format {fields['format']}, not {FORMAT}")
    fields["cases"] = {name: CaseNote(**note) for name, note in fields["cases"].items()}
    fields["failures"] = [Failure(**failure) for failure in fields["failures"]]
    fields["samples"] = [Sample(**sample) for sample in fields["samples"]]
    return Document(**fields)

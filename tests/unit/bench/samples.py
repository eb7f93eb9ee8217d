"""Samples and documents of made-up runs."""

from __future__ import annotations

from bench.document import CaseNote, Document
from bench.sample import Failure, Sample


def sample(system: str, seconds: float, *, case: str = "point", mode: str = "warm", **more: float) -> Sample:
    """A sample; what is not given is a round number."""
    values = {
        "at": 0,
        "round": 0,
        "rows": 1,
        "cpu": 0.01,
        "peak": 100,
        "requests": 5,
        "lists": 0,
        "trips": 1,
        "bytes": 1000,
    }
    return Sample(case=case, mode=mode, system=system, seconds=seconds, first=seconds, **(values | more))  # type: ignore[arg-type]


def document(*samples: Sample, failures: tuple[Failure, ...] = (), **more: object) -> Document:
    """A run of these samples."""
    fields: dict[str, object] = {
        "scale": "quick",
        "systems": list(dict.fromkeys(s.system for s in samples)),
        "cases": {s.case: CaseNote(s.case, f"what {s.case} is", "") for s in samples},
        "samples": list(samples),
        "failures": list(failures),
        "skipped": {},
        "micro": {},
        "machine": {"cores": 2, "load": 0.5, "processor": "x", "versions": {"pyarrow": "26"}},
        "network": {"first_byte": 0.03, "bandwidth": 9e7},
    }
    return Document(**(fields | more))  # type: ignore[arg-type]

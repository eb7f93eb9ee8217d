"""How large the data is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QUICK", "Scale", "of_factor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of every data set. Reports and baselines of different scales are not compared."""

    name: str
    lineitem: float
    """TPC-H scale factor; 1 is six million lines."""
    synthetic_rows: int
    synthetic_groups: int
    wide_columns: tuple[int, ...]
    """Columns of the wide tables, ascending; the last is the one that queries ask."""
    wide_groups: int
    file_counts: tuple[int, ...]
    """Files of the directories of small files, ascending; the last is the one that queries ask."""
    file_rows: int
    larger_files: int
    """Files of the directory of larger ones, of which a first read brings only a part."""
    larger_rows: int
    small_groups: int
    """Row groups of the file of small ones."""
    group_rows: int
    at_once: int
    """Lookups that are asked all at the same time."""
    by_spark: bool
    """Whether Spark writes lineitem too: it takes half a minute to start and write."""


QUICK = Scale(
    name="quick",
    lineitem=0.05,
    synthetic_rows=400_000,
    synthetic_groups=2,
    wide_columns=(20, 100, 400),
    wide_groups=20,
    file_counts=(10, 50, 200),
    file_rows=500,
    larger_files=50,
    larger_rows=5_000,
    small_groups=400,
    group_rows=500,
    at_once=64,
    by_spark=False,
)


def of_factor(factor: float) -> Scale:
    """The scale of a whole run: only lineitem grows with TPC-H's factor."""
    return Scale(
        name=f"scale-{factor:g}",
        lineitem=factor,
        synthetic_rows=2_000_000,
        synthetic_groups=4,
        wide_columns=(20, 200, 1000, 2000),
        wide_groups=20,
        file_counts=(10, 100, 500, 2000),
        file_rows=500,
        larger_files=1_000,
        larger_rows=5_000,
        small_groups=2_000,
        group_rows=500,
        at_once=256,
        by_spark=True,
    )

"""What the installed pyarrow can do: the one module that knows in which version of pyarrow a feature came.

A setting that a caller asks for and the installed pyarrow lacks is refused; accel's own defaults do without
it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

__all__ = [
    "arrow_major",
    "counts_allocations",
    "has_writer_option",
    "known_writer_options",
    "later_reads",
    "projects_without_rows",
    "reader_options",
    "require_writer_options",
]

_READER_OPTIONS: Final[Mapping[str, tuple[int, Any]]] = {
    "arrow_extensions_enabled": (21, True),
}
"""Keywords of `ParquetReader.open` that accel passes, the version that they came in, and their values."""

_WRITER_OPTIONS: Final[Mapping[str, int]] = {
    "bloom_filter_options": 24,
    "max_rows_per_page": 23,
    "use_content_defined_chunking": 21,
    "write_time_adjusted_to_utc": 23,
}
"""Keywords of `ParquetWriter`, and the version that they came in, where that is after the oldest that accel
supports."""


@functools.cache
def arrow_major() -> int:
    """Return the major version of the installed pyarrow."""
    return int(pa.__version__.partition(".")[0])


def later_reads(error: BaseException) -> str | None:
    """Return what a later pyarrow than the installed one reads, where that is why this error came; else
    None."""
    if arrow_major() < 26 and "Expected all lists to be of size" in str(error):
        return "pyarrow 26 reads null lists of fixed size"
    return None


def counts_allocations() -> bool:
    """Return whether pyarrow's memory pools count their allocations."""
    return arrow_major() >= 20


def projects_without_rows() -> bool:
    """Return whether pyarrow reads some columns of a file that has no row groups."""
    return arrow_major() >= 20


@functools.cache
def reader_options() -> Mapping[str, Any]:
    """Return the keywords of pyarrow's Parquet reader that let it read the types of files as it can."""
    return {name: value for name, (since, value) in _READER_OPTIONS.items() if arrow_major() >= since}


def has_writer_option(name: str) -> bool:
    """Return whether pyarrow's Parquet writer has an option, of those that came with a later version."""
    return arrow_major() >= _WRITER_OPTIONS.get(name, 0)


def known_writer_options(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of pyarrow's Parquet writer without those that it does not have."""
    return {name: value for name, value in defaults.items() if has_writer_option(name)}


def require_writer_options(required: Mapping[str, str]) -> None:
    """Refuse options of pyarrow's Parquet writer that it does not have.

    Parameters
    ----------
    required : mapping
        The name under which the caller set each option, by the option.

    Raises
    ------
    ValueError
        A later pyarrow is needed; the message says which.
    """
    for option, name in required.items():
        if not has_writer_option(option):
            raise ValueError(
                f"{name} needs pyarrow {_WRITER_OPTIONS[option]} or later, and {pa.__version__} is installed"
            )

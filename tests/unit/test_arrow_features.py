"""What is done and refused by the version of the installed pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel import arrow_features
from accel.writing.table_writer import file_settings

TABLE = pa.table({"a": pa.array([1, 2, 3])})


def _forget() -> None:
    arrow_features.arrow_major.cache_clear()
    arrow_features.reader_options.cache_clear()


@pytest.fixture
def oldest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pa, "__version__", "19.0.0")
    _forget()
    yield
    monkeypatch.undo()
    _forget()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"page_rows": 10_000}, "page_rows needs pyarrow 23 or later, and 19.0.0 is installed"),
        ({"max_rows_per_page": 5}, "max_rows_per_page needs pyarrow 23 or later"),
        ({"blooms": ["a"]}, "blooms needs pyarrow 24 or later"),
        ({"use_content_defined_chunking": True}, "use_content_defined_chunking needs pyarrow 21 or later"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.usefixtures("oldest")
def test_a_setting_says_which_pyarrow_it_needs(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        accel.write_table(TABLE, tmp_path / "f.parquet", **settings)
    (tmp_path / "d").mkdir()
    pq.write_table(TABLE, tmp_path / "d" / "f.parquet")
    with pytest.raises(ValueError, match=message):
        accel.optimize(tmp_path / "d", to=tmp_path / "e", **settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d"]


@pytest.mark.usefixtures("oldest")
def test_the_defaults_do_without(tmp_path: Path) -> None:
    assert "max_rows_per_page" not in file_settings()
    assert arrow_features.reader_options() == {}
    accel.write_table(TABLE, tmp_path / "f.parquet")
    assert pq.read_table(tmp_path / "f.parquet").equals(TABLE)


def test_the_installed_pyarrow_has_what_it_is_said_to_have() -> None:
    values: dict[str, Any] = {
        "bloom_filter_options": {"a": {"ndv": 3, "fpp": 0.1}},
        "max_rows_per_page": 2,
        "use_content_defined_chunking": True,
        "write_time_adjusted_to_utc": True,
    }
    # Not what the tests make of it for an older pyarrow.
    begin = getattr(pq.ParquetWriter.__init__, "__wrapped__", pq.ParquetWriter.__init__)
    for option, value in values.items():
        writer = pq.ParquetWriter.__new__(pq.ParquetWriter)
        try:
            begin(writer, pa.BufferOutputStream(), TABLE.schema, **{option: value})
            found = True
        except TypeError:
            found = False
        assert arrow_features.has_writer_option(option) is found, option


@pytest.mark.usefixtures("oldest")
def test_a_hint_where_a_later_pyarrow_reads_it() -> None:
    refused = pa.ArrowInvalid("Expected all lists to be of size=2 but index 2 had size=0")
    assert arrow_features.later_reads(refused) == "pyarrow 26 reads null lists of fixed size"
    assert arrow_features.later_reads(pa.ArrowInvalid("Unexpected end of stream")) is None

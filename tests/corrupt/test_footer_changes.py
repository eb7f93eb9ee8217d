"""Footers changed in any way, above all their schemas: an AccelError, or the rows that pyarrow gives; no
other exception.

`--large` makes 30,000 cases in place of 400.
"""

from __future__ import annotations

import pytest

from tests.corrupt.seeds import run_seeds

FEW, MANY = 400, 30_000


@pytest.mark.timeout(7200)
def test_changed_footers_give_rows_or_an_accel_error(large: bool) -> None:
    counts, faults = run_seeds("tests.corrupt.schema_worker", 0, MANY if large else FEW)
    assert faults == []
    assert counts["refused"] > FEW // 10 < counts["same rows"] + counts["answered"]

"""Whether levels say that a page begins with a row."""

from __future__ import annotations

import pytest

from accel.format.runs import begins_with_row


@pytest.mark.parametrize(
    ("levels", "most", "told"),
    [
        pytest.param(b"\x03\xfe", 1, True, id="packed, 0 first"),
        pytest.param(b"\x03\xef", 1, False, id="packed, 1 first"),
        pytest.param(b"\x03\xfc\xff", 2, True, id="packed in two bits"),
        pytest.param(b"\x03\xfe\xff", 3, False, id="packed, 2 first"),
        pytest.param(b"\x10\x00", 1, True, id="a run of 0"),
        pytest.param(b"\x10\x01", 1, False, id="a run of 1"),
        pytest.param(b"\x80\x01\x00", 1, True, id="a long run"),
        pytest.param(b"\x80\x01\x01", 1, False, id="a long run of 1"),
        pytest.param(b"\x00\x00", 1, False, id="a run of none"),
        pytest.param(b"\x01\xfe", 1, False, id="none packed"),
        pytest.param(b"\x10", 1, False, id="cut"),
        pytest.param(b"\x80\x80\x80\x80\x80\x80\x80", 1, False, id="no number"),
        pytest.param(b"", 1, False, id="nothing"),
        pytest.param(b"\x10\x00\x01", 256, False, id="two bytes"),
    ],
)
def test_the_first_level(levels: bytes, most: int, told: bool) -> None:
    assert begins_with_row(levels, most) is told
    assert begins_with_row(memoryview(levels), most) is told

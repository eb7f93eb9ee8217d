"""Failures of single requests, as they reach whoever asked."""

from __future__ import annotations

import pickle

import pytest

from accel.ranges import ByteRange
from accel.store.request_errors import (
    IncompleteBodyError,
    ObjectGoneError,
    ShortObjectError,
    SuffixUnsupportedError,
    foremost,
)

_WANT = ByteRange(10, 20)
_ERRORS = [
    IncompleteBodyError(
        "cut", path="f", range=_WANT, partial=memoryview(bytearray(b"abc")), size=90, etag='"e"'
    ),
    ShortObjectError(path="f", want=_WANT, size=12),
    SuffixUnsupportedError(path="f", sent=True, certain=False, status=416),
    ObjectGoneError("gone", path="f"),
]


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
def test_each_travels_to_another_process(error: Exception) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert {**vars(other), "partial": None} == {**vars(error), "partial": None}


def test_the_bytes_of_a_cut_body_stay_here() -> None:
    assert pickle.loads(pickle.dumps(_ERRORS[0])).partial == b""


def test_another_version_says_more_than_all_else() -> None:
    failures = [ValueError("x"), _ERRORS[0], ExceptionGroup("inner", [_ERRORS[3]])]
    assert foremost(ExceptionGroup("all", failures)) is _ERRORS[3]
    assert foremost(ExceptionGroup("some", failures[:2])) is _ERRORS[0]
    assert foremost(ExceptionGroup("one", failures[:1])) is failures[0]

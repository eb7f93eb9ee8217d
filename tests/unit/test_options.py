"""Every option has a documented default, and takes no nonsense."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import typing

import pytest

import accel
from accel.options import Options
from accel.testing import DictStore, table, write_file

FIELDS = [field.name for field in dataclasses.fields(Options) if field.name != "on_event"]
NUMBERS = [name for name in FIELDS if not isinstance(getattr(Options(), name), bool | enum.Enum)]
MAY_BE_ZERO = {
    "decode_threads",
    "max_gap_bytes",
    "inline_decode_bytes",
    "probe_min_bytes",
}
MAY_BE_INFINITE = {"backoff_max", "retry_seconds"}


@pytest.mark.parametrize("value", ["5s", None, True, b"1"], ids=repr)
def test_a_time_is_a_number(value: object) -> None:
    with pytest.raises(TypeError, match="option connect_timeout is a number, not"):
        Options(connect_timeout=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NUMBERS)
def test_below_zero_and_nan_are_refused(name: str) -> None:
    for value in (-1, float("nan")):
        with pytest.raises((ValueError, TypeError), match=f"option {name}"):
            Options(**{name: value})


@pytest.mark.parametrize("name", NUMBERS)
def test_zero(name: str) -> None:
    if name in MAY_BE_ZERO:
        assert getattr(Options(**{name: 0}), name) == 0
    else:
        with pytest.raises(ValueError, match=f"option {name}: 0 is too small"):
            Options(**{name: 0})


@pytest.mark.parametrize("name", NUMBERS)
def test_what_cannot_be_reckoned_with_is_refused(name: str) -> None:
    exact = not isinstance(getattr(Options(), name), float)
    for value in (1 << 62, 10**30) if exact else (1 << 62, 1e300, float("inf")):
        if value == float("inf") and name in MAY_BE_INFINITE:
            assert getattr(Options(**{name: value}), name) == value
            continue
        with pytest.raises(ValueError, match=f"option {name}: {re.escape(repr(value))} is too large"):
            Options(**{name: value})  # type: ignore[arg-type]
    assert getattr(Options(**{name: (1 << 62) - 1}), name) == (1 << 62) - 1


def test_with_the_largest_numbers_a_scan_runs() -> None:
    """Those of a name, not the timeouts: obstore takes these in milliseconds, and refuses them by name."""
    most = {name: (1 << 62) - 1 for name in NUMBERS if not name.endswith("timeout")}
    endless = dict.fromkeys(MAY_BE_INFINITE, float("inf"))
    store = DictStore({"f": write_file(table(a=[1, 2, 3]))})
    scan = accel.scan("f", "a > 1", store=store, cache=None, options=Options(**(most | endless)))  # type: ignore[arg-type]
    assert scan.to_table()["a"].to_pylist() == [2, 3]


@pytest.mark.parametrize("name", [n for n in NUMBERS if isinstance(getattr(Options(), n), int)])
@pytest.mark.parametrize("value", [1.5, "8", None, True])
def test_counts_and_sizes_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"option {name} is a whole number, not {value!r}"):
        Options(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_gap_bytes", "max_coalesced_bytes", "probe_min_bytes", "tail_hint"])
def test_what_is_learned_where_nothing_is_said(name: str) -> None:
    assert getattr(Options(), name) is None
    assert getattr(Options(**{name: 5}), name) == 5  # type: ignore[arg-type]
    for value in (1.5, "8", True):
        with pytest.raises(TypeError, match=f"option {name} is a whole number"):
            Options(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["strict", "allow_unpinned"])
@pytest.mark.parametrize("value", ["no", 1, None])
def test_switches_are_true_or_false(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"option {name} is True or False, not {value!r}"):
        Options(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["phases", "transport", "int96_unit"])
def test_a_choice_is_a_member_or_its_text_also_for_type_checkers(name: str) -> None:
    kind, texts = typing.get_args(typing.get_type_hints(Options)[name])
    assert [member.value for member in kind] == list(typing.get_args(texts))
    for member in kind:
        assert Options(**{name: member.value}) == Options(**{name: member})


def test_every_one_is_documented() -> None:
    source = inspect.getsource(Options)
    for before, after in zip(FIELDS, [*FIELDS[1:], "def "], strict=True):
        text = source[source.index(f"    {before}: ") : source.index(f"    {after}")]
        assert '"""' in text, before


@pytest.mark.parametrize(
    ("piece", "memory", "cut"),
    [(100, 10_000, 100), (100, 800, 100), (100, 799, 99), (100, 80, 10), (100, 1, 1)],
)
def test_pieces_are_cut_to_what_memory_allows(piece: int, memory: int, cut: int) -> None:
    assert Options(piece_bytes=piece, memory_limit=memory).cut_bytes == cut


def test_they_are_immutable_and_equal_by_value() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        accel.Options().batch_rows = 3  # type: ignore[misc]
    assert accel.Options(batch_rows=3) == dataclasses.replace(accel.Options(), batch_rows=3)

"""Our dataclasses against those of the standard library: the same from outside, whatever is asked of them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import weakref
from dataclasses import field
from typing import Any, ClassVar

import pytest

from accel import records

FLAGS: dict[str, dict[str, bool]] = {
    "frozen": {"frozen": True, "slots": True},
    "frozen, by identity": {"frozen": True, "slots": True, "eq": False},
    "mutable": {"slots": True},
    "mutable, by identity": {"slots": True, "eq": False},
    "keywords only": {"frozen": True, "slots": True, "kw_only": True},
    "weak references": {"frozen": True, "slots": True, "weakref_slot": True},
    "no repr": {"frozen": True, "slots": True, "repr": False},
    "ordered": {"frozen": True, "slots": True, "order": True},
    "no slots": {"frozen": True},
}


def plain() -> type:
    class Point:
        """A docstring."""

        x: int
        y: float = 1.5

    return Point


def full() -> type:
    class Full:
        kind: ClassVar[str] = "full"
        a: int
        b: list[int] = field(default_factory=list)
        c: str = "c"
        hidden: int = field(default=3, repr=False)
        aside: int = field(default=4, compare=False)
        only: int = field(default=5, kw_only=True)
        derived: int = field(init=False)
        noted: int = field(default=7, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "derived", self.a * 2)

        @property
        def twice(self) -> int:
            return self.a * 2

        def __len__(self) -> int:
            return self.a

    return Full


def single() -> type:
    class Single:
        value: Any

    return Single


def empty() -> type:
    class Empty:
        """No fields."""

    return Empty


def shown() -> type:
    class Shown:
        x: int

        def __repr__(self) -> str:
            return f"<{self.x}>"

    return Shown


def compared() -> type:
    class Compared:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

    return Compared


CLASSES = {
    "shown": shown,
    "compared": compared,
    "plain": plain,
    "full": full,
    "single": single,
    "empty": empty,
}
ARGUMENTS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "plain": [
        ((1,), {}),
        ((1, 2.5), {}),
        ((), {"x": 1, "y": 2.5}),
        ((), {}),
        ((1, 2, 3), {}),
        ((), {"x": 1, "z": 2}),
    ],
    "full": [
        ((1,), {}),
        ((1, [2], "d", 8, 9), {"only": 6}),
        ((), {"a": 1, "aside": 100}),
        ((), {"a": 1, "derived": 5}),
    ],
    "single": [((2.5,), {}), (([],), {}), ((), {"value": 1})],
    "empty": [((), {}), ((1,), {})],
    "shown": [((1,), {}), ((2,), {})],
    "compared": [((1,), {}), ((2,), {})],
}


def outcome(call: Any) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001
        return type(error)


def observed(cls: type, flags: dict[str, bool], arguments: list[Any]) -> list[Any]:
    """All that can be seen of a class and of what it makes."""
    seen: list[Any] = [cls.__name__, cls.__qualname__, cls.__module__, getattr(cls, "__slots__", None)]
    made = []
    for args, kwargs in arguments:
        one = outcome(lambda args=args, kwargs=kwargs: cls(*args, **kwargs))
        if isinstance(one, type):
            seen.append(one)
            continue
        made.append(one)
        text = repr(one)
        seen.append(text.split(" at 0x")[0])
        seen.append(outcome(lambda one=one: type(hash(one))))
        for name in cls.__match_args__[:1]:
            seen.append(outcome(lambda one=one, name=name: setattr(one, name, 5)))
            if flags.get("frozen"):
                seen.append(outcome(lambda one=one, name=name: delattr(one, name)))
        again = outcome(lambda args=args, kwargs=kwargs: cls(*args, **kwargs))
        seen += [one == again, one != again, outcome(lambda one=one, again=again: one < again), one == 5]
        seen.append(outcome(lambda again=again: repr(copy.copy(again)).split(" at 0x")[0]))
        seen.append(outcome(lambda again=again: [f.name for f in dataclasses.fields(again)]))
        seen.append(outcome(lambda again=again: repr(dataclasses.replace(again, y=9)).split(" at 0x")[0]))
        seen.append(outcome(lambda again=again: dataclasses.asdict(again)))
        seen.append(outcome(lambda again=again: type(weakref.ref(again))))
        seen.append(outcome(lambda again=again: len(again)))
    seen.append([[a == b for a in made] for b in made])
    seen.append(cls.__match_args__)
    seen.append([(f.name, f.type, f.init, f.repr, f.compare, f.kw_only) for f in dataclasses.fields(cls)])
    seen.append(dataclasses.is_dataclass(cls))
    if made:
        seen.append(list(inspect.signature(cls).parameters.values()).__repr__())
    return seen


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS.keys())
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("few", [0, 2, 1000])
def test_the_same_as_the_standard_librarys(monkeypatch, name, flags, few):
    monkeypatch.setattr(records, "_FEW", few)
    make, arguments = CLASSES[name], ARGUMENTS[name]
    ours = observed(records.dataclass(**flags)(make()), flags, arguments)
    theirs = observed(dataclasses.dataclass(**flags)(make()), flags, arguments)
    assert [str(x) for x in ours] == [str(x) for x in theirs]


@records.dataclass(frozen=True, slots=True)
class Pickled:
    a: int
    b: str = "b"


def test_pickles():
    one = Pickled(1, "x")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(one, protocol)) == one
    assert copy.deepcopy(one) == one
    assert {one: 1}[Pickled(1, "x")] == 1


def test_one_and_the_same_nan_is_equal_to_itself():
    """In all versions of Python: the standard library's has not been since 3.13."""
    nan = float("nan")
    assert Pickled(1, nan) == Pickled(1, nan)
    assert Pickled(1, nan) != Pickled(1, float("nan"))


def test_a_copy_with_other_values():
    """`copy.replace`, which Python 3.13 has, asks for no more."""
    assert Pickled(1, "x").__replace__(a=2) == Pickled(2, "x")
    with pytest.raises(TypeError, match="'c'"):
        Pickled(1, "x").__replace__(c=2)


@pytest.mark.parametrize("made", [0, 1, 20])
def test_a_class_shows_what_it_takes_and_nothing_else_does(made):
    @records.dataclass(slots=True)
    class Adder:
        a: int
        b: int = 5

        def __call__(self, more: float) -> float:
            return self.a + more

    class Same(Adder):
        pass

    class Other(Adder):
        def __init__(self, text: str) -> None:
            super().__init__(int(text))

    for _ in range(made):
        assert Adder(1)(2) == 3
    assert str(inspect.signature(Adder)) == "(a: 'int', b: 'int' = 5) -> None"
    assert inspect.signature(Same) == inspect.signature(Adder)
    assert str(inspect.signature(Other)) == "(text: 'str') -> 'None'"
    assert str(inspect.signature(Adder(1))) == "(more: 'float') -> 'float'"


def test_matches():
    match Pickled(1):
        case Pickled(a, b):
            assert (a, b) == (1, "b")
        case _:
            raise AssertionError


def test_a_subclass_inherits():
    class Below(Pickled):
        def more(self) -> int:
            return self.a + 1

    assert Below(1).more() == 2
    assert Below(1) != Pickled(1)


def test_a_default_that_can_change_is_refused():
    with pytest.raises(ValueError, match="default_factory"):

        @records.dataclass(slots=True)
        class Bad:
            a: list[int] = []  # noqa: RUF012


def test_what_holds_itself_is_shown_once():
    @records.dataclass(slots=True)
    class Knot:
        inside: Any = None

    knot = Knot()
    knot.inside = knot
    assert repr(knot).endswith("Knot(inside=...)")


def test_nothing_is_compiled_until_the_first_use():
    program = """
import builtins, dataclasses
from accel.records import dataclass
compiled = []
real = builtins.exec
builtins.exec = lambda *args: compiled.append(1) or real(*args)
@dataclass(frozen=True, slots=True)
class A:
    a: int
print(len(compiled))
A(1); A(2)
print(len(compiled))
for i in range(20): A(i)
print(len(compiled))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "1"]

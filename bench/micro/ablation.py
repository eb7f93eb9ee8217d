"""What each way beside the general one earns: it is switched off, and the headline cases are run with and
without it.

Isolated: everything but a real network. Files are in memory, and a request takes some milliseconds where
requests matter. To switch a way off, a name of it is patched so that it declines, and the general way does
the job. Runs with the way and without it take turns in one process; a ratio is what a run takes without the
way over what it takes with it, the median of the rounds: of the process's CPU, and of the wall clock. The row
"nothing" patches nothing, so what it shows is noise. The answers must be the same with the way and without
it. A case that does not reach the way is not timed.

`python -m bench.micro.ablation [--cases A,B] [--ways A,B] [--rounds N] [--seconds S] [--scale X]` prints one
table; names may be parts of names.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import pkgutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import accel
from bench.micro.ablation_cases import CASES, USUAL, Answer, Case, Run, Size

__all__ = ["WAYS", "Comparison", "Ratios", "Switch", "Way", "report", "switched_off"]

_EARNS = 1.10
_AGREED = 1 + (_EARNS - 1) / 2
_LEAST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Way:
    """One way, and the name that is patched to switch it off."""

    name: str
    where: str = ""
    """`module:name`, or `module:Class.name`."""
    off: Callable[[Any], Any] = lambda original: original
    """Returns what takes the place of the original."""


# -- what takes the place of a way -------------------------------------------------------------------


def _gives(value: Any) -> Callable[[Any], Any]:
    return lambda original: lambda *args, **kwargs: value


def _becomes(value: Any) -> Callable[[Any], Any]:
    return lambda original: value


def _gives_later(value: Any) -> Callable[[Any], Any]:
    def off(original: Any) -> Any:
        async def give(*args: Any, **kwargs: Any) -> Any:
            return value

        return give

    return off


def _for_each(value: Any, place: int) -> Callable[[Any], Any]:
    """A function that returns one value for each item of an argument."""
    return lambda original: lambda *args, **kwargs: [value] * len(args[place])


def _page_as_it_is(original: Any) -> Any:
    from accel.decode.codecs import StoredPage

    return lambda page, codec: StoredPage(page)


def _fetched_alone(original: Any) -> Any:
    async def fetch(reads: Any, wants: Any) -> Any:
        return await reads._below.read(wants)

    return fetch


class _Forgetful(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        """Forget the value."""


WAYS: tuple[Way, ...] = (
    Way("nothing"),
    # decoding
    Way("direct decoders", "accel.decode.direct_decoders:read_directly", _gives(None)),
    Way("picked indices", "accel.decode.dictionary_decode:read_picks", _gives(None)),
    Way("plain pages", "accel.decode.plain_pages:read_plain", _gives(None)),
    Way("dictionary entries", "accel.decode.plain_pages:read_entries", _gives(None)),
    Way("columns as indices", "accel.decode.dictionary_decode:stays_indexed", _gives(False)),
    Way("late decoding", "accel.decode.piece:_Decoder.late_leaves", _gives([])),
    Way("stacked row groups", "accel.decode.stack:stack_kind", _gives(None)),
    Way("stacks of larger row groups", "accel.decode.stack:MOST_PAGE_ROWS", _becomes(4096)),
    Way("page headers together", "accel.format.page_header:MIN_BATCH_CHUNKS", _becomes(1 << 62)),
    Way("many columns together", "accel.reader.reader:_MANY_COLUMNS", _becomes(1 << 62)),
    Way("alike files together", "accel.reader.reader:Reader.decode_alike", _gives_later(None)),
    Way("cramjam's Snappy", "accel.decode.codecs:fast_snappy", _gives(None)),
    Way("uncompressed dictionaries", "accel.decode.codecs:store_page", _page_as_it_is),
    Way("jemalloc", "accel.memory:pool", _gives(None)),
    # planning and opening
    Way(
        "adjacent tasks",
        "accel.planning.task:adjacent_tasks",
        lambda original: lambda tasks: ([t] for t in tasks),
    ),
    Way("two phases", "accel.reader.reader:Reader.forecast", _gives(None)),
    Way("footer prefetch", "accel.reader.footer_prefetch:FooterPrefetcher", _gives(None)),
    Way("footers in blocks", "accel.reader.footer_prefetch:FooterBatchParser.parse", _for_each(None, 1)),
    Way("chunks in a batch", "accel.format.footer:MIN_BATCH_CHUNKS", _becomes(1 << 62)),
    Way("pruning in blocks", "accel.scanning.block_pruning:excluded_together", _for_each(False, 0)),
    Way("schema memo", "accel.planning.projection:_settled", _becomes(_Forgetful())),
    Way("early reading", "accel.tables.path_source:PathSource.expected", _gives(None)),
    # caches
    Way("cached dictionaries", "accel.reader.shared_pages:cached_dictionary", _gives(None)),
    Way("cached rows", "accel.cache.result_tier:ResultCacheEntry._find_key", _gives(None)),
    Way("result tier", "accel.cache.result_tier:ResultTier.put", _gives(None)),
    Way("byte tier", "accel.cache.byte_tier:ByteTier.admit", _for_each(False, 3)),
    Way("shared reads", "accel.cache.pinned_reads:SharedReads.read", _fetched_alone),
)


# -- switching ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Switch:
    """What is seen of a way while it is off."""

    calls: int = 0
    counts: bool = False
    """Whether calls are counted: a plain value is read without a trace."""


@contextlib.contextmanager
def switched_off(way: Way, switch: Switch | None = None) -> Iterator[Switch]:
    """Run what follows without a way, in every module that has imported its name.

    Raises
    ------
    AttributeError, ModuleNotFoundError
        Nothing has the name any more.
    """
    switch = Switch() if switch is None else switch
    _import_everything()
    if not way.where:
        yield switch
        return
    module, _, path = way.where.partition(":")
    *classes, name = path.split(".")
    owner: Any = functools.reduce(getattr, classes, importlib.import_module(module))
    if name not in vars(owner):
        raise AttributeError(f"{way.name}: there is no {way.where}")
    original = vars(owner)[name]
    replacement = _counted(way.off(original), switch)
    homes = (
        _importers(owner, name) if isinstance(owner, ModuleType) and callable(original) else [(owner, name)]
    )
    for home, key in homes:
        setattr(home, key, replacement)
    try:
        yield switch
    finally:
        for home, key in homes:
            setattr(home, key, original)


def _counted(made: Any, switch: Switch) -> Any:
    if not callable(made):
        return made
    switch.counts = True

    def counted(*args: Any, **kwargs: Any) -> Any:
        switch.calls += 1
        return made(*args, **kwargs)

    return counted


@functools.cache
def _importers(owner: ModuleType, name: str) -> list[tuple[ModuleType, str]]:
    """Return where a module's function stands, under which name: found once, since who is timed next should
    find the processor's caches as they were."""
    original = vars(owner)[name]
    modules = [module for key, module in list(sys.modules.items()) if key.split(".")[0] == "accel"]
    return [(module, key) for module in modules for key, value in vars(module).items() if value is original]


@functools.cache
def _import_everything() -> None:
    """Import what is else imported on first use: a module that is imported while a name is patched would keep
    the patch."""
    for found in pkgutil.walk_packages(accel.__path__, "accel."):
        if not found.name.startswith(("accel.testing", "accel.spark", "accel.cli")):
            importlib.import_module(found.name)


# -- comparing ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ratios:
    """What one case takes without one way over what it takes with it, by rounds."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    """CPU of a run with the way."""
    requests: tuple[int, int] = (0, 0)
    """With the way and without it, in the last round."""
    nbytes: tuple[int, int] = (0, 0)

    @property
    def earns(self) -> bool:
        """Whether the case takes a tenth more CPU without the way, as three rounds in four agree, or a tenth
        more requests or bytes. The wall clock is for whoever reads the table: on a shared machine it says
        little."""
        least, median = sorted(self.cpu)[len(self.cpu) // 4], statistics.median(self.cpu)
        more = [without / max(1, with_it) for with_it, without in (self.requests, self.nbytes)]
        return max(*more, median if least >= _AGREED else 0) >= _EARNS


class Comparison:
    """Runs cases with ways and without them; each case is started once with all ways.

    Parameters
    ----------
    size : Size
    rounds : int
    seconds : float
        CPU after which no more rounds begin, once three were run.
    """

    def __init__(self, *, size: Size = USUAL, rounds: int = 9, seconds: float = 2.0) -> None:
        self._size = size
        self._rounds = rounds
        self._seconds = seconds
        self._with_all: dict[str, Run] = {}
        self._number = 0

    def compare(self, way: Way, case: Case) -> Ratios | None:
        """Run a case with a way and without it, in turn; returns None where the case does not reach the way.

        Raises
        ------
        RuntimeError
            The answers differ.
        """
        on = self._with_all.get(case.name)
        if on is None:
            on = self._with_all[case.name] = case.start(self._size)
            on(0)
        with switched_off(way) as switch:
            off = case.start(self._size)
            if not switch.calls:
                off(0)
        if switch.counts and not switch.calls:
            return None
        ratios = Ratios()
        gc.collect()
        until = time.process_time() + self._seconds
        for done in range(self._rounds):
            if done >= _LEAST_ROUNDS and time.process_time() > until:
                break
            self._number += 1
            self._round(way, on, off, ratios, f"{case.name} has another answer without {way.name}")
        return ratios

    def _round(self, way: Way, on: Run, off: Run, ratios: Ratios, fault: str) -> None:
        def without() -> tuple[Answer, float, float]:
            with switched_off(way):
                return _timed(off, self._number)

        # The second run finds the machine as the first one left it.
        if self._number % 2:
            mine, theirs = _timed(on, self._number), without()
        else:
            theirs = without()
            mine = _timed(on, self._number)
        if not mine[0].equals(theirs[0]):
            raise RuntimeError(fault)
        ratios.cpu.append(theirs[1] / mine[1])
        ratios.wall.append(theirs[2] / mine[2])
        ratios.milliseconds.append(1e3 * mine[1])
        ratios.requests = mine[0].requests, theirs[0].requests
        ratios.nbytes = mine[0].nbytes, theirs[0].nbytes


def _timed(run: Run, number: int) -> tuple[Answer, float, float]:
    begun, cpu = time.perf_counter(), time.process_time()
    answer = run(number)
    return answer, time.process_time() - cpu, time.perf_counter() - begun


def report(way: Way, case: Case, ratios: Ratios) -> str:
    """Return one line of the table."""
    quarter = sorted(ratios.cpu)[len(ratios.cpu) // 4]
    line = f"{way.name:26} {case.name:26} {statistics.median(ratios.cpu):6.2f} ({quarter:.2f})"
    line += f" {statistics.median(ratios.wall):6.2f} {statistics.median(ratios.milliseconds):8.1f} {len(ratios.cpu):3}"
    line += " earns" if ratios.earns else "      "
    for name, (with_it, without) in {"requests": ratios.requests, "bytes": ratios.nbytes}.items():
        if with_it != without:
            line += f"  {name} {with_it:,} -> {without:,}"
    return line.rstrip()


def _chosen(names: str | None, all_names: Sequence[str]) -> set[str]:
    parts = [""] if names is None else names.split(",")
    found = {name for name in all_names if name in parts or any(part in name for part in parts)}
    if not found:
        raise SystemExit(f"{names} is part of none of these: {', '.join(all_names)}")
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", help="parts of the names of cases, separated by commas")
    parser.add_argument("--ways", help="parts of the names of ways, likewise")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="of CPU, for a way in a case")
    parser.add_argument("--scale", type=float, default=1.0, help="of files, and of lookups at once")
    given = parser.parse_args()
    ways = _chosen(given.ways, [way.name for way in WAYS])
    cases = _chosen(given.cases, [case.name for case in CASES])
    files, at_once = (max(8, int(given.scale * one)) for one in (USUAL.files, USUAL.at_once))
    size = replace(USUAL, files=files, at_once=at_once)
    comparison = Comparison(size=size, rounds=given.rounds, seconds=given.seconds)
    print(f"{'off':26} {'case':26}    CPU (lower quartile) wall, ms with it, rounds")
    for case in CASES:
        for way in WAYS:
            if way.name in ways and case.name in cases:
                ratios = comparison.compare(way, case)
                if ratios is not None:
                    print(report(way, case, ratios), flush=True)


if __name__ == "__main__":
    main()

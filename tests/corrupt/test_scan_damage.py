"""Damaged files through accel.scan: an AccelError that names the file, or exactly the right rows.

The right rows are those of pyarrow's full read, page checksums verified, where pyarrow can read the file,
or those of the file before it was damaged. Every sweep runs in a process of its own, so that an abort or a
hang is a failure and not the end of the session. `--large` takes every case, else a seeded sample is taken.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.corrupt.anatomy import Anatomy
from tests.corrupt.sweep import Case, Outcomes, plain_file, run_sweep, small_file

SEED = 20_261_121
WHERE = "n > 20 AND w = 'w3' OR f < 3 OR st.a = 50"
MODES = ["full", "selection", WHERE]
MODE_IDS = ["full", "selection", "where"]
PEAK = 1 << 30
"""Bytes of the worker at most: Python, pyarrow and a memory limit of 64 MiB, not what a lie claims."""


@pytest.fixture(scope="module")
def indexed() -> bytes:
    return small_file()


@pytest.fixture(scope="module")
def plain() -> bytes:
    return plain_file()


def sample(cases: list[Case], count: int, *, large: bool) -> list[Case]:
    return cases if large else random.Random(SEED).sample(cases, min(count, len(cases)))


def check(outcomes: Outcomes, total: int) -> None:
    assert outcomes.bad == []
    assert sum(outcomes.counts.values()) == total
    assert outcomes.slowest < 10.0
    assert 0 < outcomes.peak_bytes < PEAK


def test_the_parts_put_together_are_a_good_file(tmp_path: Path, indexed: bytes, plain: bytes) -> None:
    """What is damaged below was right before."""
    for data in (indexed, plain):
        cases: list[Case] = [
            (mode, Anatomy(data).assemble(None), mode, pieces)
            for mode in ("full", "selection")
            for pieces in (True, False)
        ]
        outcomes = run_sweep(tmp_path, data, cases)
        assert outcomes.counts == {"intact": 4}, outcomes.bad


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["full", "selection"])
def test_every_truncation_is_an_error(
    tmp_path: Path, indexed: bytes, plain: bytes, mode: str, large: bool
) -> None:
    for data in (indexed, plain):
        cases: list[Case] = [(f"first {n} bytes", data[:n], mode, n % 2 == 0) for n in range(len(data))]
        cases = [*cases[:30], *cases[-30:], *sample(cases[30:-30], 200, large=large)]
        outcomes = run_sweep(tmp_path, data, cases)
        check(outcomes, len(cases))
        assert outcomes.counts == {"error": len(cases)}


def flips(data: bytes, start: int, mode: str) -> Iterator[Case]:
    rng = random.Random(SEED)
    for at in range(start, len(data)):
        for mask in (0xFF, 1 << rng.randrange(8)):
            damaged = bytearray(data)
            damaged[at] ^= mask
            yield f"byte {at} xor {mask}", bytes(damaged), mode, rng.random() < 0.5


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", MODES, ids=MODE_IDS)
def test_flipped_bytes_anywhere(tmp_path: Path, indexed: bytes, mode: str, large: bool) -> None:
    """Page headers, pages (which checksums protect), page index, footer."""
    cases = sample(list(flips(indexed, 0, mode)), 300, large=large)
    outcomes = run_sweep(tmp_path, indexed, cases)
    check(outcomes, len(cases))
    assert outcomes.counts["error"] > len(cases) // 4


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", MODES, ids=MODE_IDS)
def test_flipped_bytes_without_checksums(tmp_path: Path, plain: bytes, mode: str, large: bool) -> None:
    """No checksum, no page index: what pyarrow makes of flipped values is what comes out."""
    cases = sample(list(flips(plain, 0, mode)), 250, large=large)
    outcomes = run_sweep(tmp_path, plain, cases)
    check(outcomes, len(cases))
    if mode == "full":
        assert outcomes.counts["as pyarrow"] > 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", MODES, ids=MODE_IDS)
@pytest.mark.parametrize("kind", ["footer", "offset", "index", "page"])
@pytest.mark.parametrize("base", ["indexed", "plain"])
def test_lying_numbers(
    tmp_path: Path, indexed: bytes, plain: bytes, base: str, kind: str, mode: str, large: bool
) -> None:
    """Each number of the metadata in turn, from 0 to the ends of its type; all else is honest."""
    data = indexed if base == "indexed" else plain
    anatomy = Anatomy(data)
    lies = list(anatomy.lies(kind))
    if base == "plain" and kind in ("offset", "index"):
        assert lies == []
        return
    assert len(lies) > 1000
    rng = random.Random(SEED)
    chosen = lies if large else rng.sample(lies, 100)
    cases: list[Case] = [(str(lie), anatomy.assemble(lie), mode, rng.random() < 0.5) for lie in chosen]
    outcomes = run_sweep(tmp_path, data, cases)
    check(outcomes, len(cases))
    if kind == "index":
        # Bounds are not numbers of the index: no lie in it can cost a row of a scan that does not filter.
        assert mode == WHERE or outcomes.counts == {"intact": len(cases)}
    elif kind == "offset":
        # The row groups are small, and read together: no row has gone out when it is read anew without the
        # index.
        assert outcomes.counts == {"rows" if mode == WHERE else "intact": len(cases)}
    else:
        assert outcomes.counts["error"] > 0

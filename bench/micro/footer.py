"""How long parsing a footer takes, against pyarrow's own parse of the same bytes.

Isolated: no file, no network; both get the footer's bytes from memory. Each round parses with one, then the
other; what is told is the best of each and, as the machine may have other work, the median of the rounds'
ratios. pyarrow's parse does not give the offsets of page indexes.

`python -m bench.micro.footer [--rounds N] [--writer NAME]` prints one table; `measure()` gives the ratios.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from accel.format.footer import parse_footer
from bench.micro.footers import WRITERS

__all__ = ["measure"]

SHAPES = {"2,000 columns x 20 row groups": (2000, 20), "100 columns x 50 row groups": (100, 50)}
SMALL = {"10 columns x 4 row groups": (10, 4)}
SIZE = 1 << 40
"""Of the file that the footers are said to be in."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Of one footer: its bytes, the best milliseconds of both, and the ratio of accel to pyarrow."""

    shape: str
    writer: str
    size: int
    accel: float
    pyarrow: float
    ratio: float


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _read_theirs(file: pa.Buffer) -> object:
    return pq.read_metadata(pa.BufferReader(file))


def timings(rounds: int, writers: tuple[str, ...], shapes: dict[str, tuple[int, int]]) -> Iterator[Timing]:
    for shape, (columns, groups) in shapes.items():
        for writer in writers:
            footer = WRITERS[writer](columns, groups)
            file = pa.py_buffer(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
            pairs = []
            gc.collect()
            for _ in range(rounds):
                theirs = _seconds(partial(_read_theirs, file))
                ours = _seconds(
                    partial(parse_footer, footer, file_size=SIZE, footer_start=SIZE - len(footer) - 8)
                )
                pairs.append((ours, theirs))
            yield Timing(
                shape,
                writer,
                len(footer),
                min(ours for ours, _ in pairs) * 1e3,
                min(theirs for _, theirs in pairs) * 1e3,
                statistics.median(ours / theirs for ours, theirs in pairs),
            )


def measure(rounds: int = 15) -> dict[str, float]:
    """The ratio of accel's time to pyarrow's, by shape and writer."""
    found = timings(rounds, tuple(WRITERS), SHAPES)
    return {f"footer parse, {timing.shape}, {timing.writer}": timing.ratio for timing in found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--writer", choices=WRITERS, action="append")
    options = parser.parse_args()
    print(f"{'shape':<30} {'writer':<25} {'KB':>6} {'accel ms':>9} {'pyarrow ms':>10} {'ratio':>6}")
    writers = tuple(options.writer or WRITERS)
    for timing in timings(options.rounds, writers, SHAPES | SMALL):
        print(
            f"{timing.shape:<30} {timing.writer:<25} {timing.size / 1000:>6.0f} {timing.accel:>9.2f} "
            f"{timing.pyarrow:>10.2f} {timing.ratio:>6.2f}"
        )


if __name__ == "__main__":
    main()

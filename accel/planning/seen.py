"""What a scan has seen of its own filter: how many of the rows that were in doubt matched."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Seen"]

# A guess from metadata weighs as much as having seen so many rows.
_GUESS_ROWS = 10_000


@dataclass(slots=True)
class Seen:
    """Grows while a scan runs; used on the I/O loop."""

    tested: int = 0
    matched: int = 0

    def add(self, *, tested: int, matched: int) -> None:
        self.tested += tested
        self.matched += matched

    def share(self, guess: float) -> float:
        """The share of rows in doubt that is expected to match: a guess, corrected by what was seen."""
        return (guess * _GUESS_ROWS + self.matched) / (_GUESS_ROWS + self.tested)

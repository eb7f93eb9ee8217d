"""What is decoded as one, as a call that any thread may make; its errors name the file as the caller does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from accel.errors import AccelError, refuse_unforeseen
from accel.planning.pages import Piece
from accel.planning.selection import RowSelection
from accel.planning.task import ScanTask

if TYPE_CHECKING:
    from accel.decode.leaf_bytes import LeafBytes
    from accel.decode.stack import Layer

__all__ = ["DecodePiece", "DecodeStack", "MatchPiece"]


@dataclass(frozen=True, slots=True)
class DecodePiece:
    """`decode_piece` of what was fetched of one."""

    task: ScanTask
    piece: Piece
    leaves: Mapping[int, LeafBytes]
    batch_rows: int
    memory_limit: int
    verify_checksums: bool
    found: list[RowSelection] | None
    left: list[int]
    """Given the leaves that a direct decoder left to pyarrow."""

    def __call__(self) -> list[pa.RecordBatch]:
        from accel.decode.piece import decode_piece

        try:
            with refuse_unforeseen(f"row group {self.task.row_group}"):
                return decode_piece(
                    self.task,
                    self.piece,
                    self.leaves,
                    batch_rows=self.batch_rows,
                    memory_limit=self.memory_limit,
                    verify_checksums=self.verify_checksums,
                    found=self.found,
                    left=self.left,
                )
        except AccelError as error:
            raise error.of(self.task.file.url) from error.__cause__


@dataclass(frozen=True, slots=True)
class MatchPiece:
    """`match_piece` of what was fetched of one."""

    task: ScanTask
    piece: Piece
    leaves: Mapping[int, LeafBytes]
    memory_limit: int
    verify_checksums: bool
    left: list[int]

    def __call__(self) -> RowSelection:
        from accel.decode.piece import match_piece

        try:
            with refuse_unforeseen(f"row group {self.task.row_group}"):
                return match_piece(
                    self.task,
                    self.piece,
                    fetched=self.leaves,
                    memory_limit=self.memory_limit,
                    verify_checksums=self.verify_checksums,
                    left=self.left,
                )
        except AccelError as error:
            raise error.of(self.task.file.url) from error.__cause__


@dataclass(frozen=True, slots=True)
class DecodeStack:
    """`decode_stack` of what was fetched of several."""

    layers: Sequence[Layer]
    batch_rows: int
    memory_limit: int
    verify_checksums: bool

    def __call__(self) -> list[pa.RecordBatch] | None:
        from accel.decode.stack import decode_stack

        return decode_stack(
            self.layers,
            batch_rows=self.batch_rows,
            memory_limit=self.memory_limit,
            verify_checksums=self.verify_checksums,
        )

"""Footers that are parsed together: which, and as what."""

from __future__ import annotations

from accel.decode.shared_schemas import shared_schema
from accel.format.footer import parse_footer
from accel.planning.read_request import Tail
from accel.scanning.footer_prefetch import FooterBatchParser
from bench.micro.footers import WRITERS


def file_of(groups: int, *, writer: str = "pyarrow") -> Tail:
    """The end of a file that holds a footer and little else."""
    footer = WRITERS[writer](3, groups)
    start = 1 << 20
    data = b"...." + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return Tail(memoryview(data), start - 4, start + len(footer) + 8, '"e"')


def parse_all(desk: FooterBatchParser, tails: list[Tail]) -> list[int | None]:
    """The row groups of each, None for what is left to the caller."""
    return [None if metadata is None else metadata.num_row_groups for metadata in desk.parse(tails)]


def test_few_are_left_to_the_caller():
    assert parse_all(FooterBatchParser(shared_schema), [file_of(1)] * 3) == [None] * 3


def test_many_are_parsed_together_and_share_a_schema():
    desk = FooterBatchParser(shared_schema)
    tails = [file_of(1 + number % 3) for number in range(40)]
    assert parse_all(desk, tails) == [1 + number % 3 for number in range(40)]
    first, *others = desk.parse(tails[:4])
    assert first is not None
    assert all(other is not None and other.schema is first.schema for other in others)


def test_they_say_what_each_says_by_itself():
    tails = [file_of(1 + number % 3) for number in range(6)]
    for tail, found in zip(tails, FooterBatchParser(shared_schema).parse(tails), strict=True):
        plain = parse_footer(bytes(tail.data[4:-8]), file_size=tail.size, footer_start=1 << 20)
        assert found is not None
        assert (found.num_rows, found.footer, found.footer_start) == (plain.num_rows, plain.footer, 1 << 20)


def test_what_is_not_like_the_others_is_left_to_the_caller():
    tails = [*(file_of(2) for _ in range(6)), file_of(2, writer="polars")]
    bad = Tail(memoryview(bytes(tails[0].data[:-4]) + b"PARX"), tails[0].start, tails[0].size, '"e"')
    assert parse_all(FooterBatchParser(shared_schema), [*tails, bad]) == [2] * 6 + [None, None]


def test_a_broken_footer_spoils_only_its_batch():
    desk = FooterBatchParser(shared_schema)
    good = [file_of(2) for _ in range(6)]
    assert parse_all(desk, good) == [2] * 6
    data = bytearray(good[0].data)
    at = len(data) // 2
    data[at : at + 40] = b"\xff" * 40
    broken = Tail(memoryview(bytes(data)), good[0].start, good[0].size, '"e"')
    found = parse_all(desk, [*good, broken])
    assert found[-1] is None
    assert set(found[:-1]) <= {2, None}
    assert parse_all(desk, good) == [2] * 6


def test_files_that_have_nothing_in_common_are_soon_let_be():
    desk = FooterBatchParser(shared_schema)
    writers = [name for name in WRITERS if name != "pyarrow"][:4]
    mixed = [file_of(2, writer=name) for name in writers]
    for _ in range(12):
        assert desk.parse(mixed)[1:] == [None] * 3
    assert desk.parse([file_of(2)] * 8) == [None] * 8

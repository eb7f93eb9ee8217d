"""Footers read together say what each says when it is read alone, or nothing."""

from __future__ import annotations

import random

import pytest

from accel.errors import AccelError
from accel.format.footer import FooterBytes, parse_footer
from accel.format.footer_batch import FooterTemplate, find_template, parse_footers
from accel.format.model import FileMetadata
from accel.format.packed import unpack
from bench.micro.footers import WRITERS
from tests.property.test_footer_parses import SEED, same

COLUMNS = 5


def handed_in(data: bytes, start: int = 1 << 30) -> FooterBytes:
    return FooterBytes(data, start + len(data) + 8, start)


def alone(footer: FooterBytes) -> FileMetadata:
    return parse_footer(footer.data, file_size=footer.file_size, footer_start=footer.footer_start)


def kind_of(footer: FooterBytes) -> FooterTemplate:
    kind = find_template(alone(footer))
    assert kind is not None
    return kind


def agree(kind: FooterTemplate, footers: list[FooterBytes]) -> bool:
    """Whether they are read together, having checked that they say the same then."""
    if not all(kind.fits(footer.data) for footer in footers):
        return False
    read = parse_footers(kind, footers)
    if read is None:
        return False
    for footer, metadata in zip(footers, read, strict=True):
        same(unpack(metadata), alone(footer))
        assert metadata.schema is kind.shared.schema
    return True


@pytest.mark.parametrize("writer", WRITERS)
def test_footers_of_one_writer_are_read_together(writer):
    footers = [handed_in(WRITERS[writer](COLUMNS, groups), 1 << 20 + groups) for groups in (3, 1, 2, 7, 1)]
    assert agree(kind_of(footers[0]), footers)
    assert agree(kind_of(footers[1]), footers[2:3])


@pytest.mark.parametrize("writer", WRITERS)
def test_bytes_changed_in_one_of_them(writer):
    chance = random.Random(f"{SEED}{writer}")
    data = WRITERS[writer](COLUMNS, 2)
    others = [handed_in(WRITERS[writer](COLUMNS, groups)) for groups in (1, 3)]
    kind = kind_of(others[0])
    taken = 0
    for _ in range(400):
        at = chance.randrange(len(kind.head), len(data) - len(kind.tail))
        value = chance.choice([0x00, 0x7F, 0x80, 0xFF, data[at] ^ 1, data[at] ^ 0x10, chance.randrange(256)])
        changed = handed_in(data[:at] + bytes([value]) + data[at + 1 :])
        taken += agree(kind, [others[0], changed, others[1]])
    assert taken


@pytest.mark.parametrize("writer", WRITERS)
def test_parts_moved_from_one_to_the_next(writer):
    """What one lacks must not be made up for by the next: files end where their own bytes do."""
    chance = random.Random(f"{SEED}{writer}")
    one, other = WRITERS[writer](COLUMNS, 2), WRITERS[writer](COLUMNS, 3)
    kind = kind_of(handed_in(one))
    for _ in range(200):
        cut = chance.randrange(len(kind.head), len(one) - len(kind.tail))
        moved = one[cut : len(one) - len(kind.tail)]
        into = len(kind.head) + chance.randrange(8)
        pair = [one[:cut] + kind.tail, other[:into] + moved + other[into:]]
        assert not agree(kind, [handed_in(data) for data in pair])


@pytest.mark.parametrize("writer", WRITERS)
def test_what_lies_outside_one_file_is_refused_though_it_lies_within_another(writer):
    data = WRITERS[writer](COLUMNS, 2)
    kind = kind_of(handed_in(data))
    small = handed_in(data, 5)
    with pytest.raises(AccelError):
        alone(small)
    assert parse_footers(kind, [handed_in(data), small]) is None


def test_files_without_row_groups():
    some = handed_in(WRITERS["pyarrow"](COLUMNS, 2))
    kind = kind_of(some)
    empty = handed_in(kind.head + b"\x16\x00\x19\x0c" + kind.tail)
    assert parse_footers(kind, [empty]) is None
    read = parse_footers(kind, [empty, some, empty])
    assert read is not None
    assert [metadata.num_row_groups for metadata in read] == [0, 2, 0]
    same(unpack(read[0]), alone(empty))
    same(unpack(read[1]), alone(some))

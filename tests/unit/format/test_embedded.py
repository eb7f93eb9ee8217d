"""The table of contents, its checksums and fingerprint, packed heads, and IDX1: round trips, and all kinds of
damage."""

from __future__ import annotations

import dataclasses
import json
import struct
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import IndexFormatError, SchemaMismatchError
from accel.format.embedded import (
    LONGEST_HEAD,
    TOC_KEY,
    Checksum,
    CoveredColumn,
    Entry,
    check_seal,
    checksum,
    encode_idx1,
    encode_toc,
    fingerprint,
    idx1_range,
    pack_head,
    parse_idx1,
    parse_idx1_offset,
    parse_toc,
    seal,
    unpack_head,
    verify_blob,
    verify_head,
)
from accel.format.model import FileMetadata
from tests.unit.format.files import parse, write

TABLE = pa.table({"a": list(range(100)), "s": [f"v{i % 7}" for i in range(100)]})
BASE = parse(write(TABLE, row_group_size=50))
BLOB = b"an index"

PAGES = [
    Entry(
        kind="bitmap",
        version=1,
        column=("s", "x.y"),
        signature="bytes",
        level="page",
        row_group=group,
        units=3,
        offset=4 + group,
        length=len(BLOB),
        checksum=xxhash.xxh64_intdigest(BLOB),
        head=5,
        head_checksum=xxhash.xxh64_intdigest(BLOB[:5]),
        params={"range_rows": 512},
    )
    for group in (0, 1)
]
FILE = dataclasses.replace(
    PAGES[0],
    kind="mine",
    version=7,
    column=("a",),
    level="file",
    row_group=-1,
    units=1,
    head=0,
    head_checksum=None,
    params={},
)
SEVERAL = dataclasses.replace(
    FILE,
    kind="zonemap",
    columns=(CoveredColumn(("a",), "int64:1/1", "value"), CoveredColumn(("s",), "bytes", "lower")),
    seconds=0.25,
)


def holding(raw: bytes, metadata: FileMetadata = BASE, key: str = TOC_KEY) -> FileMetadata:
    return dataclasses.replace(metadata, key_value={key: raw})


@pytest.mark.parametrize(
    "entries",
    [[], PAGES, [FILE, *PAGES], [*PAGES, FILE, PAGES[0]], [FILE, SEVERAL]],
    ids=["none", "one kind", "two kinds", "a kind twice", "several columns"],
)
def test_there_and_back_in_order(entries: list[Entry]) -> None:
    toc = parse_toc(holding(encode_toc(entries, BASE)))
    assert toc is not None
    assert list(toc.entries) == entries
    assert toc.nbytes > 0


def test_the_bytes_are_as_documented() -> None:
    check = "0123456789abcdef"
    entry = dataclasses.replace(PAGES[1], checksum=int(check, 16), head_checksum=0xAB)
    one = struct.pack("<qq", 1, 1)  # a part of a path, and its bytes
    names = xxhash.xxh64_hexdigest(one + b"a" + one + b"s")
    text = (
        '{"version":1,"fingerprint":"' + f"{fingerprint(BASE):016x}"
        f'","names":"{names}","indexes":[{{"kind":"bitmap",'
        '"version":1,"column":["s","x.y"],"signature":"bytes","level":"page","heads":["00000000000000ab"],'
        '"params":{"range_rows":512},"at":[[1,3,5,8,"0123456789abcdef",5]]}]'
    )
    text += ',"checksum":"' + f"{xxhash.xxh64_intdigest(text.encode()):016x}" + '"}'
    assert encode_toc([entry], BASE) == text.encode()
    [several] = json.loads(encode_toc([SEVERAL], BASE))["indexes"]
    assert several["columns"] == [[["a"], "int64:1/1", "value"], [["s"], "bytes", "lower"]]
    assert several["seconds"] == 0.25


def test_which_columns_an_entry_speaks_of() -> None:
    assert SEVERAL.paths() == (("a",), ("s",))
    assert SEVERAL.signature_of(("s",)) == SEVERAL.signature_of(("s",), "lower") == "bytes"
    assert SEVERAL.signature_of(("s",), "value") is None
    assert SEVERAL.signature_of(("b",)) is None
    assert FILE.paths() == (("a",),)
    assert FILE.signature_of(("a",), "value") == "bytes"
    assert FILE.signature_of(("a",), "lower") is None


@pytest.mark.parametrize("heads", [None, [], ["0" * 16], [None, 7], ["0" * 15, "G" * 16]], ids=repr)
def test_a_head_that_cannot_be_verified_is_not_read_alone(heads: Any) -> None:
    toc = parse_toc(holding(run(heads=heads)))
    assert toc is not None
    assert [entry.head_checksum for entry in toc.entries] == [None, None]


@pytest.mark.parametrize("seconds", [None, "1", -1, 1e999, [], True])
def test_seconds_that_are_none(seconds: Any) -> None:
    toc = parse_toc(holding(run(seconds=seconds)))
    assert toc is not None
    assert {entry.seconds for entry in toc.entries} <= {None, 0.5}


def test_a_file_without_the_key_has_no_table_of_contents() -> None:
    assert parse_toc(dataclasses.replace(BASE, key_value={})) is None


def changed(**changes: Any) -> bytes:
    toc = json.loads(encode_toc(PAGES, BASE))
    del toc["checksum"]
    return json.dumps({**toc, **changes}).encode()


def test_a_table_of_contents_with_any_bit_changed_is_refused_or_says_the_same() -> None:
    """Else an index of one row group, or column, would be taken for that of another."""
    raw = encode_toc(PAGES, BASE)
    for bit in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            toc = parse_toc(holding(bytes(damaged)))
        except IndexFormatError:
            continue
        assert toc is not None
        assert list(toc.entries) == PAGES


def test_a_table_of_contents_of_before_there_were_checksums_is_read() -> None:
    toc = parse_toc(holding(changed()))
    assert toc is not None
    assert list(toc.entries) == PAGES


def run(**changes: Any) -> bytes:
    toc = json.loads(encode_toc(PAGES, BASE))
    return changed(indexes=[{**toc["indexes"][0], **changes}])


def place(*values: Any) -> bytes:
    return run(at=[list(values)])


END = BASE.footer_start
GOOD = "0" * 16
WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no JSON"),
    "not utf-8": (b"\xff{}", "no JSON"),
    "cut": (encode_toc(PAGES, BASE)[:-1], "no JSON"),
    "deep": (b"[" * 100_000, "no JSON"),
    "a list": (b"[]", "no version"),
    "a number": (b"1", "no version"),
    "no version": (b"{}", "no version"),
    "true for a version": (changed(version=True), "no version"),
    "a newer version": (changed(version=2), "is of version 2"),
    "another file": (changed(fingerprint=GOOD), "made for another file"),
    "other names": (changed(names=GOOD), "columns of other names"),
    "no fingerprint": (changed(fingerprint=None), "made for another file"),
    "no list": (changed(indexes={}), "lists no indexes"),
    "an index that is none": (changed(indexes=[1]), "an index that is none"),
    "no places": (run(at=None), "an index that is none"),
    "kind of no text": (run(kind=3), "without kind"),
    "a long kind": (run(kind="k" * 5000), "without kind"),
    "no level": (run(level=None), "without kind"),
    "no signature": (run(signature=[]), "without kind"),
    "no column": (run(column=[]), "of no column"),
    "column of numbers": (run(column=[1]), "of no column"),
    "column as text": (run(column="a"), "of no column"),
    "columns of no list": (run(columns={}), "of no column"),
    "a column that is none": (run(columns=[[["a"], "bytes"]]), "of a column that is none"),
    "a column of no path": (run(columns=[["a", "bytes", "value"]]), "of a column that is none"),
    "a column without signature": (run(columns=[[["a"], None, "value"]]), "of a column that is none"),
    "params of no kind": (run(params=[]), "of no column"),
    "kind without version": (run(version="1"), "without a version"),
    "short place": (place(0, 3, 4, 8, GOOD), "without a place"),
    "float offset": (place(0, 3, 4.0, 8, GOOD, 0), "no number"),
    "text for an offset": (place(0, 3, "4", 8, GOOD, 0), "no number"),
    "row group past the end": (place(2, 3, 4, 8, GOOD, 0), "names row group 2"),
    "row group -2": (place(-2, 3, 4, 8, GOOD, 0), "names row group -2"),
    "before the data": (place(0, 3, 3, 8, GOOD, 0), "places an index at 3"),
    "negative length": (place(0, 3, 4, -8, GOOD, 0), "places an index"),
    "no length": (place(0, 3, 4, 0, GOOD, 0), "places an index"),
    "in the footer": (place(0, 3, END - 7, 8, GOOD, 0), "places an index"),
    "far away": (place(0, 3, 1 << 70, 8, GOOD, 0), "places an index"),
    "negative units": (place(0, -1, 4, 8, GOOD, 0), "places an index"),
    "head too long": (place(0, 3, 4, 8, GOOD, 9), "a head of 9"),
    "checksum of no text": (place(0, 3, 4, 8, 5, 0), "checksum that is none"),
    "short checksum": (place(0, 3, 4, 8, "00", 0), "checksum that is none"),
    "capital checksum": (place(0, 3, 4, 8, "A" * 16, 0), "checksum that is none"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_table_of_contents_is_refused(name: str) -> None:
    raw, message = WRONG[name]
    with pytest.raises(IndexFormatError, match=message) as caught:
        parse_toc(holding(raw))
    assert caught.value.place == "footer key accel.indexes"


def test_an_index_may_end_where_the_footer_starts() -> None:
    toc = parse_toc(holding(place(0, 3, END - 8, 8, GOOD, 0)))
    assert toc is not None
    assert (toc.entries[0].offset, toc.entries[0].length) == (END - 8, 8)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_changes_what_is_told(at: int, bit: int) -> None:
    raw = bytearray(encode_toc([FILE, *PAGES], BASE))
    raw[at % len(raw)] ^= 1 << bit
    try:
        toc = parse_toc(holding(bytes(raw)))
    except IndexFormatError:
        return
    assert toc is not None
    # Whatever got through stays inside the file, and its blob does not verify under another checksum.
    assert all(4 <= e.offset and e.offset + e.length <= END and -1 <= e.row_group < 2 for e in toc.entries)


OTHERS = {
    "other rows": write(TABLE.slice(0, 99), row_group_size=50),
    "other row groups": write(TABLE, row_group_size=60),
    "other values": write(pa.table({"a": list(range(1, 101)), "s": TABLE["s"]}), row_group_size=50),
    "other encoding": write(TABLE, row_group_size=50, use_dictionary=False),
    "other columns": write(TABLE.select(["a"]), row_group_size=50),
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_index_of_another_file_is_refused(name: str) -> None:
    other = parse(OTHERS[name])
    assert fingerprint(other) != fingerprint(BASE)
    with pytest.raises(IndexFormatError, match="made for another file"):
        parse_toc(holding(encode_toc([FILE], BASE), other))


def test_keys_and_page_indexes_do_not_change_the_fingerprint() -> None:
    same = [
        parse(write(TABLE.replace_schema_metadata({"k": "v"}), row_group_size=50)),
        dataclasses.replace(
            BASE,
            chunks=dataclasses.replace(
                BASE.chunks,
                column_index_offset=BASE.chunks.column_index_offset + 100,
                offset_index_length=BASE.chunks.offset_index_length + 50,
                bloom_offset=BASE.chunks.bloom_offset + 7,
            ),
        ),
    ]
    assert [fingerprint(metadata) for metadata in same] == [fingerprint(BASE)] * 2


def test_the_fingerprint_by_hand() -> None:
    """As docs/formats.md has it: one row group, one column, no statistics."""
    metadata = parse(write(pa.table({"a": [1, 2, 3]}), write_statistics=False))
    chunks = metadata.chunks
    figures = [3, 1, 1, 3, 3]
    figures += [int(x[0, 0]) for x in (chunks.data_page_offset, chunks.dictionary_page_offset)]
    figures += [int(x[0, 0]) for x in (chunks.compressed, chunks.uncompressed)]
    figures += [-1, -1, -1, -1, -1]
    data = b"".join(n.to_bytes(8, "little", signed=True) for n in figures)
    assert fingerprint(metadata) == xxhash.xxh64_intdigest(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (BLOB[:-1], "of 8 bytes came as 7"),
        (BLOB + b"x", "of 8 bytes came as 9"),
        (b"an Index", "column 's.x.y' has a wrong checksum"),
    ],
)
def test_bytes_that_are_not_those_that_were_written_are_refused(data: bytes, message: str) -> None:
    verify_blob(PAGES[0], BLOB)
    verify_blob(PAGES[0], memoryview(BLOB))
    with pytest.raises(IndexFormatError, match=message):
        verify_blob(PAGES[0], data)


# --- the DataFusion example's IDX1 ---

OFFSETS: list[tuple[bytes, int | str]] = [
    (b"4", 4),
    (b"0004", 4),
    (str(END - 12).encode(), END - 12),
    (str(END - 11).encode(), "outside the file"),
    (b"3", "outside the file"),
    (b"", "is no offset"),
    (b"5_2", "is no offset"),
    (b" 52", "is no offset"),
    (b"52\n", "is no offset"),
    (b"+52", "is no offset"),
    (b"-52", "is no offset"),
    (b"52.0", "is no offset"),
    ("\u0665\u0662".encode(), "is no offset"),
    (b"9" * 19, "outside the file"),
    (b"9" * 5000, "is no offset"),
]


@pytest.mark.parametrize(("raw", "expected"), OFFSETS, ids=[repr(raw[:12]) for raw, _ in OFFSETS])
def test_offset_of_idx1(raw: bytes, expected: int | str) -> None:
    metadata = holding(raw, key="distinct_index_offset")
    if isinstance(expected, int):
        assert parse_idx1_offset(metadata) == expected
        return
    with pytest.raises(IndexFormatError, match=expected):
        parse_idx1_offset(metadata)


def test_no_idx1() -> None:
    assert (parse_idx1_offset(BASE), idx1_range(BASE)) == (None, None)


def test_the_range_of_idx1_ends_where_something_else_begins() -> None:
    assert idx1_range(holding(str(END - 20).encode(), key="distinct_index_offset")) == (END - 20, END)
    paged = parse(write(TABLE, write_page_index=True))
    first = int(paged.chunks.column_index_offset.min())
    key = {"distinct_index_offset": str(first - 13).encode()}
    assert idx1_range(dataclasses.replace(paged, key_value=key)) == (first - 13, first)


def idx1(payload: bytes, length: int | None = None) -> bytes:
    return b"IDX1" + (len(payload) if length is None else length).to_bytes(8, "little") + payload


TEXTS: list[tuple[bytes, set[str]]] = [
    (idx1(b"foo\nbar"), {"foo", "bar"}),
    (idx1(b""), {""}),
    (idx1(b"a\n"), {"a", ""}),
    (idx1("a\r\nb\u2028c\u0085d\x0b\x0ce\x1cf".encode()), {"a\r", "b\u2028c\u0085d\x0b\x0ce\x1cf"}),
    (idx1(b"a\nb", 1), {"a"}),
    (idx1("日本\né".encode()), {"日本", "é"}),
]


@pytest.mark.parametrize(("data", "expected"), TEXTS, ids=[repr(data[12:30]) for data, _ in TEXTS])
def test_texts_of_idx1(data: bytes, expected: set[str]) -> None:
    assert parse_idx1(data) == {text.encode() for text in expected}
    assert parse_idx1(memoryview(data)) == parse_idx1(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "starts with b''"),
        (b"IDX2" + b"\0" * 8, "starts with b'IDX2'"),
        (b"IDX1" + b"\0" * 7, "starts with b'IDX1'"),
        (idx1(b"abc", 4), "of 4 bytes has room for 3"),
        (idx1(b"abc", 2**64 - 1), "of 18446744073709551615 bytes has room for 3"),
        (idx1(b"\xff"), "not UTF-8"),
        (idx1("é".encode(), 1), "not UTF-8"),
    ],
)
def test_what_is_no_idx1_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(IndexFormatError, match=message):
        parse_idx1(data)


def test_idx1_byte_for_byte() -> None:
    assert encode_idx1(["foo", "bar", "foo"]) == b"IDX1\x07\0\0\0\0\0\0\0bar\nfoo"
    assert encode_idx1([]) == b"IDX1" + b"\0" * 8
    assert encode_idx1(["", "a"]) == b"IDX1\x02\0\0\0\0\0\0\0\na"


@pytest.mark.parametrize("texts", [["a\nb"], ["a\r", "b"], [""]], ids=["newline", "return", "empty alone"])
def test_texts_that_idx1_cannot_hold_are_refused(texts: list[str]) -> None:
    with pytest.raises(SchemaMismatchError, match="idx1 cannot hold"):
        encode_idx1(texts)


def test_a_head_is_held_against_its_entry() -> None:
    verify_head(PAGES[0], BLOB[:5])
    for wrong in (BLOB[:4], BLOB[1:6], BLOB, b""):
        with pytest.raises(IndexFormatError):
            verify_head(PAGES[0], wrong)
    with pytest.raises(IndexFormatError):
        verify_head(FILE, b"")


TEXT = b'{"a":1,"b":[2]}'


def test_in_pieces_as_whole() -> None:
    pieces = Checksum()
    for piece in (b"an ", b"", b"index"):
        pieces.add(piece)
    assert pieces.value == checksum(b"an index") == xxhash.xxh64_intdigest(b"an index")


def test_a_sealed_object_is_the_same_with_one_more_field() -> None:
    sealed = seal(TEXT)
    check_seal(sealed)
    assert json.loads(sealed) == {"a": 1, "b": [2], "checksum": f"{checksum(TEXT[:-1]):016x}"}


@pytest.mark.parametrize("at", range(len(seal(TEXT))))
def test_any_other_byte_is_found(at: int) -> None:
    damaged = bytearray(seal(TEXT))
    damaged[at] ^= 0x20
    with pytest.raises(IndexFormatError, match="wrong checksum"):
        check_seal(bytes(damaged))


@pytest.mark.parametrize("text", [b"", b"{}", TEXT, seal(TEXT)[:-1], seal(TEXT) + b" "], ids=repr)
def test_what_is_not_sealed_is_refused(text: bytes) -> None:
    with pytest.raises(IndexFormatError, match="wrong checksum"):
        check_seal(text)


HEAD = bytes(range(256)) * 40


def test_there_and_back() -> None:
    packed = pack_head(HEAD)
    assert len(packed) < len(HEAD)
    assert unpack_head(packed, len(HEAD)) == HEAD


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"", 10),
        (b"no frame", 10),
        (pack_head(HEAD)[:-5], len(HEAD)),
        (pack_head(HEAD), len(HEAD) - 1),
        (pack_head(HEAD), 0),
        (pack_head(HEAD), -1),
        (pack_head(HEAD), LONGEST_HEAD + 1),
    ],
    ids=["nothing", "another thing", "cut", "longer", "of none", "of less", "of too much"],
)
def test_what_is_none_is_refused(data: bytes, length: int) -> None:
    with pytest.raises(IndexFormatError):
        unpack_head(data, length)

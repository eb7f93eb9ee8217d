"""What is no readable Parquet, and questions that cannot be answered: each with its error, place and hint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import DictStore
from tests.corrupt.anatomy import Anatomy
from tests.corrupt.sweep import damaged_table, small_file

PATH = "dir/f.parquet"
Edit = Callable[[bytes], bytes]

BYTES: list[tuple[str, Edit, type[accel.AccelError], str]] = [
    ("empty", lambda d: b"", accel.ParquetFormatError, "the file is empty"),
    ("one byte", lambda d: b"P", accel.ParquetFormatError, "too few"),
    ("three bytes", lambda d: b"PAR", accel.ParquetFormatError, "too few"),
    ("magic alone", lambda d: b"PAR1", accel.ParquetFormatError, "too few"),
    ("both magics", lambda d: b"PAR1PAR1", accel.ParquetFormatError, "too few"),
    ("no footer", lambda d: b"PAR1\0\0\0\0PAR1", accel.ParquetFormatError, "footer"),
    ("other magic", lambda d: d[:-4] + b"ORC1", accel.ParquetFormatError, "ends with b'ORC1'"),
    ("a CSV", lambda d: b"a,b,c\n" * 500, accel.ParquetFormatError, "not a Parquet file"),
    ("encrypted footer", lambda d: d[:-4] + b"PARE", accel.EncryptedFileError, "footer is encrypted"),
    (
        "footer of 4 GiB",
        lambda d: d[:-8] + b"\xff\xff\xff\xff" + d[-4:],
        accel.ParquetFormatError,
        "footer claims",
    ),
    (
        "footer of all",
        lambda d: d[:-8] + len(d).to_bytes(4, "little") + d[-4:],
        accel.ParquetFormatError,
        "claims",
    ),
    ("zeros", lambda d: bytes(len(d)), accel.ParquetFormatError, "not a Parquet file"),
    (
        "no groups",
        lambda d: b"PAR1" + b"\x15\x02\x00" + b"\x03\0\0\0PAR1",
        accel.ParquetFormatError,
        "no schema",
    ),
]


@pytest.mark.parametrize(("edit", "kind", "words"), [c[1:] for c in BYTES], ids=[c[0] for c in BYTES])
@pytest.mark.parametrize("tail_hint", [8, 1 << 17])
def test_what_is_no_parquet(edit: Edit, kind: type[accel.AccelError], words: str, tail_hint: int) -> None:
    store = DictStore({PATH: edit(small_file())})
    scan = accel.scan(PATH, store=store, cache=accel.Cache(), options=accel.Options(tail_hint=tail_hint))
    for ask in (scan.to_table, scan.count_rows, lambda: scan.schema, lambda: list(scan), scan.explain):
        with pytest.raises(kind, match=words) as caught:
            ask()
        assert caught.value.path == PATH


def _edited(field: int, value: Any, *, of_metadata: bool = False, leaf: int = 1) -> bytes:
    """The small file with one field of the second row group's chunk of a leaf set."""
    anatomy = Anatomy(small_file())
    chunk = anatomy.footer[4][1].items[1][1][1].items[leaf]
    (chunk[3][1] if of_metadata else chunk)[field] = value
    return anatomy.assemble(None)


CHUNKS: list[tuple[str, Callable[[], bytes], type[accel.AccelError], str]] = [
    (
        "encrypted by its own key",
        lambda: _edited(8, (12, {2: (12, {})})),
        accel.EncryptedFileError,
        "encrypted",
    ),
    ("in another file", lambda: _edited(1, (8, b"part-7.parquet")), accel.ParquetFormatError, "another file"),
    ("LZO", lambda: _edited(4, (5, 3), of_metadata=True), accel.ParquetFormatError, "codec 3"),
    (
        "codec of the future",
        lambda: _edited(4, (5, 99), of_metadata=True),
        accel.ParquetFormatError,
        "codec 99",
    ),
]


@pytest.mark.parametrize(("make", "kind", "words"), [c[1:] for c in CHUNKS], ids=[c[0] for c in CHUNKS])
def test_a_column_that_cannot_be_read_costs_only_itself(
    make: Callable[[], bytes], kind: type[accel.AccelError], words: str
) -> None:
    store = DictStore({PATH: make()})
    cache = accel.Cache()
    with pytest.raises(kind, match=words) as caught:
        accel.scan(PATH, store=store, cache=cache).to_table()
    assert caught.value.path == PATH
    assert caught.value.place == "row group 1, column w"
    others = accel.scan(PATH, columns=["n", "st"], store=store, cache=cache).to_table()
    assert others.equals(damaged_table().select(["n", "st"]))
    # Row group 0 holds n up to 29.
    first = accel.scan(PATH, "n < 10", columns=["w"], store=store, cache=cache).to_table()
    assert first.num_rows == 8


def test_an_encrypted_file_of_pyarrow(tmp_path: Path) -> None:
    """Encrypted columns under a plain footer: what is not encrypted is read."""
    import base64

    import pyarrow.parquet.encryption as pe

    class Vault(pe.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return base64.b64encode(key_bytes)

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return base64.b64decode(wrapped_key)

    factory = pe.CryptoFactory(lambda _: Vault())
    for plaintext_footer in (True, False):
        config = pe.EncryptionConfiguration(
            footer_key="foot", column_keys={"col": ["w"]}, plaintext_footer=plaintext_footer
        )
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
        path = tmp_path / f"{plaintext_footer}.parquet"
        table = damaged_table().select(["n", "w"])
        with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
            writer.write_table(table)
        with pytest.raises(accel.EncryptedFileError, match="encrypted") as caught:
            accel.scan(str(path), cache=accel.Cache()).to_table()
        assert caught.value.path == str(path)
        if plaintext_footer:
            found = accel.scan(str(path), "n > 50", columns=["n"], cache=accel.Cache()).to_table()
            assert found.column("n").to_pylist() == [51, 52, 53, 55, 56, 57, 58, 59]


QUESTIONS: list[tuple[str, dict[str, Any], type[accel.AccelError], str]] = [
    ("column", {"columns": ["nn"]}, accel.ColumnNotFoundError, "no column 'nn'"),
    ("struct field", {"columns": ["st.c"]}, accel.ColumnNotFoundError, "no column 'st.c'"),
    ("column in where", {"where": "nn = 1"}, accel.ColumnNotFoundError, "no column 'nn'"),
    ("field in where", {"where": "st.c = 1"}, accel.ColumnNotFoundError, "st.c"),
    ("types in where", {"where": "n = 'x'"}, accel.PredicateError, "cannot be compared"),
    ("list in where", {"where": "l = 1"}, accel.PredicateError, "l"),
]


@pytest.mark.parametrize(
    ("keywords", "kind", "words"), [c[1:] for c in QUESTIONS], ids=[c[0] for c in QUESTIONS]
)
def test_questions_that_the_file_cannot_answer(
    keywords: dict[str, Any], kind: type[accel.AccelError], words: str
) -> None:
    scan = accel.scan(PATH, store=DictStore({PATH: small_file()}), cache=accel.Cache(), **keywords)
    for ask in (scan.to_table, scan.explain, lambda: list(scan)):
        with pytest.raises(kind, match=words) as caught:
            ask()
        assert caught.value.path == PATH


@pytest.mark.parametrize("where", ["n = ", "n == 1 1", "(n = 1", "n LIKE 5", "'", "n = 1 AND", "\x00"])
def test_a_where_that_does_not_parse_raises_at_the_call(where: str) -> None:
    with pytest.raises(accel.PredicateError) as caught:
        accel.scan(PATH, where)
    assert caught.value.position is not None


def test_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "_SUCCESS").write_bytes(b"")
    (tmp_path / "hidden" / ".part.crc").write_bytes(b"x")
    for name in ("empty", "hidden", "missing", "missing.parquet", "*.parquet"):
        with pytest.raises(accel.ObjectNotFoundError) as caught:
            accel.scan(str(tmp_path / name), cache=accel.Cache()).to_table()
        assert caught.value.path is not None
        assert name in caught.value.path
        assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(accel.ObjectNotFoundError):
        accel.scan("none.parquet", store=DictStore(), cache=accel.Cache()).to_table()


def test_a_file_of_text_in_a_directory_of_parquet_names_itself(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(small_file())
    (tmp_path / "b.txt").write_text("no Parquet at all, but long enough")
    with pytest.raises(accel.ParquetFormatError, match="not a Parquet file") as caught:
        accel.scan(f"{tmp_path}/", cache=accel.Cache()).to_table()
    assert caught.value.path == f"{tmp_path}/b.txt"


NAMESAKES: dict[str, tuple[dict[str, Any], str | None]] = {
    "all columns": ({}, "several columns named 'a' (the others can be read, by `columns=` b)"),
    "one of them": (
        {"columns": ["a"]},
        "several columns named 'a' (the others can be read, by `columns=` b)",
    ),
    "by another": (
        {"where": "b = 'y'"},
        "several columns named 'a' (the others can be read, by `columns=` b)",
    ),
    "by one of them": (
        {"where": "a = 1", "columns": ["b"]},
        "column 'a' is ambiguous: several have that name",
    ),
    "another": ({"columns": ["b"]}, None),
    "another, by itself": ({"columns": ["b"], "where": "b = 'y'"}, None),
}


@pytest.mark.parametrize("case", NAMESAKES)
def test_two_columns_of_one_name(tmp_path: Path, case: str) -> None:
    asked, message = NAMESAKES[case]
    one, texts = pa.array([1, 2]), pa.array(["x", "y"])
    path = tmp_path / "twice.parquet"
    pq.write_table(pa.Table.from_arrays([one, one, texts], names=["a", "a", "b"]), path)
    scan = accel.scan(str(path), **asked)
    expected = ["x", "y"] if "where" not in asked else ["y"]
    if message is None:
        assert scan.to_table().to_pydict() == {"b": expected}
        assert scan.count_rows() == len(expected)
        return
    with pytest.raises(accel.AccelError) as caught:
        scan.to_table()
    assert message in str(caught.value)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(("where", "count"), [(None, 2), ("b = 'y'", 1), ("b = 'z'", 0)])
def test_rows_of_a_file_with_two_columns_of_one_name_are_counted(
    tmp_path: Path, where: str | None, count: int
) -> None:
    path = tmp_path / "twice.parquet"
    one, texts = pa.array([1, 2]), pa.array(["x", "y"])
    pq.write_table(pa.Table.from_arrays([one, one, texts], names=["a", "a", "b"]), path)
    scan = accel.scan(str(path), where)
    assert scan.count_rows() == count
    assert scan.aggregate([("b", "max")]).to_pydict() == {"b_max": ["y" if count else None]}
    with pytest.raises(accel.SchemaMismatchError, match="several columns named 'a'"):
        scan.aggregate([("a", "max")])


def namesake_structs(*kinds: pa.DataType, of: tuple[str, ...] = ("x", "x", "y")) -> pa.Table:
    kinds = kinds or (pa.int64(),) * len(of)
    columns = [pa.array([at, at + 10], kind) for at, kind in enumerate(kinds, 1)]
    return pa.Table.from_arrays([pa.StructArray.from_arrays(columns, names=list(of))], names=["s"])


def fields_of(scan: accel.Scan) -> list[list[int]]:
    return [field.to_pylist() for field in scan.to_table().column("s").combine_chunks().flatten()]


def test_two_fields_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "twice.parquet"
    pq.write_table(namesake_structs(), path)
    assert fields_of(accel.scan(path)) == [[1, 11], [2, 12], [3, 13]]
    assert fields_of(accel.scan(path, "s.y = 13")) == [[11], [12], [13]]
    assert fields_of(accel.scan(path, columns=["s.y"])) == [[3, 13]]
    message = r"several columns named 's\.x' \('s' takes all of it\)"
    with pytest.raises(accel.SchemaMismatchError, match=message):
        accel.scan(path, columns=["s.x"]).to_table()
    with pytest.raises(accel.PredicateError, match=r"'s\.x' is ambiguous"):
        accel.scan(path, "s.x = 1").to_table()


LATER: dict[str, tuple[pa.Table, list[list[int | None]] | None]] = {
    "the same": (namesake_structs(), [[1, 11, 1, 11], [2, 12, 2, 12], [3, 13, 3, 13]]),
    "narrower": (
        namesake_structs(pa.int8(), pa.int16(), pa.int32()),
        [[1, 11, 1, 11], [2, 12, 2, 12], [3, 13, 3, 13]],
    ),
    "in another order": (
        namesake_structs(of=("y", "x", "x")),
        [[1, 11, 2, 12], [2, 12, 3, 13], [3, 13, 1, 11]],
    ),
    "none of them": (namesake_structs(of=("y",)), [[1, 11, None, None], [2, 12, None, None], [3, 13, 1, 11]]),
    "one of them": (namesake_structs(of=("x", "y")), None),
    "more of them": (namesake_structs(of=("x", "x", "x", "y")), None),
}


@pytest.mark.parametrize("case", LATER)
def test_two_fields_of_one_name_beside_a_later_file(tmp_path: Path, case: str) -> None:
    later, expected = LATER[case]
    pq.write_table(namesake_structs(), tmp_path / "0.parquet")
    pq.write_table(later, tmp_path / "1.parquet")
    if expected is not None:
        assert fields_of(accel.scan(tmp_path)) == expected
        return
    with pytest.raises(accel.SchemaMismatchError, match=r"1\.parquet: column 's' is struct<"):
        accel.scan(tmp_path).to_table()

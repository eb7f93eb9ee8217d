"""`on_error="skip"` of a scan: what is left out, where that is told, and what stays an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.cli.main import main
from accel.errors import AccessDeniedError
from accel.testing import DictStore, Layout, table, write_file
from accel.testing.stores import StoreWrapper

ROWS = 1000
GOOD = {
    f"d/{at}.parquet": write_file(
        table(id=list(range(at * ROWS, (at + 1) * ROWS))),
        Layout(group_rows=250, page_rows=50, dictionary=False, codec="none"),
    )
    for at in range(5)
}


class Forbidding(StoreWrapper):
    """Refuses one file."""

    async def read(self, path: str, want: Any, *, if_match: str | None = None) -> Any:
        if path == "d/3.parquet":
            raise AccessDeniedError("refused", path=path, status=403)
        return await self.inner.read(path, want, if_match=if_match)


def broken() -> Any:
    files = dict(GOOD)
    files["d/0.parquet"] = b"no Parquet at all"
    # The footer is as it was, a page header is not.
    data = bytearray(files["d/2.parquet"])
    data[4:40] = b"\xff" * 36
    files["d/2.parquet"] = bytes(data)
    return Forbidding(DictStore(files))


def ids(*files: int) -> list[int]:
    return [row for at in files for row in range(at * ROWS, (at + 1) * ROWS)]


def skipping(**keywords: Any) -> accel.Scan:
    arguments: dict[str, Any] = {"store": broken(), "cache": None, "on_error": "skip", **keywords}
    return accel.scan("d/", **arguments)


def test_what_cannot_be_read_is_left_out() -> None:
    scan = skipping()
    with pytest.warns(UserWarning, match="skipped: ") as warned:
        found = scan.to_table()["id"].to_pylist()
    assert len(warned) == 1
    assert found == ids(1, 4)
    assert set(scan.metrics.skipped) == {"d/0.parquet", "d/2.parquet", "d/3.parquet"}
    assert "d/3.parquet: refused" in scan.metrics.skipped["d/3.parquet"]
    assert len(scan.metrics.warnings) == 3
    assert scan.metrics.as_dict()["skipped"] == scan.metrics.skipped


@pytest.mark.filterwarnings("ignore:skipped: ")
def test_other_faces() -> None:
    assert skipping().count_rows() == 3 * ROWS  # metadata counts the rows of the damaged page
    assert skipping(where="id >= 4500").to_table()["id"].to_pylist() == list(range(4500, 5000))
    assert skipping(order_by="id desc", limit=2).to_table()["id"].to_pylist() == [4999, 4998]
    assert skipping().head(3)["id"].to_pylist() == [1000, 1001, 1002]
    assert [row["id"] for batch in skipping(order=False) for row in batch.to_pylist()] in (
        ids(1, 4),
        ids(4, 1),
    )
    planned = accel.plan(["d/1.parquet", "d/4.parquet"], store=DictStore(GOOD), cache=None)
    planned = accel.Plan.from_arrow(planned.to_arrow())  # without the bytes that came with the footers
    store = DictStore({"d/4.parquet": GOOD["d/4.parquet"]})
    scan = accel.scan(planned, store=store, cache=None, on_error="skip")
    with pytest.raises(accel.ObjectChangedError):
        scan.to_table()  # it is gone since it was planned


def test_all_of_it_is_an_error() -> None:
    with pytest.raises(accel.ParquetFormatError, match=r"d/0\.parquet"):
        accel.scan("d/0.parquet", store=broken(), cache=None, on_error="skip").to_table()


def test_without_it_the_first_error_is_raised() -> None:
    with pytest.raises(accel.ParquetFormatError, match=r"d/0\.parquet"):
        accel.scan("d/", store=broken(), cache=None).to_table()
    with pytest.raises(ValueError, match='on_error is "raise" or "skip"'):
        accel.scan("d/", on_error="ignore")  # type: ignore[call-arg]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for at in (0, 1):
        (tmp_path / f"{at}.parquet").write_bytes(GOOD[f"d/{at}.parquet"])
    (tmp_path / "2.parquet").write_bytes(b"no Parquet at all")
    assert main(["scan", str(tmp_path), "--where", "id = 1", "--format", "csv", "--on-error", "skip"]) == 3
    out, err = capsys.readouterr()
    assert out == "id\n1\n"
    assert "skipped" in err and "2.parquet" in err
    assert main(["scan", str(tmp_path), "--where", "id = 1", "--format", "csv"]) == 1


def test_a_union_goes_on_without_files_that_are_left_out(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"no Parquet at all")
    pq.write_table(pa.table({"id": [3, 4], "note": ["x", "y"]}), tmp_path / "c.parquet")
    with pytest.raises(accel.ParquetFormatError, match=r"b\.parquet"):
        accel.scan(tmp_path, schema="union").to_table()
    scan = accel.scan(tmp_path, "note = 'y' OR id = 1", schema="union", on_error="skip")
    with pytest.warns(UserWarning, match=r"b\.parquet"):
        rows = scan.to_table().to_pylist()
    assert rows == [{"id": 1, "note": None}, {"id": 4, "note": "y"}]
    assert [Path(url).name for url in scan.metrics.skipped] == ["b.parquet"]

"""Files whose schemas differ in little are judged, planned and decoded together: none takes what is another's."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import accel
from accel.testing import DictStore

NUMBER, TEXT, REAL = (
    pa.field("number", pa.int64()),
    pa.field("text", pa.string()),
    pa.field("real", pa.float64()),
)
SCHEMAS = {
    "as the first": [NUMBER, TEXT, REAL],
    "in another order": [REAL, NUMBER, TEXT],
    "with no nulls": [field.with_nullable(False) for field in (NUMBER, TEXT, REAL)],
    "a smaller number": [pa.field("number", pa.int32()), TEXT, REAL],
    "without a column": [NUMBER, TEXT],
    "with one more": [NUMBER, pa.field("more", pa.int64()), TEXT, REAL],
    "under field ids": [
        field.with_metadata({"PARQUET:field_id": str(7 - at)})
        for at, field in enumerate((NUMBER, TEXT, REAL))
    ],
}
EACH = 6


def written() -> tuple[dict[str, bytes], pa.Table]:
    """The files, in no order of their schemas, and all of their rows."""
    chance = random.Random(6)
    kinds = [*SCHEMAS] * EACH
    chance.shuffle(kinds)
    kinds = ["as the first", *kinds]
    objects, tables = {}, []
    for at, kind in enumerate(kinds):
        fields, arrays = SCHEMAS[kind], []
        for field in fields:
            values = [at * 10 + chance.randrange(20) for _ in range(8)]
            some = [n if not field.nullable or chance.random() < 0.8 else None for n in values]
            arrays.append(pa.array(some, pa.int64()).cast(field.type))
        table = pa.table(arrays, schema=pa.schema(fields))
        sink = io.BytesIO()
        options = {"use_dictionary": at % 3 > 0, "compression": ("zstd", "snappy", "none")[at % 3 and at % 2]}
        pq.write_table(table, sink, row_group_size=5, write_page_index=at % 4 == 0, **options)
        objects[f"d/{at:03d}.parquet"] = sink.getvalue()
        real = table["real"] if "real" in table.column_names else pa.nulls(8, pa.float64())
        tables.append(
            pa.table(
                [table["number"].cast(pa.int64()), table["text"], real], names=["number", "text", "real"]
            )
        )
    return objects, pa.concat_tables(tables)


WHERE = {
    "all": (None, None),
    "few": ("number > 100 AND number < 140", lambda t: pc.and_(pc.greater(t["number"], 100), pc.less(t["number"], 140))),
    "texts": ("text >= '15' AND text < '25'", lambda t: pc.and_(pc.greater_equal(t["text"], "15"), pc.less(t["text"], "25"))),
    "a column that some lack": ("real > 50 AND number < 300", lambda t: pc.and_(pc.greater(t["real"], 50), pc.less(t["number"], 300))),
    "nulls": ("real IS NULL", lambda t: pc.is_null(t["real"])),
}  # fmt: skip


@pytest.mark.parametrize("where", WHERE)
def test_each_gives_its_own_rows(where: str) -> None:
    objects, table = written()
    text, keep = WHERE[where]
    due = table if text is None else table.filter(keep(table))
    cache, store = accel.Cache(), DictStore(objects)
    for _ in range(3):
        found = accel.scan(
            "d/", text, columns=["number", "text", "real"], store=store, cache=cache
        ).to_table()
        assert found.cast(due.schema).equals(due)

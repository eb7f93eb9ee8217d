"""Scans, plans and explanations in notebooks: escaped, and without I/O of a scan."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

import accel
from accel.testing.stores import DictStore, RecordingStore


def test_they_show_the_question_escaped():
    sink = io.BytesIO()
    pq.write_table(pa.table({"<b>": ["<i>&"], "n": [1]}), sink)
    store = RecordingStore(DictStore({"t.parquet": sink.getvalue()}))
    scan = accel.scan("t.parquet", "\"<b>\" = '<i>&'", store=store, cache=None)
    shown = scan._repr_html_()
    assert not store.calls
    assert "&lt;i&gt;&amp;" in shown
    assert "scan.schema" in shown
    assert scan.schema.names == ["<b>", "n"]
    assert "&lt;b&gt;: string" in scan._repr_html_()
    explained, plan = scan.explain(), accel.plan("t.parquet", "n = 1", store=store, cache=None)
    for html in (scan._repr_html_(), explained._repr_html_(), plan._repr_html_(), explained.to_html()):
        assert "<b>:" not in html
        assert "<i>" not in html
    assert "row groups" in explained._repr_html_()
    assert plan._repr_html_() == plan.explain()._repr_html_()


def test_a_plan_that_was_read_back_has_no_picture():
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": [1]}), sink)
    plan = accel.plan("t.parquet", store=DictStore({"t.parquet": sink.getvalue()}))
    back = accel.Plan.from_arrow(plan.to_arrow())
    assert "Plan(1 tasks, 1 rows)" in back._repr_html_()


def test_metrics_show_what_is_not_0():
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": [1, 2]}), sink)
    scan = accel.scan("t.parquet", "n = 1", store=DictStore({"t.parquet": sink.getvalue()}))
    scan.to_table()
    shown = scan.metrics._repr_html_()
    assert '<td>rows_out</td><td class="n">1</td>' in shown
    assert "retries" not in shown
    assert "<td>tail</td>" in shown

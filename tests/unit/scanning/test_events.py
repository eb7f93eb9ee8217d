"""Events of a scan: what a listener is told, what is logged, and the spans of OpenTelemetry."""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import accel
from accel.testing import DictStore, FaultStore, Layout, Status, table, write_file

FILES = {
    f"d/{at}.parquet": write_file(table(id=list(range(at * 100, at * 100 + 100))), Layout(page_rows=10))
    for at in range(2)
}


class Listener:
    def __init__(self) -> None:
        self.events: list[accel.Event] = []

    def __call__(self, event: accel.Event) -> None:
        self.events.append(event)

    def names(self) -> list[str]:
        return [event.name for event in self.events]


def ask(listener: Any, store: Any = None, **keywords: Any) -> accel.Scan:
    options = accel.Options(on_event=listener, backoff_base=1e-6)
    return accel.scan(
        "d/", "id = 150", store=store or DictStore(FILES), options=options, cache=None, **keywords
    )


def test_a_scan_tells_its_requests() -> None:
    heard = Listener()
    scan = ask(heard)
    assert scan.to_table().num_rows == 1
    assert heard.names()[0] == "scan started" and heard.names()[-1] == "scan ended"
    requests = [event for event in heard.events if event.name == "request"]
    assert len(requests) == scan.metrics.requests
    assert {(event.kind, event.path) for event in requests} == {
        ("listing", "d"), ("tail", "d/0.parquet"), ("tail", "d/1.parquet")
    }  # fmt: skip
    assert sum(event.nbytes for event in requests) == scan.metrics.bytes
    assert all(event.seconds is not None and event.seconds >= 0 and event.text is None for event in requests)
    assert len({event.scan for event in heard.events}) == 1
    assert heard.events[-1].counts == scan.metrics.as_dict()


@pytest.mark.parametrize("way", ["to_batches", "async", "count_rows", "head", "first rows"])
def test_each_way_to_run_it(way: str) -> None:
    heard = Listener()
    scan = ask(heard, **({"order_by": "id", "limit": 1} if way == "first rows" else {}))
    if way == "to_batches":
        assert sum(batch.num_rows for batch in scan) == 1
    elif way == "async":
        assert asyncio.run(scan.to_table_async()).num_rows == 1
    elif way == "count_rows":
        assert scan.count_rows() == 1
    else:
        assert scan.head(1).num_rows == 1
    assert heard.names().count("scan started") == heard.names().count("scan ended") == 1


def test_retries_and_failures() -> None:
    heard = Listener()
    store = FaultStore(DictStore(FILES), [None, Status(503)])
    assert ask(heard, store).to_table().num_rows == 1
    failed = [event for event in heard.events if event.name == "request" and event.text]
    assert len(failed) == 1 and "503" in (failed[0].text or "")
    assert heard.names().count("retry") == 1
    heard = Listener()
    with pytest.raises(accel.StoreError):
        ask(heard, FaultStore(DictStore(FILES), lambda attempt: Status(403))).to_table()
    assert heard.events[-1].name == "scan ended"
    assert (heard.events[-1].text or "").startswith("StoreError: ")


def test_no_event_tells_a_secret() -> None:
    heard = Listener()
    url = "https://host/f.parquet?X-Amz-Signature=SECRET"
    store = FaultStore(DictStore({}), lambda attempt: Status(403))
    with pytest.raises(accel.AccelError):
        accel.scan(url, store=store, options=accel.Options(on_event=heard), cache=None).to_table()
    assert heard.events
    assert "SECRET" not in "".join(f"{event} {event!r}" for event in heard.events)


def test_a_listener_that_fails_ends_no_scan(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: accel.Event) -> None:
        raise RuntimeError("token=SECRET?a=SECRET")

    assert ask(fail).to_table().num_rows == 1
    assert "a listener failed with RuntimeError" in caplog.text


def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "accel"):
        ask(None, FaultStore(DictStore(FILES), [None, Status(503)])).to_table()
    levels = {record.getMessage().split(" ")[0].rstrip(":"): record.levelno for record in caplog.records}
    assert levels["request"] == logging.DEBUG
    assert levels["retry"] == logging.INFO
    caplog.clear()
    with caplog.at_level(logging.WARNING, "accel"):
        ask(None).to_table()
    assert caplog.records == []


def test_slow_requests_are_worth_a_line() -> None:
    slow = accel.Event(name="request", kind="data", path="f", place="bytes 0..9", nbytes=9, seconds=6.0)
    assert slow.level == logging.INFO
    assert str(slow) == "slow request (data) f bytes 0..9: 9 bytes in 6000.0 ms"


def test_it_stays_in_its_process() -> None:
    options = accel.Options(on_event=print, batch_rows=7)
    assert pickle.loads(pickle.dumps(options)) == accel.Options(batch_rows=7)
    assert pickle.loads(pickle.dumps(options)).on_event is None
    assert options.for_spark().on_event is print
    with pytest.raises(TypeError, match="option on_event is a function"):
        accel.Options(on_event=3)  # type: ignore[arg-type]


def test_spans() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with trace.get_tracer("test", tracer_provider=provider).start_as_current_span("handler") as handler:
        scan = ask(accel.otel.spans(provider), FaultStore(DictStore(FILES), [None, Status(503)]))
        scan.to_table()
    spans = exporter.get_finished_spans()
    (whole,) = [span for span in spans if span.name == "accel.scan"]
    requests = [span for span in spans if span.name == "accel.request"]
    assert whole.parent is not None and whole.parent.span_id == handler.get_span_context().span_id
    assert len(requests) == scan.metrics.requests == whole.attributes["accel.requests"]
    assert all(span.parent.span_id == whole.context.span_id for span in requests)
    assert [span.status.is_ok for span in requests].count(False) == 1
    assert [event.name for event in whole.events] == ["retry"]
    failing = ask(accel.otel.spans(provider), FaultStore(DictStore(FILES), lambda attempt: Status(403)))
    with pytest.raises(accel.AccelError):
        failing.to_table()
    assert not exporter.get_finished_spans()[-1].status.is_ok


def test_a_warning_of_pythons_is_not_printed_by_the_log_besides(tmp_path: Path) -> None:
    """Where no logging is set up: other warnings are."""
    code = (
        "import accel; "
        f"accel.write_table(__import__('pyarrow').table({{'id': [1]}}), {str(tmp_path / 'a.parquet')!r}); "
        f"accel.scan({str(tmp_path)!r}, index={str(tmp_path / 'none')!r}).count_rows(); "
        "accel.Metrics().warn('something else')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("there is no index at") == 1
    assert done.stderr.count("UserWarning: there is no index at") == 1
    assert done.stderr.count("warning: something else") == 1

"""Spans of OpenTelemetry: one for each scan, and one below it for each request. This needs
`accel-parquet[otel]`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from accel.events import Event, Listener
from accel.runtime.forks import lock_over_forks

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["spans"]

_MOST_OPEN: Final = 4096
"""Scans whose end is awaited. One whose iterator was dropped has none."""
_COUNTS: Final = ("requests", "bytes", "round_trips", "retries", "replans", "rows_out")


def spans(tracer_provider: TracerProvider | None = None) -> Listener:
    """Return a listener for `Options.on_event` that makes spans.

    A scan is a span `accel.scan`, below the current span where the scan began or, where a loop of accel's has
    none, where this was called; its requests are spans `accel.request` below it, and retries, replans and
    warnings are its events.

    Parameters
    ----------
    tracer_provider : opentelemetry.trace.TracerProvider, optional
        By default the one that OpenTelemetry has for the process.

    Returns
    -------
    callable
        The listener.

    Raises
    ------
    ModuleNotFoundError
        OpenTelemetry is not installed.

    Examples
    --------
    >>> options = accel.Options(on_event=accel.otel.spans())
    >>> accel.scan("s3://bucket/flights/", "carrier = 'HA'", options=options).to_table()
    """
    return _Spans(tracer_provider)


class _Spans:
    """Makes spans of events. It is called on the I/O loop and on threads of callers."""

    def __init__(self, tracer_provider: TracerProvider | None) -> None:
        from opentelemetry import context, trace

        self._trace, self._contexts = trace, context
        self._tracer = trace.get_tracer("accel", tracer_provider=tracer_provider)
        self._context = context.get_current()
        self._lock = lock_over_forks()
        self._open: dict[int, Span] = {}

    def __call__(self, event: Event) -> None:
        if event.name == "scan started":
            self._start(event)
            return
        with self._lock:
            span = (
                self._open.pop(event.scan, None) if event.name == "scan ended" else self._open.get(event.scan)
            )
        if event.name == "request":
            self._request(event, span)
        elif span is not None and event.name == "scan ended":
            self._end(event, span)
        elif span is not None:
            span.add_event(event.name, _told(text=event.text, path=event.path))

    def _start(self, event: Event) -> None:
        here = self._contexts.get_current()
        in_span = self._trace.get_current_span(here).get_span_context().is_valid
        parent = here if in_span else self._context
        span = self._tracer.start_span("accel.scan", context=parent, attributes=_told(source=event.path))
        with self._lock:
            self._open[event.scan] = span
            forgotten = next(iter(self._open)) if len(self._open) > _MOST_OPEN else None
            dropped = None if forgotten is None else self._open.pop(forgotten)
        if dropped is not None:
            dropped.end()

    def _request(self, event: Event, parent: Span | None) -> None:
        trace = self._trace
        ended = time.time_ns()
        span = self._tracer.start_span(
            "accel.request",
            context=None if parent is None else trace.set_span_in_context(parent),
            kind=trace.SpanKind.CLIENT,
            start_time=ended - int((event.seconds or 0.0) * 1e9),
            attributes=_told(kind=event.kind, path=event.path, range=event.place, bytes=event.nbytes),
        )
        if event.text is not None:
            span.set_status(trace.StatusCode.ERROR, event.text)
        span.end(ended)

    def _end(self, event: Event, span: Span) -> None:
        span.set_attributes(_told(**{name: event.counts.get(name) for name in _COUNTS}))
        if event.text is not None:
            span.set_status(self._trace.StatusCode.ERROR, event.text)
        span.end()


def _told(**attributes: Any) -> dict[str, Any]:
    """Return the attributes that there are, under accel's prefix."""
    return {f"accel.{name}": value for name, value in attributes.items() if value is not None}

"""Estimates of the latency and bandwidth of one store, from the times of its recent requests. It has no clock
of its own."""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from accel.options import REQUEST_SECONDS, Options
from accel.store.location import LOCAL_ROOT

__all__ = ["Network", "network_to"]

# Assumed of local files: the hand-off to a thread and one read from the page cache.
_LOCAL_LATENCY = 0.0002
_LOCAL_BANDWIDTH = 2e9
_LOCAL_REQUEST_SECONDS = 0.05e-3

# Latency is measured by requests of up to the first size, bandwidth by requests from the second size on.
_SMALL_BYTES = 64 * 1024
_LARGE_BYTES = 512 * 1024
# Measurements that are remembered: of small requests, and of large ones for each level of concurrency (1,
# 2-3, 4-7, ...).
_SMALL_SAMPLES = 128
_LARGE_SAMPLES = 16
# A level of concurrency is tried again after this many large requests at lower levels.
_TRIED_AGAIN = 32
# Fewer measurements say nothing.
_FEWEST = 3
# Concurrent requests also wait for each other, so the quickest quarter shows what the network takes.
_LATENCY_QUANTILE = 0.25
_RATE_QUANTILE = 1 - _LATENCY_QUANTILE
# Latency varies: a transfer is taken to last at least this share of its request.
_LEAST_TRANSFER = 0.2
# Several streams are assumed to bring this many times what one brings, until it is measured.
_ASSUMED_STREAMS = 4.0
# Streams that keep this share of their rate are taken not to share a link.
_UNDISTURBED = 0.6
# Limits of the gaps that are read over, and of the streams of one read.
_SHORTEST_GAP = 4 * 1024
_LONGEST_GAP = 1024 * 1024
_MOST_STREAMS = 16
# This many times the concurrency that did not slow streams down is tried next.
_STREAMS_TRIED = 8
# For requests that begin and end together, the average concurrency is little more than half of the real one.
_CONCURRENCY = 1.5
# No gap is widened to merge fewer requests than these.
_FEWEST_REQUESTS = 8
# Seconds to decode a compressed byte, which a round trip may also save.
_DECODE_SECONDS = 6e-9
# A request is taken to last at least so long.
_LEAST_SECONDS = 1e-6


class _Ring:
    """The last few numbers of a series, and their quantiles. One thread adds; any may read."""

    __slots__ = ("_at", "_ordered", "_size", "values")

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = 0
        self.values: list[float] = []
        # Sorting at each query would take longer than all else here.
        self._ordered: list[float] = []

    def add(self, value: float) -> None:
        if len(self.values) < self._size:
            self.values.append(value)
        else:
            del self._ordered[bisect_left(self._ordered, self.values[self._at])]
            self.values[self._at] = value
            self._at = (self._at + 1) % self._size
        insort(self._ordered, value)

    def quantile(self, share: float) -> float:
        ordered = self._ordered
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class _Level:
    """Large requests of about the same concurrency."""

    __slots__ = ("last", "rate", "together")

    def __init__(self) -> None:
        self.rate = _Ring(_LARGE_SAMPLES)
        """Bytes a second of one request."""
        self.together = _Ring(_LARGE_SAMPLES)
        """Bytes a second of all requests that were under way."""
        self.last = 0
        """The number of the latest request, among all large ones."""

    @property
    def is_measured(self) -> bool:
        return len(self.rate.values) >= _FEWEST


class Network:
    """Latency and bandwidth of one store. `observe` is called on one thread, all else on any.

    Parameters
    ----------
    latency : float
        Seconds until the first byte, assumed until it is measured.
    bandwidth : float
        Bytes a second of one stream, assumed until it is measured.
    request_seconds : float
        Cost of one more request that is sent together with others.
    most_streams : int
        Maximum of `few_streams`.
    """

    def __init__(
        self,
        *,
        latency: float,
        bandwidth: float,
        request_seconds: float = REQUEST_SECONDS,
        most_streams: int = _MOST_STREAMS,
    ) -> None:
        self._request_seconds = request_seconds
        self._most_streams = most_streams
        # The last value of each steady estimate.
        self._estimates: dict[str, int] = {}
        self._assumed_latency = latency
        self._assumed_bandwidth = bandwidth
        self._small = _Ring(_SMALL_SAMPLES)
        # The number of large requests, and those of each level of concurrency: 1, 2-3, 4-7, ...
        self._large = 0
        self._levels: dict[int, _Level] = {}
        self._bandwidths: tuple[float, float] | None = (bandwidth, bandwidth * _ASSUMED_STREAMS)

    def __repr__(self) -> str:
        return f"Network({1e3 * self.latency:.1f} ms, {self.bandwidth / 1e6:.0f} MB/s)"

    def observe(self, nbytes: int, seconds: float, *, in_flight: float = 1) -> None:
        """Learn from one request that succeeded.

        Parameters
        ----------
        nbytes : int
            Body bytes.
        seconds : float
            From sending the request to the last byte of its response.
        in_flight : float
            Average number of requests to the store that were under way meanwhile, this one included.
        """
        seconds = max(seconds, _LEAST_SECONDS)
        if nbytes <= _SMALL_BYTES:
            self._small.add(max(seconds - nbytes / self.bandwidth, seconds / 2))
        elif nbytes >= _LARGE_BYTES:
            is_measured = len(self._small.values) >= _FEWEST
            waited = self.latency if is_measured else min(self.latency, seconds / 2)
            rate = nbytes / max(seconds - waited, _LEAST_TRANSFER * seconds)
            concurrency = max(1.0, in_flight)
            at = int(math.log2(concurrency))
            level = self._levels.get(at)
            if level is None:
                # The dictionary is replaced, as another thread may be iterating over it.
                level = _Level()
                self._levels = {**self._levels, at: level}
            self._large += 1
            level.last = self._large
            level.rate.add(rate)
            level.together.add(rate * concurrency)
            self._bandwidths = None

    @property
    def latency(self) -> float:
        """Seconds from sending a request to its first byte: a low quantile of recent small requests."""
        small = self._small
        return small.quantile(_LATENCY_QUANTILE) if len(small.values) >= _FEWEST else self._assumed_latency

    @property
    def bandwidth(self) -> float:
        """Bytes a second of one stream that nothing slows down: a high quantile of recent large requests."""
        return self._bandwidth_pair()[0]

    @property
    def total_bandwidth(self) -> float:
        """Bytes a second of all streams together, at least that of one."""
        return self._bandwidth_pair()[1]

    @property
    def gap_bytes(self) -> int:
        """Unwanted bytes that one stream transfers in the time that a request costs. A steady estimate."""
        worth = self.bandwidth * self._request_seconds
        return min(max(self._steady("gap", worth), _SHORTEST_GAP), _LONGEST_GAP)

    @property
    def wide_gap_bytes(self) -> int:
        """Unwanted bytes that all streams together transfer in that time, at least `gap_bytes`. A steady
        estimate."""
        wide = self._steady("wide gap", self.total_bandwidth * self._request_seconds)
        return max(self.gap_bytes, min(wide, _LONGEST_GAP))

    @property
    def early_bytes(self) -> int:
        """Bytes that lengthen a wait by a quarter: what may be fetched before it is needed. A steady
        estimate."""
        return self._steady("early", self.latency * self.bandwidth / 4)

    @property
    def trip_bytes(self) -> int:
        """Compressed bytes that take one round trip to be transferred over all streams and decoded: to leave
        out fewer never pays for another round trip. A steady estimate."""
        return self._steady("trip", self.latency / (1 / self.total_bandwidth + _DECODE_SECONDS))

    @property
    def few_requests(self) -> int:
        """Requests that can be sent before the response to the first arrives. A steady estimate."""
        return max(self._steady("few requests", self.latency / self._request_seconds), _FEWEST_REQUESTS)

    @property
    def few_streams(self) -> int:
        """Requests that one read is split into if they would be long: 1, 2, 4, 8 or 16. A steady estimate."""
        return min(self._steady("few streams", math.sqrt(2) * self._streams_worth()), self._most_streams)

    def _steady(self, name: str, found: float) -> int:
        """Return the power of two at or below `found`, or the last one while it is about right, so that what
        was predicted by an estimate is what is requested later."""
        last = self._estimates.get(name, 0)
        if not 0.7 * last <= found < 2.8 * last:
            last = self._estimates[name] = 1 << max(0, int(math.log2(max(found, 1.0))))
        return last

    def bytes_to_cover(self) -> int:
        """Return the bytes to have under way so that the network is never idle: the bandwidth of all streams
        times latency."""
        return math.ceil(self.total_bandwidth * self.latency)

    def _streams_worth(self) -> float:
        """Return how many times the bandwidth of one stream several streams bring; more, to be tried, if the
        most concurrent ones measured did not slow each other down."""
        measured = self._measured()
        # Concurrency that did not pay is not used any more, so after a while it counts as not measured.
        lately = max((at for at, level in measured if level.last > self._large - _TRIED_AGAIN), default=0)
        measured = [(at, level) for at, level in measured if at <= lately]
        if not measured:
            return _STREAMS_TRIED
        # The quickest are compared, as a busy machine slows streams down too, and a needless split costs
        # little.
        one = measured[0][1].rate.quantile(_RATE_QUANTILE)
        worth = rate = 1.0
        for at, level in measured:
            rate = level.rate.quantile(_RATE_QUANTILE) / one
            worth = max(worth, rate * _CONCURRENCY * 2**at if at else 1.0)
        return max(worth, float(_STREAMS_TRIED << measured[-1][0])) if rate >= _UNDISTURBED else worth

    def _measured(self) -> list[tuple[int, _Level]]:
        """Return the levels of concurrency with enough measurements, in ascending order."""
        return [(at, level) for at, level in sorted(self._levels.items()) if level.is_measured]

    def _bandwidth_pair(self) -> tuple[float, float]:
        found = self._bandwidths
        if found is None:
            measured = self._measured()
            if not measured:
                one = self._assumed_bandwidth
                found = (one, one * _ASSUMED_STREAMS)
            else:
                # Concurrency, like a busy machine, only makes a stream slower.
                one = max(level.rate.quantile(_RATE_QUANTILE) for _, level in measured)
                together = max(level.together.quantile(0.5) for _, level in measured)
                # Higher concurrency than was measured is taken to be as undisturbed as the highest measured.
                alone, rate = measured[0][1].rate.quantile(0.5), measured[-1][1].rate.quantile(0.5)
                if 2 ** max(self._levels) < _ASSUMED_STREAMS and rate >= _UNDISTURBED * alone:
                    together = max(together, rate * _ASSUMED_STREAMS)
                found = (one, max(one, together))
            self._bandwidths = found
        return found


def network_to(root: str, options: Options) -> Network:
    """Return the model of a store that has not been measured."""
    if root == LOCAL_ROOT:
        # The ranges of a local read are read in one call, so a split would only have to be joined again.
        return Network(
            latency=_LOCAL_LATENCY,
            bandwidth=_LOCAL_BANDWIDTH,
            request_seconds=_LOCAL_REQUEST_SECONDS,
            most_streams=1,
        )
    return Network(latency=options.assumed_latency, bandwidth=options.assumed_bandwidth)

"""What is learned of the way to one store: how long it takes to answer, and how fast bytes come.

It knows no clock: it is told what requests took. What it says are estimates to choose by, never a promise.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort

from accel.options import REQUEST_SECONDS, Options
from accel.store.location import LOCAL_ROOT

__all__ = ["Network", "network_to"]

# A local file until measured: the hand-off to a thread and one read; bytes come from the page cache.
_LOCAL_LATENCY = 0.0002
_LOCAL_BANDWIDTH = 2e9
_LOCAL_REQUEST_SECONDS = 0.05e-3

# A request of up to so many bytes is waited for, not transferred; one from so many on is transferred.
_SMALL_BYTES = 64 * 1024
_LARGE_BYTES = 512 * 1024
# How many measurements are kept: of small requests, and of large ones for each number of concurrent requests
# (1, 2-3, 4-7, ...).
_SMALL_SAMPLES = 128
_LARGE_SAMPLES = 16
# What more company did is tried again after so many large requests that had less.
_TRIED_AGAIN = 32
# So few measurements say nothing yet.
_FEWEST = 3
# Requests that ran in company wait for each other, too: the quickest quarter tells what the network takes.
_LATENCY_QUANTILE = 0.25
_RATE_QUANTILE = 1 - _LATENCY_QUANTILE
# A wait is noisy: a transfer that it seems to leave no time for took at least this share of the whole.
_LEAST_TRANSFER = 0.2
# Several streams are taken to bring so much more than one, until it was seen.
_ASSUMED_STREAMS = 4.0
# Two or three that share a link have half or a third of it each.
_UNDISTURBED = 0.6
# A gap is worth reading over between these limits; so many streams at most are worth opening for one read.
_SHORTEST_GAP = 4 * 1024
_LONGEST_GAP = 1024 * 1024
_MOST_STREAMS = 16
# So many times the company that did not disturb is tried next.
_STREAMS_TRIED = 8
# Of requests that begin and end together the average company is little more than half of what they really had.
_COMPANY = 1.5
# So few requests are never worth a byte more than their gaps.
_FEWEST_REQUESTS = 8
# A compressed byte costs so much to decode: of what a round trip may make needless, that is saved too.
_DECODE_SECONDS = 6e-9
# Below this a request's time is the machine's own.
_LEAST_SECONDS = 1e-6


class _Ring:
    """The last few of many numbers. One thread adds; any may read."""

    __slots__ = ("_at", "_ordered", "_size", "values")

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = 0
        self.values: list[float] = []
        # To sort them whenever they are asked about would take longer than all else here.
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
    """Large requests of about the same company."""

    __slots__ = ("last", "rate", "together")

    def __init__(self) -> None:
        self.rate = _Ring(_LARGE_SAMPLES)
        """Bytes a second of one."""
        self.together = _Ring(_LARGE_SAMPLES)
        """Of all that were under way."""
        self.last = 0
        """The number of the latest, among all large requests."""

    @property
    def is_measured(self) -> bool:
        return len(self.rate.values) >= _FEWEST


class Network:
    """Latency and bandwidth of one store, from its recent requests. Told on one thread, asked from any.

    Parameters
    ----------
    latency : float
        Seconds until the first byte, taken for true until requests have shown otherwise.
    bandwidth : float
        Bytes a second of one stream, likewise.
    request_seconds : float
        What one request more costs when it is sent together with others.
    most_streams : int
        No read is worth being split into more requests than these.
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
        self._gap = 0
        self._wide_gap = 0
        self._few_requests = 0
        self._early = 0
        self._trip = 0
        self._few_streams = 0
        self._assumed_latency = latency
        self._assumed_bandwidth = bandwidth
        self._small = _Ring(_SMALL_SAMPLES)
        # Large requests so far; and by how many were under way: 1, 2-3, 4-7, ...
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
            From sending it to its last byte; without the wait for a slot.
        in_flight : float
            Requests of the same store that were under way meanwhile, on average, itself included.
        """
        seconds = max(seconds, _LEAST_SECONDS)
        if nbytes <= _SMALL_BYTES:
            self._small.add(max(seconds - nbytes / self.bandwidth, seconds / 2))
        elif nbytes >= _LARGE_BYTES:
            known = len(self._small.values) >= _FEWEST
            waited = self.latency if known else min(self.latency, seconds / 2)
            rate = nbytes / max(seconds - waited, _LEAST_TRANSFER * seconds)
            company = max(1.0, in_flight)
            at = int(math.log2(company))
            level = self._levels.get(at)
            if level is None:
                # A whole new dict: another thread may be going through the old one.
                level = _Level()
                self._levels = {**self._levels, at: level}
            self._large += 1
            level.last = self._large
            level.rate.add(rate)
            level.together.add(rate * company)
            self._bandwidths = None

    @property
    def latency(self) -> float:
        """Seconds from sending a request to its first byte: of recent small requests a low quantile."""
        small = self._small
        return small.quantile(_LATENCY_QUANTILE) if len(small.values) >= _FEWEST else self._assumed_latency

    @property
    def bandwidth(self) -> float:
        """Bytes a second of one stream that nothing holds up: of recent large requests a high quantile."""
        return self._bandwidth_pair()[0]

    @property
    def total_bandwidth(self) -> float:
        """Bytes a second of all streams together, as far as was seen; at least that of one."""
        return self._bandwidth_pair()[1]

    @property
    def streams(self) -> int:
        """How many streams together are known, or until then assumed, to bring so many times what one does."""
        one, all_of_them = self._bandwidth_pair()
        return max(1, round(all_of_them / one))

    @property
    def gap_bytes(self) -> int:
        """Unwanted bytes that one stream brings in the time that a request costs.

        A power of two that stays until it is clearly wrong, for what is predicted by it shall come true.
        """
        worth = self.bandwidth * self._request_seconds
        self._gap = min(max(_steady(self._gap, worth), _SHORTEST_GAP), _LONGEST_GAP)
        return self._gap

    @property
    def wide_gap_bytes(self) -> int:
        """Unwanted bytes that all streams together bring in the time that a request costs; no less than `gap_bytes`,
        and as steady."""
        self._wide_gap = _steady(self._wide_gap, self.total_bandwidth * self._request_seconds)
        return max(self.gap_bytes, min(self._wide_gap, _LONGEST_GAP))

    @property
    def early_bytes(self) -> int:
        """Bytes that lengthen a wait by a quarter at the most: what may come along before it is wanted. As steady."""
        self._early = _steady(self._early, self.latency * self.bandwidth / 4)
        return self._early

    @property
    def trip_bytes(self) -> int:
        """Compressed bytes that take as long as one more round trip, to come over all streams and be decoded: to leave
        out less never pays for one. As steady."""
        self._trip = _steady(self._trip, self.latency / (1 / self.total_bandwidth + _DECODE_SECONDS))
        return self._trip

    @property
    def few_requests(self) -> int:
        """How many can be sent in the time that the answer to the first takes. As steady."""
        self._few_requests = _steady(self._few_requests, self.latency / self._request_seconds)
        return max(self._few_requests, _FEWEST_REQUESTS)

    @property
    def few_streams(self) -> int:
        """1, 2, 4, 8 or 16: requests that one read is worth being split into, where they would be long. As steady."""
        found = math.sqrt(2) * self._streams_worth()
        self._few_streams = min(_steady(self._few_streams, found), self._most_streams)
        return self._few_streams

    def seconds(self, nbytes: int, requests: int = 1) -> float:
        """What one round trip of so many parallel requests that bring so many bytes together should take."""
        one, all_of_them = self._bandwidth_pair()
        return self.latency + nbytes / min(one * max(1, requests), all_of_them)

    def bytes_to_cover(self) -> int:
        """Bytes that have to be asked for ahead so that none is waited for: all streams' bandwidth, one latency."""
        return math.ceil(self.total_bandwidth * self.latency)

    def _streams_worth(self) -> float:
        """How many times what one stream brings several do, as far as was seen; where none disturbed another, more of
        them are worth a try."""
        measured = self._measured()
        # What was found not to be worth it is never seen again: after a while it counts as unknown.
        lately = max((at for at, level in measured if level.last > self._large - _TRIED_AGAIN), default=0)
        measured = [(at, level) for at, level in measured if at <= lately]
        if not measured:
            return _STREAMS_TRIED
        # A busy machine makes streams slower, too, and to split in vain costs little: the quickest are compared.
        one = measured[0][1].rate.quantile(_RATE_QUANTILE)
        worth = rate = 1.0
        for at, level in measured:
            rate = level.rate.quantile(_RATE_QUANTILE) / one
            worth = max(worth, rate * _COMPANY * 2**at if at else 1.0)
        return max(worth, float(_STREAMS_TRIED << measured[-1][0])) if rate >= _UNDISTURBED else worth

    def _measured(self) -> list[tuple[int, _Level]]:
        """The levels of company of which enough is known, the least first."""
        return [(at, level) for at, level in sorted(self._levels.items()) if level.is_measured]

    def _bandwidth_pair(self) -> tuple[float, float]:
        found = self._bandwidths
        if found is None:
            measured = self._measured()
            if not measured:
                one = self._assumed_bandwidth
                found = (one, one * _ASSUMED_STREAMS)
            else:
                # Company, or a busy machine, only ever makes a stream slower.
                one = max(level.rate.quantile(_RATE_QUANTILE) for _, level in measured)
                together = max(level.together.quantile(0.5) for _, level in measured)
                # Streams that never had as much company are not known to disturb each other, unless fewer did.
                alone, rate = measured[0][1].rate.quantile(0.5), measured[-1][1].rate.quantile(0.5)
                if 2 ** max(self._levels) < _ASSUMED_STREAMS and rate >= _UNDISTURBED * alone:
                    together = max(together, rate * _ASSUMED_STREAMS)
                found = (one, max(one, together))
            self._bandwidths = found
        return found


def network_to(root: str, options: Options) -> Network:
    """What is assumed of the way to a store of which nothing is known."""
    if root == LOCAL_ROOT:
        # The ranges of a local read are asked for in one call: what was split would only have to be joined.
        return Network(
            latency=_LOCAL_LATENCY,
            bandwidth=_LOCAL_BANDWIDTH,
            request_seconds=_LOCAL_REQUEST_SECONDS,
            most_streams=1,
        )
    return Network(latency=options.assumed_latency, bandwidth=options.assumed_bandwidth)


def _steady(known: int, found: float) -> int:
    """The power of two at or below what was found; what was known, where that is still about right."""
    if 0.7 * known <= found < 2.8 * known:
        return known
    return 1 << max(0, int(math.log2(max(found, 1.0))))

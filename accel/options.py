"""The options of a scan. Constants that nobody needs to change are defined where they are used."""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, Literal

from accel.events import Listener

__all__ = ["KIB", "MIB", "REQUEST_SECONDS", "Int96Unit", "Options", "Phases", "Transport", "check_options"]

KIB = 1024
MIB = 1024 * KIB
# CPU seconds that one more request costs at both ends, besides the wait, which all requests of a read share.
REQUEST_SECONDS = 0.4e-3
_MAY_BE_ZERO = (
    "decode_threads",
    "max_gap_bytes",
    "inline_decode_bytes",
    "probe_min_bytes",
)
_MAY_BE_INFINITE = ("backoff_max", "retry_seconds")
"""Options without an upper limit."""
_TOO_MUCH = 1 << 62
"""Sums and products of smaller values fit 64 bits."""


class Phases(enum.StrEnum):
    """When the columns that only the result needs are requested."""

    AUTO = "auto"
    """After the filter columns, and only for rows that match, if that is probably faster."""
    ONE = "one"
    """Together with the filter columns: always one round trip."""
    TWO = "two"
    """After the filter columns, whatever it saves."""


class Transport(enum.StrEnum):
    """How ranges of S3 are read."""

    AUTO = "auto"
    """By accel's own connections, with URLs that obstore signs, if the store requires no more than that."""
    OBSTORE = "obstore"
    """By obstore, as from all other clouds."""


class Int96Unit(enum.StrEnum):
    """The unit to which timestamps stored as INT96 are read."""

    AUTO = "auto"
    """"us_utc" for Spark (`accel.spark.read`, `format("accel")`, and scans in `mapInArrow`), else
    nanoseconds."""
    NS = "ns"
    """Nanoseconds, as in pyarrow, which reach from 1677 to 2262; a timestamp outside raises
    `SchemaMismatchError`."""
    US = "us"
    """Microseconds, which reach 290,000 years to either side. The time is rounded down."""
    US_UTC = "us_utc"
    """The same with the zone UTC, as Spark reads them: they are instants. Columns of files without INT96 stay
    as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of a scan. All sizes are bytes, all times seconds.

    Use `dataclasses.replace(Options(), ...)` or `Options(...)`.

    Raises
    ------
    TypeError
        A value does not have the type of its option.
    ValueError
        A value is out of range: negative, 0 for most options, or at least 2**62. `backoff_max` and
        `retry_seconds` may be infinite.
    """

    tail_hint: int | None = None
    """Bytes of the end of a file that are read first, until a file in the same folder has shown how many are
    needed. None: those that add a quarter to the measured latency of the store, at least 128 KiB, at most 448
    KiB, and at most 1/512 of a file whose size is known (if that is more than 128 KiB); 128 KiB for local
    files."""
    max_tail_hint: int = 4 * MIB
    """The most bytes of the end of a file that are read first."""
    max_footer_bytes: int = 256 * MIB
    """The most bytes of a footer; a longer one is refused."""
    max_gap_bytes: int | None = None
    """The most unwanted bytes between two ranges of one file that are merged. None: the bytes that one
    response brings, at the measured bandwidth of the store, in the time that a request costs (0.4 ms; 0.05
    for local files): 32 KiB at 90 MB/s, and at most 1 MiB. If many requests would be left, the gaps may be as
    wide as all responses together bring in that time."""
    max_coalesced_bytes: int | None = None
    """The most bytes of one request: ranges are not merged beyond this, and a longer range is split. Up to
    1.4 times as many come in one request if nothing else is near. None: an even share of the bytes that are
    read at the same time, at least 512 KiB and at most 8 MiB. The share is an eighth at first, and then a
    half to a sixteenth, by measurements of the store. It is 8 MiB if several responses at once bring no more
    than one, and for local files."""
    probe_min_bytes: int | None = None
    """Bytes of undecided pages from which on bloom filters, dictionaries and embedded indexes are consulted.
    None: those that come and are decoded in the measured time of one round trip (2 MiB at 30 ms and 90 MB/s),
    divided among the files that are planned at once, and at least 1 MiB. Cached ones are consulted at any
    size."""
    max_requests_in_flight: int = 256
    """Requests in flight at once, per store."""
    max_files_in_flight: int = 256
    """Files whose metadata one scan reads at once; more than 128 only while it waits for the network, and not
    for the processor. At 30 ms, 256 amount to at most 8,000 footers per second."""
    max_tasks_in_flight: int = 8
    """Pieces of row groups that one scan fetches or decodes at once, counted in pieces of full size
    (`piece_bytes`). A smaller piece counts by its share of a full one; below a quarter it counts twice its
    share (at most a quarter, at least a sixteenth). Up to four times as many are in flight if the network
    holds more bytes than these (measured latency times bandwidth). For local files there are only as many as
    keep the decoding threads busy."""
    memory_limit: int = 512 * MIB
    """The most bytes in memory of one scan: fetched, being decoded, and decoded but not yet consumed."""
    piece_bytes: int = 12 * MIB
    """About the compressed bytes of the pieces in which the selected pages of a row group are read. With more
    than 96 columns pieces are larger in proportion, up to an eighth of `memory_limit`. For local files fewer
    are in flight."""
    phases: Phases | Literal["auto", "one", "two"] = Phases.AUTO
    """Late materialization: whether the filter columns are read first, and the others only for rows that
    match."""
    batch_rows: int = 131_072
    """The most rows of a batch."""
    decode_threads: int = 0
    """Threads that decode; 0 means one per core."""
    inline_decode_bytes: int = 256 * KIB
    """Compressed bytes below which a piece is decoded without a thread; four times as many if only some of
    its rows are wanted."""
    assumed_latency: float = 0.03
    """Seconds until the first byte of a response, until a few requests have measured the store."""
    assumed_bandwidth: float = 90e6
    """Bytes per second of one response, until a few requests have measured the store."""
    connect_timeout: float = 10.0
    """Seconds to open a connection."""
    read_timeout: float = 30.0
    """Seconds without progress of one request: until its first byte, and between two parts of its body."""
    max_attempts: int = 6
    """Attempts of one request, the first included. Cut bodies count as one attempt as long as each brings a
    sixteenth of the range."""
    backoff_base: float = 0.1
    """The most seconds before the first retry, which are random; the most seconds double with each retry."""
    backoff_max: float = 10.0
    """The most seconds before any retry, whatever the server requests."""
    retry_seconds: float = 75.0
    """Seconds from the first attempt of a request, or from the last bytes of its response, after which no
    further attempt is made: a server that never answers is given up after 90 seconds, three times
    `read_timeout`."""
    int96_unit: Int96Unit | Literal["auto", "ns", "us", "us_utc"] = Int96Unit.AUTO
    """The unit to which timestamps stored as INT96 (by Impala, and older Sparks) are read. A plan has the
    unit of its planning."""
    transport: Transport | Literal["auto", "obstore"] = Transport.AUTO
    """How ranges of S3 are read."""
    max_unranged_bytes: int = 64 * MIB
    """The most bytes to read from an HTTP server that answers a range with the whole object."""
    max_conditional_put_bytes: int = 256 * MIB
    """The most bytes of an object that gets indexes in place: in one request, from memory."""
    allow_unpinned: bool = False
    """Whether objects without an etag are read in several requests, which may mix two versions."""
    verify_checksums: bool = True
    """Whether the CRCs of pages are verified; a page that does not match is refused. A CRC of 0 means
    none."""
    strict: bool = False
    """Whether a file with an invalid index or metadata is refused; otherwise that is ignored with a
    warning."""

    on_event: Listener | None = dataclasses.field(default=None, compare=False)
    """A function that is called with each `Event` of the scan: requests, retries, warnings, the beginning and
    the end. It runs on the thread that reads, so it returns at once; it stays in its process, and does not
    travel with the options. docs/operations.md shows logging and OpenTelemetry."""

    def __reduce__(self) -> tuple[Any, ...]:
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "on_event"}
        return partial(Options, **settings), ()

    def for_spark(self) -> Options:
        """Return the options with the defaults for rows that Spark takes.

        Returns
        -------
        Options
            The same options, with INT96 as instants in microseconds unless they say otherwise.
        """
        chosen = self.int96_unit == Int96Unit.AUTO
        return dataclasses.replace(self, int96_unit=Int96Unit.US_UTC) if chosen else self

    @property
    def cut_bytes(self) -> int:
        """`piece_bytes`, or less if `memory_limit` is small, as a decoded piece is several times as large."""
        return max(1, min(self.piece_bytes, self.widest_bytes))

    @property
    def widest_bytes(self) -> int:
        """Maximum bytes of a piece of very many columns."""
        return max(1, self.memory_limit // 8)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "on_event":
                if value is not None and not callable(value):
                    raise TypeError(f"option on_event is a function, not {value!r:.80}")
                continue
            if isinstance(field.default, bool):
                if not isinstance(value, bool):
                    raise TypeError(f"option {field.name} is True or False, not {value!r}")
                continue
            if isinstance(field.default, enum.Enum):
                names = [member.value for member in type(field.default)]
                if value not in names:
                    raise ValueError(f"option {field.name} is one of {', '.join(names)}, not {value!r}")
                continue
            if field.default is None and value is None:
                continue
            if (field.default is None or isinstance(field.default, int)) and (
                isinstance(value, bool) or not isinstance(value, Integral)
            ):
                raise TypeError(f"option {field.name} is a whole number, not {value!r}")
            if isinstance(field.default, float) and (isinstance(value, bool) or not isinstance(value, Real)):
                raise TypeError(f"option {field.name} is a number, not {value!r}")
            least = 0 if field.name in _MAY_BE_ZERO else 1e-9
            if not value >= least:
                raise ValueError(f"option {field.name}: {value!r} is too small")
            if value >= _TOO_MUCH and not (field.name in _MAY_BE_INFINITE and value == math.inf):
                raise ValueError(f"option {field.name}: {value!r} is too large")


def check_options(given: Options | None) -> Options:
    """Return the options that a caller gave, or the defaults.

    Raises
    ------
    TypeError
        The argument is no `Options`.
    """
    if given is None:
        return _DEFAULTS
    if not isinstance(given, Options):
        raise TypeError(f"options is an accel.Options, not a {type(given).__name__}")
    return given


_DEFAULTS = Options()

"""The options of a scan. Constants that nobody needs to change are defined where they are used."""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

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
_MAY_BE_INFINITE = ("backoff_max",)
"""Infinity means no limit."""
_TOO_MUCH = 1 << 62
"""A limit of values, so that results of calculations fit 64 bits."""


class Phases(enum.StrEnum):
    """When the columns that the filter does not use are read."""

    AUTO = "auto"
    """After the columns of the filter, and only where rows match, if that is expected to be faster; else together."""
    ONE = "one"
    """Together with the columns of the filter, in one round trip."""
    TWO = "two"
    """Always after the columns of the filter, and only where rows match."""


class Transport(enum.StrEnum):
    """How ranges of objects in S3 are read."""

    AUTO = "auto"
    """Over connections of accel's own, by URLs that obstore signs, where the settings of the store allow it."""
    OBSTORE = "obstore"
    """Through obstore, as for all other clouds."""


class Int96Unit(enum.StrEnum):
    """The unit to which INT96 timestamps are read."""

    AUTO = "auto"
    """Microseconds for Spark (`accel.spark.read`, and scans within `mapInArrow`), else nanoseconds."""
    NS = "ns"
    """Nanoseconds, as in pyarrow, from 1677 to 2262; a timestamp beyond raises `SchemaMismatchError`."""
    US = "us"
    """Microseconds, as in Spark, for 290,000 years to either side. Further digits are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of a scan. All sizes are bytes, all times seconds.

    Use `dataclasses.replace(Options(), ...)` or `Options(...)`.

    Raises
    ------
    TypeError
        A value is not of the type of its option.
    ValueError
        A value is negative, 0 where that has no meaning, or 2**62 or more. `backoff_max` may be infinite.
    """

    tail_hint: int | None = None
    """Bytes at the end of a file that are read first, until the size of the metadata has been learned from another file in the
    folder. None: the bytes that lengthen the measured wait by a quarter, between 128 KiB and 448 KiB, and no more than
    1/512 of a file whose size is known (or 128 KiB, if that is more); 128 KiB for local files."""
    max_tail_hint: int = 4 * MIB
    """Maximum bytes of the learned size that replaces `tail_hint`."""
    max_footer_bytes: int = 256 * MIB
    """Maximum bytes of a footer; a longer one is refused."""
    max_gap_bytes: int | None = None
    """Two ranges of a file are merged if no more than this many unwanted bytes lie between them. None: the bytes that one
    response brings in the time that a request costs (0.4 ms; for local files 0.05), by the measured bandwidth: 32 KiB at
    90 MB/s, and at most 1 MiB. If many requests would be left, wider gaps are merged too, up to the bytes that all
    responses together bring in that time."""
    max_coalesced_bytes: int | None = None
    """Bytes of one request: ranges are not merged beyond this, and a longer range is split into requests of about this size.
    None: an even share of the bytes that are read at the same time, between 512 KiB and 8 MiB. The share is an eighth at
    first, then a half to a sixteenth, as measured. It is 8 MiB for local files, and if several concurrent responses bring
    no more than one."""
    probe_min_bytes: int | None = None
    """Bloom filters, dictionaries and embedded indexes are read if the pages in doubt have at least this many bytes. None: the
    bytes that are transferred and decoded in one round trip, as measured (2 MiB at 30 ms and 90 MB/s), divided by the
    number of files that are planned together, and at least 1 MiB. Indexes that were read before are used at any size."""
    max_requests_in_flight: int = 256
    """Maximum concurrent requests to one store."""
    max_files_in_flight: int = 256
    """Maximum files whose metadata one scan reads concurrently; more than 128 only while the network, not the processor, is
    the bottleneck. At 30 ms, 256 files are at most 8,000 footers a second."""
    max_tasks_in_flight: int = 8
    """Maximum pieces of row groups that one scan fetches or decodes concurrently, in pieces of full size (`piece_bytes`). A
    smaller piece counts as its share of a full one; below a quarter as twice its share, between a sixteenth and a quarter.
    Up to four times as many are under way if the network can carry more bytes (measured latency times bandwidth). For
    local files, no more than keep the decoding threads busy."""
    memory_limit: int = 512 * MIB
    """Maximum bytes of one scan in memory: fetched, being decoded, or decoded and not yet consumed."""
    piece_bytes: int = 12 * MIB
    """The selected pages of a row group are read in pieces of about this many compressed bytes. For more than 96 columns pieces
    are larger in proportion, up to an eighth of `memory_limit`."""
    phases: Phases | Literal["auto", "one", "two"] = Phases.AUTO
    """Late materialization: whether the columns of the filter are read first, and the others only where rows match."""
    batch_rows: int = 131_072
    """Maximum rows of a batch."""
    decode_threads: int = 0
    """Threads that decode; 0 means one for each core."""
    inline_decode_bytes: int = 256 * KIB
    """A piece of fewer compressed bytes is decoded on the I/O loop, without a thread; one of up to four times as many, if only
    some of its rows are selected."""
    assumed_latency: float = 0.03
    """Seconds until the first byte of a response, assumed until a few requests have been measured."""
    assumed_bandwidth: float = 90e6
    """Bytes a second of one response, assumed until a few requests have been measured."""
    connect_timeout: float = 10.0
    """Seconds to make a connection."""
    read_timeout: float = 30.0
    """Seconds without progress of a request: until its first byte, and between two parts of its body."""
    max_attempts: int = 6
    """Attempts of one request, including the first. Repeated cuts of a body count as one failure if each attempt brings at
    least a sixteenth of it."""
    backoff_base: float = 0.1
    """The first retry waits a random time of up to this many seconds; each further one up to twice as long as the last."""
    backoff_max: float = 10.0
    """Maximum seconds to wait before a retry, whatever the server asks for."""
    int96_unit: Int96Unit | Literal["auto", "ns", "us"] = Int96Unit.AUTO
    """The unit of timestamps that are stored as INT96 (by Impala and old versions of Spark). A plan is read as it was planned."""
    transport: Transport | Literal["auto", "obstore"] = Transport.AUTO
    """How ranges of objects in S3 are read."""
    max_unranged_bytes: int = 64 * MIB
    """Maximum bytes to read from an HTTP server that ignores a range and sends the whole object."""
    max_conditional_put_bytes: int = 256 * MIB
    """Maximum bytes of an object into which indexes are embedded in place, by one request from memory."""
    allow_unpinned: bool = False
    """Read objects without an etag by several requests, without protection from mixing two versions."""
    verify_checksums: bool = True
    """Verify the CRC of pages that have one, and refuse a page that does not match. A CRC of 0 counts as none."""
    strict: bool = False
    """Refuse a file whose index or metadata cannot be used, instead of warning."""

    def for_spark(self) -> Options:
        """Return the options with the unit of INT96 that Spark uses, if it is not set."""
        return (
            dataclasses.replace(self, int96_unit=Int96Unit.US) if self.int96_unit == Int96Unit.AUTO else self
        )

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

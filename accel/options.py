"""Every setting a caller may change, with its unit; constants stand beside the code that uses them."""

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
# What one more request costs beside the wait for it, which all requests of a read share: CPU at both ends.
REQUEST_SECONDS = 0.4e-3
_MAY_BE_ZERO = (
    "decode_threads",
    "max_gap_bytes",
    "inline_decode_bytes",
    "probe_min_bytes",
)
_MAY_BE_INFINITE = ("backoff_max",)
"""No bound on a wait."""
_TOO_MUCH = 1 << 62
"""What is reckoned with them still fits 64 bits."""


class Phases(enum.StrEnum):
    """When the columns that only the result needs are asked for."""

    AUTO = "auto"
    """After the filter's, and only where rows match, where that is expected to be faster."""
    ONE = "one"
    """Together with the filter's: always one round trip."""
    TWO = "two"
    """After the filter's, whatever it saves."""


class Transport(enum.StrEnum):
    """What reads ranges of S3."""

    AUTO = "auto"
    """Connections of accel's own, by URLs that obstore signs, where that is all that the store asks for."""
    OBSTORE = "obstore"
    """obstore, as it reads all other clouds."""


class Int96Unit(enum.StrEnum):
    """What timestamps that are stored as INT96 are read to."""

    AUTO = "auto"
    """Microseconds for Spark (`accel.spark.read`, and scans within `mapInArrow`), as its own are; else nanoseconds."""
    NS = "ns"
    """Nanoseconds, as pyarrow reads them, which reach from 1677 to 2262; one beyond raises `SchemaMismatchError`."""
    US = "us"
    """Microseconds, as Spark means them, which reach 290,000 years to either side. Digits after the sixth are dropped:
    the time is rounded down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of a scan. All sizes are bytes, all times seconds.

    Use `dataclasses.replace(Options(), ...)` or `Options(...)`.

    Raises
    ------
    TypeError
        A value is not of its option's type.
    ValueError
        A value is out of range: negative, 0 where that means nothing, 2**62 or more. `backoff_max`
        may be infinite.
    """

    tail_hint: int | None = None
    """Bytes of a file's end that are read first, until a file in the same folder has shown how many its like take.
    None: what lengthens the wait by a quarter, as measured of the store, but at least 128 KiB, at most 448 KiB, and at
    most 1/512 of a file whose size is known (if that is more than 128 KiB). Of local files 128 KiB."""
    max_tail_hint: int = 4 * MIB
    """Bytes: what is learned in place of `tail_hint` is never more."""
    max_footer_bytes: int = 256 * MIB
    """A footer that claims to be longer is refused."""
    max_gap_bytes: int | None = None
    """Two ranges of one file are merged when no more than this many unwanted bytes lie between. None: what one
    response brings in the time that a request costs (0.4 ms; of local files 0.05), as measured of the store: 32 KiB at
    90 MB/s, and never more than 1 MiB. Where many requests would be left, wider gaps are merged too, up to what all
    responses together bring in that time."""
    max_coalesced_bytes: int | None = None
    """Bytes of one request: none is merged beyond this, and a longer range is split into requests of about this size.
    None: an even share of what is read at the same time, at least 512 KiB and at most 8 MiB. The share is an eighth at
    first, and then a half to a sixteenth, as measured of the store; where several responses at once bring no more than
    one, and of local files, it is 8 MiB."""
    probe_min_bytes: int | None = None
    """Bloom filters, dictionaries and embedded indexes are asked when the pages in doubt come to at least so many bytes.
    None: as many as come and are decoded in the time of one round trip, as measured of the store (2 MiB at 30 ms and
    90 MB/s), divided among the files that are planned at once, and at least 1 MiB. What was met before is used at any
    size."""
    max_requests_in_flight: int = 256
    """Requests under way at once, per store."""
    max_files_in_flight: int = 256
    """Files whose metadata one scan reads at once; more than 128 only while the network, not the processor, is waited
    for. At 30 ms, 256 come to 8,000 footers a second at the most."""
    max_tasks_in_flight: int = 8
    """Pieces of row groups that one scan fetches or decodes at once, counted in pieces of full size (`piece_bytes`). A
    smaller piece counts as its share of a full one; below a quarter it counts as twice its share (a quarter at most, a
    sixteenth at least). Up to four times as many are under way where the network holds more bytes than these (measured
    latency times bandwidth). Of local files no more are than keep the decoding threads busy."""
    memory_limit: int = 512 * MIB
    """Bytes that one scan may hold: fetched, decoding and decoded but not yet taken."""
    piece_bytes: int = 12 * MIB
    """A row group's selected pages are read in pieces of about this many compressed bytes. Of more than 96 columns they
    are larger, by as much as there are more, up to an eighth of `memory_limit`. Of local files fewer are under way."""
    phases: Phases | Literal["auto", "one", "two"] = Phases.AUTO
    """Late materialization: whether the filter's columns are read first and the others only where rows match."""
    batch_rows: int = 131_072
    """A batch handed out has at most this many rows."""
    decode_threads: int = 0
    """Threads that decode; 0 means one a core."""
    inline_decode_bytes: int = 256 * KIB
    """A piece with fewer compressed bytes is decoded without a thread hand-off; with up to four times as many, where it is
    looked through for some of its rows."""
    assumed_latency: float = 0.03
    """Seconds until a store's first byte, until its own are known from a few requests."""
    assumed_bandwidth: float = 90e6
    """Bytes a second of one response, until those of the store are known."""
    connect_timeout: float = 10.0
    """For a connection to be made."""
    read_timeout: float = 30.0
    """For one request to make progress: until its first byte, and between two parts of its body."""
    max_attempts: int = 6
    """Tries of one request, the first included. A body that is cut off again and again counts once, where each try brings
    a sixteenth of it."""
    backoff_base: float = 0.1
    """The first retry waits a random time up to this; each further one up to twice the last."""
    backoff_max: float = 10.0
    """No wait before a retry is longer, whatever the server asks for."""
    int96_unit: Int96Unit | Literal["auto", "ns", "us"] = Int96Unit.AUTO
    """What timestamps that are stored as INT96 (by Impala, and Spark of old) are read to. A plan is read as it was planned."""
    transport: Transport | Literal["auto", "obstore"] = Transport.AUTO
    """What reads ranges of S3."""
    max_unranged_bytes: int = 64 * MIB
    """An HTTP server that answers a range with the whole object is read up to this, else refused."""
    max_conditional_put_bytes: int = 256 * MIB
    """An object up to this size can be given indexes in place: in one request, from memory."""
    allow_unpinned: bool = False
    """Read objects of stores that give no etag over several requests (no protection from mixing)."""
    verify_checksums: bool = True
    """Whether a page that carries a CRC is held against it; one that does not match is refused. A CRC of 0 stands for none."""
    strict: bool = False
    """Refuse a file whose index or metadata had to be passed over, instead of warning."""

    def for_spark(self) -> Options:
        """Return the options with the defaults for rows that Spark takes.

        Returns
        -------
        Options
            The same options, with INT96 in microseconds unless they say otherwise.
        """
        return (
            dataclasses.replace(self, int96_unit=Int96Unit.US) if self.int96_unit == Int96Unit.AUTO else self
        )

    @property
    def cut_bytes(self) -> int:
        """`piece_bytes`, or less where `memory_limit` asks for it: decoded, a piece is several times as large."""
        return max(1, min(self.piece_bytes, self.widest_bytes))

    @property
    def widest_bytes(self) -> int:
        """What a piece of very many columns may come to."""
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
    """What a caller gave as `options=`, or the defaults.

    Raises
    ------
    TypeError
        It is something else.
    """
    if given is None:
        return _DEFAULTS
    if not isinstance(given, Options):
        raise TypeError(f"options is an accel.Options, not a {type(given).__name__}")
    return given


_DEFAULTS = Options()

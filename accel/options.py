"""Every tunable of accel, once, with its unit."""

from __future__ import annotations

import dataclasses
import enum
from numbers import Integral, Real

from accel.records import dataclass

__all__ = ["KIB", "MIB", "Options", "Phases", "Transport"]

KIB = 1024
MIB = 1024 * KIB
_MAY_BE_ZERO = (
    "decode_threads",
    "max_gap_bytes",
    "inline_decode_bytes",
    "probe_min_bytes",
    "hedge_share",
    "hedge_floor",
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The tunables of a scan. All sizes are bytes, all times seconds.

    Use `dataclasses.replace(Options(), ...)` or `Options(...)`; a value out of range is a ValueError.
    """

    tail_hint: int | None = None
    """Length of the first suffix read of a file, until a better one is learned for its prefix. None: what lengthens
    the wait for it by a quarter, as learned of the store, up to 448 KiB; of a file whose size is known no more than
    1/512 of it; no less than 128 KiB. Of local files 128 KiB."""
    max_tail_hint: int = 4 * MIB
    """A learned hint never exceeds this."""
    max_footer_bytes: int = 256 * MIB
    """A footer that claims to be longer is refused."""
    max_gap_bytes: int | None = None
    """Two ranges of one file are merged when no more than this many unwanted bytes lie between. None: what one
    response brings in the time that a request costs (0.4 ms), as learned of the store: 32 KiB at 90 MB/s. Where many
    requests are left, up to what all responses together bring in that time: see `planning.coalesce`."""
    max_coalesced_bytes: int | None = None
    """A merged request is not grown beyond this, and a longer range is split into such pieces. None: 8 MiB, or, where
    several responses at once are known (or not yet known not) to bring more than one, their share of what is read at
    once: an eighth at first, from a half to a sixteenth as learned of the store, though no less than 512 KiB."""
    probe_min_bytes: int | None = None
    """Bloom filters and dictionaries are asked when the pages in doubt come to at least so many bytes. None: what takes
    as long as the round trip of asking, to come and be decoded, as learned of the store: 2 MiB at 30 ms and 90 MB/s; no
    less than 1 MiB, and of several files each its share. Filters met before are used at any size."""
    max_requests_in_flight: int = 256
    """Requests under way at once, per store."""
    max_files_in_flight: int = 256
    """Files whose metadata is being read at once by one scan, those above 128 only while it is the network that is
    waited for: at 30 ms, 8,000 footers a second at the most."""
    max_tasks_in_flight: int = 8
    """Row-group pieces of full size (`piece_bytes`) being fetched or decoded at once by one scan; smaller ones count
    as the part of one that they are, those below a quarter as up to twice that, none as less than a sixteenth. Up to
    four times as many where latency times bandwidth, as measured, is more than their bytes."""
    memory_limit: int = 512 * MIB
    """Bytes that one scan may hold: fetched, decoding and decoded but not yet taken."""
    piece_bytes: int = 12 * MIB
    """A row group's selected pages are read in pieces of about this many compressed bytes. Of local files fewer are
    under way."""
    phases: Phases = Phases.AUTO
    """Late materialization: whether the filter's columns are read first and the others only where rows match."""
    batch_rows: int = 131_072
    """A batch handed out has at most this many rows."""
    decode_threads: int = 0
    """Threads that decode; 0 means one a core."""
    inline_decode_bytes: int = 256 * KIB
    """A piece with fewer compressed bytes is decoded without a thread hand-off."""
    assumed_latency: float = 0.03
    """Seconds until a store's first byte, until its own are known from a few requests."""
    assumed_bandwidth: float = 90e6
    """Bytes a second of one response, until those of the store are known."""
    connect_timeout: float = 10.0
    """For a connection to be made."""
    read_timeout: float = 30.0
    """For one request to make progress: until its first byte, and between two parts of its body."""
    max_attempts: int = 6
    """Tries of one request, the first included."""
    backoff_base: float = 0.1
    """The first retry waits a random time up to this; each further one up to twice the last."""
    backoff_max: float = 10.0
    """No wait before a retry is longer, whatever the server asks for."""
    hedge_share: float = 0.05
    """Second requests for small ones (512 KiB) that are late, as a share of all such requests at most; the first
    answer wins. 0: none. Never for local files."""
    hedge_factor: float = 1.5
    """A request is late after so many times what 95 of 100 recent small ones of its store took,"""
    hedge_floor: float = 0.05
    """and after so many seconds."""
    transport: Transport = Transport.AUTO
    """What reads ranges of S3."""
    max_unranged_bytes: int = 64 * MIB
    """An HTTP server that answers a range with the whole object is read up to this, else refused."""
    max_conditional_put_bytes: int = 256 * MIB
    """An object up to this size can be given indexes in place: in one request, from memory."""
    allow_unpinned: bool = False
    """Read objects of stores that give no etag over several requests (no protection from mixing)."""
    strict: bool = False
    """Refuse a file whose index or metadata had to be passed over, instead of warning."""

    @property
    def cut_bytes(self) -> int:
        """`piece_bytes`, or less where `memory_limit` asks for it: decoded, a piece is several times as large."""
        return max(1, min(self.piece_bytes, self.memory_limit // 8))

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

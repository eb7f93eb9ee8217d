"""PostgreSQL servers: the parts of a URL that names a database, connections to it, and errors that show
neither user nor password."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from accel.errors import StoreError
from accel.store.location import numeric_settings
from accel.store.request_errors import quoted

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

__all__ = ["POSTGRES_SCHEMES", "PostgresAddress"]

POSTGRES_SCHEMES: Final = ("postgres", "postgresql")
_PORT: Final = "5432"
_FORM: Final = "postgresql://user:password@host:5432/database; in user and password / is written %2F, and so are @ : ? # %"  # noqa: E501
_SECRET = re.compile("password|key|secret|token|passfile")
_MOST_TEXT: Final = 300


@dataclass(frozen=True, slots=True, repr=False)
class PostgresAddress:
    """A database of PostgreSQL, as libpq takes it. Its text shows neither user nor password."""

    conninfo: str
    name: str
    given: Collection[str]
    """The parameters of libpq that the URL has."""
    secrets: Sequence[str]
    """What errors must not show, the longest first: passwords and the like, as they are written and as they
    are meant."""
    users: Sequence[str]
    """The same of users, whose names are words."""
    settings: Mapping[str, float] = field(default_factory=dict)
    """The numbers in the query string that are no parameters of libpq, by name."""

    @classmethod
    def parse(cls, url: str, *, settings: Collection[str] = ()) -> PostgresAddress:
        """Return the parts of `postgresql://[[user]:password@]host[:port]/database[?name=value&...]`.

        Parameters
        ----------
        url : str
        settings : collection of str
            The names in the query string that are not libpq's. Their values are numbers greater than 0.

        Raises
        ------
        StoreError
            It is no such URL, and the error quotes no part of it that may be secret; or the package `psycopg`
            is missing.
        """
        from urllib.parse import parse_qsl, urlsplit

        try:
            from psycopg import Error
            from psycopg.conninfo import conninfo_to_dict
        except ImportError:
            missing = StoreError(
                "PostgreSQL is reached through the package psycopg, which is not installed",
                hint="pip install 'accel-parquet[postgres]'",
            )
            missing.hides = True  # its frame holds the URL
            raise missing from None
        try:
            parts = urlsplit(url)
            pairs = parse_qsl(parts.query, keep_blank_values=True)
            numbers = numeric_settings([pair for pair in pairs if pair[0] in settings], settings)
            # libpq reads the others as they are written.
            base, _, query = url.partition("?")
            rest = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in settings]
            conninfo = f"{base}?{'&'.join(rest)}" if rest else base
            given = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value}
            name = _name_of(given)
            if parts.fragment or "\0" in url or parts.scheme not in POSTGRES_SCHEMES:
                raise ValueError("a part of the password may stand there")
        except (ValueError, Error):
            failure = StoreError("this is no URL of PostgreSQL", hint=_FORM)
        except StoreError as error:
            failure = StoreError(error.message)
        else:
            hidden = {value for key, value in given.items() if _SECRET.search(key)}
            hidden |= {parts.password} if parts.password else set()
            users = {given.get("user", ""), parts.username or ""} - {""}
            return cls(
                conninfo,
                name,
                frozenset(given),
                sorted(hidden, key=len, reverse=True),
                sorted(users, key=len, reverse=True),
                numbers,
            )
        failure.hides = True
        raise failure

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"PostgresAddress({self.name!r})"

    def connect(self, **defaults: Any) -> Connection[Any]:
        """Open a connection; `defaults` are parameters of libpq where the URL does not have them. Raises
        errors of psycopg."""
        import psycopg

        # Poolers between do not know of prepared statements.
        return psycopg.connect(
            self.conninfo, autocommit=True, prepare_threshold=None, **self._lacking(defaults)
        )

    async def connect_async(self, **defaults: Any) -> AsyncConnection[Any]:
        """Open a connection: see `connect`."""
        import psycopg

        return await psycopg.AsyncConnection.connect(
            self.conninfo, autocommit=True, prepare_threshold=None, **self._lacking(defaults)
        )

    def _lacking(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in defaults.items() if name not in self.given}

    def failure(self, error: Exception) -> StoreError:
        """Return an error of psycopg or of the network as StoreError, without what the URL hides."""
        failure = StoreError(f"PostgreSQL failed: {self.text_of(error)}", path=self.name, transient=True)
        failure.hides = True  # the frames of a connection hold the password
        return failure

    def text_of(self, error: Exception) -> str:
        """Return the text of an error, on one line, without what the URL hides."""
        diagnosis = getattr(error, "diag", None)
        text = " ".join((getattr(diagnosis, "message_primary", None) or str(error)).split())
        for secret in self.secrets:
            text = text.replace(secret, "***")
        for user in self.users:
            text = re.sub(rf"(?<!\w){re.escape(user)}(?!\w)", "***", text)
        return quoted(text, _MOST_TEXT)


def _name_of(given: Mapping[str, str]) -> str:
    """Return the address without credentials and parameters.

    Raises
    ------
    ValueError
        What is a password in it is not certain.
    """
    host, port, database = (given.get(name, "") for name in ("host", "port", "dbname"))
    if not re.fullmatch(r"[0-9,]*", port) or "@" in host + database or "/" in database:
        raise ValueError("a part of the password may stand there")
    hosts, ports = (host or "localhost").split(","), (port or _PORT).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    pairs = zip(hosts, ports, strict=False)
    shown = ",".join(f"{f'[{one}]' if ':' in one else one}:{at or _PORT}" for one, at in pairs)
    return f"postgresql://{shown}/{database}"

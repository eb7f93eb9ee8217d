"""A certificate for 127.0.0.1 and the authority that vouches for it, made anew for each run."""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Certificate", "make_certificate"]

_NAMES = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of a certificate, in PEM."""

    authorities: Path
    """The authority, which clients are to be told of: no system trusts it."""
    server: Path
    """The server's key and its chain."""

    def server_context(self) -> ssl.SSLContext:
        """Return the context of a server that speaks HTTP/1.1, as S3 does."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        context.set_alpn_protocols(["http/1.1"])
        return context


@contextlib.contextmanager
def make_certificate() -> Iterator[Certificate]:
    """Make a certificate, whose files are removed at the end."""
    import trustme

    authority = trustme.CA()
    with tempfile.TemporaryDirectory(prefix="accel-tls-") as made:
        found = Certificate(Path(made, "authority.pem"), Path(made, "server.pem"))
        authority.cert_pem.write_to_path(found.authorities)
        authority.issue_cert(*_NAMES).private_key_and_cert_chain_pem.write_to_path(found.server)
        yield found

"""The causes of failed connections, by whichever client, with one text and one hint for each."""

from __future__ import annotations

import errno
import functools
import os
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from accel.errors import StoreError

if TYPE_CHECKING:
    import ssl

__all__ = [
    "CLOSED",
    "SLOW",
    "STALLED",
    "ConnectionFault",
    "connection_fault",
    "names_authorities",
    "obstore_fault",
    "tls_context",
]


@dataclass(frozen=True, slots=True)
class ConnectionFault:
    """The cause of a failed connection."""

    message: str
    transient: bool
    """Whether the same request may succeed later."""
    hint: str | None = None
    by_address: bool = False
    """Whether a wrong address in the URL or the endpoint may be the cause."""

    def error(
        self,
        path: str,
        *,
        place: str | None = None,
        server: str | None = None,
        address: str,
        cause: BaseException | None,
    ) -> StoreError:
        """Return the error to raise.

        Parameters
        ----------
        path, place : str
            See `AccelError`.
        server : str, optional
            The name and port of the server, if the path does not name it.
        address : str
            The hint for a wrong address.
        cause : exception or None
            It is chained without its frames, whose variables may hold a presigned URL.
        """
        message = f"{self.message} ({server})" if server else self.message
        hint = self.hint or (address if self.by_address else None)
        error = StoreError(message, path=path, place=place, hint=hint, transient=self.transient)
        if cause is not None:
            cause.__traceback__ = cause.__cause__ = cause.__context__ = None
            error.__cause__ = cause
        return error


CLOSED: Final = ConnectionFault("the connection was closed too early", transient=True)
STALLED: Final = ConnectionFault("the server made no progress in time", transient=True)
SLOW: Final = ConnectionFault("no connection came about in time", transient=True, by_address=True)
_NOT_HTTP = ConnectionFault("the answer is not HTTP", transient=False, by_address=True)
_REFUSED = ConnectionFault("connection refused", transient=True, by_address=True)
_RESET = ConnectionFault("connection reset by the server", transient=True)
_UNREACHABLE = ConnectionFault("the network is unreachable", transient=True, by_address=True)
_NO_ROUTE = ConnectionFault("the server is unreachable", transient=True, by_address=True)
_UNKNOWN_NAME = ConnectionFault("the server's name is not known", transient=False, by_address=True)
_NO_RESOLVER = ConnectionFault("the server's name cannot be looked up at present", transient=True)
_NO_TLS = ConnectionFault(
    "the server does not speak TLS at that port",
    transient=False,
    hint="it may be meant by http://, not https://",
)
_BY_ERRNO: Final = {
    errno.ECONNREFUSED: _REFUSED,
    errno.ECONNRESET: _RESET,
    errno.ECONNABORTED: _RESET,
    errno.EPIPE: _RESET,
    errno.ENETUNREACH: _UNREACHABLE,
    errno.ENETDOWN: _UNREACHABLE,
    errno.EHOSTUNREACH: _NO_ROUTE,
    errno.ETIMEDOUT: SLOW,
}

# Codes of OpenSSL (X509_V_ERR_*) with a text of their own, and the names that rustls has for them.
_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
_NO_AUTHORITY = frozenset((18, 19, 20, 21))
_RUSTLS = {
    "Expired": _EXPIRED,
    "ExpiredContext": _EXPIRED,
    "NotValidYet": _NOT_YET,
    "NotValidYetContext": _NOT_YET,
    "NotValidForName": _OTHER_NAME,
    "NotValidForNameContext": _OTHER_NAME,
    "UnknownIssuer": 20,
}
_REFUSED_CERTIFICATE = re.compile(r"(?:InvalidCertificate\(|invalid peer certificate:)\s*(\w+)")
_OS_CODE = re.compile(r"\bOs \{\s+code: (\d+)")
_KIND = re.compile(r"HttpError \{\s+kind: (\w+)")
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_NO_AUTHORITIES = "No CA certificates were loaded"
_NAME_AUTHORITY = "name a file that holds its authority's certificate by the environment variable SSL_CERT_FILE, and start anew"  # noqa: E501


def names_authorities() -> bool:
    """Return whether the environment names authorities of its own."""
    return any(os.environ.get(name) for name in _AUTHORITIES)


def tls_context(authorities: str | None = "") -> ssl.SSLContext:
    """Return the context that verifies servers by the authorities in a file, or else by those of the system,
    or of SSL_CERT_FILE and SSL_CERT_DIR. None verifies no server.

    It is cached while these variables stay the same, as loading the authorities of the system takes 10 to 50
    ms.
    """
    return _context_of(authorities, *map(os.environ.get, _AUTHORITIES))


@functools.lru_cache(maxsize=4)
def _context_of(authorities: str | None, file: str | None, folder: str | None) -> ssl.SSLContext:
    import ssl

    if authorities is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["http/1.1"])
        return context
    try:
        context = ssl.create_default_context(cafile=authorities or None)
    except OSError as error:
        raise StoreError(
            f"the authorities in {authorities} cannot be read: {error.strerror or 'it holds no certificate'}",
            hint="`ca_bundle`, or AWS_CA_BUNDLE, names a file of certificates in PEM",
        ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def connection_fault(error: OSError) -> ConnectionFault:
    """Return the cause of an error that Python's sockets raised."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate(error.verify_code, error.verify_message)
    if isinstance(error, ssl.SSLEOFError):
        return CLOSED
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "no reason was given"
        return _NO_TLS if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE") else _handshake(reason)
    if isinstance(error, socket.gaierror):
        return _NO_RESOLVER if error.errno == socket.EAI_AGAIN else _UNKNOWN_NAME
    if isinstance(error, TimeoutError):
        return SLOW
    if isinstance(error, (ConnectionResetError, ConnectionAbortedError)):
        return _RESET
    return _by_errno(error.errno)


def obstore_fault(debug: str) -> ConnectionFault | None:
    """Return the cause by the debug part of an obstore error; None if that is not about a connection."""
    refused = _REFUSED_CERTIFICATE.search(debug)
    if refused is not None:
        return _certificate(_RUSTLS.get(refused[1], 1), refused[1])
    if _NO_AUTHORITIES in debug:
        return _certificate(20, "no authorities")
    kind = _KIND.search(debug)
    if kind is None:
        return None
    if "InvalidContentType" in debug:
        return _NO_TLS
    alert = re.search(r"AlertReceived\(\s*(\w+)", debug)
    if alert is not None:
        return _handshake(alert[1])
    if "failed to lookup address information" in debug or "dns error" in debug:
        return _NO_RESOLVER if "Temporary failure" in debug else _UNKNOWN_NAME
    code = _OS_CODE.search(debug)
    if code is not None:
        return _by_errno(int(code[1]))
    if kind[1] == "Timeout":
        return SLOW if re.search(r"\bConnect,", debug) else STALLED
    if re.search(r"hyper::Error\(\s*Parse", debug):
        return _NOT_HTTP
    ended = re.search(r"\b(IncompleteMessage|UnexpectedEof|ChannelClosed)\b", debug)
    return CLOSED if ended else None


def _by_errno(number: int | None) -> ConnectionFault:
    fault = _BY_ERRNO.get(number or 0)
    if fault is not None:
        return fault
    why = os.strerror(number) if number else "the system does not say why"
    return ConnectionFault(f"the connection failed: {why}", transient=True)


def _handshake(reason: str) -> ConnectionFault:
    text = re.sub(r"[^A-Za-z0-9 ]", " ", reason).lower()
    return ConnectionFault(f"the TLS handshake failed: {text}", transient=False, by_address=True)


def _certificate(code: int, detail: str) -> ConnectionFault:
    """Return the cause for which a certificate was refused, by OpenSSL's code."""
    if code == _EXPIRED:
        hint = "its owner has to renew it; or this machine's clock is wrong"
        return ConnectionFault("the server's certificate has expired", transient=False, hint=hint)
    if code == _NOT_YET:
        hint = "this machine's clock may be wrong"
        return ConnectionFault("the server's certificate is not valid yet", transient=False, hint=hint)
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        hint = "name the server as its certificate does; or another server answers there"
        return ConnectionFault("the server's certificate is for another host", transient=False, hint=hint)
    if code in _NO_AUTHORITY:
        wrong = _unusable_authorities()
        if wrong is not None:
            return ConnectionFault(
                f"the server's certificate cannot be verified: {wrong}",
                transient=False,
                hint="correct the environment variable, and start anew",
            )
        return ConnectionFault(
            "the server's certificate is from an unknown authority", transient=False, hint=_NAME_AUTHORITY
        )
    return ConnectionFault(f"the server's certificate is not trusted: {detail}", transient=False)


def _unusable_authorities() -> str | None:
    """Return what is wrong with the files that the environment names for authorities, which TLS ignores
    silently."""
    path = os.environ.get("SSL_CERT_FILE")
    if path:
        try:
            with open(path, "rb") as file:
                if b"-----BEGIN" not in file.read(1 << 24):
                    return f"SSL_CERT_FILE names {path}, which holds no certificate"
        except OSError as error:
            return f"SSL_CERT_FILE names {path}: {error.strerror}"
    folder = os.environ.get("SSL_CERT_DIR")
    if folder and not all(os.path.isdir(part) for part in folder.split(os.pathsep)):
        return f"SSL_CERT_DIR names {folder}, which is no directory"
    return None

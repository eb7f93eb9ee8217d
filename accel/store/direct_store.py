"""S3 read over connections of accel's own, by presigned URLs; obstore does all the rest.

A range costs a quarter of the processor's time that it costs through obstore, whose answers come from other
threads (docs/performance.md). Only what S3 answers plainly is taken: whatever else it says, obstore is asked
instead, and if that succeeds, for everything else for a while.
"""

from __future__ import annotations

from cachetools import TTLCache

from accel.errors import StoreError
from accel.io.connection_faults import connection_fault
from accel.options import KIB, Options, Transport
from accel.ranges import ByteRange, Suffix
from accel.store import runtime
from accel.store.connection import Loss, LostError, Reply, Request
from accel.store.connections import Origin, UnreachableError, connections_to
from accel.store.faults import OUT_OF_FILES, IncompleteBodyError, transient_status
from accel.store.http_answer import range_header, read_answer, refusal
from accel.store.obstore_errors import S3_ADDRESS, translate
from accel.store.obstore_store import ObstoreStore, without_retries
from accel.store.range_store import Payload, can_be_sent
from accel.store.refusals import code_in
from accel.store.signing import Signed, Signer, signer_of

__all__ = ["DirectStore", "adapt"]

# Servers that refused what obstore could read then: for a minute all of it is left to obstore.
_aside: TTLCache[Origin, bool] = TTLCache(256, 60.0)
# Obstore's threads decrypt side by side; this is one loop's work (24 bodies of 4 MiB at once: 0.31 instead of 0.17 s).
_MOST_OVER_TLS = 256 * KIB


def adapt(store: object, options: Options) -> ObstoreStore:
    """Any obstore store as accel reads it."""
    own = without_retries(store)
    signer = None if options.transport == Transport.OBSTORE else signer_of(own, options)
    if signer is None:
        return ObstoreStore(own, read_timeout=options.read_timeout)
    return DirectStore(own, signer, read_timeout=options.read_timeout)


class DirectStore(ObstoreStore):
    """An S3 store whose reads need not go through obstore.

    Parameters
    ----------
    store : obstore.store.S3Store
    signer : Signer
        Of that store.
    read_timeout : float, optional
        See `ObstoreStore`.
    """

    def __init__(self, store: object, signer: Signer, *, read_timeout: float | None = None) -> None:
        super().__init__(store, read_timeout=read_timeout)
        self._signer = signer

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """See `RangeStore.read`; what S3 refuses for the way in which it was asked costs a second request."""
        runtime.check_fork()
        signed = await self._sign(path)
        if signed is None or signed.origin in _aside or (signed.origin.tls and want.length > _MOST_OVER_TLS):
            return await super().read(path, want, if_match=if_match)
        payload = await self._ask(signed, path, want, if_match)
        if payload is None:
            self._signer.forget(path)
            payload = await super().read(path, want, if_match=if_match)
            _aside[signed.origin] = True
        return payload

    async def _sign(self, path: str) -> Signed | None:
        try:
            return await self._signer.sign(path)
        except BaseException as error:
            if isinstance(translate(error, path), StoreError):
                return None  # Without credentials, say: obstore will tell.
            raise

    async def _ask(
        self, signed: Signed, path: str, want: ByteRange | Suffix, if_match: str | None
    ) -> Payload | None:
        """The answer; None where obstore is to be asked."""
        request = _request(signed, want, if_match)
        if request is None:
            return None
        try:
            reply = await connections_to(signed.origin, self._signer.patience).ask(request, want.length)
        except UnreachableError:
            return None
        except LostError as error:
            if error.loss is Loss.GARBLED:
                return None
            failure = _lost(error, path, want)
        else:
            return _payload(reply, path, want)
        raise failure from failure.__cause__


def _lost(error: LostError, path: str, want: ByteRange | Suffix) -> StoreError:
    cause = error.__cause__
    if error.loss is Loss.CLOSED and isinstance(cause, OSError):
        return connection_fault(cause).error(path, place=str(want), address=S3_ADDRESS, cause=cause)
    hint = OUT_OF_FILES if error.loss is Loss.EXHAUSTED else None
    return StoreError(error.loss.value, path=path, place=str(want), hint=hint, transient=True)


def _request(signed: Signed, want: ByteRange | Suffix, if_match: str | None) -> Request | None:
    """What to send; None where an etag cannot be a header."""
    lines = [
        f"GET {signed.target} HTTP/1.1",
        f"Host: {signed.authority}",
        f"Range: {range_header(want)}",
        "Accept-Encoding: identity",
        "User-Agent: accel",
    ]
    if if_match is not None:
        if not can_be_sent(if_match):
            return None
        lines.append(f"If-Match: {if_match}")
    return Request("\r\n".join((*lines, "", "")).encode("ascii"))


def _payload(reply: Reply, path: str, want: ByteRange | Suffix) -> Payload | None:
    head = reply.head
    if head.status != 206:
        _raise_refusal(reply, path, want)
        return None
    if head.length is None:
        return None
    answer = read_answer(206, head.headers, path=path, want=want, max_unranged=0)
    promised = answer.range
    if promised is None or head.length != promised.length:
        raise StoreError(
            f"the store sent {head.length} bytes that are not the wanted ones", path=path, place=str(want)
        )
    if reply.cut is not None:
        raise IncompleteBodyError(
            f"{reply.cut.value} after {len(reply.body)} bytes of the body",
            path=path,
            range=promised,
            partial=reply.body,
            size=answer.size,
            etag=answer.etag,
        )
    return Payload(reply.body, promised, answer.size, answer.etag)


def _raise_refusal(reply: Reply, path: str, want: ByteRange | Suffix) -> None:
    """Raise what a status means whoever asked; all others are left to obstore."""
    status, headers = reply.head.status, reply.head.headers
    if status not in (404, 412, 416) and not transient_status(status):
        return
    error = refusal(status, headers, path, want, code=code_in(str(reply.body, "latin-1")))
    if error is not None:
        raise error

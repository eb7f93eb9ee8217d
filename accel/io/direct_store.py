"""S3 read over connections of accel's own, by presigned URLs; obstore does all the rest.

A range costs a quarter of the processor's time that it costs through obstore, whose answers come from other
threads (docs/performance.md). Only what S3 answers plainly is taken: whatever else it says, obstore is asked
instead, and if that succeeds, for everything else for a while.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
import weakref

from accel.errors import ObjectNotFoundError, StoreError
from accel.io import runtime
from accel.io.connection import Loss, LostError, Reply
from accel.io.connections import Connections, UnreachableError
from accel.io.faults import IncompleteBodyError, transient_status
from accel.io.http_answer import range_header, read_answer, refusal
from accel.io.obstore_errors import translate
from accel.io.obstore_store import ObstoreStore
from accel.io.signing import Signed, Signer, signer_of
from accel.io.store import Payload
from accel.options import Options
from accel.ranges import ByteRange, Suffix

__all__ = ["DirectStore", "adapt"]

# How long what obstore can do, and this cannot, is left to it.
_ASIDE_SECONDS = 600.0
_CODE = re.compile(rb"<Code>([A-Za-z0-9_.]{1,80})</Code>")


def adapt(store: object, options: Options) -> ObstoreStore:
    """Any obstore store as accel reads it."""
    signer = signer_of(store, options)
    return ObstoreStore(store) if signer is None else DirectStore(store, signer)


class DirectStore(ObstoreStore):
    """An S3 store whose reads need not go through obstore.

    Parameters
    ----------
    store : obstore.store.S3Store
    signer : Signer
        Of that store.
    """

    def __init__(self, store: object, signer: Signer) -> None:
        super().__init__(store)
        self._signer = signer
        self._aside_until = -math.inf
        self._pools: dict[tuple[str, int, bool], Connections] = {}
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """See `RangeStore.read`; what S3 refuses for the way in which it was asked costs a second request."""
        runtime.check_fork()
        if time.monotonic() < self._aside_until:
            return await super().read(path, want, if_match=if_match)
        payload = await self._ask(path, want, if_match)
        if payload is None:
            self._signer.forget(path)
            payload = await super().read(path, want, if_match=if_match)
            self._aside_until = time.monotonic() + _ASIDE_SECONDS
        return payload

    async def close(self) -> None:
        """Drop all connections."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    async def _ask(self, path: str, want: ByteRange | Suffix, if_match: str | None) -> Payload | None:
        """The answer; None where obstore is to be asked."""
        try:
            signed = await self._signer.sign(path)
        except BaseException as error:
            if isinstance(translate(error, path), StoreError):
                return None  # Without credentials, say: obstore will tell.
            raise
        request = None if signed is None else _request(signed, want, if_match)
        if signed is None or request is None:
            return None
        try:
            reply = await self._pool(signed.origin).ask(request, want.length)
        except UnreachableError:
            return None
        except LostError as error:
            if error.loss is Loss.GARBLED:
                return None
            raise StoreError(error.loss.value, path=path, place=str(want), transient=True) from None
        return _payload(reply, path, want)

    def _pool(self, origin: tuple[str, int, bool]) -> Connections:
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop() is not loop:
            # Connections belong to the loop that made them, and end with it.
            self._pools = {}
            self._loop = weakref.ref(loop)
            runtime.at_shutdown(self.close)
        pool = self._pools.get(origin)
        if pool is None:
            host, port, tls = origin
            patience = self._signer.patience
            pool = self._pools[origin] = Connections(
                host, port, tls=tls, connect_timeout=patience.connect, read_timeout=patience.read
            )
        return pool


def _request(signed: Signed, want: ByteRange | Suffix, if_match: str | None) -> bytes | None:
    """The bytes to send; None where an etag cannot be a header."""
    lines = [
        f"GET {signed.target} HTTP/1.1",
        f"Host: {signed.authority}",
        f"Range: {range_header(want)}",
        "Accept-Encoding: identity",
        "User-Agent: accel",
    ]
    if if_match is not None:
        if not (if_match.isascii() and if_match.isprintable()):
            return None
        lines.append(f"If-Match: {if_match}")
    return "\r\n".join((*lines, "", "")).encode("ascii")


def _payload(reply: Reply, path: str, want: ByteRange | Suffix) -> Payload | None:
    head = reply.head
    if head.status != 206:
        _raise_refusal(reply, path, want)
        return None
    if head.length is None:
        return None
    answer = read_answer(206, head.headers, path, want, max_unranged=0)
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
    found = _CODE.search(reply.body)
    code = None if found is None else found[1].decode("ascii")
    if code == "NoSuchBucket":
        raise ObjectNotFoundError(
            "there is no such object", path=path, hint="there is no such bucket", status=404
        )
    error = refusal(status, headers, path, want, code=code)
    if error is not None:
        raise error

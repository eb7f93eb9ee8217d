"""The adapter of obstore stores: a RangeStore, Pager, Lister, Header and Writer."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, Final

import obstore
from obstore.store import AzureStore, GCSStore, HTTPStore, LocalStore, MemoryStore, S3Store

from accel.errors import (
    AccelError,
    ObjectChangedError,
    ObjectNotFoundError,
    StoreError,
)
from accel.memory import allocate
from accel.options import MIB
from accel.ranges import Buffer, ByteRange, Suffix
from accel.runtime.tasks import TrackedStream, refuse_lost_obstore, see, tracked
from accel.store.identity import ByIdentity
from accel.store.obstore_errors import panicked, shorter_range, translate
from accel.store.range_store import LIST_PAGE, ObjectEntry, Payload, can_be_sent
from accel.store.request_errors import (
    EmptyObjectError,
    IncompleteBodyError,
    ShortObjectError,
    SuffixUnsupportedError,
    changed_object,
    short_answer,
)
from accel.versions import is_weak

__all__ = [
    "CONFIG_HIDDEN",
    "ListingChunks",
    "ObstoreStore",
    "has_readable_config",
    "replace_object",
    "upload",
    "with_tries",
    "without_retries",
]

CONFIG_HIDDEN = (
    "obstore cannot tell how the store was made, so it is read through obstore, with retries of obstore's "
    "own: give what concerns the client (allow_http, timeout, ...) by client_options={...}"
)


def has_readable_config(store: Any) -> bool:
    """Return whether the `config` of a store can be read; True for stores without one.

    obstore panics over a config that holds arguments for its client. Rust writes every panic to stderr, so
    each store is tried only once.
    """
    return not isinstance(store, (S3Store, GCSStore, AzureStore)) or _tried.of(store)


def _try(store: Any) -> bool:
    try:
        _ = store.config
    except BaseException as error:  # a panic is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return False
    return True


_tried = ByIdentity(_try)


CHUNK_TIMEOUTS: Final = 10
"""Read timeouts that one chunk of a listing may take, as obstore sends several requests for it."""


class ListingChunks:
    """The chunks of a listing of obstore. It must own the only reference to the stream.

    Parameters
    ----------
    stream : obstore's ListStream
    path : str
        The prefix, for errors.
    read_timeout : float, optional
        Seconds of one request. None: no limit.
    """

    def __init__(
        self, stream: AsyncIterator[Sequence[Any]], path: str, *, read_timeout: float | None
    ) -> None:
        self._stream: AsyncIterator[Sequence[Any]] | None = stream
        self._path = path
        self._seconds = None if read_timeout is None else read_timeout * CHUNK_TIMEOUTS

    async def take(self) -> Sequence[Any] | None:
        """Return the next chunk, None after the last; raises errors of obstore. Being cancelled ends the
        request.

        Raises
        ------
        StoreError
            No chunk came in time, perhaps as the server sends empty pages without an end.
        """
        if self._stream is None:
            return None
        # A future that is not awaited directly, as a cancelled `await` would cancel it too early.
        step: asyncio.Future[Sequence[Any]] = tracked(asyncio.ensure_future(self._stream.__anext__()))
        try:
            try:
                await asyncio.wait((step,), timeout=self._seconds)
            except BaseException:
                self._release(step)
                raise
            if step.done():
                return step.result()
            self._release(step)
            raise StoreError(
                f"the store listed nothing more in {self._seconds:g} seconds",
                path=self._path,
                hint=(
                    "it is slow, or sends empty pages without an end; `options.read_timeout` allows for more"
                ),
            )
        except StopAsyncIteration:
            return None
        finally:
            # Else the frames of an error would refer to the call, which is waited for at exit.
            del step

    def _release(self, step: asyncio.Future[Sequence[Any]]) -> None:
        # In this order, so that obstore's threads drop the last reference to the stream. If Python freed it
        # after a response had come, the connection would be returned outside of tokio, where hyper's pool
        # panics with its lock taken, and so would every later request of the store.
        self._stream = None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            step.cancel()


# A cut body is resumed after its last whole part. A part costs a hand-off from obstore's threads (about 0.1
# ms) and a copy, so bodies up to the second length are read whole, unless one was cut within the last minute.
PART_BYTES = 512 * 1024
WHOLE_BYTES = 12 * MIB
_CAREFUL_SECONDS = 60.0


class ObstoreStore:
    """A store of obstore.

    Reads use `get_async` with a range and If-Match, as `get_range` takes no precondition and returns neither
    size nor etag. Responses are compared with requests, as obstore silently cuts a range that ends past the
    object.

    Parameters
    ----------
    store : obstore store
    read_timeout : float, optional
        Seconds of one request, from which the limit for a listing is derived; None: no limit.
    """

    def __init__(self, store: Any, *, read_timeout: float | None = None) -> None:
        self.broken = False
        """Whether obstore has panicked, and may have left a lock taken on which every later request would
        wait."""
        self.inner = without_retries(store)
        self._read_timeout = read_timeout
        self._streams = not isinstance(store, (LocalStore, MemoryStore))
        self._careful_until = -math.inf
        self._patient_until = -math.inf

    def __repr__(self) -> str:
        return f"ObstoreStore({type(self.inner).__name__})"

    def wraps(self, store: object) -> bool:
        """Return whether this adapter reads through this very object, not through a copy with the same
        settings."""
        return self.inner is store

    @property
    def warning(self) -> str | None:
        """A text for the metrics about how the store was made; None if there is none."""
        return None if has_readable_config(self.inner) else CONFIG_HIDDEN

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """Read exactly one range of one object; see `RangeStore.read`.

        An empty object raises ParquetFormatError.
        """
        refuse_lost_obstore()
        if isinstance(want, Suffix) and not self.suffixes:
            raise SuffixUnsupportedError(path=path, sent=False, certain=True)
        options: dict[str, Any] = {
            "range": {"suffix": want.length} if isinstance(want, Suffix) else (want.start, want.end)
        }
        if if_match is not None:
            if not can_be_sent(if_match):  # obstore would panic
                raise StoreError("the etag that was asked for is no header", path=path, place=str(want))
            options["if_match"] = if_match
        failure: BaseException
        try:
            result = await tracked(obstore.get_async(self.inner, path, options=options))  # type: ignore[arg-type]
            start, end = result.range
            size, etag = int(result.meta["size"]), result.meta["e_tag"]
            promised = _promised(path, want, start, end, size, etag)
            take = self._file_body if isinstance(self.inner, LocalStore) else self._body
            data = await take(result, path, promised, size, etag)
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            # The error of obstore is not chained, as it quotes the response, and a presigned URL in clear.
            failure = self._translated(error, path, want)
            shorter = shorter_range(error, want)
        else:
            return Payload(data, promised, size, etag)
        if shorter is not None:
            # obstore has dropped what came: the server sends it again, as all that is requested.
            whole, sent = shorter
            part = await self.read(path, sent, if_match=if_match)
            failure = short_answer(path, whole, part.data, size=part.size, etag=part.etag)
        raise failure from failure.__cause__

    async def _file_body(
        self, result: Any, path: str, promised: ByteRange, size: int, etag: str | None
    ) -> Buffer:
        """Read a part of a local file, which may have changed since its size and etag were looked up."""
        try:
            data = await self._body(result, path, promised, size, etag)
        except StoreError:  # the file may have become shorter meanwhile
            await self._check_unchanged(path, promised, size, etag)
            raise
        await self._check_unchanged(path, promised, size, etag)
        return data

    async def _check_unchanged(self, path: str, place: ByteRange, size: int, etag: str | None) -> None:
        now = await tracked(obstore.head_async(self.inner, path))
        if (now["size"], now["e_tag"]) != (size, etag):
            raise changed_object(path, str(place))

    async def _body(self, result: Any, path: str, promised: ByteRange, size: int, etag: str | None) -> Buffer:
        if not self._in_parts(promised.length):
            try:
                whole = await self._whole(result, promised.length)
            except obstore.exceptions.BaseError as error:
                self._careful_until = time.monotonic() + _CAREFUL_SECONDS
                raise self._cut(error, path, promised, b"", size, etag) from None
        else:
            # Arrow's allocator reuses memory; fresh pages of the system would cost more than the copy.
            joined = memoryview(allocate(promised.length)).cast("B")
            filled = 0
            try:
                async for part in TrackedStream(result.stream(min_chunk_size=PART_BYTES)):
                    came = len(part)
                    if filled + came > promised.length:
                        raise _mismatch(path, promised, filled + came)
                    joined[filled : filled + came] = memoryview(part)
                    filled += came
            except obstore.exceptions.BaseError as error:
                raise self._cut(error, path, promised, joined[:filled], size, etag) from None
            whole = joined[:filled].toreadonly()
        if whole.nbytes != promised.length:
            if whole.nbytes > promised.length:
                raise _mismatch(path, promised, whole.nbytes)
            raise IncompleteBodyError(
                f"the body ended after {whole.nbytes} bytes",
                path=path,
                range=promised,
                partial=whole,
                size=size,
                etag=etag,
            )
        return whole

    async def _whole(self, result: Any, length: int) -> memoryview:
        """Read a body in one piece, and at most one byte more than promised."""
        if not self._streams:
            return memoryview(await tracked(result.bytes_async()))
        try:
            # obstore takes the promised length from Content-Range, and reads whatever comes.
            return memoryview(await anext(TrackedStream(result.stream(min_chunk_size=length + 1))))
        except StopAsyncIteration:
            return memoryview(b"")

    def _in_parts(self, length: int) -> bool:
        if not self._streams or length <= PART_BYTES:
            return False
        return length > WHOLE_BYTES or time.monotonic() < self._careful_until

    def _cut(
        self,
        error: BaseException,
        path: str,
        promised: ByteRange,
        partial: Buffer,
        size: int,
        etag: str | None,
    ) -> BaseException:
        cause = translate(error, path, self.inner, want=promised)
        if not (isinstance(cause, StoreError) and cause.transient):
            return cause
        return IncompleteBodyError(
            cause.message, path=path, range=promised, partial=partial, size=size, etag=etag
        )

    async def head(self, path: str) -> ObjectEntry:
        """Return the size and etag of one object, by a HEAD request."""
        refuse_lost_obstore()
        failure: BaseException
        try:
            meta = await tracked(obstore.head_async(self.inner, path))
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            failure = self._translated(error, path)
        else:
            return ObjectEntry(path, int(meta["size"]), meta["e_tag"])
        raise failure from failure.__cause__

    @property
    def suffixes(self) -> bool:
        """Whether the last bytes of an object of unknown size can be read: not on Azure."""
        return not isinstance(self.inner, AzureStore)

    @property
    def cuts_listings(self) -> bool:
        """See `Pager`. True for S3, except its directory buckets, which list in no order.

        Azure and local stores would list everything for each part. Google documents the same as S3, which is
        untested.
        """
        # The name is taken from `repr`, as `config` panics over some legal arguments.
        return isinstance(self.inner, S3Store) and "--x-s3" not in repr(self.inner)

    @property
    def lists_from_keys(self) -> bool:
        """Whether a listing that failed can go on from its last key. Google lists in byte order too."""
        return self.cuts_listings or isinstance(self.inner, GCSStore)

    @property
    def confirms_listings(self) -> bool:
        """Whether the end of a listing has to be confirmed by another request.

        Of S3 and Google, obstore takes any XML of status 200 that is no listing for an empty last page, such
        as an `<Error>`.
        """
        return isinstance(self.inner, (S3Store, GCSStore))

    async def pages(
        self, prefix: str, *, after: str | None = None
    ) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        """List the objects at or below a prefix page by page; see `Pager.pages`."""
        refuse_lost_obstore()
        if isinstance(self.inner, HTTPStore):
            raise StoreError("a plain HTTP server cannot list", path=prefix, hint="name the files")
        failure: BaseException
        begun = False
        # Azure may list in another order than that of keys, so only obstore can go on with the page that
        # failed.
        patient = isinstance(self.inner, AzureStore) and time.monotonic() < self._patient_until
        store = _with_retries(self.inner) if patient else self.inner
        try:
            chunks = ListingChunks(
                obstore.list(store, prefix=prefix.rstrip("/") or None, offset=after, chunk_size=LIST_PAGE),
                prefix,
                read_timeout=self._read_timeout,
            )
            while (chunk := await chunks.take()) is not None:
                begun = True
                # Azure and Google list etags without the quotes that all their other responses have.
                spell = _quoted if isinstance(self.inner, (AzureStore, GCSStore)) else _as_given
                yield [
                    ObjectEntry(m["path"], int(m["size"]), spell(m["e_tag"]), m["last_modified"].timestamp())
                    for m in chunk
                ]
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            failure = self._translated(error, prefix)
            if begun and isinstance(failure, StoreError) and failure.transient:
                self._patient_until = time.monotonic() + _CAREFUL_SECONDS
        else:
            return
        raise failure from failure.__cause__

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """List the objects at or below a prefix; see `Lister.list`.

        All pages are fetched before the first entry is returned, as stores differ in order.
        """
        entries = [entry async for page in self.pages(prefix) for entry in page]
        # By code point, which is the byte order of UTF-8.
        entries.sort(key=lambda entry: entry.path)
        for entry in entries:
            yield entry

    def _translated(
        self, error: BaseException, path: str, want: ByteRange | Suffix | None = None
    ) -> BaseException:
        self.broken = self.broken or panicked(error)
        return translate(error, path, self.inner, want=want)

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        """Put one object, whole or not at all; see `Writer.write`."""
        refuse_lost_obstore()
        if if_absent:
            await create_object(self.inner, path, parts=parts, size=size)
        elif if_match is not None:
            await replace_object(self.inner, path, parts=parts, size=size, if_match=if_match)
        else:
            await upload(self.inner, path, parts, size=size)

    async def move(self, path: str, to: str) -> None:
        """Give an object another name; see `Mover.move`.

        A cloud store copies by itself, up to 5 GB on S3.
        """
        refuse_lost_obstore()
        failure: BaseException
        try:
            await tracked(obstore.copy_async(self.inner, path, to))
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            failure = self._translated(error, path)
        else:
            await self.remove(path)
            return
        raise failure from None

    async def remove(self, path: str) -> None:
        """Remove an object; see `Remover.remove`."""
        refuse_lost_obstore()
        failure: BaseException
        try:
            await tracked(obstore.delete_async(self.inner, path))
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            failure = self._translated(error, path)
            if isinstance(failure, ObjectNotFoundError):
                return
        else:
            return
        raise failure from None


def without_retries(store: Any) -> Any:
    """Return the store without retries of obstore, unless its `retry_config` was given: the gate, the counts
    and the timeouts of accel would not include them."""
    return with_tries(store, 0, where=lambda retries: retries is None)


def with_tries(store: Any, most: int, *, where: Callable[[Any], bool]) -> Any:
    """Return a cloud store with `most` retries of obstore, if `where` is true for its present
    `retry_config`."""
    if not isinstance(store, (S3Store, GCSStore, AzureStore)) or not has_readable_config(store):
        return store
    try:
        if not where(store.retry_config):
            return store
        return type(store)(
            config=store.config,  # type: ignore[arg-type]
            prefix=store.prefix,
            client_options=store.client_options,
            credential_provider=store.credential_provider,  # type: ignore[arg-type]
            retry_config={"max_retries": most},
        )
    except BaseException as error:  # it may panic over some legal arguments
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return store


def _quoted(etag: str | None) -> str | None:
    return etag if etag is None or etag.endswith('"') else f'"{etag}"'


def _as_given(etag: str | None) -> str | None:
    return etag


def _promised(
    path: str, want: ByteRange | Suffix, start: int, end: int, size: int, etag: str | None
) -> ByteRange:
    if size == 0:
        raise EmptyObjectError(path)
    if isinstance(want, Suffix):
        if (start, end) != (max(0, size - want.length), size):
            raise _mismatch(path, want, end - start)
        return ByteRange(start, end)
    if end < want.end and end == size:
        raise ShortObjectError(path=path, want=want, size=size, etag=etag)
    if (start, end) != (want.start, want.end):
        raise _mismatch(path, want, end - start)
    return want


def _mismatch(path: str, want: ByteRange | Suffix, came: int) -> StoreError:
    return StoreError(f"the store sent {came} bytes that are not the wanted ones", path=path, place=str(want))


_UPLOAD_PART_BYTES = 8 * 1024 * 1024
"""Bytes of a part; more for an object of more parts than S3 takes (10,000)."""
_MOST_PARTS = 9_000
_PARTS_IN_FLIGHT = 4
_RETRIES = 5


async def upload(store: Any, path: str, parts: AsyncIterator[bytes], *, size: int) -> None:
    """Write an object in parts, some concurrently; it appears when it is complete.

    A part that fails is sent again. If `parts` or a request fails for good, the upload is aborted.
    """
    failure: BaseException
    content = _Parts(parts, path, size)
    try:
        await tracked(
            obstore.put_async(
                _with_retries(store),
                path,
                content,
                use_multipart=size > _UPLOAD_PART_BYTES,
                chunk_size=max(_UPLOAD_PART_BYTES, -(-size // _MOST_PARTS)),
                max_concurrency=_PARTS_IN_FLIGHT,
            )
        )
    except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
        # An exception of `parts` is raised as it is, not as a failure of the store.
        failure = content.failure or translate(error, path, store)
    else:
        return
    finally:
        await content.end()
    raise failure from None


async def replace_object(
    store: Any, path: str, *, parts: AsyncIterator[bytes], size: int, if_match: str
) -> None:
    """Write an object by one request that succeeds only if it replaces a certain version.

    Raises
    ------
    ObjectChangedError
        The store holds another version.
    StoreError
        The store has no conditional put, or the etag is weak or cannot be a header, so that it never matches.
    """
    if isinstance(store, LocalStore) or is_weak(if_match) or not can_be_sent(if_match):
        raise StoreError(
            "this store cannot replace one certain version of an object",
            path=path,
            hint="write to another name, or give a local file by its path",
        )
    body = await _Parts(parts, path, size).joined()
    failure: BaseException
    try:
        found = await tracked(obstore.head_async(store, path))
        if found["e_tag"] != if_match:
            raise ObjectChangedError("the object was changed meanwhile, and is left as it is", path=path)
        # Google compares versions, the others etags.
        mode: Any = {"e_tag": if_match}
        if found["version"] is not None:
            mode["version"] = found["version"]
        await tracked(obstore.put_async(store, path, body, mode=mode, use_multipart=False))
    except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
        failure = _conditional(translate(error, path, store))
    else:
        return
    raise failure from None


async def create_object(store: Any, path: str, *, parts: AsyncIterator[bytes], size: int) -> None:
    """Put an object in one request that only succeeds where none has the name.

    Raises
    ------
    ObjectChangedError
        The store holds an object of that name.
    StoreError
        The store knows no conditional put, or failed.
    """
    body = await _Parts(parts, path, size).joined()
    failure: BaseException
    try:
        await tracked(obstore.put_async(store, path, body, mode="create", use_multipart=False))
    except obstore.exceptions.AlreadyExistsError:
        failure = ObjectChangedError("an object has that name already", path=path)
    except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
        failure = _conditional(translate(error, path, store))
    else:
        return
    raise failure from None


class _Parts:
    """The parts of an object that obstore asks for, each in a task that obstore starts on the event loop.

    If an upload ends early, obstore may leave such a task: it would go on to read what the caller has closed
    by then, and its failure would be nobody's. So `end` is awaited before the upload returns.

    Parameters
    ----------
    parts : AsyncIterator of bytes
    path : str
    size : int
        Bytes of all of them.
    """

    def __init__(self, parts: AsyncIterator[bytes], path: str, size: int) -> None:
        self.failure: BaseException | None = None
        """The exception that `parts` raised."""
        self._parts = parts
        self._path = path
        self._size = size
        self._done = 0
        self._ended = False
        self._step: asyncio.Task[Any] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        step = asyncio.current_task()
        if step is not None:
            step.add_done_callback(see)  # obstore may not wait for its outcome any more
        if self._ended:
            raise StopAsyncIteration
        self._step = step
        try:
            return await self._take()
        finally:
            self._step = None

    async def _take(self) -> bytes:
        try:
            part = await anext(self._parts)
        except StopAsyncIteration:
            if self._done == self._size:
                raise
            message = f"{self._done} bytes were made for an object of {self._size}"
            self.failure = AccelError(message, path=self._path)
            raise self.failure from None
        except Exception as error:
            self.failure = error
            raise
        self._done += len(part)
        return part

    async def joined(self) -> bytearray:
        """Return all parts in one piece."""
        body = bytearray()
        with contextlib.suppress(StopAsyncIteration):
            while True:
                body += await self._take()
        return body

    async def end(self) -> None:
        """End the step that is under way, and close the parts."""
        self._ended = True
        step = self._step
        if step is not None:
            step.cancel()
            await asyncio.wait((step,))
        close = getattr(self._parts, "aclose", None)
        if close is not None:
            await close()


def _conditional(error: BaseException) -> BaseException:
    if isinstance(error, StoreError) and not isinstance(error, ObjectChangedError) and error.status == 501:
        error.hint = "this store knows no conditional put: write to another name"
    return error


def _with_retries(store: Any) -> Any:
    """Return the store with a few retries for each part, as accel could only retry the whole upload."""
    return with_tries(store, _RETRIES, where=lambda retries: (retries or {}).get("max_retries") == 0)

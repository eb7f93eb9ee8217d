"""Any obstore store as a RangeStore, a Lister and a Writer."""

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
    ParquetFormatError,
    StoreError,
)
from accel.memory import allocate
from accel.options import MIB
from accel.ranges import Buffer, ByteRange, Suffix
from accel.store import io_loop
from accel.store.identity import ByIdentity
from accel.store.obstore_errors import panicked, translate
from accel.store.range_store import LIST_PAGE, ObjectEntry, Payload, can_be_sent, is_weak
from accel.store.request_errors import (
    IncompleteBodyError,
    ShortObjectError,
    SuffixUnsupportedError,
    changed_object,
)
from accel.store.tasks import TrackedStream, tracked

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
    "obstore cannot tell how the store was made, so it is read through obstore, with retries of obstore's own: "
    "give what concerns the client (allow_http, timeout, ...) by client_options={...}"
)


def has_readable_config(store: Any) -> bool:
    """Whether its `config` can be asked for.

    Of arguments that are for the client obstore makes keys that it panics over, each time, and Rust writes every panic
    to stderr: so one store is tried once. True of stores that have no `config` to be copied.
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


_PATIENCE: Final = 10
"""Times the read timeout, which is that of one request, that a chunk may take: obstore asks as often as it needs."""


class ListingChunks:
    """A listing of obstore's, of which it becomes the only owner.

    Parameters
    ----------
    stream : obstore's ListStream
    path : str
        What is listed, as errors name it.
    read_timeout : float, optional
        Seconds, of one request. None: a chunk may take for ever.
    """

    def __init__(
        self, stream: AsyncIterator[Sequence[Any]], path: str, *, read_timeout: float | None
    ) -> None:
        self._stream: AsyncIterator[Sequence[Any]] | None = stream
        self._path = path
        self._seconds = None if read_timeout is None else read_timeout * _PATIENCE

    async def take(self) -> Sequence[Any] | None:
        """The next chunk, None after the last. Raises what obstore does; cancelled, it ends the request.

        Raises
        ------
        StoreError
            None came in time, however many answers did: some servers send empty pages without an end.
        """
        if self._stream is None:
            return None
        # Of the running loop's; a cancelled `await` of it would cancel it too early.
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
                hint="it is slow, or sends empty pages without an end; options.read_timeout allows for more",
            )
        except StopAsyncIteration:
            return None
        finally:
            # An error keeps its frames, which would keep a call that is waited for at exit.
            del step

    def _release(self, step: asyncio.Future[Sequence[Any]]) -> None:
        # In this order: what obstore's own threads hold of the stream must be the last, when they drop it. One that
        # Python frees (and only a collection of cycles may) gives its connection back outside of tokio, if an answer has
        # come meanwhile: hyper's pool panics with its lock held, and so does every later request of that store.
        self._stream = None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            step.cancel()


# A cut body is resumed after the last whole part. A part costs a hand-off from obstore's threads (about 0.1 ms) and a
# copy: so longer bodies are read whole too, up to a length that is soon here again, unless one was cut lately.
_PART_BYTES = 512 * 1024
_WHOLE_BYTES = 12 * MIB
_CAREFUL_SECONDS = 60.0


class ObstoreStore:
    """The adapter over obstore.

    Reads go through `get_async` with a range and If-Match, because `get_range` takes no precondition and
    tells neither size nor etag. What comes back is held against what was asked for: obstore cuts a
    range that runs past the end without a word.

    Parameters
    ----------
    store : obstore store
    read_timeout : float, optional
        Seconds that one request may take, by which a listing's patience is measured; None: for ever.
    """

    def __init__(self, store: Any, *, read_timeout: float | None = None) -> None:
        self.broken = False
        """Whether obstore has panicked: it may have left a lock behind that no later request gets past."""
        self._store = without_retries(store)
        self._read_timeout = read_timeout
        self._streams = not isinstance(store, (LocalStore, MemoryStore))
        self._careful_until = -math.inf

    def __repr__(self) -> str:
        return f"ObstoreStore({type(self._store).__name__})"

    def wraps(self, store: object) -> bool:
        """Whether it reads through this very object, and not through another of the same settings."""
        return self._store is store

    @property
    def warning(self) -> str | None:
        """What whoever made the store should know."""
        return None if has_readable_config(self._store) else CONFIG_HIDDEN

    async def read(self, path: str, want: ByteRange | Suffix, *, if_match: str | None = None) -> Payload:
        """See `RangeStore.read`. A suffix of an empty object is a ParquetFormatError."""
        io_loop.check_fork()
        if isinstance(want, Suffix) and not self.suffixes:
            raise SuffixUnsupportedError(path=path, sent=False, certain=True)
        asked: dict[str, Any] = {
            "range": {"suffix": want.length} if isinstance(want, Suffix) else (want.start, want.end)
        }
        if if_match is not None:
            if not can_be_sent(if_match):  # obstore would panic
                raise StoreError("the etag that was asked for is no header", path=path, place=str(want))
            asked["if_match"] = if_match
        failure: BaseException
        try:
            result = await tracked(obstore.get_async(self._store, path, options=asked))  # type: ignore[arg-type]
            start, end = result.range
            size, etag = int(result.meta["size"]), result.meta["e_tag"]
            promised = _promised(path, want, start, end, size, etag)
            take = self._file_body if isinstance(self._store, LocalStore) else self._body
            data = await take(result, path, promised, size, etag)
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            # Not chained: the original quotes the response, and a presigned URL in clear.
            failure = self._translated(error, path, want)
        else:
            return Payload(data, promised, size, etag)
        raise failure from failure.__cause__

    async def _file_body(
        self, result: Any, path: str, promised: ByteRange, size: int, etag: str | None
    ) -> Buffer:
        """What a file holds while it is read, which it may not have held when its size and etag were looked up."""
        try:
            data = await self._body(result, path, promised, size, etag)
        except StoreError:  # it may have been cut off meanwhile
            await self._check_unchanged(path, promised, size, etag)
            raise
        await self._check_unchanged(path, promised, size, etag)
        return data

    async def _check_unchanged(self, path: str, place: ByteRange, size: int, etag: str | None) -> None:
        now = await tracked(obstore.head_async(self._store, path))
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
            # Arrow's allocator has memory at hand; fresh pages of the system cost more than the copy.
            joined = memoryview(allocate(promised.length)).cast("B")
            filled = 0
            try:
                async for part in TrackedStream(result.stream(min_chunk_size=_PART_BYTES)):
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
        """A body in one piece, of which no more is taken than tells that it is longer than promised."""
        if not self._streams:
            return memoryview(await tracked(result.bytes_async()))
        try:
            # obstore has the promised length from Content-Range, and takes whatever comes.
            return memoryview(await anext(TrackedStream(result.stream(min_chunk_size=length + 1))))
        except StopAsyncIteration:
            return memoryview(b"")

    def _in_parts(self, length: int) -> bool:
        if not self._streams or length <= _PART_BYTES:
            return False
        return length > _WHOLE_BYTES or time.monotonic() < self._careful_until

    @staticmethod
    def _cut(
        error: BaseException, path: str, promised: ByteRange, partial: Buffer, size: int, etag: str | None
    ) -> BaseException:
        cause = translate(error, path, want=promised)
        if not (isinstance(cause, StoreError) and cause.transient):
            return cause
        return IncompleteBodyError(
            cause.message, path=path, range=promised, partial=partial, size=size, etag=etag
        )

    async def head(self, path: str) -> ObjectEntry:
        """Size and etag of one object, by a HEAD request."""
        io_loop.check_fork()
        failure: BaseException
        try:
            meta = await tracked(obstore.head_async(self._store, path))
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            failure = self._translated(error, path)
        else:
            return ObjectEntry(path, int(meta["size"]), meta["e_tag"])
        raise failure from failure.__cause__

    @property
    def suffixes(self) -> bool:
        """Whether it can be asked for the last bytes of an object of unknown size: Azure cannot."""
        return not isinstance(self._store, AzureStore)

    @property
    def cuts_listings(self) -> bool:
        """See `Pager`. Of what obstore knows, S3, but not its directory buckets, which list in no order.

        Azure and the stores of this machine would list all for each part. Google says the same as S3, which is untried.
        """
        # The name is told by `repr` alone: `config` panics over some legal arguments.
        return isinstance(self._store, S3Store) and "--x-s3" not in repr(self._store)

    async def pages(
        self, prefix: str, *, after: str | None = None
    ) -> AsyncGenerator[Sequence[ObjectEntry], None]:
        """See `Pager.pages`."""
        io_loop.check_fork()
        if isinstance(self._store, HTTPStore):
            raise StoreError("a plain HTTP server cannot list", path=prefix, hint="name the files")
        failure: BaseException
        try:
            chunks = ListingChunks(
                obstore.list(
                    self._store, prefix=prefix.rstrip("/") or None, offset=after, chunk_size=LIST_PAGE
                ),
                prefix,
                read_timeout=self._read_timeout,
            )
            while (chunk := await chunks.take()) is not None:
                # Azure lists etags without the quotes that all its other answers give them.
                spell = _quoted if isinstance(self._store, (AzureStore, GCSStore)) else _as_given
                yield [ObjectEntry(m["path"], int(m["size"]), spell(m["e_tag"])) for m in chunk]
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            failure = self._translated(error, prefix)
        else:
            return
        raise failure from failure.__cause__

    async def list(self, prefix: str) -> AsyncIterator[ObjectEntry]:
        """See `Lister.list`. All of it is fetched before the first entry comes: stores differ in order."""
        entries = [entry async for page in self.pages(prefix) for entry in page]
        # By code point, which is the byte order of UTF-8 that S3 lists in.
        entries.sort(key=lambda entry: entry.path)
        for entry in entries:
            yield entry

    def _translated(
        self, error: BaseException, path: str, want: ByteRange | Suffix | None = None
    ) -> BaseException:
        self.broken = self.broken or panicked(error)
        return translate(error, path, want=want)

    async def write(
        self,
        path: str,
        parts: AsyncIterator[bytes],
        *,
        size: int,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> None:
        """See `Writer.write`."""
        io_loop.check_fork()
        if if_absent:
            await create_object(self._store, path, parts=parts, size=size)
        elif if_match is not None:
            await replace_object(self._store, path, parts=parts, size=size, if_match=if_match)
        else:
            await upload(self._store, path, parts, size=size)

    async def remove(self, path: str) -> None:
        """See `Remover.remove`."""
        io_loop.check_fork()
        failure: BaseException
        try:
            await tracked(obstore.delete_async(self._store, path))
        except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
            failure = translate(error, path)
            if isinstance(failure, ObjectNotFoundError):
                return
        else:
            return
        raise failure from None


def without_retries(store: Any) -> Any:
    """The same store, retrying nothing itself, unless its maker has said how it should.

    obstore's own ten tries would lie behind our gate, our counts and our patience.
    """
    return with_tries(store, 0, where=lambda retries: retries is None)


def with_tries(store: Any, most: int, *, where: Callable[[Any], bool]) -> Any:
    """A store of a cloud with so many more tries of its own, `where` its present `retry_config` is one to replace."""
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
        raise ParquetFormatError("the file is empty", path=path)
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
"""S3 takes 10,000 parts of an object: so much larger ones where that is not enough."""
_MOST_PARTS = 9_000
_PARTS_IN_FLIGHT = 4
_RETRIES = 5


async def upload(store: Any, path: str, parts: AsyncIterator[bytes], *, size: int) -> None:
    """Put an object in parts, some of them at once; it is seen when all of it is there.

    A part that fails is sent again. Where `parts` or a request fails for good, the upload is given up.
    """
    failure: BaseException
    raised: list[BaseException] = []
    try:
        await tracked(
            obstore.put_async(
                _with_retries(store),
                path,
                _counted(parts, path, size, raised),
                use_multipart=size > _UPLOAD_PART_BYTES,
                chunk_size=max(_UPLOAD_PART_BYTES, -(-size // _MOST_PARTS)),
                max_concurrency=_PARTS_IN_FLIGHT,
            )
        )
    except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
        # What `parts` raised comes back as it was, not as a failure of the store.
        failure = raised[0] if raised else translate(error, path)
    else:
        return
    raise failure from None


async def replace_object(
    store: Any, path: str, *, parts: AsyncIterator[bytes], size: int, if_match: str
) -> None:
    """Put an object in one request that only succeeds in the place of one version.

    Raises
    ------
    ObjectChangedError
        The store holds another version.
    StoreError
        The store knows no conditional put, or the etag is weak, or no header: such a one never matches.
    """
    if isinstance(store, LocalStore) or is_weak(if_match) or not can_be_sent(if_match):
        raise StoreError(
            "this store cannot replace one certain version of an object",
            path=path,
            hint="write to another name, or give a local file by its path",
        )
    body = bytearray()
    async for part in _counted(parts, path, size, []):
        body += part
    failure: BaseException
    try:
        found = await tracked(obstore.head_async(store, path))
        if found["e_tag"] != if_match:
            raise ObjectChangedError("the object was changed meanwhile, and is left as it is", path=path)
        # Google's store goes by version, the others by etag.
        mode: Any = {"e_tag": if_match}
        if found["version"] is not None:
            mode["version"] = found["version"]
        await tracked(obstore.put_async(store, path, body, mode=mode, use_multipart=False))
    except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
        failure = _conditional(translate(error, path))
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
    body = bytearray()
    async for part in _counted(parts, path, size, []):
        body += part
    failure: BaseException
    try:
        await tracked(obstore.put_async(store, path, body, mode="create", use_multipart=False))
    except obstore.exceptions.AlreadyExistsError:
        failure = ObjectChangedError("an object has that name already", path=path)
    except BaseException as error:  # noqa: BLE001 (a Rust panic is no Exception)
        failure = _conditional(translate(error, path))
    else:
        return
    raise failure from None


async def _counted(
    parts: AsyncIterator[bytes], path: str, size: int, raised: list[BaseException]
) -> AsyncIterator[bytes]:
    done = 0
    try:
        async for part in parts:
            done += len(part)
            yield part
        if done != size:
            raise AccelError(f"{done} bytes were made for an object of {size}", path=path)
    except Exception as error:
        raised.append(error)
        raise


def _conditional(error: BaseException) -> BaseException:
    if isinstance(error, StoreError) and not isinstance(error, ObjectChangedError) and error.status == 501:
        error.hint = "this store knows no conditional put: write to another name"
    return error


def _with_retries(store: Any) -> Any:
    """The same store with a few tries a part: above it only the whole upload could be tried again."""
    return with_tries(store, _RETRIES, where=lambda retries: (retries or {}).get("max_retries") == 0)

"""Objects put through obstore: streamed in parts, or in the place of one certain version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import obstore
from obstore.store import LocalStore

from accel.errors import AccelError, ObjectChangedError, StoreError
from accel.store.obstore_calls import watched
from accel.store.obstore_errors import translate
from accel.store.obstore_store import with_tries
from accel.store.range_store import can_be_sent, is_weak

__all__ = ["replace_object", "upload"]

_PART_BYTES = 8 * 1024 * 1024
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
        await watched(
            obstore.put_async(
                _with_retries(store),
                path,
                _counted(parts, path, size, raised),
                use_multipart=size > _PART_BYTES,
                chunk_size=max(_PART_BYTES, -(-size // _MOST_PARTS)),
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
        found = await watched(obstore.head_async(store, path))
        if found["e_tag"] != if_match:
            raise ObjectChangedError("the object was changed meanwhile, and is left as it is", path=path)
        # Google's store goes by version, the others by etag.
        mode: Any = {"e_tag": if_match}
        if found["version"] is not None:
            mode["version"] = found["version"]
        await watched(obstore.put_async(store, path, body, mode=mode, use_multipart=False))
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

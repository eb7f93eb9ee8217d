"""Identity: the token of a store and its credentials, and values remembered for objects of the caller."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Mapping
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

from accel.store.location import LOCAL_ROOT

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["ByIdentity", "StorageOptions", "credentials_token", "lasts"]

StorageOptions = Mapping[str, Any]

_ENVIRONMENT = ("AWS_", "GOOGLE_", "AZURE_", "OBJECT_STORE_", "R2_", "STORAGE_EMULATOR_HOST", "HF_TOKEN")
_LASTING = r"[0-9a-f]{32}"
# A bool is an int, too.
_PLAIN: tuple[Any, ...] = (bool, int, float, str, bytes)
# Objects in options that take no weak reference are kept alive up to this number; beyond it, metadata is read
# anew.
MOST_STRONG = 128
T = TypeVar("T")


class ByIdentity(Generic[T]):
    """Values by the identity of objects, never mistaking a new object for one that had its address before.

    Parameters
    ----------
    make : callable
        Makes the value of a new object. The value must not refer to the object.
    most_strong : int
        How many objects that take no weak reference are kept alive.

    Notes
    -----
    There is no lock, as objects are freed at any point of any thread. Two threads that bring a new object at
    the same time may get two values, of which the second is remembered.
    """

    def __init__(self, make: Callable[[Any], T], *, most_strong: int = 0) -> None:
        self._make = make
        self._most_strong = most_strong
        self.by_id: dict[int, tuple[weakref.ref[Any], T]] = {}
        self._strong: dict[int, tuple[object, T]] = {}

    def values(self) -> list[T]:
        """Return the values of all objects that are remembered."""
        return [value for _, value in (*self.by_id.values(), *self._strong.values())]

    def of(self, thing: object) -> T:
        """Return the value of an object.

        Raises
        ------
        TypeError
            The object takes no weak reference, and `most_strong` is 0.
        """
        identity = id(thing)
        entry = self.by_id.get(identity)
        if entry is not None and entry[0]() is thing:
            return entry[1]
        strong = self._strong.get(identity)
        if strong is not None:
            return strong[1]
        made, by_id = self._make(thing), self.by_id

        def gone(which: weakref.ref[Any]) -> None:
            last = by_id.get(identity)
            if last is not None and last[0] is which:
                del by_id[identity]

        try:
            by_id[identity] = weakref.ref(thing, gone), made
        except TypeError:
            if not self._most_strong:
                raise
            if len(self._strong) >= self._most_strong:
                self._strong.clear()
            # The entry keeps the object alive, so no other gets its id.
            self._strong[identity] = thing, made
        return made


def credentials_token(root: str, options: StorageOptions | None) -> str:
    """Return a token that differs wherever the store or the credentials differ, and reveals neither.

    The environment counts too, as obstore takes credentials from there, and so do the files of a profile. All
    processes derive the same token (`lasts`), unless an option is an object of this process.
    """
    if root == LOCAL_ROOT and not options:
        # There is no secret to hide, and hashing loads OpenSSL: 2 ms of a fresh process.
        return "file-" + os.uname().nodename.encode("utf-8", "surrogateescape").hex()
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    parts = [root, _canonical(options or {})]
    if root == LOCAL_ROOT:
        # The same path is another file on another machine.
        parts.append(os.uname().nodename)
    else:
        parts += sorted(
            f"{name}={value}" for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)
        )
        if root.startswith("s3://"):
            from accel.store.aws_profile import profile_identity

            parts += profile_identity(options or {})
    for part in parts:
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return ("" if _is_plain(options or {}) else "process-") + digest.hexdigest()


def lasts(token: str) -> bool:
    """Return whether a token means the same in every process."""
    return token.startswith("file-") or re.fullmatch(_LASTING, token) is not None


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, _PLAIN) or _is_time(value)


def _is_time(value: object) -> TypeGuard[timedelta]:
    from datetime import timedelta

    return isinstance(value, timedelta)


def _canonical(value: object) -> str:
    """Return a text that is equal only for values that mean the same to a store."""
    if isinstance(value, Mapping):
        inside = sorted((_canonical(key), _canonical(item)) for key, item in value.items())
        return "{" + ",".join(f"{key}:{item}" for key, item in inside) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if value is None:
        return "None"
    for kind in _PLAIN:
        if isinstance(value, kind):
            # A subclass may have a repr that hides a secret.
            return str(kind.__repr__(value))
    if _is_time(value):
        return f"<{value.days} {value.seconds} {value.microseconds}>"
    if isinstance(value, MethodType):  # a new object at each attribute access
        return f"<{known_objects.of(value.__self__)} {known_objects.of(value.__func__)}>"
    return f"<{known_objects.of(value)}>"  # a credential provider, by identity


def _new_name(_: object) -> str:
    return os.urandom(16).hex()


known_objects = ByIdentity(_new_name, most_strong=MOST_STRONG)
